"""From PGN text to documents: what is written comes back, by the fast way and the slow one."""

import io
import random
from collections import Counter

import chess
import chess.pgn
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import (
    GAME,
    HEAD,
    NOBODY,
    documents_of,
    hashes_of,
    ingest_twice,
    odd_texts,
    position_keys,
    san,
    unpacked,
    wild_game,
    wild_games,
)

from chessrl.board import tokens
from chessrl.board.blocks import Block
from chessrl.board.documents import Form
from chessrl.board.hashes import HashSet
from chessrl.board.ingest import Ingested
from chessrl.board.positions import board_array, position_hashes
from chessrl.board.splits import position_key
from chessrl.board.tokens import decode, read_move, split_moves

FORMS = (Form("history"), Form("board", 0), Form("board", 1), Form("board", 5), Form("board", 16))


def read(text: str | bytes, **settings) -> Ingested:
    """One text ingested, as a block."""
    return ingest_twice(
        Block("f.pgn", 0, text if isinstance(text, bytes) else text.encode()), **settings
    )


def written(games: list[list[chess.Move]], head: str = HEAD) -> str:
    return "".join(f"{head}{san(moves)}\n\n" for moves in games)


def held_out(boards: list[chess.Board]) -> HashSet:
    white = np.array([board.turn for board in boards], bool)
    return HashSet(position_hashes(np.array([board_array(board) for board in boards]), white))


def reasons(done: Ingested) -> dict[str, int]:
    return dict(Counter(skip.reason for skip in done.skips))


@settings(max_examples=40)
@given(
    texts=st.lists(
        odd_texts(4) | wild_games(50).map(lambda moves: written([moves]).encode()),
        min_size=1,
        max_size=4,
    ),
    form=st.sampled_from(FORMS),
    longest=st.sampled_from((0, 3, 20)),
    over_long=st.sampled_from(("skip", "cut")),
)
def test_both_ways_agree_on_any_text(texts, form, longest, over_long):
    read(b"".join(texts), form=form, validation=0.3, max_plies=longest, over_long=over_long)


@settings(max_examples=20)
@given(
    games=st.lists(wild_games(), min_size=1, max_size=4),
    form=st.sampled_from(FORMS),
    longest=st.sampled_from((0, 0, 7, 30)),
    validation=st.sampled_from((0.0, 0.5, 1.0)),
)
def test_documents_are_those_of_python_chess(games, form, longest, validation):
    done = read(
        written(games), form=form, validation=validation, max_plies=longest, over_long="cut"
    )
    expected = {"train": [], "validation": []}
    for moves in games:
        kept = moves[: longest or None]
        _, side, _ = hashes_of(kept)
        expected["validation" if side < validation else "train"].append((moves, len(kept)))
    assert done.skips == []
    for name, rows in expected.items():
        found = done.documents[name]
        assert unpacked(found) == [documents_of(moves, form, plies) for moves, plies in rows]
        assert found.games["key"].tolist() == [hashes_of(m[:n])[0] for m, n in rows]
        assert found.games["plies"].tolist() == [plies for _, plies in rows]
        for row, (moves, plies) in zip(found.games, rows, strict=True):
            codes = [m.from_square | m.to_square << 6 | (m.promotion or 0) << 12 for m in moves]
            assert row["opening"].tolist() == (codes[: min(plies, 4)] + [0] * 4)[:4]


@settings(max_examples=25)
@given(games=st.lists(wild_games(80), min_size=1, max_size=3), data=st.data())
def test_what_python_chess_writes_comes_back_move_for_move(games, data):
    plain = st.text(st.characters(blacklist_categories=("Cs", "Cc")), max_size=20)
    comments = plain | st.sampled_from(("(; [%clk 0:01:00]", "1-0", "two\nlines", "{ \n\n {", "e4"))
    text = io.StringIO()
    for moves in games:
        game = chess.pgn.Game()
        game.headers["White"] = data.draw(plain)
        game.comment = data.draw(comments)
        node = game
        for move in moves:
            node = node.add_main_variation(move)
            if data.draw(st.integers(0, 4)) == 0:
                node.comment = data.draw(comments)
                node.nags |= {data.draw(st.integers(0, 255))}
                node.parent.add_variation(chess.Move.null(), comment="other")
        print(game, end="\n\n", file=text)
    done = read(text.getvalue())
    assert done.skips == []
    for moves, [(ids, targets)] in zip(games, unpacked(done.documents["train"]), strict=True):
        assert (ids[0], ids[-1]) == (tokens.BOS, tokens.EOS)
        assert targets == [False] + [True] * (len(ids) - 1)
        board, found = chess.Board(), []
        for part in split_moves(ids[1:-1]):
            found.append(read_move(board, decode(part)))
            board.push(found[-1])
        assert found == moves


