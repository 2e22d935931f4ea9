"""Positions and puzzles that the tests of this folder share."""

import random
from pathlib import Path

import chess
import pytest

from chessrl.board.puzzles import Puzzle, read_puzzles
from chessrl.board.skips import SkipReport

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
