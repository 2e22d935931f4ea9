"""Tokens by arrays are the tokens of `tokens.py`, move for move and board for board."""

import chess
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import boards_of, lines_of, move_tokens, uci, wild_games

from chessrl.board import encoding, tokens
from chessrl.board.encoding import board_tokens, checks
from chessrl.board.positions import Lines, replay
from chessrl.board.tokens import decode

KINGS = "4k3/8/8/8/8/8/8/4K3 w - - 0 1"
ROOKS = "r3k2r/8/8/8/8/8/8/4K3 w kq - 0 1"
PASSING = "4k3/2p5/8/3P4/8/8/8/R3K3 w - - 0 1"
DEFAULTS = ("w", "-", "-", "0", "1")
"""Fields after the first of a FEN that does not say."""
SIGNS = [
    ("4k3/8/3P4/8/8/8/8/4K3", "d6d7", "Pd6d7+"),
    ("4k3/8/8/8/8/3p4/P7/4K3", "a2a3 d3d2", "Pd3d2+"),
    ("4k3/8/8/8/4N3/8/8/4K3", "e4d6", "Ne4d6+"),
    ("4k3/8/8/8/4N3/8/8/4K3", "e4g5", "Ne4g5"),
    ("4k3/8/8/8/8/8/8/3BK3", "d1a4", "Bd1a4+"),
    ("4k3/8/8/8/8/8/8/R3K3", "a1a8", "Ra1a8+"),
    ("4k3/8/8/8/8/8/8/3QK3", "d1a4", "Qd1a4+"),
    ("4k3/8/8/8/8/8/8/3QK3", "d1d8", "Qd1d8+"),
    ("4k3/3p4/8/8/8/8/8/3QK3", "d1a4", "Qd1a4"),  # a pawn stands between
    ("4k3/8/8/8/8/8/2B5/4K3", "c2e4", "Bc2e4"),  # the line is not a bishop's
    ("4k3/8/8/8/8/R7/8/4K3", "a3a4", "Ra3a4"),  # nor this one a rook's
    # uncovered: on a file, on a diagonal, by the king, by both at once
    ("4k3/8/8/8/4N3/4R3/8/4K3", "e4g5", "Ne4g5+"),
    ("4k3/8/2N5/8/B7/8/8/4K3", "c6e5", "Nc6e5+"),
    ("4k3/8/8/8/8/8/8/R3K3", "e1e2 e8d8 a1e1 d8e8 e2d3", "Ke2d3+"),
    ("4k3/8/8/8/8/8/8/R3K3", "e1e2 e8d8 a1e1 d8e8 e2e3", "Ke2e3"),
    ("4k3/8/8/8/4N3/4R3/8/4K3", "e4d6", "Ne4d6+"),
    ("4k3/8/2b5/1N6/B7/8/8/4K3", "b5c3", "Nb5c3"),  # a friend of the king stands nearer
    # castling: the rook gives check along its file, along its rank, or mates
    ("4k3/8/8/8/8/8/P7/4K2R w K", "e1g1", "O-O"),
    ("4k3/8/8/8/8/8/P7/4K2R w K", "a2a3 e8f8 e1g1", "O-O+"),
    ("4k3/8/8/8/8/8/7P/R3K3 w Q", "h2h3 e8d8 e1c1", "O-O-O+"),
    (ROOKS, "e1f1 e8g8", "O-O+"),
    (ROOKS, "e1d1 e8c8", "O-O-O+"),
    (ROOKS, "e1d1 e8g8", "O-O"),
    ("N3k3/8/8/8/8/8/8/4K2R w K", "a8c7 e8f7 c7e8 f7g6 e8c7 g6f5 c7e8 f5e4 e8g7 e4d3 g7e8 d3c2 "
     "e8g7 c2b1 e1g1", "O-O+"),
    ("4k2N/8/8/8/8/8/8/R3K3 w Q", "h8f7 e8e7 f7h8 e7f6 h8f7 f6f5 f7h8 f5g4 h8f7 g4h3 f7h8 h3h2 "
     "h8f7 h2g1 e1c1", "O-O-O+"),
    ("4k3/p7/3P3P/8/2B5/8/P7/3BK2R w K", "a2a3 e8f8 d1h5 a7a6 e1g1", "O-O#"),
    # en passant: the pawn itself, and the lines that both pawns leave open
    (PASSING, "e1e2 e8d7 e2e3 c7c5 d5c6", "Pd5xc6+"),
    ("4k3/8/8/8/3p4/8/2P5/4K3", "e1d2 e8e7 c2c4 d4c3", "Pd4xc3+"),
    ("4k3/2p5/8/3P4/8/8/8/2B1K3", "e1e2 e8f8 c1a3 c7c5 d5c6", "Pd5xc6+"),
    (PASSING, "e1e2 e8d8 a1d1 c7c5 d5c6", "Pd5xc6+"),
    (PASSING, "e1e2 e8f7 e2e3 f7g6 e3e4 g6h5 a1a5 c7c5 d5c6", "Pd5xc6+"),
    (PASSING, "e1e2 e8f8 e2e3 c7c5 d5c6", "Pd5xc6"),
    # promotion: the new piece, also back along the pawn's way
    ("4k3/P7/8/8/8/8/8/4K3", "a7a8q", "Pa7a8=Q+"),
    ("4k3/P7/8/8/8/8/8/4K3", "a7a8r", "Pa7a8=R+"),
    ("4k3/P7/8/8/8/8/8/4K3", "a7a8b", "Pa7a8=B"),
    ("4k3/2P5/8/8/8/8/8/4K3", "e1e2 e8e7 c7c8n", "Pc7c8=N+"),
    ("4k3/2P5/8/8/8/8/8/4K3", "e1e2 e8e7 c7c8q", "Pc7c8=Q"),
    ("3rk3/2P5/8/8/8/8/8/4K3", "c7d8q", "Pc7xd8=Q+"),
    ("4k3/2P5/8/8/8/8/8/4K3", "e1e2 e8d7 e2e3 d7c6 c7c8q", "Pc7c8=Q+"),
    ("4k3/8/8/8/8/8/p7/4K3", "e1e2 a2a1n e2d2 a1b3", "Na1b3+"),
    # mates and a stalemate from the usual start
    (chess.STARTING_FEN, "f2f3 e7e5 g2g4 d8h4", "Qd8h4#"),
    (chess.STARTING_FEN, "e2e4 c7c6 d2d4 d7d5 b1c3 d5e4 c3e4 b8d7 d1e2 g8f6 e4d6", "Ne4d6#"),
    (chess.STARTING_FEN, "e2e3 a7a5 d1h5 a8a6 h5a5 h7h5 h2h4 a6h6 a5c7 f7f6 c7d7 e8f7 d7b7 d8d3 "
     "b7b8 d3h7 b8c8 f7g6 c8e6", "Qc8e6"),
]  # fmt: skip