@settings(max_examples=15)
@given(games=st.lists(wild_games(60), min_size=2, max_size=5), data=st.data())
def test_a_game_that_reaches_a_held_out_position_is_left_out(games, data):
    longest = data.draw(st.sampled_from((0, 10)))
    boards = []
    for _ in range(data.draw(st.integers(0, 2))):
        board = chess.Board()
        for move in data.draw(st.sampled_from(games))[: data.draw(st.integers(1, 60))]:
            board.push(move)
        boards.append(board)
    done = read(
        written(games), held_out=held_out(boards) if boards else NOBODY, max_plies=longest,
        over_long="cut",
    )  # fmt: skip
    keys = {position_key(board) for board in boards}
    left_out = [
        number for number, moves in enumerate(games)
        if keys & position_keys(moves[: longest or None])
    ]  # fmt: skip
    assert [skip.index for skip in done.skips] == left_out
    assert set(reasons(done)) <= {"reaches_puzzle"}


def test_a_transposed_game_reaches_the_position_and_the_other_side_to_move_does_not():
    target = chess.Board()
    for move in ("d2d4", "d7d5", "c2c4", "e7e6"):
        target.push_uci(move)
    text = [
        "1. c4 e6 2. d4 d5 3. Nc3 *",  # moves in another order
        "1. c4 e6 2. d4 d6 *",
        "1. c4 e6 2. d3 d5 3. d4 *",  # the same placement, but White has lost a move
        "1. Nf3 Nf6 2. Ng1 Ng8 3. d4 d5 4. c4 e6 *",  # later, with other clocks
    ]
    done = read("".join(f"{HEAD}{moves}\n\n" for moves in text), held_out=held_out([target]))
    assert [(skip.index, skip.reason) for skip in done.skips] == [
        (0, "reaches_puzzle"), (3, "reaches_puzzle"),
    ]  # fmt: skip
    done = read("".join(f"{HEAD}{moves}\n\n" for moves in text), held_out=held_out([chess.Board()]))
    assert reasons(done) == {"reaches_puzzle": 4}


@pytest.mark.parametrize("plies", range(1, 7))
def test_positions_after_the_cut_do_not_count(plies):
    game = wild_game(5, 8)
    board = chess.Board()
    for move in game[:plies]:
        board.push(move)
    for longest in range(1, 8):
        done = read(written([game]), held_out=held_out([board]), max_plies=longest, over_long="cut")
        assert reasons(done) == ({"reaches_puzzle": 1} if longest >= plies else {})


def test_the_same_moves_fall_on_one_side_whatever_is_written_around_them():
    games = [wild_game(seed, 20) for seed in range(40)]
    other = '[Event "B"]\n[White "C"]\n[WhiteElo "2000"]\n[Result "1-0"]\n\n'
    text = ""
    for moves in games:
        first, rest = san(moves, "1-0").split(" ", 1)
        text += f"{HEAD}{first} {rest}\n\n{other}{{so}} {first} {{a comment}} {rest}\n\n"
    done = read(text, validation=0.5)
    assert done.skips == []
    for documents in done.documents.values():
        keys = documents.games["key"]
        assert len(keys) > 20 and len(set(keys.tolist())) == len(keys) // 2
        assert np.array_equal(keys[::2], keys[1::2])
        assert np.array_equal(documents.places[:, 0][1::2], documents.places[:, 0][::2] + 1)


def test_shares_and_first_cuts_fall_evenly():
    rng = random.Random(0)
    numbers = [hashes_of(wild_game(rng.randrange(10**9), 12)) for _ in range(400)]
    # 100 of 400 expected in each quarter, standard deviation 8.7
    for column in (1, 2):
        quarters = Counter(int(row[column] * 4) for row in numbers)
        assert all(abs(quarters[quarter] - 100) < 5 * 8.7 for quarter in range(4))
    firsts = Counter(int(row[2] * 4) for row in numbers if row[1] < 0.5)
    # the cut does not follow the split: 50 of 200 in each, standard deviation 6.1
    assert all(abs(firsts[quarter] - 50) < 5 * 6.1 for quarter in range(4))


