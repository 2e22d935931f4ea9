"""The judge: what earns the reward, what ends an episode, and what is never paid."""

import random

import chess
import pytest
from judging import CASTLING, CASTLING_LINE, ids, mates, puzzle, solver_texts

from chessrl.board import tokens
from chessrl.board.episodes import Episode, play_turn, replay, split_thought
from chessrl.board.tokens import decode, encode_move


def test_castling_by_black_is_right():
    outcome = replay(puzzle(CASTLING, CASTLING_LINE), ["O-O", "Rf8a8"])
    assert (outcome.reward, outcome.solver_turns, outcome.ended_by) == (1.0, 2, "solved")
    assert [turn.move for turn in outcome.turns] == ["e8g8", "f8a8"]
    assert [turn.right for turn in outcome.turns] == [True, True]


@pytest.mark.parametrize(
    ("answer", "ended_by"),
    [
        ("Ke1g1", "illegal"),  # White's castling squares
        ("Ke8g8", "malformed"),  # castling is written as castling
        ("O-O-O", "illegal"),
        ("Rh8g8", "wrong"),
    ],
)
def test_castling_with_other_squares_earns_nothing(answer, ended_by):
    outcome = replay(puzzle(CASTLING, CASTLING_LINE), [answer, "Rf8a8"])
    assert (outcome.reward, outcome.solver_turns, outcome.ended_by) == (0.0, 1, ended_by)


def test_a_wrong_move_ends_the_episode_without_a_reply():
    taken = puzzle(CASTLING, CASTLING_LINE)
    episode = Episode(taken)
    assert episode.answer("Ke8d8") is None
    assert episode.over
    outcome = episode.outcome
    assert (outcome.reward, outcome.solver_turns, outcome.ended_by) == (0.0, 1, "wrong")
    assert outcome.turns[0].move == "e8d8"  # legal, so it is told
    assert outcome.first_legal
    with pytest.raises(ValueError, match="puzzle p is over: wrong"):
        episode.answer("Rf8a8")
    assert replay(taken, ["Ke8d8", "Rf8a8"]) == outcome


def test_a_right_move_brings_the_tokens_of_the_recorded_reply():
    episode = Episode(puzzle(CASTLING, CASTLING_LINE))
    assert episode.answer("O-O") == ids("R a7 a1")
    assert episode.board.piece_at(chess.F8) == chess.Piece(chess.ROOK, chess.BLACK)
    assert episode.board.piece_at(chess.A1) == chess.Piece(chess.ROOK, chess.WHITE)
    assert episode.board.turn == chess.BLACK
    assert not episode.over
    assert episode.outcome.ended_by == "unanswered"
    assert episode.answer("Rf8a8") is None
    assert episode.outcome.reward == 1.0


def test_legality_is_judged_after_the_opponents_move():
    # pains 5: the FEN is before e8d8, the solver is White
    taken = puzzle("4k3/8/8/8/8/8/4P3/4K3 b - - 0 1", "e8d8 e2e4")
    assert replay(taken, ["Pe2e4"]).reward == 1.0
    outcome = replay(taken, ["Ke8d8"])
    assert (outcome.reward, outcome.ended_by, outcome.first_legal) == (0.0, "illegal", False)


def test_the_second_move_wrong_is_nothing_and_so_is_no_answer():
    taken = puzzle(CASTLING, CASTLING_LINE)
    outcome = replay(taken, ["O-O", "Rf8e8"])
    assert (outcome.reward, outcome.solver_turns, outcome.ended_by) == (0.0, 2, "wrong")
    outcome = replay(taken, ["O-O"])
    assert (outcome.reward, outcome.solver_turns, outcome.ended_by) == (0.0, 1, "unanswered")
    outcome = replay(taken, [])
    assert (outcome.reward, outcome.solver_turns, outcome.ended_by) == (0.0, 0, "unanswered")
    assert not outcome.first_legal


def test_a_puzzle_without_a_solution_is_refused():
    with pytest.raises(ValueError, match="no solver move"):
        puzzle(CASTLING, "a1a7")


def test_any_mate_is_right_where_the_solution_mates():
    # pains 9: after h8g8, both a1a8 and b1b8 mate
    taken = puzzle("7k/8/6K1/8/8/8/8/QR6 b - - 0 1", "h8g8 a1a8")
    assert replay(taken, ["Qa1a8#"]).reward == 1.0
    assert replay(taken, ["Rb1b8#"]).reward == 1.0
    assert replay(taken, ["Rb1b8"]).reward == 1.0  # the sign may be missing
    assert replay(taken, ["Rb1b8+"]).reward == 1.0  # and does not say which move is meant
    assert replay(taken, ["Qa1g7#"]).reward == 1.0
    assert replay(taken, ["Qa1a2+"]).ended_by == "wrong"  # a check is no mate


