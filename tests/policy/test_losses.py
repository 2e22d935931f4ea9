"""Losses: every formula with numbers worked out by hand."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from chessrl.policy.losses import (
    clipped_surrogate,
    group_advantage,
    kl_k3,
    masked_nll,
    sample_mean,
    token_logprobs,
)


def test_log_probabilities_by_hand():
    logits = torch.log(torch.tensor([[[1.0, 3.0], [2.0, 2.0]]]))
    # 1 and 3 of 4, then 2 of 4
    expected = [math.log(3 / 4), math.log(2 / 4)]
    assert token_logprobs(logits, torch.tensor([[1, 0]]))[0].tolist() == pytest.approx(expected)
    # at temperature 1/2 the weights are squared: 9 of 1 + 9
    cold = token_logprobs(logits, torch.tensor([[1, 0]]), temperature=0.5)
    assert cold[0].tolist() == pytest.approx([math.log(9 / 10), math.log(1 / 2)])


def test_log_probabilities_are_those_of_the_library():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(3, 5, 7, generator=generator)
    tokens = torch.randint(7, (3, 5), generator=generator)
    for temperature in (1.0, 0.6):
        full = torch.log_softmax(logits / temperature, -1)
        expected = full.gather(-1, tokens[..., None])[..., 0]
        torch.testing.assert_close(token_logprobs(logits, tokens, temperature), expected)


def test_the_likelihood_is_summed_over_what_counts():
    logits = torch.log(torch.tensor([[[1.0, 3.0], [2.0, 2.0], [1.0, 9.0]]])).requires_grad_()
    mask = torch.tensor([[True, True, False]])
    loss = masked_nll(logits, torch.tensor([[1, 0, 0]]), mask)
    assert loss.item() == pytest.approx(-math.log(3 / 4) - math.log(1 / 2))
    loss.backward()
    # softmax minus one-hot: (1/4, 3/4 - 1) and (1/2 - 1, 1/2), and exactly nothing
    assert logits.grad.flatten().tolist() == pytest.approx([0.25, -0.25, -0.5, 0.5, 0, 0])
    assert torch.equal(logits.grad[0, 2], torch.zeros(2))


def test_advantages_by_hand():
    # mean 1/4, variance (9/16 + 3/16) / 4 = 3/16: 3/4 : sqrt(3)/4 = sqrt 3 and -1/sqrt 3
    root = math.sqrt(3)
    (one, dead, half) = group_advantage(
        torch.tensor([[1.0, 0, 0, 0], [1, 1, 1, 1], [0, 1, 1, 0]])
    ).tolist()
    assert one == pytest.approx([root, -1 / root, -1 / root, -1 / root])
    assert dead == [0, 0, 0, 0]
    assert half == pytest.approx([-1, 1, 1, -1])


@pytest.mark.parametrize("reward", [0.0, 1.0, 0.1, 1 / 3, 0.95])
@pytest.mark.parametrize("size", [1, 2, 7, 8, 64])
def test_a_group_that_agrees_has_no_advantage_at_all(reward, size):
    assert group_advantage(torch.full((2, size), reward)).tolist() == [[0.0] * size] * 2


@given(
    rewards=st.lists(st.sampled_from([0.0, 0.5, 0.95, 1.0]), min_size=2, max_size=16),
    seed=st.integers(0, 1000),
)
def test_advantages_are_bounded_centred_and_of_unit_spread(rewards, seed):
    advantage = group_advantage(torch.tensor([rewards]))[0]
    size = len(rewards)
    assert advantage.isfinite().all()
    assert advantage.abs().max() <= math.sqrt(size - 1) * (1 + 1e-5)
    assert advantage.sum().item() == pytest.approx(0, abs=1e-4)
    spread = 0.0 if len(set(rewards)) == 1 else 1.0
    assert advantage.square().mean().item() == pytest.approx(spread, abs=1e-4)
    order = torch.randperm(size, generator=torch.Generator().manual_seed(seed))
    shuffled = group_advantage(torch.tensor([rewards])[:, order])[0]
    torch.testing.assert_close(shuffled, advantage[order])


def test_groups_do_not_mix():
    together = group_advantage(torch.tensor([[0.0, 1, 1], [0, 0, 1]]))
    assert torch.equal(together[0], group_advantage(torch.tensor([[0.0, 1, 1]]))[0])
    assert torch.equal(together[1], group_advantage(torch.tensor([[0.0, 0, 1]]))[0])


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
    gain = clipped_surrogate(logp, behaviour, torch.tensor([advantage]), clip=0.2)
    assert gain.item() == pytest.approx(value)
    gain.backward()
    assert logp.grad.item() == pytest.approx(slope)


def test_on_policy_the_ratio_is_exactly_1():
    logp = torch.tensor([[-0.3, -7.1], [-2.2, -1e-6]], requires_grad=True)
    advantage = torch.tensor([1.7, -0.6])
    gain = clipped_surrogate(logp, logp.detach(), advantage, clip=0.2)
    assert torch.equal(gain, advantage[:, None].expand(2, 2))
    gain.sum().backward()
    assert torch.equal(logp.grad, advantage[:, None].expand(2, 2))  # REINFORCE


POLICY = [0.5, 0.2, 0.3]
REFERENCE = [0.1, 0.6, 0.3]


def test_k3_by_hand():
    logp, reference = torch.tensor(POLICY).log(), torch.tensor(REFERENCE).log()
    # r = 0.2, 3, 1: r - 1 - ln r
    expected = [0.2 - 1 - math.log(0.2), 3 - 1 - math.log(3), 0.0]
    assert kl_k3(logp, reference).tolist() == pytest.approx(expected)
    # its mean over the policy is KL(policy || reference)
    mean = sum(p * k for p, k in zip(POLICY, expected, strict=True))
    divergence = sum(p * math.log(p / q) for p, q in zip(POLICY, REFERENCE, strict=True))
    assert mean == pytest.approx(divergence)


@given(st.floats(-20, 0), st.floats(-20, 0))
def test_k3_is_never_negative_and_0_at_agreement(logp, reference):
    estimate = kl_k3(torch.tensor(logp).double(), torch.tensor(reference).double()).item()
    assert estimate >= -1e-15
    assert kl_k3(torch.tensor(logp), torch.tensor(logp)).item() == 0


@pytest.mark.parametrize("difference", [1e-3, -1e-3, 1e-2])
def test_k3_is_exact_near_agreement_in_single_precision(difference):
    # x^2 / 2 + x^3 / 6 of x = 0.001 is 5.002e-7, where exp(x) - 1 alone is rounded to 6e-8
    estimate = kl_k3(torch.tensor(0.0), torch.tensor(difference)).item()
    expected = difference**2 / 2 + difference**3 / 6 + difference**4 / 24
    assert estimate == pytest.approx(expected, rel=1e-3)


def test_the_mean_gradient_of_k3_is_that_of_the_reverse_divergence():
    logits = torch.tensor([0.3, -1.2, 0.8], dtype=torch.float64, requires_grad=True)
    reference = torch.tensor([-0.4, 0.9, 0.1], dtype=torch.float64).log_softmax(0)
    logp = logits.log_softmax(0)
    # every token in turn, weighted by how often the policy samples it
    weighted = (logp.exp().detach() * kl_k3(logp, reference)).sum()
    (ours,) = torch.autograd.grad(weighted, logits)
    reverse = (reference.exp() * (reference - logits.log_softmax(0))).sum()
    (expected,) = torch.autograd.grad(reverse, logits)
    torch.testing.assert_close(ours, expected)
    forward = logits.log_softmax(0).exp() * (logits.log_softmax(0) - reference)
    (other,) = torch.autograd.grad(forward.sum(), logits)
    assert (ours - other).abs().max() > 0.05  # and not that of KL(policy || reference)


def test_each_answer_counts_alike_whatever_its_length():
    values = torch.zeros(2, 8)
    values[0, :2] = torch.tensor([1.0, 3.0])
    values[1] = torch.arange(8.0)
    mask = torch.zeros(2, 8, dtype=torch.bool)
    mask[0, :2] = True
    mask[1] = True
    means = sample_mean(values, mask)
    # (1 + 3) / 2 and (0 + ... + 7) / 8 = 3.5
    assert means.tolist() == [2.0, 3.5]
    # the mean over the answers is 2.75; over the ten tokens it would be (4 + 28) / 10 = 3.2
    assert means.mean().item() == 2.75


def test_masked_tokens_have_no_value_and_no_gradient():
    values = torch.tensor([[1.0, 100.0, 3.0, 7.0]], requires_grad=True)
    mask = torch.tensor([[True, False, True, False]])
    mean = sample_mean(values, mask)
    assert mean.tolist() == [2.0]
    mean.sum().backward()
    assert values.grad.tolist() == [[0.5, 0.0, 0.5, 0.0]]
    assert sample_mean(values, torch.zeros_like(mask)).tolist() == [0.0]  # nothing chosen


def test_a_replys_log_probability_does_not_move_the_loss():
    def loss(reply: float) -> tuple[float, list[float]]:
        logp = torch.tensor([[-1.0, reply, -2.0]], requires_grad=True)
        behaviour = torch.tensor([[-1.1, 0.0, -2.0]])
        mask = torch.tensor([[True, False, True]])
        gain = clipped_surrogate(logp, behaviour, torch.tensor([0.7]), 0.2)
        total = (0.1 * sample_mean(kl_k3(logp, torch.tensor([[-1.0, -3.0, -2.5]])), mask)
                 - sample_mean(gain, mask)).sum()  # fmt: skip
        total.backward()
        return total.item(), logp.grad[0].tolist()

    value, gradient = loss(-0.5)
    assert loss(-30.0) == (value, gradient)
    assert gradient[1] == 0.0
    assert gradient[0] != 0.0
