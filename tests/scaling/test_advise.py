"""Advice agrees with a search by hand, and says what it does not know."""

import dataclasses

import numpy as np
import pytest
import yaml

from chessrl.config import InputError
from chessrl.config.law import ExponentialConfig, LawConfig, LossLawConfig, SlopeConfig
from chessrl.scaling.advise import advise, through
from chessrl.scaling.frontier import best_splits
from chessrl.scaling.lawfile import law_of, law_yaml

N = 203.1e6


def test_from_nothing_it_is_the_frontier(published):
    advice = advise(published, N, 0, 1e20, epsilon=0.005)
    split = best_splits(published, N, np.array([1e20]), 0, 0.005)
    assert advice.reward == pytest.approx(split.reward[0], abs=1e-6)
    assert advice.rl_flops / 1e20 == pytest.approx(split.rl_share[0], abs=1e-3)
    assert advice.more_tokens == pytest.approx(split.tokens[0], rel=2e-3)
    assert np.isnan(advice.reward_now) and advice.spread == 0


def test_what_was_spent_already_counts(published):
    advice = advise(published, N, 1e10, 5e19)
    more = np.linspace(0, 5e19 / 6 / N, 400001)[:-1]
    rewards = published.predict(N, 1e10 + more, 5e19 - 6 * N * more)
    assert advice.more_tokens == pytest.approx(more[rewards.argmax()], abs=5e19 / 6 / N / 1000)
    assert advice.reward == pytest.approx(rewards.max(), abs=1e-5)
    assert advice.reward_now == pytest.approx(published.predict(N, 1e10, 5e19))
    near = more[rewards >= rewards.max() - 0.005]
    assert advice.tokens_low == pytest.approx(near[0], abs=2e8)
    assert advice.tokens_high == pytest.approx(near[-1], abs=2e8)


def test_a_model_that_read_enough_goes_to_rl(published):
    advice = advise(published, 20.5e6, 3e11, 1e19)
    assert advice.more_tokens == 0 and advice.rl_flops == 1e19
    assert advice.reward == advice.reward_now


def test_the_measured_loss_moves_the_law(published):
    expected = float(published.loss.predict(N, 1e10))
    law = through(published, N, 1e10, expected + 0.05)
    assert law.loss.predict(N, 1e10) == pytest.approx(expected + 0.05)
    assert law.loss.e == published.loss.e
    better = advise(published, N, 1e10, 5e19, loss=expected - 0.01)
    same = advise(published, N, 1e10, 5e19, loss=expected)
    assert same.reward == pytest.approx(advise(published, N, 1e10, 5e19).reward)
    assert better.reward > same.reward
    with pytest.raises(InputError, match=r"advise.loss=0.4 is not above the law's least, 0.414"):
        advise(published, N, 1e10, 5e19, loss=0.4)


def test_other_laws_widen_the_answer(published):
    steeper = dataclasses.replace(
        published, slope=dataclasses.replace(published.slope, constant=-0.15)
    )
    alone = advise(published, N, 1e10, 5e19, epsilon=0)
    others = advise(published, N, 1e10, 5e19, epsilon=0, others=[published, steeper])
    assert alone.tokens_low == alone.tokens_high == alone.more_tokens
    assert others.tokens_low < others.tokens_high and others.spread > 0


def test_no_answer_is_one_line(published):
    with pytest.raises(InputError, match="do not pay for SFT at 2e"):
        advise(published, N, 1e10, 1e18, sft_flops=2e18)
    with pytest.raises(InputError, match="the law does not hold of 2e\\+09 parameters after up to"):
        advise(published, 2e9, 0, 1e16)


def test_a_law_is_written_as_an_option_of_its_group(published):
    read = yaml.safe_load(law_yaml(published, error=0.02))
    config = LawConfig(
        loss=LossLawConfig(**read.pop("loss")),
        reward=ExponentialConfig(**read.pop("reward")),
        floor=ExponentialConfig(**read.pop("floor")),
        slope=SlopeConfig(**read.pop("slope")),
        **read,
    )
    assert law_of(config) == published and config.error == 0.02
