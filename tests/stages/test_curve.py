"""The curve of a run: where it is measured, what it holds, and a step that is measured again."""

import csv

import pytest
from handmade import MATE, MODEL

from chessrl.board import tokens
from chessrl.policy.weights import new_model
from chessrl.stages.curve import Curve, log_spaced
from chessrl.stages.rollouts import Rules


@pytest.mark.parametrize(
    ("points", "last", "steps"),
    [
        (0, 100, []),
        (2, 100, [0, 100]),
        (3, 100, [0, 1, 100]),
        (4, 100, [0, 1, 10, 100]),
        (5, 1000, [0, 1, 10, 100, 1000]),
        (12, 5, [0, 1, 2, 3, 4, 5]),
        (6, 1, [0, 1]),
    ],
)
def test_steps_are_even_in_their_logarithm(points, last, steps):
    assert log_spaced(points, last) == steps


@pytest.fixture
def curve(tmp_path):
    rules = Rules(form="board", copies=3, budget=12, temperature=1.0)
    return Curve(tmp_path / "curve.csv", [MATE, MATE], rules, 0, [0, 1, 10])


def rows(curve):
    with open(curve.path, newline="") as file:
        return list(csv.DictReader(file))


def test_a_row_per_step_bin_and_k(curve):
    model = new_model(MODEL, len(tokens.TOKENS), 0)
    found = curve.measure(model, 0, 0.0, 0.0)
    assert found == {"test_pass@1": 0.0, "test_pass@2": 0.0, "test_pass@3": 0.0}
    assert curve.measure(model, 5, 1.0, 1.0) == {}
    curve.measure(model, 10, 1e6, 2.5e12)
    table = rows(curve)
    assert [(row["step"], row["bin"], row["k"]) for row in table if row["bin"] == "all"] == [
        (step, "all", k) for step in ("0", "10") for k in ("1", "2", "3")
    ]
    last = table[-1]
    assert (last["tokens"], last["flops"], last["puzzles"], last["samples"]) == (
        "1000000", "2.5e+12", "2", "3",
    )  # fmt: skip
    assert float(last["low"]) == 0 < float(last["high"]) < 1


def test_a_step_measured_again_replaces_its_rows(curve):
    model = new_model(MODEL, len(tokens.TOKENS), 0)
    for flops in (1.0, 2.0):
        for step in (10, 1):
            curve.measure(model, step, 0.0, flops * step)
    table = [row for row in rows(curve) if (row["bin"], row["k"]) == ("all", "1")]
    assert [(row["step"], row["flops"]) for row in table] == [("1", "2"), ("10", "20")]
