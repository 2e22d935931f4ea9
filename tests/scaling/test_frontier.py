"""The frontier of the published law against the study, and that of points against eyesight."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

from chessrl.config import InputError
from chessrl.scaling.frontier import (
    COLUMNS,
    best_splits,
    frontier,
    measured_frontier,
    points_of,
    takeovers,
)

SHARES = {47.3: 0.196, 150: 0.203, 203.1: 0.218, 300: 0.228, 411.3: 0.248, 500: 0.268, 678.6: 0.278}
"""RL's share where a size, in millions of parameters, first enters the frontier."""


@pytest.fixture(scope="module")
def ladder(configure, published) -> pd.DataFrame:
    settings = configure("frontier=study").frontier
    low, high = np.log10([settings.budgets.low, settings.budgets.high])
    return frontier(published, settings.sizes, np.logspace(low, high, settings.budgets.count))


def test_the_shares_of_the_study(ladder):
    first = ladder[ladder["first_on_frontier"]].set_index("n_params")
    assert len(first) == 13
    for millions, share in SHARES.items():
        assert first.loc[millions * 1e6, "rl_share"] == pytest.approx(share, abs=0.01)
    inside = first.loc[47.3e6:678.6e6]
    assert inside["tokens_over_chinchilla"].between(0.4, 1).all()


def test_rows_are_splits_of_their_budget(ladder, published):
    assert tuple(ladder.columns) == COLUMNS
    pretraining = 6 * ladder["n_params"] * ladder["tokens"]
    rl = ladder["rl_share"] * ladder["total_flops"]
    assert np.allclose(pretraining + rl, ladder["total_flops"])
    rewards = published.predict(ladder["n_params"], ladder["tokens"], rl)
    assert np.allclose(rewards, ladder["reward"])
    assert (published.loss.predict(ladder["n_params"], ladder["tokens"]) < 2).all()
    assert (ladder["rl_share_low"] <= ladder["rl_share"]).all()
    assert (ladder["rl_share"] <= ladder["rl_share_high"]).all()


def test_one_size_is_best_at_each_budget(ladder):
    best = ladder.groupby("total_flops")["reward"].max()
    on = ladder[ladder["on_frontier"]].set_index("total_flops")["reward"]
    assert len(on) == 400
    pd.testing.assert_series_equal(on.sort_index(), best, check_names=False)
    changes = takeovers(ladder)
    assert changes["n_params"].is_monotonic_increasing and len(changes) == 13
    assert changes["total_flops"].tolist() == sorted(
        ladder.loc[ladder["first_on_frontier"], "total_flops"]
    )


def test_the_best_split_is_that_of_a_fine_search(published):
    budget, size = 1e20, 203.1e6
    found = best_splits(published, size, np.array([budget]), 1e18, 0.01)
    shares = np.linspace(0, 0.99, 200001)[:-1]
    tokens = (budget * (1 - shares) - 1e18) / 6 / size
    rewards = published.predict(size, tokens, shares * budget)
    assert found.reward[0] == pytest.approx(rewards.max(), abs=1e-9)
    assert found.rl_share[0] == pytest.approx(shares[rewards.argmax()], abs=2e-5)
    near = shares[rewards >= rewards.max() - 0.01]
    assert found.low[0] == pytest.approx(near[0], abs=2e-3)
    assert found.high[0] == pytest.approx(near[-1], abs=2e-3)


def test_the_order_of_sizes_and_budgets_does_not_matter(published):
    sizes, budgets = [2e8, 5e7, 1e8], np.geomspace(1e18, 1e20, 7)
    first = frontier(published, sizes, budgets)
    pd.testing.assert_frame_equal(first, frontier(published, sizes[::-1], budgets[::-1]))


def test_budgets_that_reach_nothing(published):
    with pytest.raises(InputError, match="pretrains any of these sizes to where the law holds"):
        frontier(published, [1e9], [1e15, 1e16])
    some = frontier(published, [5e7, 2e9], [1e17, 1e20])
    assert some.groupby("n_params").size().to_dict() == {5e7: 2, 2e9: 1}


def test_rl_that_would_harm_is_outside_the_law(published):
    """At 2.8e7 tokens a 20.5M model has loss below 2 and a negative slope."""
    assert published.loss.predict(20.5e6, 2.8e7) < 2
    assert not published.holds(20.5e6, 2.8e7)
    assert published.holds(20.5e6, 2e9)
    flat = dataclasses.replace(published, max_loss=0.5)
    assert not flat.holds(20.5e6, 2e9)


def test_measured_points():
    points = pd.DataFrame(
        [  # size, tokens, FLOPs of RL, total, reward
            (2e6, 1e8, 0, 10, 0.10),
            (1e6, 1e8, 5, 10, 0.20),
            (1e6, 1e8, 10, 20, 0.15),  # costs more, earns less
            (2e6, 1e8, 10, 40, 0.30),
            (1e6, 1e8, 20, 50, 0.31),
            (2e6, 1e8, 5, 60, np.nan),
        ],
        columns=["n_params", "tokens", "rl_flops", "total_flops", "reward"],
    )
    table = measured_frontier(points.sample(frac=1, random_state=0), epsilon=0.02)
    assert tuple(table.columns) == COLUMNS and len(table) == 5
    on = table[table["on_frontier"]]
    assert on[["n_params", "total_flops"]].to_numpy().tolist() == [[1e6, 10], [1e6, 50], [2e6, 40]]
    assert on["first_on_frontier"].tolist() == [True, False, True]
    last = table[table["total_flops"] == 50].iloc[0]
    assert (last["rl_share"], last["rl_share_low"], last["rl_share_high"]) == (0.4, 0.25, 0.4)
    assert takeovers(table)["n_params"].tolist() == [1e6, 2e6, 1e6]
    with pytest.raises(InputError, match="points without reward: needed are n_params, tokens"):
        measured_frontier(points.drop(columns="reward"))
    with pytest.raises(InputError, match="no point with size, tokens, FLOPs and reward"):
        measured_frontier(points.assign(reward=np.nan))


def test_results_become_points():
    table = pd.DataFrame(
        {
            "n_params": [1e6] * 3, "tokens_pretrain": [1e8] * 3, "flops_rl": [np.nan, 4.0, 4.0],
            "flops_total": [6.0, 10.0, 10.0], "bin": ["all", "all", "B1"], "k": [1, 1, 1],
            "pass_at_k": [0.1, 0.2, 0.9],
        }
    )  # fmt: skip
    points = points_of(table)
    assert points["rl_flops"].tolist() == [0, 4] and points["reward"].tolist() == [0.1, 0.2]
    assert measured_frontier(points)["rl_share"].tolist() == [0, 0.4]
    assert points_of(points) is points


def test_the_settings_are_those_of_the_study(configure):
    settings = configure("frontier=study").frontier
    assert settings.budgets.high == pytest.approx(10**21.5, rel=1e-12)
    floor = configure("law=pre2post").law.floor
    assert floor.rate == pytest.approx(4.30 * np.log(10), rel=1e-12)
