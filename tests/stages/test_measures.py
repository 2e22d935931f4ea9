"""What a batch tells about itself, by hand."""

import dataclasses

import pytest
from handmade import episode

from chessrl.board.episodes import Outcome, Turn
from chessrl.stages.measures import measures_of
from chessrl.stages.update import credit_of

LEGAL, ILLEGAL = Turn("Qa1a8#", "a1a8", True), Turn("Qa1h1", None, False)


def played(length, group, outcome, version=3, thought=None):
    solved = outcome.reward
    return dataclasses.replace(
        episode(length, length, group, solved),
        outcome=outcome, version=version, thought=thought,
    )  # fmt: skip


@pytest.fixture
def batch():
    """Two groups of four: one solved by one of them, the other by none."""
    solved = Outcome(1.0, 1, "solved", (LEGAL,))
    wrong = Outcome(0.0, 1, "wrong", (dataclasses.replace(LEGAL, right=False),))
    illegal = Outcome(0.0, 1, "illegal", (ILLEGAL,))
    cut = Outcome(0.0, 0, "truncated", ())
    return [
        played(3, 7, solved, thought=[5]), played(5, 7, wrong), played(3, 7, illegal),
        played(9, 7, cut), *[played(4, 8, wrong, version=5) for _ in range(4)],
    ]  # fmt: skip


def test_a_batch_by_hand(batch, tiny, tmp_path):
    config = tiny(tmp_path, "rl.kl.estimator=none", "rl.kl.weight=0").rl
    found = measures_of(batch, credit_of(batch, config, None), step=5)
    assert found["reward"] == found["pass@1"] == pytest.approx(1 / 8)
    assert found["pass@2"] == pytest.approx((1 / 2 + 0) / 2)
    assert found["pass@4"] == pytest.approx((1 + 0) / 2)
    assert (found["none_solved"], found["all_solved"], found["mixed"]) == (0.5, 0.0, 0.5)
    assert (found["groups"], found["solved"], found["counted"]) == (2, 1, 1)
    assert found["first_legal"] == 6 / 8
    assert found["thought_closed"] == 1 / 8
    # one token of each is the environment's
    assert found["response_tokens"] == pytest.approx((2 + 4 + 2 + 8 + 4 * 3) / 8)
    assert found["lag"] == (4 * 2 + 4 * 0) / 8
    assert (found["ended_solved"], found["ended_wrong"]) == (1 / 8, 5 / 8)
    assert (found["ended_illegal"], found["ended_truncated"]) == (1 / 8, 1 / 8)
    nats = -sum(sum(one.sample.logprobs) for one in batch)
    assert found["entropy"] == pytest.approx(nats / 28)


def test_what_is_left_out_of_the_loss_is_still_told(batch, tiny, tmp_path):
    config = tiny(
        tmp_path, "rl.kl.estimator=none", "rl.kl.weight=0", "rl.zero_variance=drop"
    ).rl  # fmt: skip
    found = measures_of(batch, credit_of(batch, config, None), step=5)
    assert (found["counted"], found["groups"], found["reward"]) == (0.5, 2, 1 / 8)
