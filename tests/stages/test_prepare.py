"""The dataset of the first stage: nothing leaks, copies count once, every skip is counted."""

import json

import chess
import numpy as np
import pytest
from oracle import position_keys

from chessrl.board import tokens
from chessrl.board.games import read_games
from chessrl.board.puzzles import Puzzle, read_puzzles, write_puzzles
from chessrl.board.skips import SkipReport
from chessrl.board.splits import position_key
from chessrl.config import InputError
from chessrl.stages.batches import Dataset
from chessrl.stages.prepare import prepare
from chessrl.stages.runs import folder


def test_games_plus_skips_are_all_games(tiny, tmp_path, tiny_files):
    run = tiny(tmp_path, "stage=prepare", "data.filter.min_plies=60")
    prepare(run)
    manifest = folder(run, "prepare").manifest
    kept = manifest["counts"]
    assert kept["games_train"] + kept["games_validation"] == manifest["kept"]
    assert manifest["kept"] + manifest["skipped"]["too_short"] == 120
    puzzles = len(read_puzzles(tiny_files["puzzles"], SkipReport()))
    assert sum(kept[f"puzzles_{name}"] for name in ("sft", "rl", "test")) == puzzles


def test_documents_hold_every_ply_after_the_first_cut(tiny, tmp_path):
    run = tiny(
        tmp_path,
        "stage=prepare",
        "prompt=history",
        "data.puzzles=PUZZLES".replace("PUZZLES", str(tmp_path / "p.csv")),
    )
    write_puzzles(tmp_path / "p.csv", [mate_in_one()])
    prepare(run)
    out = folder(run, "prepare")
    kept = out.manifest["counts"]
    train = Dataset(out.path / "train")
    openers = sum(len(list(tokens.split_moves(list(ids[1:-1])))) for ids, _ in train)
    assert len(train) == kept["games_train"]
    assert openers == kept["plies_train"]
    assert all(ids[0] == tokens.BOS and ids[-1] == tokens.EOS for ids, _ in train)
    assert all(not targets[0] and targets[1:].all() for _, targets in train)


def mate_in_one() -> Puzzle:
    """Fool's mate, with its game."""
    board = chess.Board()
    for san in ("f3", "e5"):
        board.push_san(san)
    return Puzzle(
        id="fool", fen=board.fen(), moves=("g2g4", "d8h4"), rating=900, history=("f2f3", "e7e5")
    )


def test_no_kept_game_reaches_a_puzzle(tiny, tmp_path, tiny_files):
    """The second game of the file is made a puzzle, by a position that others do not share."""
    games = list(read_games(tiny_files["games"], SkipReport()))
    board = chess.Board()
    for uci in games[1].moves[:30]:
        board.push_uci(uci)
    last = games[1].moves[29]
    before = chess.Board()
    for uci in games[1].moves[:29]:
        before.push_uci(uci)
    puzzle = Puzzle(id="x", fen=before.fen(), moves=(last, games[1].moves[30]), rating=1000)
    write_puzzles(tmp_path / "p.csv", [puzzle, mate_in_one()])
    run = tiny(tmp_path, "stage=prepare", f"data.puzzles={tmp_path / 'p.csv'}")
    prepare(run)
    out = folder(run, "prepare")
    keys = {position_key(puzzle.board()), position_key(mate_in_one().board())}
    moves = [[chess.Move.from_uci(uci) for uci in game.moves] for game in games]
    expected = sum(bool(position_keys(game) & keys) for game in moves)
    assert expected >= 1
    assert out.manifest["skipped"]["reaches_puzzle"] == expected
    lines = [json.loads(line) for line in (out.path / "skipped.jsonl").read_text().splitlines()]
    assert {"index": 1, "reason": "reaches_puzzle"}.items() <= next(
        line for line in lines if line["reason"] == "reaches_puzzle"
    ).items()


def test_copies_of_a_game_count_once(tiny, tmp_path, tiny_files):
    twice = tmp_path / "twice.pgn"
    text = tiny_files["games"].read_text()
    twice.write_text(text + "\n" + text.replace("[Result", '[Event "again"]\n[Result'))
    run = tiny(tmp_path, "stage=prepare", f"data.paths=[{twice}]")
    prepare(run)
    manifest = folder(run, "prepare").manifest
    assert manifest["skipped"] == {"duplicate": 120}
    assert manifest["kept"] == 120


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "no usable game$"),
        ("<html>\n<p>1. e4 e5</p>\n</html>\n", "no usable game; the first: no_headers at '<html>'"),
    ],
)
def test_a_file_without_games_fails_by_name(content, said, tiny, tmp_path):
    (tmp_path / "bad.pgn").write_text(content)
    run = tiny(tmp_path, "stage=prepare", f"data.paths=[{tmp_path / 'bad.pgn'}]")
    with pytest.raises(InputError, match=said) as refused:
        prepare(run)
    assert "bad.pgn" in str(refused.value)
    assert "\n" not in str(refused.value)
    out = folder(run, "prepare")
    assert out.finished is None
    assert out.result.status == "failed"
    assert out.manifest["kept"] == 0


def test_the_first_fault_is_named_where_no_game_is_left(tiny, tmp_path):
    (tmp_path / "bad.pgn").write_text('[Result "*"]\n\n1. d4 d5 2. Qd4 *\n')
    run = tiny(tmp_path, "stage=prepare", f"data.paths=[{tmp_path / 'bad.pgn'}]")
    with pytest.raises(InputError, match=r"illegal_move at 'Qd4' in .*bad.pgn, line 3"):
        prepare(run)
    out = folder(run, "prepare")
    assert out.manifest["skipped"] == {"illegal_move": 1}
    assert json.loads((out.path / "skipped.jsonl").read_text())["token"] == "Qd4"


def test_a_broken_puzzle_row_is_skipped_with_its_place(tiny, tmp_path, tiny_files):
    lines = tiny_files["puzzles"].read_text().splitlines(keepends=True)
    lines[3] = "broken,row\n"
    (tmp_path / "p.csv").write_text("".join(lines))
    run = tiny(tmp_path, "stage=prepare", f"data.puzzles={tmp_path / 'p.csv'}")
    prepare(run)
    out = folder(run, "prepare")
    assert out.manifest["skipped_puzzles"] == {"broken_row": 1}
    assert out.manifest["skipped"] == {}
    skip = json.loads((out.path / "skipped.jsonl").read_text())
    assert (skip["file"], skip["line"]) == (str(tmp_path / "p.csv"), 4)


def test_history_needs_the_games_of_puzzles(tiny, tmp_path):
    with pytest.raises(InputError, match="no_source_game"):
        prepare(tiny(tmp_path, "stage=prepare", "prompt=history"))


def test_splits_share_nothing(tiny, tmp_path):
    run = tiny(tmp_path, "stage=prepare")
    prepare(run)
    out = folder(run, "prepare").path
    ids = [
        {puzzle.id for puzzle in read_puzzles(out / "puzzles" / f"{name}.csv", SkipReport())}
        for name in ("sft", "rl", "test")
    ]
    assert not (ids[0] & ids[1] or ids[0] & ids[2] or ids[1] & ids[2])
    rows = [
        {np.asarray(ids).tobytes() for ids, _ in Dataset(out / name)}
        for name in ("train", "validation")
    ]
    assert not rows[0] & rows[1]
