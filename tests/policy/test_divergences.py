"""The estimators and their gradients on three tokens, where every mean is a sum."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from chessrl.policy.divergences import ESTIMATORS, k1, k2, k3
from chessrl.policy.losses import token_entropy

LOGITS = torch.tensor([0.3, -0.4, 1.1])
REFERENCE = torch.log_softmax(torch.tensor([-0.2, 0.5, 0.4]), 0)


def forward(logits):
    """KL(policy || reference)."""
    logp = torch.log_softmax(logits, 0)
    return (logp.exp() * (logp - REFERENCE)).sum()


def backward(logits):
    """KL(reference || policy)."""
    logp = torch.log_softmax(logits, 0)
    return (REFERENCE.exp() * (REFERENCE - logp)).sum()


def gradient(function):
    logits = LOGITS.clone().requires_grad_()
    (found,) = torch.autograd.grad(function(logits), logits)
    return found


def mean_gradient(estimator):
    """Mean over tokens of the policy of the gradient of the estimate, as in a loss."""

    def sampled(logits):
        logp = torch.log_softmax(logits, 0)
        return (logp.detach().exp() * estimator(logp, REFERENCE)).sum()

    return gradient(sampled)


def test_by_hand():
    """p = .5, q = .25: ln 2, (ln 2)^2 / 2, and .5 - 1 + ln 2."""
    p, q = torch.tensor(0.5).log(), torch.tensor(0.25).log()
    assert float(k1(p, q)) == pytest.approx(math.log(2))
    assert float(k2(p, q)) == pytest.approx(math.log(2) ** 2 / 2)
    assert float(k3(p, q)) == pytest.approx(0.5 - 1 + math.log(2))


@pytest.mark.parametrize("name", ["k1", "k3"])
def test_the_mean_is_the_divergence(name):
    logp = torch.log_softmax(LOGITS, 0)
    mean = (logp.exp() * ESTIMATORS[name](logp, REFERENCE)).sum()
    torch.testing.assert_close(mean, forward(LOGITS))


def test_k1_in_the_loss_does_nothing_on_average():
    assert mean_gradient(k1).abs().max() < 1e-7


def test_k2_in_the_loss_has_the_gradient_of_the_divergence():
    torch.testing.assert_close(mean_gradient(k2), gradient(forward))


def test_k3_in_the_loss_has_the_gradient_of_the_other_divergence():
    torch.testing.assert_close(mean_gradient(k3), gradient(backward))
    assert not torch.allclose(mean_gradient(k3), gradient(forward), atol=1e-2)


def test_k1_in_the_reward_has_the_gradient_of_the_divergence():
    """The score function times the estimate, which is not differentiated."""

    def rewarded(logits):
        logp = torch.log_softmax(logits, 0)
        return (logp.detach().exp() * k1(logp, REFERENCE).detach() * logp).sum()

    torch.testing.assert_close(gradient(rewarded), gradient(forward))


def test_k2_and_k3_are_never_negative():
    logp, reference = torch.randn(2, 1000, generator=torch.Generator().manual_seed(0))
    assert (k2(logp, reference) >= 0).all() and (k3(logp, reference) >= 0).all()


def test_the_entropy_is_that_of_the_tempered_distribution():
    """Two tokens, logits ln 3 and 0: at temperature 1 (3/4, 1/4), at 1/2 (9/10, 1/10)."""
    logits = torch.tensor([[[math.log(3), 0.0]]])
    for temperature, p in ((1.0, 0.75), (0.5, 0.9)):
        expected = -(p * math.log(p) + (1 - p) * math.log(1 - p))
        assert float(token_entropy(logits, temperature)) == pytest.approx(expected)


@given(st.floats(-20, 0), st.floats(-20, 0))
def test_k3_is_never_negative_and_0_at_agreement(logp, reference):
    estimate = k3(torch.tensor(logp).double(), torch.tensor(reference).double()).item()
    assert estimate >= -1e-15
    assert k3(torch.tensor(logp), torch.tensor(logp)).item() == 0


@pytest.mark.parametrize("difference", [1e-3, -1e-3, 1e-2])
def test_k3_is_exact_near_agreement_in_single_precision(difference):
    # x^2 / 2 + x^3 / 6 of x = 0.001 is 5.002e-7, where exp(x) - 1 alone is rounded to 6e-8
    estimate = k3(torch.tensor(0.0), torch.tensor(difference)).item()
    expected = difference**2 / 2 + difference**3 / 6 + difference**4 / 24
    assert estimate == pytest.approx(expected, rel=1e-3)
