"""Advantages and token weights by hand; groups of any size, in any order."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from chessrl.policy.credit import (
    advantage_of,
    agree,
    group_mean,
    length_penalty,
    token_weights,
)

ALL = torch.ones(8, dtype=torch.bool)
REWARD = torch.tensor([1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0])
GROUPS = torch.tensor([0, 0, 0, 0, 1, 1, 1, 1])


def advantage(kind, reward=REWARD, groups=GROUPS, counted=None):
    counted = torch.ones_like(groups, dtype=torch.bool) if counted is None else counted
    return advantage_of(reward, groups, kind, counted)


def test_over_the_spread_of_the_prompt():
    """Means 1/4 and 3/4, both with sd sqrt(3)/4: 0.75/0.433 = sqrt 3, -0.25/0.433 = -1/sqrt 3."""
    high, low = math.sqrt(3), 1 / math.sqrt(3)
    expected = [high, -low, -low, -low, low, low, -high, low]
    assert advantage("prompt").tolist() == pytest.approx(expected)


def test_over_the_spread_of_the_batch():
    """Two differences of 3/4 and six of 1/4: mean square (2 x 9 + 6) / 16 / 8 = 3/16."""
    sd = math.sqrt(3 / 16)
    expected = [0.75 / sd, *[-0.25 / sd] * 3, 0.25 / sd, 0.25 / sd, -0.75 / sd, 0.25 / sd]
    assert advantage("batch").tolist() == pytest.approx(expected)


def test_the_spread_of_the_batch_is_that_of_what_counts():
    """A dead group of four more zeros halves the mean square where it counts."""
    reward, groups = torch.cat([REWARD[:4], torch.zeros(4)]), GROUPS
    kept = advantage("batch", reward)
    dropped = advantage("batch", reward, counted=groups == 0)
    assert kept[0].item() == pytest.approx(0.75 / math.sqrt(3 / 32))
    assert dropped[0].item() == pytest.approx(0.75 / math.sqrt(3 / 16))
    assert kept[4:].tolist() == dropped[4:].tolist() == [0.0] * 4


def test_without_a_scale():
    assert advantage("none").tolist() == [0.75, -0.25, -0.25, -0.25, 0.25, 0.25, -0.75, 0.25]


def test_against_the_mean_of_the_others():
    """1 - 0 for the solved one; 0 - 1/3 for the others."""
    expected = [1.0, *[-1 / 3] * 3, 1 / 3, 1 / 3, -1.0, 1 / 3]
    assert advantage("leave-one-out").tolist() == pytest.approx(expected)


@pytest.mark.parametrize("kind", ["prompt", "batch", "none", "leave-one-out"])
def test_groups_that_agree_get_exactly_nothing(kind):
    reward = torch.tensor([0.1] * 3 + [0.95] * 7 + [0.0] + [1.0])
    groups = torch.tensor([0] * 3 + [1] * 7 + [2] + [3])
    assert advantage(kind, reward, groups).tolist() == [0.0] * 12


@pytest.mark.parametrize("kind", ["prompt", "batch", "none", "leave-one-out"])
def test_uneven_groups_in_any_order(kind):
    """4, 3 and 4 episodes, the three of one mind; shuffled, each keeps its advantage."""
    reward = torch.tensor([1, 0, 0, 1, 1, 1, 1, 0, 1, 0, 0.0])
    groups = torch.tensor([0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 2])
    straight = advantage(kind, reward, groups)
    assert straight[4:7].tolist() == [0.0] * 3
    assert (straight[reward == 1][[0, 1, -1]] > 0).all()
    order = torch.randperm(11, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(advantage(kind, reward[order], groups[order]), straight[order])


@given(st.lists(st.floats(0, 1, width=32), min_size=2, max_size=32))
def test_no_advantage_exceeds_the_root_of_the_others(rewards):
    found = advantage("prompt", torch.tensor(rewards), torch.zeros(len(rewards)).long())
    assert found.isfinite().all()
    assert found.abs().max() <= math.sqrt(len(rewards) - 1) * (1 + 1e-3)


@given(st.lists(st.sampled_from([0.0, 0.5, 0.95, 1.0]), min_size=2, max_size=16))
def test_over_the_spread_of_the_prompt_it_is_centred_and_of_unit_spread(rewards):
    found = advantage("prompt", torch.tensor(rewards), torch.zeros(len(rewards)).long())
    assert found.sum().item() == pytest.approx(0, abs=1e-4)
    spread = 0.0 if len(set(rewards)) == 1 else 1.0
    assert found.square().mean().item() == pytest.approx(spread, abs=1e-4)


def test_group_means():
    assert group_mean(REWARD, GROUPS).tolist() == [0.25] * 4 + [0.75] * 4
    assert agree(torch.tensor([1.0, 1.0, 0.0, 1.0]), torch.tensor([0, 0, 1, 1])).tolist() == [
        True, True, False, False,
    ]  # fmt: skip


LENGTHS = torch.tensor([2, 8, 4, 4])
PAIRS = torch.tensor([0, 0, 1, 1])


def weights(kind, counted=(True,) * 4):
    return token_weights(LENGTHS, PAIRS, torch.tensor(counted), kind).tolist()


def test_the_three_means_by_hand():
    """Two groups of two. sample: 1/2 1/2 1/len; prompt: 1/2 over 10 and 8 tokens; token: 1/18."""
    assert weights("sample") == pytest.approx([1 / 8, 1 / 32, 1 / 16, 1 / 16])
    assert weights("prompt") == pytest.approx([1 / 20, 1 / 20, 1 / 16, 1 / 16])
    assert weights("token") == pytest.approx([1 / 18] * 4)


def test_what_is_left_out_is_in_no_denominator():
    """Without the episode of 8 tokens: groups of one and two; without a group: one group."""
    three = (True, False, True, True)
    assert weights("sample", three) == pytest.approx([1 / 4, 0, 1 / 16, 1 / 16])
    assert weights("prompt", three) == pytest.approx([1 / 4, 0, 1 / 16, 1 / 16])
    assert weights("token", three) == pytest.approx([1 / 10, 0, 1 / 10, 1 / 10])
    one = (True, True, False, False)
    assert weights("sample", one) == pytest.approx([1 / 4, 1 / 16, 0, 0])
    assert weights("prompt", one) == pytest.approx([1 / 10, 1 / 10, 0, 0])


@pytest.mark.parametrize("kind", ["sample", "prompt", "token"])
def test_all_tokens_together_weigh_one(kind):
    for counted in ((True,) * 4, (True, False, True, True), (False, False, True, False)):
        found = token_weights(LENGTHS, PAIRS, torch.tensor(counted), kind)
        assert float((found * LENGTHS).sum()) == pytest.approx(1)
    assert weights(kind, (False,) * 4) == [0.0] * 4


def test_the_length_penalty_of_dapo():
    """Budget 14, margin 2: nothing up to 12, half at 13, all at 14 and beyond."""
    found = length_penalty(torch.tensor([3, 12, 13, 14, 20]), 14, 2)
    assert found.tolist() == [0.0, 0.0, -0.5, -1.0, -1.0]
