"""The self-test lets a sound judge pass and finds each way to spoil it."""

import dataclasses
import random
import re
import time
from collections import Counter

import chess
import pytest

from chessrl.board import episodes, selftest, tokens
from chessrl.board.episodes import Episode
from chessrl.board.hardcases import FAULTY, HARD
from chessrl.board.puzzles import validate
from chessrl.board.selftest import JudgeFault, check_judge, scripts_of


def test_a_sound_judge_passes_in_less_than_a_second(starter):
    began = time.process_time()
    check_judge(starter[:100])
    assert time.process_time() - began < 1.0


def test_hard_cases_are_sound_and_know_every_ending():
    assert [validate(case.puzzle) for case in HARD] == [None] * len(HARD)
    assert [validate(faulty) for faulty, _ in FAULTY] == ["illegal_move"] * len(FAULTY)
    endings = Counter(ended_by for case in HARD for _, ended_by, _ in case.answers)
    assert set(endings) == set(episodes.ENDINGS) - {"unanswered"}
    assert all(case.answers[0][1] == "solved" for case in HARD)


def test_puzzles_of_the_run_are_played_in_every_way(starter):
    endings = Counter(script.ended_by for taken in starter for script in scripts_of(taken))
    assert endings["solved"] == 2 * 300
    assert endings["truncated"] == endings["illegal"] == 300
    assert endings["malformed"] > 2 * 300 and endings["wrong"] > 300


def test_a_sample_is_spread_over_the_puzzles(starter, monkeypatch):
    tried = []
    monkeypatch.setattr(selftest, "_check", lambda taken, _: tried.append(taken))
    check_judge(starter, sample=7)
    tried = tried[len(HARD) :]
    assert tried == starter[::43] and len(tried) == 7
    tried.clear()
    check_judge(starter[:3])
    assert tried[len(HARD) :] == starter[:3]


def rewarding(reward):
    """Another reward in each outcome."""
    honest = Episode.outcome.fget
    return lambda self: dataclasses.replace(honest(self), reward=reward(honest(self).reward))


def castle_as_white(patch):
    honest = tokens.read_move

    def read(board, text):
        if text.startswith("O-O") and board.turn == chess.BLACK:
            raise tokens.Illegal(text)
        return honest(board, text)

    patch.setattr(tokens, "read_move", read)


def squares_alone(patch):
    honest = tokens.read_move

    def read(board, text):
        squares = re.fullmatch("[KQRBNP]?([a-h][1-8])x?([a-h][1-8])[+#]?", text)
        move = chess.Move.from_uci(squares[1] + squares[2]) if squares else chess.Move.null()
        return move if board.is_legal(move) else honest(board, text)

    patch.setattr(tokens, "read_move", read)


def refuse_other_mates(patch):
    patch.setattr(episodes, "_mates", lambda board, move: False)


def take_any_mate(patch):
    patch.setattr(episodes._Position, "_solution_mates", True)


def always_1(patch):
    patch.setattr(Episode, "outcome", property(rewarding(lambda _: 1.0)))


def always_0(patch):
    patch.setattr(Episode, "outcome", property(rewarding(lambda _: 0.0)))


def flip_one_in_ten(patch):
    rng = random.Random(5)
    flipped = rewarding(lambda reward: 1 - reward if rng.random() < 0.1 else reward)
    patch.setattr(Episode, "outcome", property(flipped))


def swallow_errors(patch):
    honest = Episode.answer

    def answer(self, text):
        try:
            return honest(self, text)
        except Exception:
            return None

    patch.setattr(Episode, "answer", answer)


def read_within_the_thought(patch):
    honest = episodes.split_thought

    def split(ids):
        try:
            return honest(ids)
        except tokens.Unreadable:
            return None, list(ids[1:])

    patch.setattr(episodes, "split_thought", split)


def reply_to_wrong_moves(patch):
    honest = episodes._Position.judge

    def judge(self, text):
        turn, ended_by = honest(self, text)
        more = self._number + 1 < len(self._puzzle.solver_moves)
        return turn, None if ended_by == "wrong" and more else ended_by

    patch.setattr(episodes._Position, "judge", judge)


def share_one_verdict(patch):
    honest = episodes._Position.judge
    patch.setattr(episodes._Position, "judge", lambda self, text: honest(self, text[:2]))


def truncation_unseen(patch):
    patch.setattr(Episode, "truncate", lambda self: None)


def crash(patch):
    patch.setattr(tokens, "read_move", lambda board, text: 1 / 0)


@pytest.mark.parametrize(
    ("sabotage", "case"),
    [
        (castle_as_white, "castling-by-black"),
        (squares_alone, "castling-by-black"),
        (refuse_other_mates, "another-mate"),
        (take_any_mate, "no-mate-in-the-solution"),
        (always_1, "castling-by-black"),
        (always_0, "castling-by-black"),
        (flip_one_in_ten, ""),
        (swallow_errors, "solution-not-legal"),
        (read_within_the_thought, "another-mate"),
        (reply_to_wrong_moves, "castling-by-black"),
        (share_one_verdict, "castling-by-black"),
        (truncation_unseen, "castling-by-black"),
        (crash, "castling-by-black"),
    ],
)
def test_a_spoilt_judge_is_found(sabotage, case, monkeypatch):
    sabotage(monkeypatch)
    with pytest.raises(JudgeFault, match=f"puzzle selftest/{case}.*expected .*; got ") as fault:
        check_judge([])
    assert "\n" not in str(fault.value)


def test_the_fault_says_puzzle_answers_and_both_verdicts(monkeypatch):
    always_0(monkeypatch)
    with pytest.raises(JudgeFault) as fault:
        check_judge([])
    assert str(fault.value) == (
        "the judge is at fault: puzzle selftest/castling-by-black, answers 'O-O; Rf8a8': expected "
        "reward 1, solved, 2 right of moves e8g8 f8a8, replies Ra7a1; got reward 0, solved, "
        "2 right of moves e8g8 f8a8, replies Ra7a1"
    )


def test_a_fault_that_only_a_puzzle_of_the_run_shows_is_found(starter, monkeypatch):
    honest = episodes._Position._judge

    def judge(self, text):
        turn, ended_by = honest(self, text)
        return (turn, "wrong") if self._puzzle is starter[42] else (turn, ended_by)

    monkeypatch.setattr(episodes._Position, "_judge", judge)
    check_judge([])
    with pytest.raises(JudgeFault, match=f"puzzle {starter[42].id}, "):
        check_judge(starter[:100])
