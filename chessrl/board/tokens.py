"""The vocabulary: how moves, positions and thoughts are written as tokens.

Ids 0-80 are those of the released chess study (arXiv 2607.16097), in its order; the rest are ours.
A move reads piece, from, [x], to, [= promotion], [+ or #]; castling is one token and its sign.
Everything is rendered from the board, never from the text of a file.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence

import chess

PIECES = "KQRBNP"
"""Piece letters; in a rendered board the lower-case tokens are Black's, as in a FEN."""

TOKENS: tuple[str, ...] = (
    ("<bos>", "<eos>", "<unk>")
    + tuple(PIECES)
    + tuple(file + rank for file in "abcdefgh" for rank in "12345678")
    + ("x", "=", "+", "#", "O-O", "O-O-O", ".", "...")
    + ("<pad>", "<T>", "</T>", "<sep>", "<call_env>", "<board>", "<white>", "<black>")
    + tuple(PIECES.lower())
)
ID: dict[str, int] = {token: i for i, token in enumerate(TOKENS)}
VOCABULARY_HASH = hashlib.sha256("\n".join(TOKENS).encode()).hexdigest()[:16]
"""Travels with every dataset and checkpoint; two vocabularies never meet unnoticed."""

BOS, EOS, PAD = ID["<bos>"], ID["<eos>"], ID["<pad>"]
THINK, END_THINK, SEP = ID["<T>"], ID["</T>"], ID["<sep>"]
CALL_ENV, BOARD = ID["<call_env>"], ID["<board>"]
SIDE = {chess.WHITE: ID["<white>"], chess.BLACK: ID["<black>"]}

_SQUARE = tuple(ID[chess.square_name(square)] for square in chess.SQUARES)
_SQUARE_OF = {token: square for square, token in enumerate(_SQUARE)}
_PIECE = {
    (kind, color): ID[chess.Piece(kind, color).symbol()]
    for kind in chess.PIECE_TYPES
    for color in chess.COLORS
}
OPENERS = frozenset(ID[token] for token in (*PIECES, "O-O", "O-O-O"))
_LETTER = {kind: ID[chess.piece_symbol(kind).upper()] for kind in chess.PIECE_TYPES}
_CASTLING = (
    (ID["K"], chess.BB_H1),
    (ID["Q"], chess.BB_A1),
    (ID["k"], chess.BB_H8),
    (ID["q"], chess.BB_A8),
)
_MOVE = re.compile(
    r"(?:[KQRBNP](?P<start>[a-h][1-8])x?(?P<end>[a-h][1-8])(?:=(?P<promotion>[QRBN]))?"
    r"|(?P<castling>O-O(?:-O)?))[+#]?"
)


class Unreadable(ValueError):
    """The text is no move, or its piece, capture or promotion denies the board."""


class Illegal(ValueError):
    """The text is a move, but not one that may be played here."""


def encode_move(board: chess.Board, move: chess.Move) -> list[int]:
    """Token ids of a legal move, its check or mate sign included; the board is left as it was.

    Raises:
        Illegal: the move may not be played on this board.
    """
    if not board.is_legal(move):
        raise Illegal(f"{move.uci()} is not legal in {board.fen()}")
    ids = _encode_unsigned(board, move)
    board.push(move)
    ids += _sign(board)
    board.pop()
    return ids


def push_encoded(board: chess.Board, move: chess.Move) -> list[int]:
    """Play a move known to be legal and return its tokens: one push instead of two."""
    ids = _encode_unsigned(board, move)
    board.push(move)
    return ids + _sign(board)


def encode_line(board: chess.Board, moves: Iterable[chess.Move]) -> list[int]:
    """Tokens of moves played one after the other; the board is left as it was.

    Raises:
        Illegal: one of them may not be played where it stands.
    """
    board = board.copy(stack=False)
    ids: list[int] = []
    for move in moves:
        ids += encode_move(board, move)
        board.push(move)
    return ids


def _encode_unsigned(board: chess.Board, move: chess.Move) -> list[int]:
    if board.is_castling(move):
        kingside = chess.square_file(move.to_square) > chess.square_file(move.from_square)
        return [ID["O-O"] if kingside else ID["O-O-O"]]
    ids = [_LETTER[board.piece_type_at(move.from_square)], _SQUARE[move.from_square]]
    if board.is_capture(move):
        ids.append(ID["x"])
    ids.append(_SQUARE[move.to_square])
    if move.promotion:
        ids += [ID["="], _LETTER[move.promotion]]
    return ids