def test_a_mate_is_not_right_where_the_solution_does_not_mate():
    # the same position, with a solution that only checks
    taken = puzzle("7k/8/6K1/8/8/8/8/QR6 b - - 0 1", "h8g8 a1a2")
    assert replay(taken, ["Rb1b8#"]).ended_by == "wrong"
    assert replay(taken, ["Qa1a2+"]).reward == 1.0


def test_the_piece_letter_and_the_capture_sign_count():
    taken = puzzle("4k3/8/8/3p4/8/8/4P3/4K3 b - - 0 1", "d5d4 e2e4")
    assert replay(taken, ["Qe2e4"]).ended_by == "malformed"
    assert replay(taken, ["Pe2xe4"]).ended_by == "malformed"
    assert replay(taken, ["e2e4"]).ended_by == "malformed"
    assert replay(taken, ["Pe2e4"]).reward == 1.0


CASTLERS = "r3k2r/p6p/8/8/8/8/P6P/R3K2R {} KQkq - 0 1"


@pytest.mark.parametrize(
    ("fen", "line", "right", "wrong"),
    [
        (CASTLERS.format("b"), "h7h6 e1g1", "O-O", "O-O-O"),
        (CASTLERS.format("b"), "h7h6 e1c1", "O-O-O", "O-O"),
        (CASTLERS.format("w"), "h2h3 e8g8", "O-O", "O-O-O"),
        (CASTLERS.format("w"), "h2h3 e8c8", "O-O-O", "O-O"),
        ("4k3/3p4/8/4P3/8/8/8/4K3 b - - 0 1", "d7d5 e5d6", "Pe5xd6", "Pe5e6"),
        ("4k3/8/8/8/3p4/8/4P3/4K3 w - - 0 1", "e2e4 d4e3", "Pd4xe3", "Pd4d3"),
        ("1k6/8/8/8/8/8/4p3/6K1 w - - 0 1", "g1g2 e2e1q", "Pe2e1=Q", "Pe2e1=R"),
        ("1k6/8/8/8/8/8/4p3/6K1 w - - 0 1", "g1g2 e2e1r", "Pe2e1=R", "Pe2e1=Q"),
        ("1k6/8/8/8/8/8/4p3/6K1 w - - 0 1", "g1h1 e2e1b", "Pe2e1=B", "Pe2e1=N"),
        ("1k6/8/8/8/8/8/4p3/6K1 w - - 0 1", "g1h1 e2e1n", "Pe2e1=N", "Pe2e1=B"),
        ("1k6/4P3/8/8/8/8/8/6K1 b - - 0 1", "b8b7 e7e8q", "Pe7e8=Q", "Pe7e8=N"),
    ],
)
def test_special_moves_are_judged(fen, line, right, wrong):
    taken = puzzle(fen, line)
    assert replay(taken, [right]).reward == 1.0
    outcome = replay(taken, [wrong])
    assert (outcome.reward, outcome.ended_by) == (0.0, "wrong")  # legal, all of them


def test_a_line_of_seven_solver_moves_can_be_solved():
    line = "h8g8 a1b1 g8h8 b1c1 h8g8 c1d1 g8h8 d1e1 h8g8 e1f1 g8h8 f1f2 h8g8 f2f3"
    taken = puzzle("7k/8/8/8/8/2P5/2K5/R7 b - - 0 1", line)
    answers = ["Ra1b1", "Rb1c1", "Rc1d1", "Rd1e1", "Re1f1", "Rf1f2", "Rf2f3"]
    assert len(taken.solver_moves) == 7
    outcome = replay(taken, answers)
    assert (outcome.reward, outcome.solver_turns, outcome.ended_by) == (1.0, 7, "solved")
    assert replay(taken, answers[:6]).reward == 0.0


@pytest.mark.parametrize("line", ["h7h6 e1g1 h6h4 g1h1", "h7h6 e1g1 e8g8 e1d1", "h7h6 e1e3"])
def test_a_recorded_move_that_cannot_be_played_stops_the_run(line):
    taken = puzzle(CASTLERS.format("b"), line)
    with pytest.raises(ValueError, match=r"puzzle p: recorded move \w+ is not legal"):
        replay(taken, ["O-O", "Kg1h1"])


def test_an_illegal_first_move_of_the_opponent_stops_the_run():
    with pytest.raises(ValueError):
        replay(puzzle(CASTLING, "a1b7 e8g8"), ["O-O"])


