"""Tokens of many games at once, by arrays; `tokens.py` says the same of one move and one board."""

import chess
import numpy as np

from chessrl.board import tokens
from chessrl.board.positions import (
    BISHOP,
    KINDS,
    KING,
    KNIGHT,
    PAWN,
    QUEEN,
    ROOK,
    Lines,
    ep_captured,
    to_board,
)

NONE = 255
"""Stands where a row has no token; taken out before anything is written."""

_LETTER = np.array([NONE] + 2 * [tokens.ID[kind] for kind in KINDS], np.uint8)
_PIECE = np.array([NONE] + [tokens.ID[k] for k in KINDS + KINDS.lower()], np.uint8)
_SQUARE = np.array([tokens.ID[chess.square_name(square)] for square in range(64)], np.uint8)
_RIGHTS = np.array([tokens.ID[letter] for letter in "KQkq"], np.uint8)
_PROMOTION = np.array([NONE, NONE] + [tokens.ID[kind] for kind in "NBRQ"], np.uint8)

_STEPS = ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (1, -1), (-1, 1), (-1, -1))
_SLIDES = np.zeros((8, 13), bool)  # a piece of this code runs in this direction
_SLIDES[:4, [ROOK + 1, QUEEN + 1, ROOK + 7, QUEEN + 7]] = True
_SLIDES[4:, [BISHOP + 1, QUEEN + 1, BISHOP + 7, QUEEN + 7]] = True
_DIRECTION = np.full((64, 64), -1, np.int8)  # from the first square to the second
_RAY = np.full((64, 8, 8), 64, np.uint8)  # squares one by one, 64 beyond the edge
for _square in range(64):
    for _way, (_file, _rank) in enumerate(_STEPS):
        for _far in range(1, 8):
            _f, _r = _square % 8 + _far * _file, _square // 8 + _far * _rank
            if 0 <= _f < 8 and 0 <= _r < 8:
                _DIRECTION[_square, _r * 8 + _f] = _way
                _RAY[_square, _way, _far - 1] = _r * 8 + _f
_JUMPS = np.zeros((13, 64, 64), bool)  # pawns and knights of this code, from here, attack there
for _square in range(64):
    for _there in chess.SquareSet(chess.BB_KNIGHT_ATTACKS[_square]):
        _JUMPS[[KNIGHT + 1, KNIGHT + 7], _square, _there] = True
    for _color, _code in ((chess.WHITE, PAWN + 1), (chess.BLACK, PAWN + 7)):
        for _there in chess.SquareSet(chess.BB_PAWN_ATTACKS[_color][_square]):
            _JUMPS[_code, _square, _there] = True


def checks(lines: Lines) -> np.ndarray:
    """(M,) bool: the move gives check (mate is check too)."""
    before, white = lines.before, lines.white_moves
    king = _enemy_kings(lines, before, white)
    placed = lines.boards[before + 1, lines.target]
    found = _JUMPS[placed, lines.target, king]
    rook = np.where(lines.target > lines.origin, lines.target - 1, lines.target + 1)
    runner = np.where(lines.castles, rook, lines.target).astype(np.uint8)
    behind = np.flatnonzero(lines.en_passant)
    sources = [  # what may stand at the other end of a line to the king
        (np.arange(len(king)), runner),
        (np.arange(len(king)), lines.origin),
        (behind, ep_captured(lines.origin[behind], lines.target[behind])),
    ]
    for turn, (move, square) in enumerate(sources):
        way = _DIRECTION[king[move], square]
        here = way >= 0
        if turn == 0:  # only the piece that moved, if it runs that way
            here &= _SLIDES[way, lines.boards[before[move] + 1, square]]
        move, way = move[here], way[here]
        found[move[_hits(lines.boards, before[move] + 1, king[move], way, white[move])]] = True
    return found


def _hits(
    boards: np.ndarray, position: np.ndarray, king: np.ndarray, way: np.ndarray, white: np.ndarray
) -> np.ndarray:
    """Places in the arguments where the first piece on the way from the king attacks along it."""
    found = []
    place = np.arange(len(king))
    for far in range(8):
        square = _RAY[king[place], way[place], far]
        place, square = place[square < 64], square[square < 64]
        piece = boards[position[place], square]
        met = place[piece > 0]
        piece = piece[piece > 0]
        found.append(met[_SLIDES[way[met], piece] & ((piece <= 6) == white[met])])
        place = place[boards[position[place], square] == 0]
        if not len(place):
            break
    return np.concatenate(found)