def _sign(board: chess.Board) -> list[int]:
    if not board.is_check():
        return []
    return [ID["#"] if board.is_checkmate() else ID["+"]]


def split_moves(ids: Sequence[int]) -> Iterator[list[int]]:
    """Cut the tokens of a line before each token that begins a move."""
    move: list[int] = []
    for token in ids:
        if move and begins_move(move, token):
            yield move
            move = []
        move.append(token)
    if move:
        yield move


def begins_move(before: Sequence[int], token: int) -> bool:
    """Whether `token` begins a move: a piece letter that is no promotion, or castling."""
    return token in OPENERS and not (before and before[-1] == ID["="])


def decode(ids: Sequence[int]) -> str:
    """The tokens as one text without spaces."""
    return "".join(TOKENS[i] for i in ids)


def read_move(board: chess.Board, text: str) -> chess.Move:
    """The move that a text in token notation names, such as `Ng1f3`, `Pe7e8=Q#` or `O-O`.

    Piece letter, capture and promotion must agree with the board. The check sign may be missing or
    wrong: it does not say which move is meant.

    Raises:
        Unreadable: the text is no move, or it denies the board.
        Illegal: the text is a move that may not be played here.
    """
    parts = _MOVE.fullmatch(text)
    if parts is None:
        raise Unreadable(f"{text!r} is no move in token notation")
    if parts["castling"]:
        rank = "1" if board.turn == chess.WHITE else "8"
        move = chess.Move.from_uci(f"e{rank}{'g' if parts['castling'] == 'O-O' else 'c'}{rank}")
        if not board.is_castling(move):
            raise Illegal(f"{text} may not be played")
    else:
        uci = parts["start"] + parts["end"] + (parts["promotion"] or "").lower()
        if parts["start"] == parts["end"]:
            raise Unreadable(f"{text!r} moves nowhere")
        move = chess.Move.from_uci(uci)
    if not board.is_legal(move):
        raise Illegal(f"{text} may not be played")  # no FEN: it would cost more than all the rest
    rendered = decode(_encode_unsigned(board, move))
    if text.rstrip("+#") != rendered:
        raise Unreadable(f"{text!r} denies the board, where that move is {rendered!r}")
    return move


def encode_board(board: chess.Board) -> list[int]:
    """Token ids of a position, at most 72 of them.

    `<board>`, then each piece and its square from a1 to h8 (lower case for Black), the castling
    rights as bare letters `K Q k q`, `x` and the square where an en passant capture is legal, and
    last the side to move. Clocks and move numbers are left out.
    """
    ids = [BOARD]
    for square, piece in sorted(board.piece_map().items()):
        ids += [_PIECE[piece.piece_type, piece.color], _SQUARE[square]]
    rights = board.clean_castling_rights()
    ids += [letter for letter, rook in _CASTLING if rights & rook]
    if board.has_legal_en_passant():
        ids += [ID["x"], _SQUARE[board.ep_square]]
    ids.append(SIDE[board.turn])
    return ids


def decode_board(ids: list[int]) -> chess.Board:
    """The position that `encode_board` wrote.

    Raises:
        ValueError: the tokens are not a rendered board.
    """
    if not ids or ids[0] != BOARD or ids[-1] not in SIDE.values():
        raise ValueError(f"not a rendered board: {decode(ids)}")
    board = chess.Board(None)
    board.turn = ids[-1] == SIDE[chess.WHITE]
    rooks = dict(_CASTLING)
    rest = iter(ids[1:-1])
    pending = next(rest, None)
    while pending is not None:
        token, pending = pending, next(rest, None)
        if pending in _SQUARE_OF:
            square, pending = _SQUARE_OF[pending], next(rest, None)
            if token == ID["x"]:
                board.ep_square = square
            else:
                board.set_piece_at(square, chess.Piece.from_symbol(TOKENS[token]))
        elif token in rooks:
            board.castling_rights |= rooks[token]
        else:
            raise ValueError(f"{TOKENS[token]!r} has no place in a rendered board: {decode(ids)}")
    return board
