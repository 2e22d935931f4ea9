"""Each loss by hand, value and gradient."""

import math

import pytest
import torch

from chessrl.policy.surrogates import sequence_ratio, surrogate

MASK = torch.tensor([[True, True, False], [True, True, True]])
BEHAVIOUR = torch.log(torch.tensor([[0.5, 0.5, 0.5], [0.5, 0.25, 0.5]]))
NOW = torch.log(torch.tensor([[0.75, 0.4, 0.9], [0.5, 0.5, 0.1]]))
"""Ratios 1.5, 0.8, - and 1, 2, 0.2."""
ADVANTAGE = torch.tensor([1.0, -2.0])


def run(name, low, high, now=NOW):
    logp = now.clone().requires_grad_()
    gain, bound = surrogate(name, logp, BEHAVIOUR, ADVANTAGE, MASK, low, high)
    torch.where(MASK, gain, 0.0).sum().backward()
    return gain.detach(), bound, logp.grad


def test_reinforce():
    """A log p, of gradient A, whatever the ratio."""
    gain, bound, gradient = run("reinforce", 0.0, 0.0)
    torch.testing.assert_close(gain, ADVANTAGE[:, None] * NOW)
    assert gradient.tolist() == [[1.0, 1.0, 0.0], [-2.0, -2.0, -2.0]]
    assert not bound.any()


def test_grpo_clips_on_the_side_that_would_go_on():
    """A > 0: 1.5 is cut to 1.2 and loses its gradient, 0.8 stays.

    A < 0: 2 stays, since the bound would help; 0.2 is cut to 0.8.
    """
    gain, bound, gradient = run("grpo", 0.2, 0.2)
    torch.testing.assert_close(gain[0, :2], torch.tensor([1.2, 0.8]))
    torch.testing.assert_close(gain[1], torch.tensor([-2.0, -4.0, -1.6]))
    expected = torch.tensor([[0.0, 0.8, 0.0], [-2.0, -4.0, 0.0]])
    torch.testing.assert_close(gradient, expected)
    assert bound[MASK].tolist() == [True, False, False, True, True]


def test_dapo_leaves_more_room_above():
    """With high = .6, 1.5 is within: it counts in full and keeps its gradient."""
    gain, bound, gradient = run("dapo", 0.2, 0.6)
    torch.testing.assert_close(gain[0, :2], torch.tensor([1.5, 0.8]))
    torch.testing.assert_close(gradient[0], torch.tensor([1.5, 0.8, 0.0]))
    assert bound[MASK].tolist() == [False, False, False, True, True]


def test_cispo_caps_the_weight_and_keeps_every_gradient():
    """sg(min(ratio, 1.2)) A log p: the gradient is the capped ratio times A."""
    gain, bound, gradient = run("cispo", 0.0, 1.2)
    capped = torch.tensor([[1.2, 0.8, 1.2], [1.0, 1.2, 0.2]])
    torch.testing.assert_close(gain, capped * ADVANTAGE[:, None] * NOW)
    torch.testing.assert_close(gradient, torch.where(MASK, capped * ADVANTAGE[:, None], 0.0))
    assert bound[MASK].tolist() == [True, False, False, True, False]


def test_cispo_is_not_inert_in_the_only_update_of_a_batch():
    """Its ratio is to the log-probabilities of sampling, not to those computed just before."""
    _, _, stale = run("cispo", 0.0, 5.0)
    _, _, fresh = run("cispo", 0.0, 5.0, now=BEHAVIOUR)
    assert stale[0, 0] == pytest.approx(1.5) and fresh[0, 0] == 1.0
    assert not torch.allclose(stale, fresh)


def test_gspo_takes_the_geometric_mean_of_an_episode():
    """sqrt(1.5 x .8) = 1.0954; (1 x 2 x .2)^(1/3) = .7368, below .9 with A < 0: no gradient."""
    ratio = sequence_ratio(NOW - BEHAVIOUR, MASK).flatten()
    first, second = math.sqrt(1.2), 0.4 ** (1 / 3)
    assert ratio.tolist() == pytest.approx([first, second])
    gain, bound, gradient = run("gspo", 0.1, 0.1)
    assert gain[0].tolist() == pytest.approx([first] * 3)
    assert gain[1].tolist() == pytest.approx([-2 * 0.9] * 3)
    # two tokens carry it, each of them moves it by half
    assert gradient[0].tolist() == pytest.approx([first, first, 0.0])
    assert gradient[1].tolist() == [0.0, 0.0, 0.0]
    assert bound.tolist() == [[False] * 3, [True] * 3]


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [("grpo", 0.2, 0.2), ("dapo", 0.2, 0.26), ("cispo", 0, 5), ("gspo", 3e-3, 4e-3)],
)
def test_on_policy_all_are_reinforce(name, low, high):
    """At ratio 1 every gradient is the advantage, summed over an episode's tokens."""
    _, bound, gradient = run(name, low, high, now=BEHAVIOUR)
    _, _, plain = run("reinforce", 0, 0, now=BEHAVIOUR)
    torch.testing.assert_close(gradient.sum(1), plain.sum(1))
    assert not bound.any()


@pytest.mark.parametrize("name", ["reinforce", "grpo", "dapo", "cispo", "gspo"])
def test_what_the_mask_hides_has_no_part(name):
    bounds = {"reinforce": (0, 0), "cispo": (0, 2)}.get(name, (0.2, 0.2))
    changed = NOW.clone()
    changed[0, 2] = -9.0
    gain, _, gradient = run(name, *bounds)
    other, _, moved = run(name, *bounds, now=changed)
    assert torch.equal(gain[MASK], other[MASK]) and torch.equal(gradient, moved)
    assert gradient[0, 2] == 0


@pytest.mark.parametrize(
    ("ratio", "advantage", "value", "slope"),
    [
        (1.0, 2.0, 2.0, 2.0),
        (1.1, 2.0, 2.2, 2.2),  # within 1 +- 0.2: ratio x advantage; slope in log p is the same
        (1.3, 2.0, 2.4, 0.0),  # above and good: held at 1.2
        (0.7, 2.0, 1.4, 1.4),  # below and good: pulled back
        (0.9, -2.0, -1.8, -1.8),
        (0.7, -2.0, -1.6, 0.0),  # below and bad: held at 0.8
        (1.3, -2.0, -2.6, -2.6),  # above and bad: pushed down
        (1.3, 0.0, 0.0, 0.0),
    ],
)
def test_the_clipped_surrogate_by_hand(ratio, advantage, value, slope):
    behaviour = torch.tensor([[-1.5]])
    logp = (behaviour + math.log(ratio)).requires_grad_()
    mask = torch.ones(1, 1, dtype=torch.bool)
    credit = torch.tensor([advantage])
    gain, _ = surrogate("grpo", logp, behaviour, credit, mask, 0.2, 0.2)
    assert gain.item() == pytest.approx(value)
    gain.backward()
    assert logp.grad.item() == pytest.approx(slope)
