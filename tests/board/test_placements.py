"""Positions as text: what python-chess says, for every kind of move."""

import chess
import numpy as np

from chessrl.board.placements import fen_position, moved, position_arrays, solver_position
from chessrl.board.positions import board_array


def text(board: chess.Board) -> str:
    pieces = [board.piece_at(square) for square in chess.SQUARES]
    return "".join(piece.symbol() if piece else "." for piece in pieces) + "bw"[board.turn]


def test_the_usual_start():
    assert fen_position(chess.STARTING_FEN) == (
        "RNBQKBNR" + "P" * 8 + "." * 32 + "p" * 8 + "rnbqkbnr" + "w"
    )
    assert fen_position("8/8/8/8/8/8/8/Q~7 b - - 0 1") == "Q" + "." * 63 + "b"
    assert fen_position("8/8/8/8/8/8/8/8") == "." * 64 + "w"


def test_every_legal_move_leads_where_it_leads_on_a_board(positions):
    kinds = set()
    for board in positions:
        position = fen_position(board.fen())
        assert position == text(board)
        for move in board.legal_moves:
            after = board.copy(stack=False)
            after.push(move)
            assert moved(position, move.uci()) == text(after), (board.fen(), move)
            kinds |= {"castling"} if board.is_castling(move) else set()
            kinds |= {"passing"} if board.is_en_passant(move) else set()
            kinds |= {"promotion"} if move.promotion else set()
    assert kinds == {"castling", "passing", "promotion"}


def test_the_solver_sees_it_after_the_first_move(starter):
    assert [solver_position(puzzle) for puzzle in starter] == [
        text(puzzle.board()) for puzzle in starter
    ]


def test_arrays_hold_the_same(positions):
    codes, white = position_arrays(text(board) for board in positions)
    assert codes.dtype == np.uint8
    assert np.array_equal(codes, [board_array(board) for board in positions])
    assert white.tolist() == [board.turn for board in positions]
    codes, white = position_arrays([])
    assert (codes.shape, white.shape) == ((0, 64), (0,))
