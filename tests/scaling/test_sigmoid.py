"""ScaleRL's curve comes back from noisy points, and what they cannot tell is named."""

import numpy as np
import pytest

from chessrl.config import InputError
from chessrl.scaling.laws import fit_power, fit_sigmoid

COMPUTE = np.linspace(1500, 8000, 34)


def truth(compute, a=0.61, b=1.92, middle=2542, r0=0.40):
    return r0 + (a - r0) / (1 + (middle / np.asarray(compute)) ** b)


def noisy(seed: int, compute=COMPUTE, sd: float = 0.004, **shape):
    return truth(compute, **shape) + np.random.default_rng(seed).normal(0, sd, len(compute))


def test_twenty_seeds_are_extrapolated_to_twice_the_compute():
    fits = [fit_sigmoid(COMPUTE, noisy(seed), r0=0.40, draws=0) for seed in range(20)]
    ends = np.abs([fit.predict(16000) - truth(16000) for fit in fits])
    ceilings = np.abs([fit.asymptote - 0.61 for fit in fits])
    assert np.median(ends) <= 0.004 and ends.max() <= 0.012
    assert np.median(ceilings) <= 0.006 and ceilings.max() <= 0.02


@pytest.mark.parametrize("r0", [0.40, None])
def test_without_noise_it_is_exact(r0):
    fit = fit_sigmoid(COMPUTE, truth(COMPUTE), r0, draws=0)
    assert fit.asymptote == pytest.approx(0.61, abs=1e-5)
    assert fit.exponent == pytest.approx(1.92, rel=1e-4)
    assert fit.midpoint == pytest.approx(2542, rel=1e-4)
    assert fit.r0 == pytest.approx(0.40, abs=1e-5)
    assert fit.rmse < 1e-7 and fit.r2 == pytest.approx(1) and fit.spearman == pytest.approx(1)


def test_unit_and_order_do_not_matter():
    reward = noisy(1)
    fit = fit_sigmoid(COMPUTE, reward, 0.40, draws=20)
    order = np.random.default_rng(2).permutation(34)
    assert fit_sigmoid(COMPUTE[order], reward[order], 0.40, draws=20) == fit
    scaled = fit_sigmoid(COMPUTE * 1e16, reward, 0.40, draws=0)
    assert scaled.asymptote == pytest.approx(fit.asymptote, abs=1e-6)
    assert scaled.midpoint == pytest.approx(fit.midpoint * 1e16, rel=1e-5)


def test_the_interval_of_noise_holds_the_truth():
    fit = fit_sigmoid(COMPUTE, noisy(0), 0.40)
    low, high = fit.intervals["asymptote"]
    assert fit.over == "noise" and set(fit.intervals) == {"asymptote", "exponent", "midpoint"}
    assert low < 0.61 < high and 0.005 < high - low < 0.04
    assert fit.unidentified == ()


def test_seeds_are_drawn_whole():
    """Runs whose ceilings differ: the interval is theirs, not that of the noise within."""
    tops = (0.55, 0.58, 0.61, 0.64, 0.67)
    reward = np.concatenate([noisy(i, sd=1e-4, a=top) for i, top in enumerate(tops)])
    compute, names = np.tile(COMPUTE, 5), np.repeat(np.arange(5), 34)
    fit = fit_sigmoid(compute, reward, 0.40, runs=names, draws=100)
    assert fit.over == "runs" and fit.runs == 5
    low, high = fit.intervals["asymptote"]
    assert 0.04 < high - low < 0.12  # sd of a mean of 5 tops is .019
    alone = fit_sigmoid(COMPUTE, reward[:34], 0.40, draws=100)
    assert alone.over == "noise" and np.ptp(alone.intervals["asymptote"]) < 0.002


def test_a_curve_that_has_not_bent_has_no_ceiling():
    early = np.linspace(300, 1200, 20)
    fit = fit_sigmoid(early, noisy(0, early), 0.40)
    assert "asymptote" in fit.unidentified
    assert 0 <= fit.asymptote <= 1


def test_the_ceiling_stays_a_rate():
    rising = np.geomspace(1e2, 1e4, 20)
    fit = fit_sigmoid(rising, 0.2 + 0.19 * np.log10(rising), draws=0)
    assert fit.asymptote <= 1 and "asymptote" in fit.unidentified


def test_the_first_epoch_can_be_left_out():
    compute = np.concatenate([[100, 400, 900], COMPUTE])
    reward = truth(compute)
    reward[:3] += 0.05
    kept = fit_sigmoid(compute, reward, 0.40, early="first_epoch", epoch=1500, draws=0)
    assert kept.points == 34 and kept.asymptote == pytest.approx(0.61, abs=1e-5)
    assert abs(fit_sigmoid(compute, reward, 0.40, draws=0).exponent - 1.92) > 0.05
    with pytest.raises(InputError, match="early=first_epoch needs epoch="):
        fit_sigmoid(compute, reward, early="first_epoch")
    with pytest.raises(InputError, match="early=late: one of keep, first_epoch"):
        fit_sigmoid(compute, reward, early="late")


def test_a_point_without_rl_is_r0():
    compute = np.concatenate([[0.0], COMPUTE])
    fit = fit_sigmoid(compute, np.concatenate([[0.40], truth(COMPUTE)]), draws=0)
    assert fit.r0 == pytest.approx(0.40, abs=1e-6)


def test_the_ceiling_can_be_held():
    fit = fit_sigmoid(COMPUTE, noisy(3), 0.40, asymptote=0.605, draws=0)
    assert fit.asymptote == 0.605 and set(fit.intervals) == {"exponent", "midpoint"}
    assert fit.exponent == pytest.approx(1.92, rel=0.1)


def test_too_few_points_are_refused():
    with pytest.raises(InputError, match="sigmoid: 4 points for 4 parameters; at least 5"):
        fit_sigmoid(COMPUTE[:4], truth(COMPUTE[:4]))
    assert fit_sigmoid(COMPUTE[::8], truth(COMPUTE[::8]), 0.40, draws=0).points == 5
    with pytest.raises(InputError, match="one compute says nothing of a curve"):
        fit_sigmoid(np.full(9, 5.0), np.full(9, 0.5))
    with pytest.raises(InputError, match="compute has negative values"):
        fit_sigmoid(-COMPUTE, truth(COMPUTE))


def test_a_power_law_comes_back_and_fits_a_sigmoid_less_well():
    fit = fit_power(COMPUTE, 0.7 - 3 * COMPUTE**-0.4)
    assert fit.asymptote == pytest.approx(0.7, abs=1e-3)
    assert fit.exponent == pytest.approx(0.4, rel=1e-2)
    contrast = fit_power(COMPUTE, truth(COMPUTE))
    assert abs(contrast.predict(16000) - truth(16000)) > 0.005
    with pytest.raises(InputError, match="power law: 3 points for 3 parameters"):
        fit_power(COMPUTE[:3], truth(COMPUTE[:3]))