def position(fen: str) -> chess.Board:
    """The board of a FEN that may lack its last fields."""
    board = chess.Board(" ".join([*fen.split(), *DEFAULTS[fen.count(" ") :]]))
    assert board.is_valid() and board.turn
    return board


def split(pair: tuple[np.ndarray, np.ndarray]) -> list[list[int]]:
    """Pieces of a row of tokens between its edges."""
    ids, edges = pair
    assert edges[0] == 0 and edges[-1] == len(ids) and ids.dtype == np.uint8
    return [part.tolist() for part in np.split(ids, edges[1:-1])]


def boards(lines: Lines, places: list[int], white: list[bool]) -> list[list[int]]:
    return split(board_tokens(lines, np.array(places), np.array(white)))


def whole(board: chess.Board) -> list[int]:
    return [tokens.BOS, *tokens.encode_board(board)]


def played(fen: str, text: str) -> tuple[chess.Board, list[chess.Move], chess.Board]:
    """First position, moves and last position of a line, all of it legal."""
    start, moves = position(fen), [chess.Move.from_uci(word) for word in text.split()]
    board = start.copy()
    for move in moves:
        assert board.is_legal(move)
        board.push(move)
    return start, moves, board


@pytest.mark.parametrize(("fen", "text", "last"), SIGNS)
def test_signs(fen, text, last):
    start, moves, board = played(fen, text)
    lines = lines_of(moves, start)
    found = split(encoding.move_tokens(lines))
    assert found == move_tokens(moves, start)
    assert decode(found[-1]) == last
    assert checks(lines)[-1] == board.is_check() == (last[-1] in "+#")