def test_a_thought_is_told_from_the_answer():
    assert split_thought(ids("P e2 e4")) == (None, ids("P e2 e4"))
    assert split_thought(ids("<T> P e2 e4 <sep> N g1 f3 </T> P d2 d4")) == (
        ids("P e2 e4 <sep> N g1 f3"),
        ids("P d2 d4"),
    )
    assert split_thought(ids("<T> </T>")) == ([], [])
    assert split_thought([]) == (None, [])
    # two close tags: the first one closes, the rest is answer
    assert split_thought(ids("<T> P e2 e4 </T> P d2 d4 </T> N g1 f3")) == (
        ids("P e2 e4"),
        ids("P d2 d4 </T> N g1 f3"),
    )
    with pytest.raises(tokens.Unreadable, match="never closed"):
        split_thought(ids("<T> P e2 e4"))


@pytest.mark.parametrize(
    ("turn", "reward", "ended_by"),
    [
        ("Q a1 a8 #", 1.0, "solved"),
        ("<T> K g6 f6 <sep> Q a1 a2 + </T> Q a1 a8 #", 1.0, "solved"),
        ("<T> </T> Q a1 a8", 1.0, "solved"),
        ("<T> Q a1 a8 #", 0.0, "malformed"),  # right, but within a thought that never closes
        ("<T> Q a1 a8 # </T>", 0.0, "malformed"),
        ("<T> Q a1 a8 # </T> K g6 f6", 0.0, "wrong"),
        ("<T> K g6 f6 </T> Q a1 a8 # </T>", 0.0, "malformed"),  # a second close tag
        ("<T> K g6 f6 </T> K g6 f6 </T> Q a1 a8 #", 0.0, "malformed"),
        ("Q a1 a8 # </T>", 0.0, "malformed"),
        ("K g6 f6 <T> </T> Q a1 a8 #", 0.0, "malformed"),  # a thought opens a turn or is none
        ("<bos> Q a1 a8 #", 0.0, "malformed"),
        ("Q a1 a8 # Q a1 a8 #", 0.0, "malformed"),
        ("", 0.0, "malformed"),
    ],
)
def test_only_what_stands_after_the_thought_is_judged(turn, reward, ended_by):
    episode = Episode(puzzle("7k/8/6K1/8/8/8/8/QR6 b - - 0 1", "h8g8 a1a8"))
    assert play_turn(episode, ids(turn)) is None
    outcome = episode.outcome
    assert (outcome.reward, outcome.solver_turns, outcome.ended_by) == (reward, 1, ended_by)


def test_a_turn_with_a_thought_goes_on():
    episode = Episode(puzzle(CASTLING, CASTLING_LINE))
    assert play_turn(episode, ids("<T> K e8 d8 </T> O-O")) == ids("R a7 a1")
    assert play_turn(episode, ids("<T> R f8 a8 </T> R f8 a8")) is None
    assert episode.outcome.reward == 1.0
    assert [turn.answer for turn in episode.outcome.turns] == ["O-O", "Rf8a8"]


def test_a_budget_that_runs_out_has_its_own_ending():
    episode = Episode(puzzle(CASTLING, CASTLING_LINE))
    episode.answer("O-O")
    episode.truncate()
    outcome = episode.outcome
    assert (outcome.reward, outcome.solver_turns, outcome.ended_by) == (0.0, 1, "truncated")


def test_ids_and_text_have_the_same_verdict(starter):
    rng = random.Random(1)
    for taken in starter[:200]:
        board = taken.board()
        turn = encode_move(board, rng.choice(list(board.legal_moves)))
        if rng.random() < 0.5:  # spoil it
            turn[rng.randrange(len(turn))] = rng.randrange(3, 77)
        episode = Episode(taken)
        play_turn(episode, turn)
        assert episode.outcome == replay(taken, [decode(turn)])


def test_the_recorded_solution_of_any_puzzle_earns_1(starter):
    for taken in starter:
        outcome = replay(taken, solver_texts(taken))
        assert (outcome.reward, outcome.ended_by) == (1.0, "solved")
        assert outcome.solver_turns == len(taken.solver_moves)
        assert tuple(turn.move for turn in outcome.turns) == taken.solver_moves


def test_another_legal_move_in_its_place_earns_0(starter):
    rng = random.Random(2)
    spoilt = 0
    for taken in starter:
        texts = solver_texts(taken)
        place = rng.randrange(len(texts))
        board = taken.board()
        for uci in taken.moves[1 : 1 + 2 * place]:
            board.push_uci(uci)
        others = [
            move
            for move in board.legal_moves
            if move.uci() != taken.solver_moves[place] and not mates(board, move)
        ]
        if not others:
            continue
        texts[place] = decode(encode_move(board, rng.choice(others)))
        outcome = replay(taken, texts)
        assert (outcome.reward, outcome.ended_by) == (0.0, "wrong")
        assert outcome.solver_turns == place + 1
        spoilt += 1
    assert spoilt > 250
