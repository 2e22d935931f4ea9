"""The engine as judge: repeatable, and every way it fails ends with a line that says what to do."""

import os
import threading
import time
from pathlib import Path

import chess
import pytest

from chessrl.board import engine
from chessrl.board.engine import Engine, program, win_probability
from chessrl.config import EngineConfig, InputError

HANGING = "4k3/8/8/3q4/4P3/8/8/4K3 w - - 0 1"
"""The pawn takes a queen."""


def test_win_probability_is_that_of_lichess():
    assert win_probability(0) == 0.5
    assert win_probability(100) == pytest.approx(0.5910, abs=1e-4)  # 59.1% on lichess.org
    assert win_probability(-300) == pytest.approx(1 - win_probability(300))
    assert win_probability(10**9) == 1.0
    assert win_probability(-(10**9)) == pytest.approx(0.0)


def test_the_two_best_moves_are_judged(fake):
    with Engine(fake()) as judge:
        assert judge.name == "Fake 1"
        best, second = judge.judge(chess.Board(HANGING))
        assert best.move == chess.Move.from_uci("e4d5")
        assert (best.centipawns, best.win) == (100, win_probability(100))
        assert second.win < best.win
        mate = judge.judge(chess.Board("6k1/5ppp/8/8/8/8/8/K3R3 w - - 0 1"))[0]
        assert (mate.move.uci(), mate.win, mate.centipawns) == ("e1e8", 1.0, None)
        worse = judge.judge(chess.Board("6k1/5ppp/8/8/8/8/r7/7K w - - 0 1"))[0]
        assert worse.centipawns == -800 and worse.win == win_probability(-800)


def test_a_single_legal_move_comes_alone(fake):
    board = chess.Board("k7/8/8/8/8/8/1r6/K7 w - - 0 1")
    assert board.legal_moves.count() == 1
    with Engine(fake()) as judge:
        (line,) = judge.judge(board)
    assert line.move.uci() == "a1b2"


def test_a_position_is_worth_what_its_best_move_is(fake, tmp_path):
    with Engine(fake(), patience=2) as judge:
        assert judge.value(chess.Board(HANGING)) == win_probability(100)
        assert judge.value(chess.Board("6k1/5ppp/8/8/8/8/8/K3R3 w - - 0 1")) == 1.0
        log = (tmp_path / "log").read_text()
        assert "MultiPV value 2" not in log and log.count("go nodes") == 2
        mated = chess.Board("4R1k1/5ppp/8/8/8/8/8/K7 b - - 0 1")
        stalemate = chess.Board("7k/5Q2/6K1/8/8/8/8/8 b - - 0 1")
        bare = chess.Board("7k/8/6K1/8/8/8/8/8 b - - 0 1")
        assert [judge.value(board) for board in (mated, stalemate, bare)] == [0.0, 0.5, 0.5]
        assert (tmp_path / "log").read_text() == log  # the rules say it, no engine is asked
    with Engine(fake("mute"), patience=2) as judge, pytest.raises(InputError, match="scores"):
        judge.value(chess.Board(HANGING))


def test_each_judgement_is_a_game_of_its_own(fake, tmp_path):
    board = chess.Board()
    board.push_san("e4")
    with Engine(fake(nodes=77)) as judge:
        assert judge.judge(board) == judge.judge(board)
        assert len(board.move_stack) == 1
    log = (tmp_path / "log").read_text().splitlines()
    assert log.count("ucinewgame") == 2
    assert log.count("go nodes 77") == 2
    positions = [line for line in log if line.startswith(f"position fen {board.board_fen()} b")]
    assert len(positions) == 2
    assert not any("moves" in line for line in positions)
    assert "setoption name Threads value 1" in log
    assert "setoption name Hash value 8" in log
    assert "setoption name MultiPV value 2" in log


