"""Losses: every formula with numbers worked out by hand."""

import math

import pytest
import torch

from chessrl.policy.losses import masked_nll, token_logprobs


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
