"""The surface of the loss comes back from runs that were made from one."""

import numpy as np
import pytest

from chessrl.config import InputError
from chessrl.scaling.laws import fit_chinchilla

TRUTH = {"e": 1.7, "a": 400, "alpha": 0.34, "b": 410, "beta": 0.28}
ALLOWED = {"e": 0.01, "a": 0.03, "alpha": 0.01, "b": 0.03, "beta": 0.01}


def runs(seed: int = 0, noise: float = 5e-4, count: int = 64):
    dice = np.random.default_rng(seed)
    n_params = 10 ** dice.uniform(7, np.log10(1.6e10), count)
    tokens = 10 ** dice.uniform(9, 12, count)
    loss = 1.7 + 400 * n_params**-0.34 + 410 * tokens**-0.28
    return n_params, tokens, loss * np.exp(dice.normal(0, noise, count))


@pytest.fixture(scope="module")
def fitted():
    return fit_chinchilla(*runs(), draws=40)


@pytest.mark.parametrize("seed", [0, 1])
def test_the_surface_comes_back(seed):
    fit = fit_chinchilla(*runs(seed), draws=0)
    for name, value in TRUTH.items():
        assert getattr(fit, name) == pytest.approx(value, rel=ALLOWED[name]), name
    assert fit.agreeing > 0.9 and fit.unidentified == ()
    assert fit.points == fit.runs == 64
    assert fit.r2 > 0.999 and fit.spearman > 0.999 and fit.rmse < 0.003


def test_without_noise_it_is_exact():
    fit = fit_chinchilla(*runs(noise=0), draws=0)
    for name, value in TRUTH.items():
        assert getattr(fit, name) == pytest.approx(value, rel=1e-4), name


def test_the_unit_of_the_loss_does_not_matter(fitted):
    n_params, tokens, loss = runs()
    scaled = fit_chinchilla(n_params, tokens, 1000 * loss, draws=0)
    for name in ("e", "a", "b"):
        assert getattr(scaled, name) == pytest.approx(1000 * getattr(fitted, name), rel=1e-6)
    for name in ("alpha", "beta"):
        assert getattr(scaled, name) == pytest.approx(getattr(fitted, name), rel=1e-6)


def test_the_order_of_the_rows_does_not_matter(fitted):
    order = np.random.default_rng(5).permutation(64)
    assert fit_chinchilla(*(column[order] for column in runs()), draws=40) == fitted


def test_intervals_hold_the_truth_and_shrink_without_noise(fitted):
    for name, value in TRUTH.items():
        low, high = fitted.intervals[name]
        assert low < high
        assert low * 0.99 < value < high * 1.01, name
    wider = fit_chinchilla(*runs(noise=5e-3), draws=40)
    assert np.ptp(wider.intervals["e"]) > 3 * np.ptp(fitted.intervals["e"])


def test_rows_of_one_run_are_drawn_together():
    """Each run four times over: as many rows, no more knowledge."""
    columns = [np.tile(column, 4) for column in runs(count=16)]
    names = np.tile(np.arange(16), 4)
    honest = fit_chinchilla(*columns, runs=names, draws=60)
    naive = fit_chinchilla(*columns, draws=60)
    assert honest.runs == 16 and naive.runs == 64
    assert np.ptp(honest.intervals["alpha"]) > 1.4 * np.ptp(naive.intervals["alpha"])


def test_one_size_tells_nothing_of_sizes():
    _, tokens, _ = runs()
    loss = 1.7 + 400 * 1e8**-0.34 + 410 * tokens**-0.28
    fit = fit_chinchilla(np.full(64, 1e8), tokens, loss, draws=0)
    assert {"e", "a", "alpha"} <= set(fit.unidentified)
    assert "beta" not in fit.unidentified
    assert fit.beta == pytest.approx(0.28, rel=1e-3)


@pytest.mark.parametrize("count", [4, 5])
def test_too_few_points_are_refused(count):
    n_params, tokens, loss = (column[:count] for column in runs())
    with pytest.raises(InputError, match=f"{count} points for 5 parameters; at least 6"):
        fit_chinchilla(n_params, tokens, loss)


def test_what_no_loss_can_be_is_refused():
    n_params, tokens, loss = runs()
    with pytest.raises(InputError, match="loss has values that are not positive"):
        fit_chinchilla(n_params, tokens, loss - 3)
    with pytest.raises(InputError, match="tokens has values that are no numbers"):
        fit_chinchilla(n_params, tokens * np.nan, loss)
    with pytest.raises(InputError, match="64 of n_params, 63 of tokens"):
        fit_chinchilla(n_params, tokens[1:], loss)


def test_chinchilla_optimal_tokens_are_the_least_of_the_loss(fitted):
    budget = 1e21
    sizes = np.geomspace(1e8, 1e10, 20001)
    best = sizes[fitted.predict(sizes, budget / 6 / sizes).argmin()]
    assert fitted.optimal_tokens(best) == pytest.approx(budget / 6 / best, rel=2e-3)
