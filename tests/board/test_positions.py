"""Games as arrays: python-chess, `replay` and the compiled reader tell the same of any game."""

import chess
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import boards_of, lines_of, san, uci, wild_game, wild_games

from chessrl.board import reader
from chessrl.board.positions import (
    START,
    Lines,
    board_array,
    line_hashes,
    position_hashes,
    replay,
    to_board,
)
from chessrl.board.reader import read_plain
from chessrl.board.splits import position_key

FIELDS = (
    "offsets", "origin", "target", "promotion", "boards", "castling", "ep_file", "mate",
)  # fmt: skip
needs_compiled = pytest.mark.skipif(reader.compiled is None, reason="no compiled reader here")
STALEMATE = (
    "e2e3 a7a5 d1h5 a8a6 h5a5 h7h5 h2h4 a6h6 a5c7 f7f6 c7d7 e8f7 d7b7 d8d3 b7b8 d3h7 b8c8 f7g6 c8e6"
)
LOST_ROOKS = "b2b3 g7g6 c1b2 f8g7 b2g7 b8c6 g7h8 c6d4 g1f3 d4c2 d1c2 a7a6 c2h7 d7d6 h7g8"
"""Black loses a castling right with the rook on h8, which never moved."""


def same(left: Lines, right: Lines) -> None:
    for name in FIELDS:
        assert np.array_equal(getattr(left, name), getattr(right, name)), name


def play(text: str) -> list[chess.Move]:
    return [chess.Move.from_uci(word) for word in text.split()]


def joined(games: list[list[chess.Move]]) -> Lines:
    return Lines.joined([lines_of(moves) for moves in games])


def test_the_random_games_hold_all_that_is_rare():
    names = ("O-O", "O-O-O", "o-o", "o-o-o", "ep", "q", "r", "b", "n", "double", "mate")
    met = dict.fromkeys(names, 0)
    for seed in range(100):
        board = chess.Board()
        for move in wild_game(seed, 120):
            if board.is_castling(move):
                name = "O-O" if move.to_square > move.from_square else "O-O-O"
                met[name if board.turn else name.lower()] += 1
            met["ep"] += board.is_en_passant(move)
            if move.promotion:
                met[chess.piece_symbol(move.promotion)] += 1
            board.push(move)
            met["double"] += len(board.checkers()) > 1
        met["mate"] += board.is_checkmate()
    assert min(met.values()) > 0, met
    assert min(met[piece] for piece in "qrbn") > 10, met


@settings(max_examples=15)
@given(games=st.lists(wild_games(), min_size=1, max_size=4))
def test_replay_tells_what_python_chess_tells(games):
    lines = replay(uci(moves) for moves in games)
    same(lines, joined(games))
    assert len(lines) == len(games)
    assert lines.lengths.tolist() == [len(moves) for moves in games]
    assert [lines.boards[first].tolist() for first in lines.first_position] == [
        START.tolist()
    ] * len(games)
    moves = [move for game in games for move in game]
    boards = [board for game in games for board in boards_of(game)[:-1]]
    assert lines.white_moves.tolist() == [board.turn for board in boards]
    for move, place, board in zip(moves, lines.before, boards, strict=True):
        assert lines.boards[place, move.from_square] == board_array(board)[move.from_square] > 0


@needs_compiled
@settings(max_examples=15)
@given(games=st.lists(wild_games(), min_size=1, max_size=4))
def test_the_compiled_reader_gives_the_arrays_of_replay(games):
    lines, sound = read_plain([san(moves) for moves in games])
    assert sound.tolist() == [True] * len(games)
    same(lines, replay(uci(moves) for moves in games))


@needs_compiled
def test_the_compiled_reader_gives_the_arrays_of_replay_for_real_games(starter_games):
    games = [play(" ".join(game.moves)) for game in starter_games]
    lines, sound = read_plain([san(moves) for moves in games])
    assert sound.all()
    same(lines, replay(game.moves for game in starter_games))


@needs_compiled
def test_the_compiled_reader_refuses_what_is_illegal_or_empty_and_reads_its_neighbours():
    texts = ["1. e4 e5 *", "1. e4 e5 2. Ke3 *", "*", "1. f3 e5 2. g4 Qh4# 3. a3 *", "1. d4 1-0"]
    lines, sound = read_plain(texts)
    assert sound.tolist() == [True, False, False, False, True]
    first, last = lines.offsets[0], lines.offsets[4]
    assert lines.codes[first : first + 2].tolist() == [12 | 28 << 6, 52 | 36 << 6]
    assert lines.codes[last:].tolist() == [11 | 27 << 6]


