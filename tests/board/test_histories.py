"""The game behind a puzzle: the move number decides, not the first look of it."""

import random
from dataclasses import replace

import chess
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from chessrl.board.histories import ply_of, source_game, with_history, without_source
from chessrl.board.puzzles import Puzzle, validate

SHUFFLE = ("g1f3", "g8f6", "f3g1", "f6g8")
GAME = ("e2e4", "e7e5", *SHUFFLE, "f1c4", "a7a6", "d1h5", "g8f6", "h5f7")
OWN, OTHER = "https://lichess.org/abcdefgh", "https://lichess.org/ijklmnop"


def after(*moves: str) -> chess.Board:
    board = chess.Board()
    for move in moves:
        board.push_uci(move)
    return board


def puzzle_at(board: chess.Board, game: str | None = None) -> Puzzle:
    """Any two legal moves from a position."""
    line = []
    board = board.copy()
    fen = board.fen()
    for _ in range(2):
        move = max(board.legal_moves, key=lambda move: move.uci())
        line.append(move.uci())
        board.push(move)
    return Puzzle("p", fen, tuple(line), 1500, game=game)


def test_plies_of_a_fen():
    assert ply_of(chess.STARTING_FEN) == 0
    assert ply_of("8/8/8/8/8/8/8/8 b - - 0 1") == 1
    assert ply_of("8/8/8/8/8/8/8/8 w - - 3 40") == 78
    assert ply_of("8/8/8/8/8/8/8/8 w") == 0
    with pytest.raises(ValueError, match="invalid literal"):
        ply_of("8/8/8/8/8/8/8/8 w - - 3 x")


def test_plies_of_the_starter_puzzles(starter):
    assert [ply_of(puzzle.fen) for puzzle in starter] == [
        chess.Board(puzzle.fen).ply() for puzzle in starter
    ]


@pytest.mark.parametrize("plies", [2, 6])
def test_of_a_placement_that_comes_twice_the_move_number_tells_which(plies):
    puzzle = puzzle_at(after(*GAME[:plies]))  # the same pieces after 1. e4 e5 and two moves later
    assert after(*GAME[:2]).board_fen() == after(*GAME[:6]).board_fen()
    assert source_game(puzzle, [(GAME, None)]) == GAME[:plies]
    assert validate(with_history(puzzle, GAME[:plies])) is None
    assert source_game(puzzle, [(GAME[:2], None)]) == (GAME[:2] if plies == 2 else None)


def test_a_move_number_that_the_game_does_not_have_is_no_match():
    board = after(*GAME[:2])
    board.fullmove_number = 3
    assert source_game(puzzle_at(board), [(GAME, None)]) is None
    board.fullmove_number = 80
    assert source_game(puzzle_at(board), [(GAME, None)]) is None


def test_the_side_to_move_has_to_agree():
    # White loses a move: the placement of 1. e4 e5, with Black to move, at Black's second move
    slow = ("e2e3", "e7e5", "e3e4")
    board = after(*slow)
    assert board.board_fen() == after("e2e4", "e7e5").board_fen()
    assert source_game(puzzle_at(board), [(("e2e4", "e7e5", "g1f3"), None)]) is None
    assert source_game(puzzle_at(board), [(slow, None)]) == slow
    assert source_game(puzzle_at(after("e2e4", "e7e5")), [(slow, None)]) is None


def test_a_transposition_is_a_source_where_nothing_else_is_known():
    one = ("d2d4", "d7d5", "c2c4", "e7e6", "b1c3")
    two = ("c2c4", "e7e6", "d2d4", "d7d5", "b1c3")
    puzzle = puzzle_at(after(*one[:4]), OWN)
    assert source_game(puzzle, [(two, None), (one, None)]) == two[:4]
    assert source_game(puzzle, [(two, OTHER), (one, OWN + "/black#30")]) == one[:4]
    assert source_game(puzzle, [(one, OWN), (two, OTHER)]) == one[:4]


def test_a_capture_in_passing_that_only_one_game_allows():
    quick = ("e2e4", "a7a6", "e4e5", "d7d5", "b1c3")
    slow = ("e2e3", "d7d5", "e3e4", "a7a6", "e4e5", "h7h6")
    allowed = puzzle_at(after(*quick[:4]))
    assert chess.Board(allowed.fen).has_legal_en_passant()
    # the same placement, side and number, where the pawn went d7-d6-d5
    gone = after(*quick[:4])
    gone.ep_square = None
    forbidden = puzzle_at(gone)
    assert source_game(allowed, [(slow, None), (quick, None)]) == quick[:4]
    assert source_game(forbidden, [(quick, None)]) is None


def test_castling_rights_have_to_agree():
    board = after("e2e4", "e7e5", "e1e2", "e8e7", "e2e1", "e7e8")
    assert board.fen().split()[2] == "-"
    still = after("e2e4", "e7e5", "g1f3", "g8f6", "f3g1", "f6g8")
    assert still.board_fen() == board.board_fen()
    games = [(tuple(move.uci() for move in game.move_stack), None) for game in (still, board)]
    assert source_game(puzzle_at(board), games) == games[1][0]
    assert source_game(puzzle_at(still), games) == games[0][0]


def test_a_stated_game_that_does_not_lead_there_is_not_replaced():
    puzzle = puzzle_at(after(*GAME[:6]), OWN + "#6")
    wrong = (GAME[:3], OWN)
    for candidates in ([wrong, (GAME, OTHER)], [(GAME, OTHER), wrong]):
        assert source_game(puzzle, candidates) is None
        addresses = [address for _, address in candidates]
        assert without_source(puzzle, addresses) == "history_mismatch"
    # of two copies of the stated game the sound one counts
    assert source_game(puzzle, [wrong, (GAME, OWN + "/white")]) == GAME[:6]


def test_no_game_no_source():
    puzzle = puzzle_at(after(*GAME[:6]), OWN)
    assert source_game(puzzle, []) is None
    assert source_game(puzzle, [(("d2d4",) * 9, None), (("d2d4", "d7d5"), OTHER)]) is None
    assert without_source(puzzle, []) == "no_source_game"
    assert without_source(puzzle, [None, OTHER]) == "no_source_game"
    assert without_source(replace(puzzle, game=None), [None, OWN]) == "no_source_game"


def test_a_game_with_an_illegal_move_leads_nowhere():
    broken = (*GAME[:5], "f6f6", *GAME[6:])
    assert source_game(puzzle_at(after(*GAME[:6])), [(broken, None)]) is None


def test_the_usual_start_has_an_empty_history():
    assert source_game(puzzle_at(chess.Board()), [(GAME, None)]) == ()
    assert source_game(puzzle_at(chess.Board()), [((), None)]) == ()


@given(st.integers(0, 2**32), st.integers(0, 60))
@settings(max_examples=40, deadline=None)
def test_every_position_of_a_game_is_found_in_it(seed, ply):
    rng = random.Random(seed)
    board = chess.Board()
    while board.ply() < 61 and (moves := list(board.legal_moves)):
        board.push(rng.choice(moves))
    game = tuple(move.uci() for move in board.move_stack)
    ply = min(ply, len(game))
    position = after(*game[:ply])
    assume(all(after(*game[:ply], move.uci()).legal_moves for move in position.legal_moves))
    assume(position.legal_moves)
    puzzle = puzzle_at(position)
    assert ply_of(puzzle.fen) == ply
    history = source_game(puzzle, [(game, None)])
    assert history == game[:ply]
    found = with_history(puzzle, history)
    assert validate(found) is None
    assert (found.fen, found.moves, found.history) == (puzzle.fen, puzzle.moves, history)
