"""Lines and exponentials against numbers worked out by hand."""

import numpy as np
import pytest

from chessrl.config import InputError
from chessrl.scaling.laws import fit_exponential, fit_log_linear, fit_slope


def test_the_line_of_a_run_goes_through_its_points():
    fit = fit_log_linear([1e18, 1e19, 1e20, 1e21], [0.1, 0.2, 0.3, 0.4])
    assert (fit.level, fit.slope) == (pytest.approx(0.3), pytest.approx(0.1))
    assert fit_log_linear([1e18, 1e19, 1e21], [0.1, 0.2, 0.4], anchor=1e18).level == (
        pytest.approx(0.1)
    )
    uneven = fit_log_linear([1e18, 1e19, 1e20], [0.0, 0.3, 0.3], anchor=1e19)
    assert (uneven.level, uneven.slope) == (pytest.approx(0.2), pytest.approx(0.15))
    assert uneven.rmse == pytest.approx(np.sqrt((0.05**2 + 0.1**2 + 0.05**2) / 3))
    assert uneven.r2 == pytest.approx(1 - 0.015 / 0.06)
    with pytest.raises(InputError, match="2 points for 2 parameters"):
        fit_log_linear([1, 10], [0, 1])
    with pytest.raises(InputError, match="one compute"):
        fit_log_linear([10, 10, 10], [0, 1, 0])
    with pytest.raises(InputError, match="rl_flops has values that are not positive"):
        fit_log_linear([0, 10, 100], [0, 1, 0])


def test_reward_against_loss_comes_back():
    loss = np.linspace(0.46, 0.9, 20)
    fit = fit_exponential(loss, 0.0314 + 129.85 * np.exp(-12.85 * loss), draws=0)
    assert fit.offset == pytest.approx(0.0314, rel=1e-4)
    assert fit.scale == pytest.approx(129.85, rel=1e-3)
    assert fit.rate == pytest.approx(12.85, rel=1e-4)
    assert fit.unidentified == () and fit.spearman == pytest.approx(1)


def test_pass_at_k_against_loss_has_no_offset():
    loss = np.linspace(0.8, 1.2, 12)
    fit = fit_exponential(loss, 789 * 10 ** (-2.15 * loss), offset=False, draws=30)
    assert fit.offset == 0 and fit.scale == pytest.approx(789, rel=1e-4)
    assert fit.rate == pytest.approx(2.15 * np.log(10), rel=1e-6)
    assert set(fit.intervals) == {"scale", "rate"}


def test_a_scatter_tells_no_rate():
    dice = np.random.default_rng(0)
    fit = fit_exponential(np.linspace(0.5, 0.6, 12), 0.2 + dice.normal(0, 0.05, 12), draws=0)
    assert "rate" in fit.unidentified
    with pytest.raises(InputError, match="one value of x"):
        fit_exponential(np.ones(9), np.ones(9))
    with pytest.raises(InputError, match="exponential: 3 points for 3 parameters"):
        fit_exponential([1, 2, 3], [3, 2, 1])


def test_slopes_come_back():
    sizes, tokens = np.meshgrid([1e7, 1e8, 1e9], [1e9, 1e10, 1e11])
    sizes, tokens = sizes.ravel(), tokens.ravel()
    slope = -0.216 + 0.0172 * np.log10(tokens) + 0.0098 * np.log10(sizes)
    fit = fit_slope(sizes, tokens, slope, draws=20)
    assert (fit.constant, fit.tokens, fit.params) == (
        pytest.approx(-0.216), pytest.approx(0.0172), pytest.approx(0.0098),
    )  # fmt: skip
    assert fit.unidentified == ()
    one_size = fit_slope(np.full(9, 1e8), tokens, slope, draws=0)
    assert set(one_size.unidentified) == {"constant", "params"}
    chinchilla = fit_slope(sizes, 20 * sizes, slope, draws=0)
    assert set(chinchilla.unidentified) == {"constant", "tokens", "params"}
    with pytest.raises(InputError, match="law of slopes: 3 runs for 3 parameters"):
        fit_slope(sizes[:3], tokens[:3], slope[:3])
