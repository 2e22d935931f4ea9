"""Prompts: one `<bos>`, the right board, and the right tokens to learn from."""

import random

import chess
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chessrl.board import tokens
from chessrl.board.prompts import answer_tokens, puzzle_prompt
from chessrl.board.puzzles import Puzzle
from chessrl.board.tokens import decode, decode_board, encode_move, read_move, split_moves

FOOLS = "rnbqkbnr/pppp1ppp/8/4p3/6P1/5P2/PPPPP2P/RNBQKBNR b KQkq - 0 2"
GAME = "f2f3 e7e5 g2g4"


def known(moves: str = "a7a6 a2a3", history: str = GAME) -> Puzzle:
    return Puzzle(
        id="h", fen=FOOLS, moves=tuple(moves.split()), rating=900, history=tuple(history.split())
    )


def random_game(seed: int, plies: int) -> tuple[str, ...]:
    rng, board = random.Random(seed), chess.Board()
    while len(board.move_stack) < plies and not board.is_game_over():
        board.push(rng.choice(list(board.legal_moves)))
    return tuple(move.uci() for move in board.move_stack)


def after_bos(ids: list[int]) -> tuple[chess.Board, list[int]]:
    """Board and the move tokens after it, for a document of either form."""
    assert ids[0] == tokens.BOS
    if ids[1:2] != [tokens.BOARD]:
        return chess.Board(), ids[1:]
    side = next(i for i, token in enumerate(ids) if token in tokens.SIDE.values())
    return decode_board(ids[1 : side + 1]), ids[side + 1 :]


def play_tokens(board: chess.Board, ids: list[int]) -> list[str]:
    moves = []
    for piece in split_moves(ids):
        move = read_move(board, decode(piece))
        board.push(move)
        moves.append(move.uci())
    return moves


def test_the_board_prompt_shows_what_the_solver_sees(starter):
    for puzzle in starter:
        prompt = puzzle_prompt(puzzle, "board")
        assert prompt.count(tokens.BOS) == 1
        board, rest = after_bos(prompt)
        assert rest == []
        assert board.board_fen() == puzzle.board().board_fen()
        assert board.turn == puzzle.board().turn != (puzzle.fen.split()[1] == "w")


def test_the_history_prompt_is_the_game_and_the_opponents_move():
    prompt = puzzle_prompt(known(), "history")
    assert " ".join(tokens.TOKENS[i] for i in prompt) == ("<bos> P f2 f3 P e7 e5 P g2 g4 P a7 a6")
    replayed = chess.Board()
    play_tokens(replayed, prompt[1:])
    assert replayed.fen() == known().board().fen()


@given(seed=st.integers(0, 10_000), plies=st.integers(0, 40))
def test_any_history_replays_to_the_position_of_the_solver(seed, plies):
    game = random_game(seed, plies + 2)
    if len(game) < plies + 2:
        return
    board = chess.Board()
    for uci in game[:plies]:
        board.push_uci(uci)
    puzzle = Puzzle(id="x", fen=board.fen(), moves=game[plies:], rating=1, history=game[:plies])
    prompt = puzzle_prompt(puzzle, "history")
    assert prompt.count(tokens.BOS) == 1 and prompt[0] == tokens.BOS
    replayed = chess.Board()
    assert play_tokens(replayed, prompt[1:]) == list(game[: plies + 1])
    assert replayed == puzzle.board()


def test_a_history_that_is_not_known_is_an_error():
    puzzle = Puzzle(id="h", fen=FOOLS, moves=("a7a6", "a2a3"), rating=900)
    with pytest.raises(ValueError, match="puzzle h does not come with the moves of its game"):
        puzzle_prompt(puzzle, "history")


def test_answers_hold_the_replies_but_do_not_count_them():
    puzzle = Puzzle(
        id="p", fen="4k2r/8/8/8/8/8/6K1/R7 w k - 0 1", rating=1500,
        moves=("a1a7", "e8g8", "a7a1", "f8a8"),
    )  # fmt: skip
    ids, ours = answer_tokens(puzzle)
    assert " ".join(tokens.TOKENS[i] for i in ids) == ("O-O <call_env> R a7 a1 R f8 a8 <call_env>")
    assert ours == [True, True, False, False, False, True, True, True, True]


def test_the_answers_of_a_puzzle_are_its_line(starter):
    for puzzle in starter:
        ids, ours = answer_tokens(puzzle)
        board = puzzle.board()
        expected = []
        for number, uci in enumerate(puzzle.moves[1:]):
            move = chess.Move.from_uci(uci)
            written = encode_move(board, move) + [tokens.CALL_ENV] * (number % 2 == 0)
            expected += [(token, number % 2 == 0) for token in written]
            board.push(move)
        assert list(zip(ids, ours, strict=True)) == expected
        assert ids.count(tokens.CALL_ENV) == len(puzzle.solver_moves)
