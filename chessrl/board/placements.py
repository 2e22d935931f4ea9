"""Positions as text and as arrays, without a board: for what is asked of all puzzles at once.

A position is 65 characters: the squares from a1 to h8, piece letters as in a FEN and `.` where
nothing stands, then `w` or `b`, the side to move. It tells what `position_key` tells, no more.
Only for FENs and moves that `validate` has found sound.
"""

from collections.abc import Iterable, Iterator

import chess
import numpy as np

from chessrl.board.puzzles import Puzzle

_SQUARES = {name: square for square, name in enumerate(chess.SQUARE_NAMES)}
_WIDER = [("~", "")] + [(str(n), "." * n) for n in range(1, 9)]
_CODES = bytes.maketrans(b".PNBRQKpnbrqk", bytes(range(13)))


def fen_position(fen: str) -> str:
    """Position of a FEN."""
    placement, *rest = fen.split(None, 2)
    for short, wide in _WIDER:
        placement = placement.replace(short, wide)
    return "".join(placement.split("/")[::-1]) + (rest[0] if rest else "w")


def moved(position: str, uci: str) -> str:
    """Position after a legal move."""
    squares = list(position)
    origin, target = _SQUARES[uci[:2]], _SQUARES[uci[2:4]]
    piece = squares[origin]
    if piece in "Kk" and abs(target - origin) == 2:
        corner, crossed = (7, 5) if target > origin else (0, 3)
        rank = origin - origin % 8
        squares[rank + crossed], squares[rank + corner] = squares[rank + corner], "."
    elif piece in "Pp" and (target - origin) % 8 and squares[target] == ".":
        squares[origin - origin % 8 + target % 8] = "."  # en passant
    if len(uci) == 5:
        piece = uci[4].upper() if piece == "P" else uci[4]
    squares[origin], squares[target] = ".", piece
    squares[64] = "b" if squares[64] == "w" else "w"
    return "".join(squares)


def solver_position(puzzle: Puzzle) -> str:
    """Position that the solver sees, after the opponent's first move."""
    return moved(fen_position(puzzle.fen), puzzle.moves[0])


def solver_positions_of(puzzle: Puzzle) -> Iterator[str]:
    """Positions that the solver sees along the recorded line, the first included."""
    position = fen_position(puzzle.fen)
    for number, uci in enumerate(puzzle.moves):
        position = moved(position, uci)
        if number % 2 == 0:
            yield position


def position_arrays(positions: Iterable[str]) -> tuple[np.ndarray, np.ndarray]:
    """The same as arrays.

    Returns:
        (P, 64) uint8 codes of the pieces, as in `chessrl.board.positions`, and (P,) bool, whether
        White is to move.
    """
    rows = "".join(positions).encode()
    sides = np.frombuffer(rows, np.uint8).reshape(-1, 65)[:, 64]
    codes = np.frombuffer(rows.translate(_CODES), np.uint8).reshape(-1, 65)[:, :64]
    return np.ascontiguousarray(codes), sides == ord("w")