def test_a_missing_engine_says_how_to_get_one(tmp_path):
    for path in ("no-such-engine", str(tmp_path / "absent"), str(tmp_path)):
        with pytest.raises(InputError, match="apt install stockfish") as refused:
            Engine(EngineConfig(name="x", path=path, nodes=1))
        assert path in str(refused.value)
        assert "\n" not in str(refused.value)


def test_an_engine_is_found_in_path_and_beside_it(tmp_path, monkeypatch):
    for folder in ("bin", "games"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"of_{folder}").write_text("#!/bin/sh\n")
        (tmp_path / folder / f"of_{folder}").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(engine, "PLACES", str(tmp_path / "games"))
    assert program("of_bin") == str(tmp_path / "bin" / "of_bin")
    assert program("of_games") == str(tmp_path / "games" / "of_games")
    assert program(str(tmp_path / "bin" / "of_bin")) == str(tmp_path / "bin" / "of_bin")


@pytest.mark.parametrize("mode", ["hang_at_start", "no_engine", "not_a_program"])
def test_what_does_not_start_is_refused(mode, fake, tmp_path):
    config = fake(mode)
    if mode == "no_engine":
        Path(config.path).write_text("#!/bin/sh\nexit 1\n")
    if mode == "not_a_program":
        Path(config.path).write_bytes(b"\x7fELF")
    with pytest.raises(InputError, match=r"did not start .*: mend engine.path") as refused:
        Engine(config, patience=1)
    assert "\n" not in str(refused.value)


def test_an_option_out_of_range_is_refused(fake):
    config = fake()
    config.hash_mb = 10**6
    with pytest.raises(InputError, match=r"refused .*Hash=1000000.*mend engine.hash_mb"):
        Engine(config)


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("crash", "died"),
        ("hang", "no answer in time"),
        ("mute", "MultiPV"),
        ("one_line", "MultiPV"),
    ],
)
def test_an_engine_that_fails_is_no_skip(mode, said, fake):
    began = time.monotonic()
    with Engine(fake(mode), patience=2) as judge:
        with pytest.raises(InputError, match=said) as refused:
            judge.judge(chess.Board(HANGING))
        assert HANGING in str(refused.value)
        assert "\n" not in str(refused.value)
        again = time.monotonic()
        with pytest.raises(InputError, match=said):  # at once: it is not asked again
            judge.judge(chess.Board())
        assert time.monotonic() - again < 0.5
    assert time.monotonic() - began < 20


def test_a_pause_is_not_a_hang(fake):
    """A machine that sleeps finds all its timers run out when it wakes."""
    with Engine(fake("slow"), patience=1) as judge:
        assert judge.judge(chess.Board(HANGING))[0].move.uci() == "e4d5"


def test_a_hanging_engine_is_ended(fake, tmp_path):
    config = fake("hang")
    note = tmp_path / "pid"
    path = Path(config.path)
    noting = f"\nfrom os import getpid\nopen('{note}', 'w').write(str(getpid()))\nmain()\n"
    path.write_text(path.read_text().replace("\nmain()\n", noting))
    with Engine(config, patience=1) as judge, pytest.raises(InputError):
        judge.judge(chess.Board())
    pid = int(note.read_text())
    for _ in range(50):
        threads = [thread for thread in threading.enumerate() if "Engine" in thread.name]
        if not alive(pid) and not threads:  # a thread left over keeps Python from ending
            return
        time.sleep(0.1)
    pytest.fail("it still runs")


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_stockfish_judges_the_same_in_any_order(stockfish):
    boards = [chess.Board(), chess.Board(HANGING), chess.Board("6k1/5ppp/8/8/8/8/8/K3R3 w - - 0 1")]
    with Engine(stockfish) as judge:
        assert judge.name.startswith("Stockfish")
        first = [judge.judge(board) for board in boards]
        assert [judge.judge(board) for board in reversed(boards)] == first[::-1]
    assert first[1][0].move.uci() == "e4d5"
    assert (first[2][0].move.uci(), first[2][0].win) == ("e1e8", 1.0)
    with Engine(stockfish) as judge:
        assert [judge.judge(board) for board in boards] == first
