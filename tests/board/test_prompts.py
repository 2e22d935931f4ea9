"""Prompts and documents: one `<bos>`, the right board, and the right tokens to learn from."""

import random

import chess
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chessrl.board import tokens
from chessrl.board.prompts import answer_tokens, game_documents, puzzle_prompt
from chessrl.board.puzzles import Puzzle
from chessrl.board.splits import position_key
from chessrl.board.tokens import decode, decode_board, encode_move, read_move, split_moves

FOOLS = "rnbqkbnr/pppp1ppp/8/4p3/6P1/5P2/PPPPP2P/RNBQKBNR b KQkq - 0 2"
GAMES = ("f2f3 e7e5 g2g4", "g1f3 d7d5 f3g1 d5d4 e2e4")


def known(moves: str = "a7a6 a2a3", history: str = GAMES[0]) -> Puzzle:
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


def test_a_game_as_history_is_one_document():
    (document,) = game_documents(GAMES[0].split(), "history")
    ids, targets = document
    assert " ".join(tokens.TOKENS[i] for i in ids) == ("<bos> P f2 f3 P e7 e5 P g2 g4 <eos>")
    assert targets == [False] + [True] * 10  # nine tokens of moves and <eos>


@given(seed=st.integers(0, 10_000), length=st.integers(1, 60), plies=st.integers(1, 70))
def test_documents_with_boards_hold_each_ply_once_from_the_first_cut_on(seed, length, plies):
    game = random_game(seed, length)
    documents = list(game_documents(game, "board", plies))
    read = []  # position and moves of each document
    for number, (ids, targets) in enumerate(documents):
        shown, moves = after_bos(ids)
        assert ids.count(tokens.BOS) == 1
        assert targets == [False] * (len(ids) - len(moves)) + [True] * len(moves)
        last = number == len(documents) - 1
        assert (moves[-1] == tokens.EOS) == last
        assert ids.count(tokens.EOS) == last
        read.append((shown.copy(), play_tokens(shown, moves[:-1] if last else moves)))
        assert 0 < len(read[-1][1]) <= plies
        assert len(read[-1][1]) == plies or last
    skipped = len(game) - sum(len(moves) for _, moves in read)
    assert 0 <= skipped < min(plies, len(game))
    board = chess.Board()
    for uci in game[:skipped]:
        board.push_uci(uci)
    for shown, moves in read:
        assert (shown.board_fen(), shown.turn) == (board.board_fen(), board.turn)
        assert tuple(moves) == game[board.ply() : board.ply() + len(moves)]
        for uci in moves:
            board.push_uci(uci)


@given(seed=st.integers(0, 10_000), length=st.integers(1, 60))
def test_without_a_length_one_document_runs_from_a_ply_to_the_end(seed, length):
    game = random_game(seed, length)
    ((ids, targets),) = game_documents(game, "board")
    shown, moves = after_bos(ids)
    assert moves[-1] == tokens.EOS
    played = play_tokens(shown, moves[:-1])
    assert played and tuple(played) == game[-len(played) :]
    assert sum(targets) == len(moves)


def first_ply(game: tuple[str, ...], plies: int) -> int:
    """Ply at which the documents of a game begin."""
    documents = list(game_documents(game, "board", plies))
    assert documents == list(game_documents(list(game), "board", plies))
    shown, _ = after_bos(documents[0][0])
    board = chess.Board()
    for uci in game:
        if (board.board_fen(), board.turn) == (shown.board_fen(), shown.turn):
            break
        board.push_uci(uci)
    return board.ply()


def test_the_first_cut_depends_on_the_moves_and_falls_everywhere():
    games = [random_game(seed, 40) for seed in range(60)]
    # 15 of 60 expected at each ply, standard deviation 3.4
    firsts = [first_ply(game, 4) for game in games]
    assert all(abs(firsts.count(ply) - 15) < 5 * 3.4 for ply in range(4))
    assert {first_ply(game, 0) // 8 for game in games} == {0, 1, 2, 3, 4}


@pytest.mark.parametrize(("form", "plies"), [("history", 0), ("board", 0), ("board", 5)])
def test_a_game_that_reaches_a_held_out_position_makes_no_documents(form, plies):
    rng = random.Random(0)
    for seed in range(20):
        game = random_game(seed, 30)
        board = chess.Board()
        keys = [position_key(board)]
        for uci in game:
            board.push_uci(uci)
            keys.append(position_key(board))
        other = chess.Board("8/8/4k3/8/8/3QK3/8/8 w - - 0 1")
        documents = game_documents(game, form, plies, {position_key(other)})
        assert documents == game_documents(game, form, plies)
        for key in (keys[0], keys[-1], rng.choice(keys)):
            assert game_documents(game, form, plies, {position_key(other), key}) is None
