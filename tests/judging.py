"""Puzzles, and their answers as text and as tokens, for the tests of the judge."""

import chess

from chessrl.board import tokens
from chessrl.board.puzzles import Puzzle
from chessrl.board.tokens import decode, encode_move

CASTLING = "4k2r/8/8/8/8/8/6K1/R7 w k - 0 1"
CASTLING_LINE = "a1a7 e8g8 a7a1 f8a8"


def puzzle(fen: str, line: str) -> Puzzle:
    return Puzzle(id="p", fen=fen, moves=tuple(line.split()), rating=1500)


def ids(text: str) -> list[int]:
    """Tokens of a text with spaces between them."""
    return [tokens.ID[token] for token in text.split()]


def solver_texts(taken: Puzzle) -> list[str]:
    """The recorded answers in token notation."""
    board, texts = taken.board(), []
    for number, uci in enumerate(taken.moves[1:]):
        move = chess.Move.from_uci(uci)
        if number % 2 == 0:
            texts.append(decode(encode_move(board, move)))
        board.push(move)
    return texts


def mates(board: chess.Board, move: chess.Move) -> bool:
    board.push(move)
    mate = board.is_checkmate()
    board.pop()
    return mate
