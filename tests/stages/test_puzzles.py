"""Puzzles find the games they come from among the sources, and only those games."""

import json
from dataclasses import replace

import chess
import pytest

from chessrl.board.puzzles import Puzzle, read_puzzles, validate, write_puzzles
from chessrl.board.skips import SkipReport
from chessrl.config import InputError
from chessrl.stages.prepare import prepare
from chessrl.stages.puzzles import prepare_puzzles

# The rook's trip costs White a castling right and two plies of each side.
STRAIGHT = "e4 e5 Nf3 Nc6 Bc4 Nd4 Nxe5 Qg5 Nxf7 Qxg2 Rf1 Qxe4+ Be2 Nf3#"
DETOUR = "e4 e5 Nf3 Nc6 Rg1 Nb8 Rh1 Nc6 Bc4 Nd4 Nxe5 Qg5 Nxf7 Qxg2 Rf1 Qxe4+ Be2 Nf3#"
OTHER = "d4 d5 c4 e6 Nc3 Nf6 Bg5 Nbd7 cxd5 exd5 Nxd5 Nxd5 Bxd8 Bb4+ Qd2 Bxd2+ Kxd2 Kxd8"


def uci(moves: str) -> list[str]:
    board = chess.Board()
    return [board.push_san(move).uci() for move in moves.split()]


def pgn(moves: str, site: str = "?") -> str:
    return f'[Event "?"]\n[Site "{site}"]\n[Result "*"]\n\n{moves} *\n\n'


def puzzle(name: str, moves: str, ply: int, length: int = 4, game: str | None = None) -> Puzzle:
    """The line of a game from a ply on, as a puzzle without its history."""
    played = uci(moves)
    board = chess.Board()
    for move in played[:ply]:
        board.push_uci(move)
    return Puzzle(name, board.fen(), tuple(played[ply : ply + length]), 1000, game=game)


@pytest.fixture
def prepared(configure, tmp_path):
    """Runs the puzzles' part of prepare on games and puzzles; returns puzzles by id and counts."""

    def run(games: str, puzzles: list[Puzzle]):
        (tmp_path / "games.pgn").write_text(games)
        write_puzzles(tmp_path / "puzzles.csv", puzzles)
        report = SkipReport()
        run = configure(
            "stage=prepare", "prompt=history", "data=pgn", f"data.paths=[{tmp_path}/games.pgn]",
            f"data.puzzles={tmp_path}/puzzles.csv", "data.workers=1",
            "data.selection.test_per_bin=1",
        )  # fmt: skip
        splits = prepare_puzzles(run, report)
        return {p.id: p for rows in splits.values() for p in rows}, report.counts

    return run


def test_a_puzzle_gets_the_moves_of_its_game_up_to_its_fen(prepared):
    asked = [puzzle("a", STRAIGHT, 6), puzzle("b", OTHER, 8), puzzle("c", STRAIGHT, 9)]
    found, counts = prepared(pgn(STRAIGHT) + pgn(OTHER), asked)
    assert not counts
    assert {name: len(p.history) for name, p in found.items()} == {"a": 6, "b": 8, "c": 9}
    assert all(validate(p) is None for p in found.values())


def test_the_move_number_tells_two_games_apart_that_meet(prepared):
    early, late = puzzle("early", STRAIGHT, 6), puzzle("late", DETOUR, 11)
    found, counts = prepared(pgn(STRAIGHT) + pgn(DETOUR), [early, late])
    assert len(found["early"].history) == 6
    assert found["late"].history[:11] == tuple(uci(DETOUR)[:11])
    assert not counts


def test_castling_rights_have_to_agree(prepared):
    board = chess.Board(puzzle("a", DETOUR, 10).fen)
    board.castling_rights |= chess.BB_H1
    wrong = replace(puzzle("a", DETOUR, 10), fen=board.fen())
    found, counts = prepared(pgn(DETOUR) + pgn(OTHER), [wrong, puzzle("b", OTHER, 8)])
    assert set(found) == {"b"} and counts == {"no_source_game": 1}


def test_the_game_a_puzzle_states_is_preferred_and_must_lead_there(prepared):
    here, there = "https://lichess.org/aaaaaaaa", "https://lichess.org/bbbbbbbb"
    twin = STRAIGHT.replace("e4 e5 Nf3 Nc6 Bc4", "Nf3 Nc6 e4 e5 Bc4")
    asked = [
        puzzle("own", STRAIGHT, 6, game=f"{there}/black#6"),
        puzzle("lost", OTHER, 8, game=f"{here}#8"),
        puzzle("none", OTHER, 9, game="https://lichess.org/cccccccc#9"),
    ]
    games = pgn(STRAIGHT, here) + pgn(twin, there) + pgn(OTHER)
    found, counts = prepared(games, asked)
    assert found["own"].history == tuple(uci(twin)[:6])
    assert len(found["none"].history) == 9  # its own game is not there: another that leads there
    assert set(found) == {"own", "none"} and counts == {"history_mismatch": 1}


def test_without_any_source_game_the_stage_says_so(prepared):
    with pytest.raises(InputError, match=r"no usable puzzle .*no_source_game"):
        prepared(pgn(OTHER), [puzzle("a", STRAIGHT, 6)])


def test_the_game_of_a_puzzle_is_not_trained_on(configure, tmp_path):
    (tmp_path / "games.pgn").write_text(pgn(STRAIGHT) + pgn(OTHER) + pgn(DETOUR))
    write_puzzles(tmp_path / "puzzles.csv", [puzzle("a", STRAIGHT, 6)])
    run = configure(
        "stage=prepare", "prompt=history", "data=pgn", f"data.paths=[{tmp_path}/games.pgn]",
        f"data.puzzles={tmp_path}/puzzles.csv", "data.workers=1", f"out={tmp_path}/out",
    )  # fmt: skip
    prepare(run)
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    assert manifest["kept"] == 1  # the detour comes to the same position, by other moves
    assert manifest["skipped"] == {"reaches_puzzle": 2}
    known = [
        p for f in (tmp_path / "out/puzzles").glob("*.csv") for p in read_puzzles(f, SkipReport())
    ]
    assert [len(p.history) for p in known] == [6]
