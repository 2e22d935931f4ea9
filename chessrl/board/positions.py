"""Games as arrays: every position of many games at once, without a chess library.

The moves are known to be legal here; python-chess or a compiled reader has seen to that.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import chess
import numpy as np

KINDS = "PNBRQK"
"""Codes of a board array: 0 empty, 1 to 6 White's in this order, 7 to 12 Black's; a1 is 0."""
PAWN, KNIGHT, BISHOP, ROOK, QUEEN, KING = range(6)

_HOME = {0: 1, 7: 0, 56: 3, 63: 2, 4: (0, 1), 60: (2, 3)}  # squares and the rights they guard
_ROOK = {6: (7, 5), 2: (0, 3), 62: (63, 61), 58: (56, 59)}  # king's square: rook from, to


def board_array(board: chess.Board) -> np.ndarray:
    """(64,) codes of the pieces of a board."""
    codes = np.zeros(64, np.uint8)
    for square, piece in board.piece_map().items():
        codes[square] = piece.piece_type + (0 if piece.color else 6)
    return codes


START = board_array(chess.Board())
START.flags.writeable = False


@dataclass
class Lines:
    """Games from the usual start, one after the other: G games, M moves, M + G positions.

    Move m of game g is made in position m + g and leads to position m + g + 1.
    """

    offsets: np.ndarray
    """(G + 1,) int64: the first move of each game, and the end."""
    origin: np.ndarray
    """(M,) uint8 squares moved from."""
    target: np.ndarray
    """(M,) uint8 squares moved to; castling is the king's move of two squares."""
    promotion: np.ndarray
    """(M,) uint8: 0 for none, 2 to 5 for knight to queen."""
    boards: np.ndarray
    """(M + G, 64) codes of the pieces."""
    castling: np.ndarray
    """(M + G, 4) bool: rights K, Q, k, q."""
    ep_file: np.ndarray
    """(M + G,) int8: file of a pawn that has just moved two squares, else -1."""
    mate: np.ndarray
    """(G,) bool: the last position is mate."""

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> np.ndarray:
        """(G,) plies of each game."""
        return np.diff(self.offsets)

    @property
    def first_position(self) -> np.ndarray:
        """(G,) place of each game's usual start among the positions."""
        return self.offsets[:-1] + np.arange(len(self))

    @cached_property
    def before(self) -> np.ndarray:
        """(M,) position in which each move is made."""
        return np.arange(len(self.origin)) + np.repeat(np.arange(len(self)), self.lengths)

    @cached_property
    def moved(self) -> np.ndarray:
        """(M,) code of the piece that each move moves."""
        return self.boards[self.before, self.origin]

    @cached_property
    def captured(self) -> np.ndarray:
        """(M,) code of the piece on the target of each move; 0 en passant."""
        return self.boards[self.before, self.target]

    @cached_property
    def castles(self) -> np.ndarray:
        """(M,) bool: the move castles."""
        step = self.target.astype(np.int16) - self.origin
        return ((self.moved - 1) % 6 == KING) & (np.abs(step) == 2)

    @cached_property
    def en_passant(self) -> np.ndarray:
        """(M,) bool: the move captures en passant."""
        sideways = (self.target - self.origin) % 8 != 0
        return ((self.moved - 1) % 6 == PAWN) & sideways & (self.captured == 0)

    @property
    def white_moves(self) -> np.ndarray:
        """(M,) bool: the move is White's."""
        ply = np.arange(len(self.origin)) - np.repeat(self.offsets[:-1], self.lengths)
        return ply % 2 == 0

    @property
    def codes(self) -> np.ndarray:
        """(M,) uint16 name of each move: from | to << 6 | promotion << 12; never 0."""
        codes = self.origin.astype(np.uint16)
        codes |= self.target.astype(np.uint16) << 6
        codes |= self.promotion.astype(np.uint16) << 12
        return codes

    @staticmethod
    def joined(parts: Sequence["Lines"]) -> "Lines":
        """The games of several, in their order."""
        if len(parts) == 1:
            return parts[0]
        starts = np.cumsum([0] + [len(part.origin) for part in parts])
        offsets = [part.offsets[:-1] + start for part, start in zip(parts, starts, strict=False)]
        names = ("origin", "target", "promotion", "boards", "castling", "ep_file", "mate")
        arrays = {name: np.concatenate([getattr(p, name) for p in parts]) for name in names}
        return Lines(offsets=np.concatenate([*offsets, starts[-1:]]), **arrays)


