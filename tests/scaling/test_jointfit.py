"""The joint law comes back from the curves of 36 runs, and predicts runs that it did not see."""

import dataclasses

import numpy as np
import pytest

from chessrl.config import InputError
from chessrl.scaling.jointfit import NAMES, Curves, values
from chessrl.scaling.laws import fit_joint, leave_one_out


def test_the_published_law_by_hand(published):
    """N 1e8, T 1e10: L = .414 + 95.4/10^3.232 + 1.62e5/10^6.77."""
    loss = 0.414 + 95.4 / 10**3.232 + 1.62e5 / 10**6.77
    level = 0.0314 + 129.85 * np.exp(-12.85 * loss)
    slope = -0.216 + 0.0172 * 10 + 0.0098 * 8
    assert published.predict(1e8, 1e10, 1e20) == pytest.approx(level)
    assert published.predict(1e8, 1e10, 1e21) == pytest.approx(level + slope)
    assert published.predict(1e8, 1e10, 1e19, loss=0.5) == pytest.approx(
        0.0314 + 129.85 * np.exp(-12.85 * 0.5) - slope
    )
    floor = 14.62 * 10 ** (-4.30 * loss)
    assert published.predict(1e8, 1e10, 0) == pytest.approx(floor)
    assert published.predict(1e8, 1e10, 1e10) == pytest.approx(floor)
    assert published.predict(1e8, 1e12, 1e60) == 1
    assert published.predict([1e8, 1e9], [[1e10], [1e11]], 1e20).shape == (2, 2)


def test_it_comes_back_exactly_without_noise(make_curves, published):
    fit = fit_joint(make_curves(), max_loss=2, draws=0)
    assert values(fit) == pytest.approx(values(published), rel=1e-4)
    assert fit.runs == 36 and fit.points == 36 * 13
    assert fit.unidentified == () and fit.rmse < 1e-6


def test_it_comes_back_with_noise(make_curves, published):
    fit = fit_joint(make_curves(0.001, 2e-4), draws=30)
    allowed = {"loss.a": 0.2, "loss.b": 0.2, "slope.constant": 0.1, "slope.params": 0.2,
               "floor.scale": 0.1, "reward.offset": 0.1}  # fmt: skip
    for name, found, true in zip(NAMES, values(fit), values(published), strict=True):
        assert found == pytest.approx(true, rel=allowed.get(name, 0.03)), name
        low, high = fit.intervals[name]
        assert low < found < high or name.startswith("loss")
    assert 0.0008 < fit.rmse < 0.0015 and fit.r2 > 0.99 and fit.spearman > 0.99
    assert len(fit.refits) == 30


def test_order_does_not_matter(make_curves):
    curves = make_curves(0.003, 0.001)
    order = np.random.default_rng(1).permutation(len(curves.run))
    columns = [getattr(curves, field.name)[order] for field in dataclasses.fields(curves)]
    again, first = (fit_joint(each, draws=5) for each in (Curves.of(*columns), curves))
    assert again == first


def test_a_known_surface_is_taken(make_curves, published):
    fit = fit_joint(make_curves(0.003, 0.001), surface=published.loss, draws=0)
    assert fit.loss == published.loss


@pytest.mark.parametrize("by", ["run", "size"])
def test_runs_left_out_are_predicted(make_curves, published, by):
    curves = make_curves(0.003, 0.01)
    predicted = leave_one_out(curves, by, surface=published.loss)
    measured = leave_one_out(curves, by, surface=published.loss, measured_loss=True)
    assert len(np.unique(predicted.group)) == (36 if by == "run" else 6)
    assert 0.0029 < measured.rmse < 0.005 < predicted.rmse  # the loss of a run strays by 1%
    spoilt = dataclasses.replace(curves, reward=curves.reward.copy())
    out = predicted.group == predicted.group[0]
    spoilt.reward[out] += 0.3
    again = leave_one_out(spoilt, by, surface=published.loss)
    assert again.predicted[out] == pytest.approx(predicted.predicted[out])


def test_what_cannot_be_fitted_is_refused(make_curves):
    curves = make_curves()
    few = curves.take(np.isin(curves.run, np.unique(curves.run)[:3]))
    with pytest.raises(InputError, match="joint law: 3 runs with 3 points of RL each for 3"):
        fit_joint(few)
    with pytest.raises(InputError, match="floor of the joint law: 0 runs measured without RL"):
        fit_joint(curves.take(curves.rl_flops > 0))
    with pytest.raises(InputError, match="Chinchilla law: 5 points for 5 parameters"):
        fit_joint(curves.take(np.isin(curves.run, np.unique(curves.run)[:5])))
    with pytest.raises(InputError, match="run a has rows that differ in size, tokens or loss"):
        Curves.of(["a", "a"], [1e7, 1e7], [1e9, 2e9], [1, 1], [0, 1e18], [0, 0.1])
    with pytest.raises(InputError, match="by seed: one of run, size"):
        leave_one_out(curves, "seed")