def _enemy_kings(lines: Lines, before: np.ndarray, white: np.ndarray) -> np.ndarray:
    """(M,) square of the king of the side that does not move; from the last move it made."""
    first = lines.first_position
    squares = []
    for code, home in ((KING + 1, 4), (KING + 7, 60)):
        steps = np.flatnonzero(lines.moved == code)
        place = np.zeros(len(lines.boards), np.int32)
        place[first] = first
        place[before[steps] + 1] = before[steps] + 1
        square = np.zeros(len(lines.boards), np.uint8)
        square[first] = home
        square[before[steps] + 1] = lines.target[steps]
        squares.append(square[np.maximum.accumulate(place)[before]])
    return np.where(white, squares[1], squares[0])


def move_tokens(lines: Lines) -> tuple[np.ndarray, np.ndarray]:
    """All moves as `tokens.encode_move` writes them.

    Returns:
        uint8 tokens of all moves in a row, and (M + 1,) where each move's begin, and the end.
    """
    captures, castles = (lines.captured > 0) | lines.en_passant, lines.castles
    mates = np.zeros(len(captures), bool)
    mates[lines.offsets[1:][lines.mate & (lines.lengths > 0)] - 1] = True
    row = np.full((len(captures), 7), NONE, np.uint8)
    row[:, 0] = _LETTER[lines.moved]
    row[:, 1] = _SQUARE[lines.origin]
    row[captures, 2] = tokens.ID["x"]
    row[:, 3] = _SQUARE[lines.target]
    row[lines.promotion > 0, 4] = tokens.ID["="]
    row[:, 5] = _PROMOTION[lines.promotion]
    row[castles, 1:6] = NONE
    short = lines.target[castles] > lines.origin[castles]
    row[castles, 0] = np.where(short, tokens.ID["O-O"], tokens.ID["O-O-O"])
    row[checks(lines), 6] = tokens.ID["+"]
    row[mates, 6] = tokens.ID["#"]
    return _flat(row)


def board_tokens(
    lines: Lines, positions: np.ndarray, white: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Positions as `tokens.encode_board` writes them, `<bos>` before each.

    Args:
        lines: the games.
        positions: (N,) places among the positions.
        white: (N,) bool, White is to move there.

    Returns:
        uint8 tokens of all in a row, and (N + 1,) where each one's begin, and the end.
    """
    boards, rights = lines.boards[positions], lines.castling[positions]
    row = np.full((len(positions), 137), NONE, np.uint8)
    row[:, 0], row[:, 1] = tokens.BOS, tokens.BOARD
    row[:, 2:130:2] = _PIECE[boards]
    row[:, 3:131:2] = np.where(boards > 0, _SQUARE, NONE)
    row[:, 130:134] = np.where(rights, _RIGHTS, NONE)
    files = lines.ep_file[positions]
    for n in _perhaps_en_passant(boards, files, white):
        if to_board(boards[n], white[n], rights[n], files[n]).has_legal_en_passant():
            row[n, 134] = tokens.ID["x"]
            row[n, 135] = _SQUARE[(40 if white[n] else 16) + files[n]]
    row[:, 136] = np.where(white, tokens.SIDE[chess.WHITE], tokens.SIDE[chess.BLACK])
    return _flat(row)


def _perhaps_en_passant(boards: np.ndarray, files: np.ndarray, white: np.ndarray) -> np.ndarray:
    """Rows in which a pawn of the side to move stands beside the one that moved two squares."""
    rows = np.flatnonzero(files >= 0)
    square = np.where(white[rows], 32, 24) + files[rows]
    pawn = np.where(white[rows], PAWN + 1, PAWN + 7)
    left = (files[rows] > 0) & (boards[rows, square - 1] == pawn)
    right = (files[rows] < 7) & (boards[rows, np.minimum(square + 1, 63)] == pawn)
    return rows[left | right]


def _flat(row: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    there = row != NONE
    return row[there], np.concatenate([[0], np.cumsum(there.sum(1))])