def replay(games: Iterable[Sequence[str]]) -> Lines:
    """Arrays of games given as legal moves in UCI; the slow twin of the compiled reader."""
    offsets, moves, boards, castling, ep_files, mates = [0], [], [], [], [], []
    for game in games:
        board, rights, ep_file = bytearray(START.tobytes()), [True] * 4, -1
        boards.append(bytes(board))
        castling.append(list(rights))
        ep_files.append(ep_file)
        for uci in game:
            origin = chess.parse_square(uci[:2])
            target = chess.parse_square(uci[2:4])
            promotion = chess.PIECE_SYMBOLS.index(uci[4]) if len(uci) == 5 else 0
            ep_file = _apply(board, rights, origin, target, promotion)
            moves.append((origin, target, promotion))
            boards.append(bytes(board))
            castling.append(list(rights))
            ep_files.append(ep_file)
        offsets.append(len(moves))
        mates.append(to_board(np.frombuffer(board, np.uint8), len(game) % 2 == 0, rights, ep_file))
    columns = np.array(moves, np.uint8).reshape(-1, 3).T
    return Lines(
        offsets=np.array(offsets, np.int64),
        origin=columns[0],
        target=columns[1],
        promotion=columns[2],
        boards=np.frombuffer(b"".join(boards), np.uint8).reshape(-1, 64),
        castling=np.array(castling, bool).reshape(-1, 4),
        ep_file=np.array(ep_files, np.int8),
        mate=np.array([board.is_checkmate() for board in mates], bool),
    )


def _apply(board: bytearray, rights: list[bool], origin: int, target: int, promotion: int) -> int:
    """Make a legal move in place; returns the file of a double step, else -1."""
    piece, captured = board[origin], board[target]
    kind, black = (piece - 1) % 6, piece > 6
    board[origin] = 0
    board[target] = promotion + 6 * black if promotion else piece
    for square in (origin, target):
        if square in _HOME:
            for right in np.atleast_1d(_HOME[square]):
                rights[right] = False
    if kind == KING and abs(target - origin) == 2:
        rook_from, rook_to = _ROOK[target]
        board[rook_to], board[rook_from] = board[rook_from], 0
    if kind == PAWN and (target - origin) % 8 and not captured:
        board[target + (8 if black else -8)] = 0
    return target % 8 if kind == PAWN and abs(target - origin) == 16 else -1


def to_board(
    codes: np.ndarray, white: bool, rights: Sequence[bool], ep_file: int = -1
) -> chess.Board:
    """A python-chess board of one position.

    Args:
        codes: (64,) pieces.
        white: White is to move.
        rights: K, Q, k, q.
        ep_file: file of the pawn that has just moved two squares, -1 for none.
    """
    board = chess.Board(None)
    for square in np.flatnonzero(codes):
        kind, black = divmod(int(codes[square]) - 1, 6)[::-1]
        board.set_piece_at(int(square), chess.Piece(kind + 1, not black))
    board.turn = bool(white)
    rooks = (chess.BB_H1, chess.BB_A1, chess.BB_H8, chess.BB_A8)
    board.castling_rights = sum(rook for rook, held in zip(rooks, rights, strict=True) if held)
    if ep_file >= 0:
        board.ep_square = chess.square(int(ep_file), 5 if white else 2)
    return board


_rng = np.random.Generator(np.random.PCG64(20261130))
_ZOBRIST = _rng.integers(0, 2**64, (13, 64), np.uint64)
_ZOBRIST[0] = 0
_BLACK_TO_MOVE = _rng.integers(0, 2**64, dtype=np.uint64)


def position_hashes(boards: np.ndarray, white: np.ndarray) -> np.ndarray:
    """(P,) uint64 hash of placement and side to move, by Zobrist's scheme, nothing else.

    Args:
        boards: (P, 64) codes.
        white: (P,) bool, White is to move.
    """
    hashes = np.bitwise_xor.reduce(_ZOBRIST[boards, np.arange(64)], axis=1)
    return np.where(white, hashes, hashes ^ _BLACK_TO_MOVE)


def line_hashes(lines: Lines) -> np.ndarray:
    """(M + G,) `position_hashes` of all positions, by what each move changes."""
    before = lines.before
    placed = lines.boards[before + 1, lines.target]
    change = _ZOBRIST[lines.moved, lines.origin] ^ _ZOBRIST[placed, lines.target]
    change ^= _ZOBRIST[lines.captured, lines.target] ^ _BLACK_TO_MOVE
    for m in np.flatnonzero(lines.castles):
        rook_from, rook_to = _ROOK[int(lines.target[m])]
        rook = lines.boards[before[m], rook_from]
        change[m] ^= _ZOBRIST[rook, rook_from] ^ _ZOBRIST[rook, rook_to]
    passing = np.flatnonzero(lines.en_passant)
    taken = ep_captured(lines.origin[passing], lines.target[passing])
    change[passing] ^= _ZOBRIST[lines.boards[before[passing], taken], taken]
    hashes = np.zeros(len(lines.boards), np.uint64)
    hashes[before + 1] = change
    start = position_hashes(START[None], np.array([True]))[0]
    first = lines.first_position
    ends = np.bitwise_xor.accumulate(hashes)  # still without the start of each game
    hashes = ends ^ np.repeat(ends[first] ^ start, lines.lengths + 1)
    return hashes


def ep_captured(origin: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Squares of the pawns taken en passant: the rank moved from, the file moved to."""
    return origin // 8 * 8 + target % 8
