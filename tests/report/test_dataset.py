"""The statistics of a dataset, against numbers counted by hand or by python-chess."""

import io
import json
from collections import Counter

import chess
import chess.pgn
import numpy as np
import pytest

from chessrl.board import tokens
from chessrl.board.puzzles import Puzzle, write_puzzles
from chessrl.config import InputError
from chessrl.report import contents
from chessrl.report.contents import opening
from chessrl.report.counting import by_count, classes, count, spread
from chessrl.report.dataset import measure, numbers
from chessrl.report.describe import tables
from chessrl.report.figures import figure
from chessrl.stages.batches import Dataset

NAMES = {"K": "king", "Q": "queen", "R": "rook", "B": "bishop", "N": "knight", "P": "pawn"}


def test_spread_and_classes_by_hand():
    counts = count(np.array([3, 3, 4, 10, 10, 10], np.uint8))
    assert counts == {3: 2, 4: 1, 10: 3}
    facts = spread(counts)
    assert (facts["count"], facts["least"], facts["most"]) == (6, 3, 10)
    assert facts["mean"] == pytest.approx(40 / 6)
    assert (facts["5%"], facts["25%"], facts["median"], facts["75%"]) == (3, 3, 4, 10)
    assert spread(Counter()) == {"count": 0}
    hundred = spread(Counter(range(1, 101)))
    assert [hundred[name] for name in ("5%", "25%", "median", "75%", "95%")] == [5, 25, 50, 75, 95]
    assert classes(Counter({-5: 1, 0: 2, 99: 3, 100: 4}), 100) == {-100: 1, 0: 5, 100: 4}
    assert by_count(Counter(b=2, a=2, c=3)) == [("c", 3), ("a", 2), ("b", 2)]


def test_games_by_hand(dataset, write_tables):
    write_tables(dataset)
    statistics = measure(dataset)
    found = numbers(statistics)["games"]
    assert [found[name]["games"] for name in ("train", "validation", "all")] == [4, 2, 6]
    assert [found[name]["plies"] for name in ("train", "validation", "all")] == [191, 141, 332]
    assert statistics.counted("games", "train") == 4
    assert statistics.counted("plies", "validation") == 141
    games = found["all"]
    assert games["plies_per_game"]["median"] == 41
    assert games["plies_per_game"]["counts"] == {10: 1, 40: 1, 41: 1, 61: 1, 80: 1, 100: 1}
    assert games["mean_elo"]["counts"] == {1400: 1, 1500: 2, 2000: 1}
    assert games["mean_elo"]["unknown"] == 2
    assert games["mean_elo"]["least"] == 1495
    assert games["mean_elo"]["most"] == 2050
    assert games["years"] == {"unknown": 1, 2013: 2, 2015: 3}
    assert games["results"] == {"1-0": 3, "0-1": 1, "1/2-1/2": 1, "*": 1}
    assert games["speeds"] == {"blitz": 3, "bullet": 1, "unknown": 1, "rapid": 1}
    assert games["distinct_openings"] == 4
    assert games["openings"][0] == {"moves": "1.e4 c5 2.Nf3 d6", "games": 3}
    assert {"moves": "1.e4", "games": 1} in games["openings"]


def test_an_opening_with_castling_and_promotion_is_read_from_its_code():
    """Promotions and castling cannot come in four plies; the code has room for both."""
    assert opening(0) == ""
    moves = [chess.Move.from_uci(uci) for uci in ("d2d4", "d7d5", "c2c4", "d5c4")]
    code = sum((m.from_square | m.to_square << 6) << 16 * i for i, m in enumerate(moves))
    assert opening(code) == "1.d4 d5 2.c4 dxc4"
    promotion = (chess.A2 | chess.A3 << 6 | 5 << 12) << 16 | code & 0xFFFF
    with pytest.raises(InputError, match=r"table of games is damaged.*prepare it again"):
        opening(promotion)


