"""Recipes whose effect is known are named by it; curves that end are told from those that go on."""

from functools import partial

import numpy as np
import pytest

from chessrl.config import InputError
from chessrl.scaling.laws import Curves, ceilings, extrapolate, fit_power, fit_sigmoid, trend
from chessrl.scaling.levers import COLUMNS, levers

COMPUTE = np.linspace(1500, 16000, 60)


def run(seed: int, a: float = 0.61, b: float = 1.92, compute=COMPUTE, sd: float = 0.002):
    noise = np.random.default_rng(seed).normal(0, sd, len(compute))
    return compute, 0.40 + (a - 0.40) / (1 + (2542 / compute) ** b) + noise


def test_ceiling_movers_and_efficiency_shapers():
    recipes = {
        "half_precision": [run(4, a=0.52)],
        "seeds": [run(1, a=0.60), run(2), run(3, a=0.62)],
        "slow": [run(5, b=1.5)],
        "same": [run(6)],
        "short": [run(7, compute=np.linspace(200, 1800, 20), sd=0)],  # ends before C_mid
    }
    table = levers(recipes, "seeds", r0=0.40, draws=60)
    assert tuple(table.columns) == COLUMNS and table["recipe"][0] == "seeds"
    assert dict(zip(table["recipe"], table["lever"], strict=True)) == {
        "seeds": "neither", "half_precision": "ceiling mover", "slow": "efficiency shaper",
        "same": "neither", "short": "not identified",
    }  # fmt: skip
    rows = table.set_index("recipe")
    assert rows.loc["slow", "common_asymptote"] == pytest.approx(0.61, abs=0.003)
    assert rows.loc["slow", "exponent"] == pytest.approx(1.5, abs=0.1)
    assert rows.loc["seeds", "runs"] == 3
    wide = levers(recipes, "seeds", r0=0.40, margin=0.2, draws=20).set_index("recipe")
    assert wide.loc["half_precision", "lever"] != "ceiling mover"


def test_a_margin_needs_seeds():
    with pytest.raises(InputError, match="no recipe has two seeds to tell the margin of A"):
        levers({"a": [run(0)], "b": [run(1)]}, "a", r0=0.40, draws=10)
    with pytest.raises(InputError, match="levers: c is none of a"):
        levers({"a": [run(0)]}, "c")


def test_the_rest_of_a_curve_is_predicted():
    compute, reward = run(0)
    sigmoid = extrapolate(compute, reward, 8000, partial(fit_sigmoid, r0=0.40, draws=0))
    assert sigmoid.fit.points == np.sum(compute <= 8000)
    assert len(sigmoid.error) == np.sum(compute > 8000)
    assert sigmoid.rmse < 0.006
    assert extrapolate(compute, reward, 8000, fit_power).rmse > 2 * sigmoid.rmse
    with pytest.raises(InputError, match="no point lies beyond 20000"):
        extrapolate(compute, reward, 20000)


def test_ceilings_against_what_pretraining_gave():
    """A = 1.3 - L by construction; the run that has not bent is left out of the line."""
    rows = []
    for number, loss in enumerate((0.7, 0.8, 0.9, 1.0)):
        compute = np.concatenate([[0], np.linspace(500, 16000 if number else 700, 40)])
        top = 1.3 - loss
        reward = 0.1 + (top - 0.1) / (1 + (2542 / np.maximum(compute, 1e-9)) ** 1.92)
        reward[1:] += np.random.default_rng(number).normal(0, 0.001, 40)
        rows += [(f"run{number}", 1e6, 1e9 * (1 + number), loss, c, r)
                 for c, r in zip(compute, reward, strict=True)]  # fmt: skip
    table = ceilings(Curves.of(*zip(*rows, strict=True)), draws=30)
    assert table["identified"].tolist() == [False, True, True, True]
    assert table["r0"].tolist() == pytest.approx([0.1] * 4)
    assert table["asymptote"][1:].tolist() == pytest.approx([0.5, 0.4, 0.3], abs=0.003)
    assert (table["low"][1:] <= table["asymptote"][1:]).all()
    line = trend(table)
    assert line.slope == pytest.approx(-1, abs=0.02) and line.intercept == pytest.approx(
        1.3, abs=0.02
    )
    assert line.low < line.slope < line.high and line.r2 > 0.999 and line.runs == 3
    assert trend(table, "tokens").slope < 0
    with pytest.raises(InputError, match="trend of ceilings: 2 runs with an identified ceiling"):
        trend(table[:3])
