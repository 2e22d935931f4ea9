"""A rating for puzzles that nobody has played: a linear guess from the position and the line.

Least squares on Lichess puzzles (CC0; RatingDeviation <= 95), 24,000 of each kind, of a sample
in which each rating bin is about as large. On 6,000 others of each kind:

    kind      R2     MAE   MAE of the median   Spearman   spread of guesses, of ratings
    mateIn1   0.47   189   256                 0.69       241, 350
    mateIn2   0.53   257   391                 0.74       344, 475
    other     0.41   373   510                 0.64       375, 594

It ranks puzzles; a single guess is off by a bin or two, and guesses lie closer together than
ratings do. `experiments/difficulty/fit.py` repeats the fit and prints the table.
"""

import math
from collections.abc import Sequence

import chess

KINDS = ("mateIn1", "mateIn2", "other")
"""Each kind has coefficients of its own."""
LOWEST, HIGHEST = 400, 3000
"""Range of the ratings given."""
VALUES = {
    chess.PAWN: 1, chess.KNIGHT: 3, chess.BISHOP: 3, chess.ROOK: 5, chess.QUEEN: 9, chess.KING: 0,
}  # fmt: skip
"""Pawns that a piece is worth."""
COEFFICIENTS = {
    "constant": (75.1, 620.8, 831.7),
    "log_legal": (35.8, -42.8, 62.4),
    "log_checks": (428.4, 414.9, 184.9),
    "log_captures": (100.1, 143.3, 204.3),
    "in_check": (373.3, 386.7, 123.0),
    "balance": (-8.7, -11.9, -0.8),
    "men": (-12.7, -17.4, -3.2),
    "officers": (18.8, 43.0, 18.1),
    "check": (0.0, -118.4, -194.0),
    "double_check": (-369.5, -162.8, 84.2),
    "quiet": (0.0, 216.9, 143.1),
    "gain": (-19.3, -25.0, -35.5),
    "promotion": (-165.9, 31.9, 57.2),
    "sacrifice": (0.0, 74.6, 67.2),
    "backward": (187.8, 155.2, 102.4),
    "sideways": (89.8, 176.4, 34.8),
    "king_distance": (15.6, -26.3, -5.6),
    "log_replies": (0.0, 252.5, 45.2),
    "pawn": (369.6, 158.4, -75.8),
    "knight": (251.7, 54.1, -196.3),
    "bishop": (283.6, 111.1, -186.4),
    "rook": (84.7, 12.8, -182.6),
    "queen": (21.6, 30.8, -119.4),
    "answers_last_mover": (-113.2, -102.5, -44.1),
    "later_quiet": (0.0, 0.0, 188.5),
    "later_captures": (0.0, -249.5, -325.2),
    "solver_moves": (0.0, 0.0, 201.8),
    "mate": (0.0, 0.0, -340.0),
}
"""Rating points of a unit of each feature, by kind in the order of `KINDS`."""


def estimate(before: chess.Board, moves: Sequence[str]) -> int:
    """Guessed Lichess rating, `LOWEST` to `HIGHEST`.

    Args:
        before: position before the opponent's move `moves[0]`.
        moves: UCI, in the convention of Lichess.
    """
    kind, values = describe(before, moves)
    column = KINDS.index(kind)
    guess = sum(COEFFICIENTS[name][column] * value for name, value in values.items())
    return round(min(max(guess, LOWEST), HIGHEST))


def describe(before: chess.Board, moves: Sequence[str]) -> tuple[str, dict[str, float]]:
    """Kind of a puzzle, one of `KINDS`, and its features by name."""
    board = before.copy(stack=False)
    opponent, first = (chess.Move.from_uci(uci) for uci in moves[:2])
    board.push(opponent)
    values = _position(board) | _first_move(board, first)
    values["answers_last_mover"] = float(opponent.to_square == first.to_square)
    board.push(first)
    values |= _later(board, [chess.Move.from_uci(uci) for uci in moves[2:]])
    solver_moves = len(moves) // 2
    values["solver_moves"] = float(solver_moves)
    values["mate"] = float(board.is_checkmate())
    kind = f"mateIn{solver_moves}" if values["mate"] else "other"
    return kind if kind in KINDS else "other", values


def _position(board: chess.Board) -> dict[str, float]:
    """What there is to choose from; logarithms are natural, of one more than the number."""
    legal = list(board.legal_moves)
    pieces = board.piece_map().values()
    return {
        "constant": 1.0,
        "log_legal": math.log1p(len(legal)),
        "log_checks": math.log1p(sum(map(board.gives_check, legal))),
        "log_captures": math.log1p(sum(map(board.is_capture, legal))),
        "in_check": float(board.is_check()),
        "balance": float(_clipped(sum(
            VALUES[piece.piece_type] * (1 if piece.color == board.turn else -1)
            for piece in pieces
        ))),
        "men": float(len(pieces)),
        "officers": float(sum(piece.piece_type != chess.PAWN for piece in pieces)),
    }  # fmt: skip


def _clipped(balance: int) -> int:
    return max(-10, min(10, balance))


def _first_move(board: chess.Board, move: chess.Move) -> dict[str, float]:
    """The first move to find; `board` is the position before it, left as it was."""
    kind = board.piece_type_at(move.from_square)
    captures = board.is_capture(move)
    victim = board.piece_type_at(move.to_square) or chess.PAWN
    gain = VALUES[victim] if captures else 0
    forward = chess.square_rank(move.to_square) - chess.square_rank(move.from_square)
    forward *= 1 if board.turn == chess.WHITE else -1
    board.push(move)
    checks = board.is_check()
    values = {
        "check": float(checks),
        "double_check": float(chess.popcount(board.checkers_mask()) > 1),
        "quiet": float(not checks and not captures and not move.promotion),
        "gain": float(gain),
        "promotion": float(move.promotion is not None),
        "sacrifice": float(_hangs(board, move.to_square, gain)),
        "backward": float(forward < 0),
        "sideways": float(forward == 0),
        "king_distance": float(chess.square_distance(move.to_square, board.king(board.turn))),
        "log_replies": math.log1p(board.legal_moves.count()),
    }
    board.pop()
    for name, piece in zip(chess.PIECE_NAMES[1:6], chess.PIECE_TYPES[:5], strict=True):
        values[name] = float(kind == piece)
    return values


def _hangs(board: chess.Board, square: chess.Square, gain: int) -> bool:
    """Whether the piece that has just moved can be taken at a loss for its side.

    It can be taken, is worth more than it took, and is either undefended or worth more than the
    least of its takers.
    """
    worth = VALUES[board.piece_type_at(square)]
    takers = list(board.generate_legal_moves(to_mask=chess.BB_SQUARES[square]))
    if not takers or worth <= gain:
        return False
    least = min(VALUES[board.piece_type_at(taker.from_square)] or 99 for taker in takers)
    return least < worth or not board.attackers(not board.turn, square)


def _later(board: chess.Board, moves: list[chess.Move]) -> dict[str, float]:
    """Shares of the solver's later moves, 0 where there are none; plays them on `board`."""
    quiet = captures = 0
    for number, move in enumerate(moves):
        if number % 2:
            takes = board.is_capture(move)
            captures += takes
            quiet += not takes and not board.gives_check(move)
        board.push(move)
    later = max(len(moves) // 2, 1)
    return {"later_quiet": quiet / later, "later_captures": captures / later}
