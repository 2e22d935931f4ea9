"""Positions and puzzles that the tests of this folder share."""

import random
import sys
from pathlib import Path

import chess
import pytest

from chessrl.board.engine import program
from chessrl.board.puzzles import Puzzle, read_puzzles
from chessrl.board.skips import SkipReport
from chessrl.config import EngineConfig, InputError

FAKE = Path(__file__).parents[1] / "engines" / "fake.py"
STARTER = Path(__file__).parents[2] / "data" / "starter"
OPENINGS = (
    chess.STARTING_FEN,
    "r3k2r/p1ppqpb1/bn2pnp1/3PN3/1p2P3/2N2Q1p/PPPBBPPP/R3K2R w KQkq - 0 1",  # castling
    "8/2p5/3p4/KP5r/1R3p1k/8/4P1P1/8 w - - 0 1",  # en passant that may uncover a check
    "n1n5/PPPk4/8/8/8/8/4Kppp/5N1N b - - 0 1",  # promotions
    "r3k2r/8/8/8/8/8/8/R3K2R b KQkq - 0 1",  # castling with check
)


@pytest.fixture(scope="session")
def positions() -> list[chess.Board]:
    """Boards of random games, the same in every run."""
    rng = random.Random(0)
    boards = []
    for game in range(30):
        board = chess.Board(OPENINGS[game % len(OPENINGS)])
        for ply in range(40):
            moves = list(board.legal_moves)
            if not moves:
                break
            if ply % 4 == 0:
                boards.append(board.copy(stack=False))
            board.push(rng.choice(moves))
    return boards


@pytest.fixture(scope="session")
def starter(tmp_path_factory) -> list[Puzzle]:
    """300 of the embedded puzzles, spread over the file."""
    header, *rows = (STARTER / "puzzles.csv").read_text().splitlines(keepends=True)
    path = tmp_path_factory.mktemp("starter") / "puzzles.csv"
    path.write_text(header + "".join(rows[:: len(rows) // 300][:300]))
    puzzles = read_puzzles(path, SkipReport())
    assert len(puzzles) == 300
    return puzzles


@pytest.fixture
def fake(tmp_path):
    """Settings of a copy of the fake engine that fails as told."""

    def made(mode: str = "sound", nodes: int = 50) -> EngineConfig:
        text = FAKE.read_text().replace('MODE = "sound"', f'MODE = "{mode}"')
        text = text.replace('LOG = ""', f'LOG = "{tmp_path / "log"}"')
        path = tmp_path / f"{mode}_engine"
        path.write_text(f"#!{sys.executable}\n{text}")
        path.chmod(0o755)
        return EngineConfig(name="fake", path=str(path), nodes=nodes, hash_mb=8)

    return made


@pytest.fixture
def stockfish() -> EngineConfig:
    """Settings of Stockfish, where it is installed."""
    try:
        program("stockfish")
    except InputError:
        pytest.skip("stockfish is not installed")
    return EngineConfig(name="stockfish", path="stockfish", nodes=20_000)