@pytest.mark.parametrize(
    ("rules", "kept", "left_out"),
    [
        ({}, [4, 2, 6], {}),
        ({"min_plies": 3}, [4, 6], {"too_short": 1}),
        ({"max_plies": 4}, [4, 2], {"over_long": 1}),
        ({"max_plies": 4, "over_long": "cut"}, [4, 2, 4], {}),
        ({"max_plies": 3, "min_plies": 3}, [], {"over_long": 2, "too_short": 1}),
        ({"max_plies": 3, "min_plies": 3, "over_long": "cut"}, [3, 3], {"too_short": 1}),
    ],
)
def test_short_and_long_games(rules, kept, left_out):
    text = written([wild_game(1, 4), wild_game(2, 2), wild_game(3, 6)])
    done = read(text, **rules)
    assert done.documents["train"].games["plies"].tolist() == kept
    assert reasons(done) == left_out


def test_a_game_longer_than_its_row_can_tell_is_too_long():
    text = HEAD + "Nf3 Nf6 Ng1 Ng8 " * 16384 + "*\n\n" + GAME  # 65536 plies
    done = read(text, form=Form("board", 1))
    rows = done.documents["train"].games
    assert rows["plies"].tolist() == rows["documents"].tolist() == [4]
    assert reasons(done) == {"over_long": 1}


def test_a_game_that_is_cut_has_no_end_and_no_mate():
    text = HEAD + "1. f3 e5 2. g4 Qh4# 0-1\n\n"
    ((whole, _),) = unpacked(read(text).documents["train"])[0]
    assert decode(whole) == "<bos>Pf2f3Pe7e5Pg2g4Qd8h4#<eos>"
    ((short, targets),) = unpacked(
        read(text, max_plies=3, over_long="cut").documents["train"]
    )[0]  # fmt: skip
    assert decode(short) == "<bos>Pf2f3Pe7e5Pg2g4"
    assert targets == [False] + [True] * 9


def test_rows_tell_the_facts_of_their_game():
    head = (
        '[Event "x"]\n[Date "1999.??.??"]\n[WhiteElo "2650"]\n[BlackElo "?"]\n[Result "{}"]\n'
        '[TimeControl "180+2"]\n\n'
    )
    results = ("1-0", "0-1", "1/2-1/2", "*")
    text = "".join(f"{head.format(result)}1. e4 e5 {result}\n\n" for result in results)
    text += '[WhiteElo "99999"]\n[BlackElo "1200"]\n\n1. e4 1/2-1/2\n\n'
    games = read(text, form=Form("board", 1)).documents["train"].games
    assert games["result"].tolist() == [0, 1, 2, 3, 2]
    assert games["white_elo"].tolist() == [2650] * 4 + [65535]
    assert games["black_elo"].tolist() == [0] * 4 + [1200]
    assert games["year"].tolist() == [1999] * 4 + [0]
    assert games["speed"].tolist() == [2] * 4 + [6]  # blitz, unknown
    assert games["documents"].tolist() == [2] * 4 + [1]
    assert games["opening"][:, 2:].sum() == 0


def test_an_illegal_game_leaves_no_trace_in_its_neighbours():
    games = [wild_game(seed, 30) for seed in range(6)]
    parts = [written([moves]) for moves in games]
    for place in range(7):
        bad = f"{HEAD}1. e4 e5 2. Ke3 *\n\n"
        text = "".join([*parts[:place], bad, *parts[place:]])
        done = read(text, form=Form("board", 4))
        assert [(skip.index, skip.reason) for skip in done.skips] == [(place, "illegal_move")]
        assert unpacked(done.documents["train"]) == [
            documents_of(moves, Form("board", 4)) for moves in games
        ]


@pytest.mark.parametrize("text", ["", "\n\n", "1. d4 d5 *\n", HEAD, HEAD + "1. Ke3 *\n"])
def test_a_block_without_a_game_makes_no_documents(text):
    done = read(text)
    assert sum(len(documents.ids) for documents in done.documents.values()) == 0