@settings(max_examples=25)
@given(games=st.lists(wild_games(), min_size=1, max_size=4))
def test_moves_of_any_games(games):
    found = split(encoding.move_tokens(replay(uci(moves) for moves in games)))
    assert found == [written for moves in games for written in move_tokens(moves)]


@settings(max_examples=15)
@given(games=st.lists(wild_games(), min_size=1, max_size=3), data=st.data())
def test_boards_of_any_games(games, data):
    lines = replay(uci(moves) for moves in games)
    all_boards = [board for moves in games for board in boards_of(moves)]
    places = data.draw(st.permutations(range(len(all_boards))))
    shown = [all_boards[place] for place in places]
    assert boards(lines, places, [board.turn for board in shown]) == [*map(whole, shown)]


def test_moves_and_boards_of_real_games(starter_games):
    lines = replay(game.moves for game in starter_games)
    moves = [[chess.Move.from_uci(uci) for uci in game.moves] for game in starter_games]
    expected = [written for game in moves for written in move_tokens(game)]
    assert split(encoding.move_tokens(lines)) == expected
    shown = [board for game in moves for board in boards_of(game)]
    places = list(range(0, len(shown), 7))
    shown = shown[::7]
    assert boards(lines, places, [board.turn for board in shown]) == [*map(whole, shown)]


@pytest.mark.parametrize(
    ("fen", "text", "square"),
    [
        (PASSING, "e1e2 c7c5", "c6"),
        ("4k3/8/8/8/3p4/8/2P5/4K3", "c2c4", "c3"),
        ("4k3/7p/8/6P1/8/8/8/4K3", "e1e2 h7h5", "h6"),
        ("4k3/p7/8/1P6/8/8/8/4K3", "e1e2 a7a5", "a6"),
        ("4k3/2p5/8/8/8/8/8/4K3", "e1e2 c7c5", ""),  # nobody takes
        ("4k3/7p/P7/8/8/8/8/4K3", "e1e2 h7h5", ""),  # a6 is not beside h5,
        ("4k3/p7/8/8/7P/8/8/4K3", "e1e2 a7a5", ""),  # nor is h4 beside a5
        ("4k3/2p5/8/1N1p4/8/8/8/4K3", "e1e2 c7c5", ""),  # nor do these take so
        # the capture would leave the king in check: along the rank, on a file, on a diagonal
        ("r3k3/2p5/8/3P4/8/8/8/4K3", "e1f2 e8e7 f2g3 e7e8 g3h4 e8e7 h4h5 a8a5 h5g5 c7c5", ""),
        ("3rk3/2p5/8/3P4/8/8/8/4K3", "e1d2 e8e7 d2d3 c7c5", ""),
        ("4k1b1/2p5/8/3P4/8/8/8/4K3", "e1d2 e8e7 d2c3 e7e8 c3b3 c7c5", ""),
        # or the king is in check, which this capture ends, or does not
        ("4k3/2p5/8/3P4/8/8/8/4K3", "e1d2 e8e7 d2d3 e7e8 d3d4 c7c5", "c6"),
        ("1b2k3/2p5/8/1P6/8/8/8/4K3", "e1f2 e8e7 f2g3 c7c5", ""),
    ],
)  # fmt: skip
def test_en_passant_is_shown_where_it_may_be_played(fen, text, square):
    start, moves, board = played(fen, text)
    (found,) = boards(lines_of(moves, start), [len(moves)], [board.turn])
    assert found == whole(board)
    shown = [tokens.TOKENS[i] for i in found]
    assert (shown[shown.index("x") + 1] if "x" in shown else "") == square


def test_castling_rights_are_shown():
    lines = replay([("h2h4", "a7a5", "h1h3")])
    found = boards(lines, [0, 3], [True, False])
    assert decode(found[0]).endswith("rh8KQkq<white>")
    assert decode(found[1]).endswith("rh8Qkq<black>")


def test_nothing_comes_of_nothing():
    lines = replay([["a2a3"]])
    ids, edges = board_tokens(lines, np.zeros(0, int), np.zeros(0, bool))
    assert (len(ids), edges.tolist()) == (0, [0])