def test_moves_of_the_history_form_are_those_that_python_chess_counts(prepared, tiny_files):
    """All moves of all kept games, read and played anew."""
    solver = set()
    for name in ("sft", "rl", "test"):
        for puzzle in contents_of(prepared["history"] / "puzzles" / f"{name}.csv"):
            solver.add(puzzle)
    want: Counter[str] = Counter()
    seen = set()
    text = io.StringIO(tiny_files["games"].read_text())
    while (game := chess.pgn.read_game(text)) is not None:
        moves = tuple(game.mainline_moves())
        board, places = chess.Board(), [place(chess.Board())]
        for move in moves:
            board.push(move)
            places.append(place(board))
        if len(moves) < 10 or moves in seen or solver & set(places):
            continue
        seen.add(moves)
        board = chess.Board()
        for move in moves:
            want += kinds(board, move)
            board.push(move)
        want["games"] += 1
    statistics = measure(prepared["history"])
    documents = statistics.all_documents
    assert documents.total == want["games"] > 100
    assert {NAMES.get(k, k): n for k, n in documents.pieces.items()} == {
        name: want[name] for name in (*NAMES.values(), "castling")
    }
    assert documents.signs == {
        name: want[name] for name in ("captures", "checks", "mates", "promotions")
    }
    plain = numbers(statistics)["documents"]["all"]
    assert plain["moves"] == want["moves"]
    assert plain["per_move"]["checks"] == want["checks"] / want["moves"] > 0.01


def contents_of(path):
    """Solver positions of a puzzle file, read without our reader."""
    lines = path.read_text().splitlines()
    for line in lines[1:]:
        cells = line.split(",")
        board = chess.Board(cells[1])
        board.push_uci(cells[2].split()[0])
        yield place(board)


def place(board):
    return board.board_fen(), board.turn


def kinds(board, move):
    """What python-chess says of a move before it is played."""
    castling = board.is_castling(move)
    piece = chess.piece_symbol(board.piece_type_at(move.from_square)).upper()
    after = board.copy(stack=False)
    after.push(move)
    return Counter(
        {
            "moves": 1,
            "castling" if castling else NAMES[piece]: 1,
            "captures": int(board.is_capture(move)),
            "checks": int(board.gives_check(move) and not after.is_checkmate()),
            "mates": int(after.is_checkmate()),
            "promotions": int(move.promotion is not None),
        }
    )


def test_documents_of_the_board_form_replayed_one_by_one(prepared):
    """Lengths, tokens and moves, by the reader of training and a replay from each board."""
    statistics = measure(prepared["board"])
    for split in ("train", "validation"):
        documents, read = statistics.documents[split], Dataset(prepared["board"] / split)
        assert documents.lengths == Counter(read.lengths.tolist())
        ids = np.concatenate([ids for ids, _ in read])
        targets = np.concatenate([targets for _, targets in read])
        assert documents.tokens == Counter(ids.tolist())
        assert documents.targets == Counter(ids[targets].tolist())
        want: Counter[str] = Counter()
        for ids, targets in read:
            start = int(targets.argmax())
            board = tokens.decode_board(ids[1:start].tolist())
            for written in tokens.split_moves([i for i in ids[start:].tolist() if i != tokens.EOS]):
                move = tokens.read_move(board, tokens.decode(written))
                want += kinds(board, move)
                board.push(move)
        got = {NAMES.get(name, name): times for name, times in documents.pieces.items()}
        assert Counter(got | documents.signs) == want - Counter(moves=want["moves"])
    plain = numbers(statistics)["documents"]["all"]
    assert list(plain["token_counts"]) == list(tokens.TOKENS)
    assert plain["token_counts"]["<bos>"] == plain["documents"]
    counts = statistics.manifest["counts"]
    assert plain["tokens"] == counts["tokens_train"] + counts["tokens_validation"]
    assert plain["target_share"] == plain["targets"] / plain["tokens"]