@pytest.mark.parametrize(
    ("moves", "rights"),
    [
        ("", "KQkq"),
        ("g1f3 b8c6", "KQkq"),
        (LOST_ROOKS, "KQq"),
        ("h2h4 a7a5 h1h3 a8a6 h3h1 a6a8", "Qk"),  # rooks that came back
        ("e2e4 e7e5 e1e2 e8e7 e2e1 e7e8", ""),  # kings that came back
        ("g1f3 g8f6 g2g3 g7g6 f1g2 f8g7 e1g1 e8g8", ""),
        ("g2g4 h7h5 g4h5 h8h5 h2h4 h5h4 h1h4", "Qq"),
        # a pawn that takes the rook and becomes another one does not bring the right back
        ("g2g4 h7h5 g4h5 g7g6 h5g6 g8f6 g6g7 f6d5 g7h8r", "KQq"),
    ],
)
def test_castling_rights(moves, rights):
    lines = replay([moves.split()]) if moves else replay([["a2a3"]])
    place = -1 if moves else 0
    held = lines.castling[place]
    assert "".join(np.array(list("KQkq"))[held]) == rights
    board = boards_of(play(moves))[-1]
    assert (board.fen().split()[2].replace("-", "")) == rights


def test_mate_is_told_and_stalemate_is_not():
    lines = replay(text.split() for text in (STALEMATE, "f2f3 e7e5 g2g4 d8h4", "e2e4"))
    assert lines.mate.tolist() == [False, True, False]
    assert boards_of(play(STALEMATE))[-1].is_stalemate()


@settings(max_examples=10)
@given(game=wild_games())
def test_boards_are_rebuilt_from_arrays(game):
    lines, boards = replay([uci(game)]), boards_of(game)
    for place, board in enumerate(boards):
        arrays = lines.boards[place], board.turn, lines.castling[place], lines.ep_file[place]
        rebuilt = to_board(*arrays)
        assert rebuilt.board_fen() == board.board_fen()
        assert rebuilt.turn == board.turn
        assert rebuilt.clean_castling_rights() == board.clean_castling_rights()
        assert rebuilt.has_legal_en_passant() == board.has_legal_en_passant()
        assert set(rebuilt.legal_moves) == set(board.legal_moves)


@settings(max_examples=15)
@given(games=st.lists(wild_games(60), min_size=1, max_size=5))
def test_hashes_are_equal_just_where_placement_and_side_are(games):
    lines = replay(uci(moves) for moves in games)
    white = np.concatenate([np.arange(n + 1) % 2 == 0 for n in lines.lengths])
    hashes = position_hashes(lines.boards, white)
    assert np.array_equal(line_hashes(lines), hashes)
    keys = [position_key(board) for moves in games for board in boards_of(moves)]
    assert len(set(keys)) == len(set(hashes.tolist())) == len(set(zip(keys, hashes, strict=True)))
    assert len(set(keys)) <= len(keys) - len(games) + 1  # the usual start is shared


def test_the_other_side_to_move_has_another_hash():
    both = position_hashes(np.stack([START, START]), np.array([True, False]))
    assert both[0] != both[1]


def test_a_transposition_has_the_same_hash_and_rights_do_not_count():
    rooks_away = "h2h4 h7h5 h1h2 h8h7 h2h1 h7h8"
    games = ("d2d4 d7d5 c2c4", "c2c4 d7d5 d2d4", rooks_away, "h2h4 h7h5")
    lines = replay(game.split() for game in games)
    hashes = line_hashes(lines)
    first = lines.first_position
    assert hashes[first[0] + 3] == hashes[first[1] + 3]
    assert hashes[first[0] + 1] != hashes[first[1] + 1]
    assert hashes[first[2] + 6] == hashes[first[3] + 2]


def test_moves_have_names_of_their_own():
    squares = (
        np.repeat(np.arange(64, dtype=np.uint8), 64),
        np.tile(np.arange(64, dtype=np.uint8), 64),
    )
    names = [
        Lines(
            np.array([0, 4096]), *squares, np.full(4096, promotion, np.uint8), *[np.zeros(0)] * 4
        ).codes
        for promotion in (0, 2, 3, 4, 5)
    ]
    assert names[0].dtype == np.uint16
    distinct = np.unique(np.concatenate(names))
    assert len(distinct) == 5 * 4096
    assert names[0][12 * 64 + 28] == 12 + 28 * 64  # e2e4
