"""Measures: pass@k by counting, intervals against SciPy."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from chessrl.metrics import clustered_mean, pass_at_k, powers_of_two


@pytest.mark.parametrize(
    ("n", "c", "k", "value"),
    [
        (4, 1, 4, 1.0),
        (16, 3, 1, 3 / 16),  # 0.1875
        (16, 3, 8, 0.9),  # 1 - C(13, 8) / C(16, 8) = 1 - 1287 / 12870
        (16, 0, 16, 0.0),
        (16, 16, 1, 1.0),
        (5, 3, 3, 1.0),  # only two are wrong
        (4, 1, 2, 0.5),  # 1 - C(3, 2) / C(4, 2) = 1 - 3 / 6
    ],
)
def test_pass_at_k_by_hand(n, c, k, value):
    assert pass_at_k(n, c, k) == pytest.approx(value)


def test_pass_at_k_is_the_share_of_draws_with_a_right_answer():
    for n in range(1, 9):
        for c in range(n + 1):
            for k in range(1, n + 1):
                draws = list(combinations(range(n), k))
                share = sum(min(draw) < c for draw in draws) / len(draws)
                assert pass_at_k(n, c, k) == pytest.approx(share)


@given(st.integers(1, 2000), st.data())
def test_pass_at_k_agrees_with_the_hypergeometric(n, data):
    c = data.draw(st.integers(0, n))
    k = data.draw(st.integers(1, n))
    assert pass_at_k(n, c, k) == pytest.approx(1 - stats.hypergeom.pmf(0, n, c, k), abs=1e-9)


@pytest.mark.parametrize(("n", "c", "k"), [(2, 0, 5), (4, 1, 0), (0, 0, 1), (4, 5, 1), (4, -1, 1)])
def test_what_cannot_be_told_is_an_error(n, c, k):
    with pytest.raises(ValueError):
        pass_at_k(n, c, k)


def test_an_interval_by_hand():
    # mean 0.5, sd 0.5 sqrt(4/3) = 0.577, standard error 0.289, t(3, 97.5%) = 3.182: +-0.919
    estimate = clustered_mean(np.array([0.0, 1.0, 1.0, 0.0]))
    assert (estimate.mean, estimate.low, estimate.high, estimate.n) == (0.5, 0.0, 1.0, 4)
    # of 0.4 0.5 0.6: sd 0.1, standard error 0.0577, t(2, 97.5%) = 4.303: +-0.2484
    estimate = clustered_mean(np.array([0.4, 0.5, 0.6]))
    assert (estimate.low, estimate.high) == pytest.approx((0.5 - 0.2484, 0.5 + 0.2484), abs=1e-4)
    # 90%: t(2, 95%) = 2.920: +-0.1686
    estimate = clustered_mean(np.array([0.4, 0.5, 0.6]), level=0.9)
    assert (estimate.low, estimate.high) == pytest.approx((0.3314, 0.6686), abs=1e-4)


@given(st.lists(st.floats(0, 1), min_size=2, max_size=50))
def test_intervals_agree_with_scipy_and_stay_in_bounds(values):
    estimate = clustered_mean(np.array(values))
    assert 0 <= estimate.low <= estimate.mean <= estimate.high <= 1
    if np.std(values) > 1e-9:
        exact = stats.ttest_1samp(values, 0).confidence_interval(0.95)
        assert estimate.low == pytest.approx(max(exact.low, 0), abs=1e-9)
        assert estimate.high == pytest.approx(min(exact.high, 1), abs=1e-9)


def test_one_puzzle_tells_nothing_of_the_spread_and_none_is_an_error():
    estimate = clustered_mean(np.array([1.0]))
    assert (estimate.mean, estimate.low, estimate.high, estimate.n) == (1.0, 0.0, 1.0, 1)
    with pytest.raises(ValueError, match="no puzzle"):
        clustered_mean(np.array([]))


def test_intervals_cover_the_truth_as_often_as_they_say():
    rng = np.random.default_rng(0)
    truth, covered = 0.4, 0  # mean of Beta(2, 3)
    for _ in range(2000):
        estimate = clustered_mean(rng.beta(2, 3, size=20))
        covered += estimate.low <= truth <= estimate.high
    # 1900 expected, standard deviation sqrt(2000 x 0.95 x 0.05) = 9.7
    assert abs(covered - 1900) < 5 * 9.7


@pytest.mark.parametrize(
    ("n", "ks"),
    [(1, [1]), (2, [1, 2]), (3, [1, 2, 3]), (8, [1, 2, 4, 8]), (12, [1, 2, 4, 8, 12])],
)
def test_k_runs_over_powers_of_two_up_to_n(n, ks):
    assert powers_of_two(n) == ks


def test_all_wrong_is_not_certain():
    """Clopper-Pearson by SciPy as the oracle: 0 of 200, and 200 of 200."""
    none, every = clustered_mean(np.zeros(200)), clustered_mean(np.ones(200))
    exact = stats.binomtest(0, 200).proportion_ci(method="exact")
    assert (none.mean, none.low) == (0, 0)
    assert none.high == pytest.approx(exact.high)
    assert (every.mean, every.high) == (1, 1)
    assert every.low == pytest.approx(1 - exact.high)