@pytest.mark.parametrize("chunk", [1, 2, 5, 1 << 22])
def test_moves_by_hand_however_the_shards_are_cut(tmp_path, monkeypatch, write_shard, chunk):
    """A trace folder: only thought, answer and stop tokens count as moves to be predicted."""
    monkeypatch.setattr(contents, "CHUNK", chunk)
    write_shard(
        tmp_path / "train",
        [
            "<bos> <board> K a1 P b7 k h8 <white> | <T> P b7 b8 = Q + <sep> K a1 a2 </T> "
            "P b7 b8 = N <call_env>",
            "<bos> <board> K e1 R h1 k e8 K <white> | <T> O-O </T> O-O <call_env>",
        ],
    )
    write_shard(tmp_path / "train", ["<bos> P e2 e4 | Q d8 x h4 # <call_env>"], "00001")
    statistics = measure(tmp_path)
    documents = statistics.documents["train"]
    assert documents.lengths == {9 + 18: 1, 10 + 5: 1, 4 + 6: 1}
    assert documents.pieces == {"K": 1, "Q": 1, "R": 0, "B": 0, "N": 0, "P": 2, "castling": 2}
    assert documents.signs == {"captures": 1, "checks": 1, "mates": 1, "promotions": 2}
    plain = numbers(statistics)["documents"]["train"]
    assert (plain["tokens"], plain["targets"], plain["moves"]) == (52, 29, 6)
    assert plain["per_move"]["promotions"] == pytest.approx(2 / 6)
    assert plain["target_counts"]["Q"] == 2
    assert plain["token_counts"]["K"] == 4
    assert len(figure(statistics).axes) == 4
    assert not statistics.games and not statistics.puzzles
    assert [table.title for table in tables(statistics)] == [
        "Splits", "Spreads", "Moves to be predicted: 6", "Squares, % of all tokens", "Other tokens",
    ]  # fmt: skip


def test_puzzles_by_hand(dataset):
    def puzzle(name, rating, plies, themes="", popularity=None):
        moves = ("g2g4", "d8h4", "a2a3", "h7h6", "h2h3")[:plies]
        return Puzzle(name, chess.STARTING_FEN, moves, rating, tuple(themes.split()), popularity)

    sft = [
        puzzle("a", 800, 2, "mate short", 95),
        puzzle("b", 801, 3, "mate mate", -7),
        puzzle("NA", 2401, 4, "fork"),
    ]
    write_puzzles(dataset / "puzzles" / "sft.csv", sft)
    write_puzzles(dataset / "puzzles" / "rl.csv", [])
    write_puzzles(dataset / "puzzles" / "test.csv", [puzzle("c", 1600, 2, "", 100)])
    found = numbers(statistics := measure(dataset))["puzzles"]
    assert [found[name]["puzzles"] for name in ("sft", "rl", "test", "all")] == [3, 0, 1, 4]
    assert found["sft"]["bins"] == {"B0": 1, "B1": 1, "B2": 0, "B3": 0, "B4": 0, "B5": 1}
    assert found["test"]["bins"]["B2"] == 1
    assert found["sft"]["solver_moves"]["counts"] == {1: 2, 2: 1}
    assert found["sft"]["themes"] == {"mate": 2, "fork": 1, "short": 1}
    assert found["all"]["popularity"]["counts"] == {-10: 1, 90: 1, 100: 1}
    assert found["all"]["popularity"]["unknown"] == 1
    assert found["rl"]["rating"] == {"count": 0, "class_width": 100, "counts": {}}
    rows = {table.title: table.rows for table in tables(statistics)}
    assert rows["Puzzles by rating"][0] == ["B0", "1", "0", "0", "25.0%"]
    assert rows["Themes of puzzles"][0] == ["mate", "2", "0", "0", "50.0%"]


def test_skips_are_those_of_the_manifest(dataset):
    manifest = json.loads((dataset / "manifest.json").read_text())
    manifest["skipped"] = {"too_short": 2, "duplicate": 7}
    manifest["skipped_puzzles"] = {"bad_fen": 1}
    (dataset / "manifest.json").write_text(json.dumps(manifest))
    statistics = measure(dataset)
    rows = {table.title: table.rows for table in tables(statistics)}["Left out"]
    assert rows == [
        ["duplicate", "games", "7"],
        ["too_short", "games", "2"],
        ["bad_fen", "puzzles", "1"],
    ]
    assert numbers(statistics)["skipped"]["games"] == {"duplicate": 7, "too_short": 2}
