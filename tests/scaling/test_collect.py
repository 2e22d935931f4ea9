"""The tidy table: what descends from what, and the points of curves."""

import math

import pandas as pd
import pytest

from chessrl.artifacts import PassAtK, Result
from chessrl.scaling.collect import tidy

MEASURED = [
    PassAtK(bin="all", k=k, mean=0.1 * k, low=0.0, high=1.0, puzzles=6, samples=2) for k in (1, 2)
]


def chain(seed: int, loss: float) -> list[Result]:
    """Runs of one seed from pretraining to an evaluation of RL."""
    name = {stage: f"{stage}{seed}" for stage in ("pretrain", "traces", "sft", "rl")}
    flops = {"pretrain": 100.0, "traces": 1.0, "sft": 9.0, "rl": 40.0}
    common = {"seed": seed, "model": "m"}
    before: dict[str, dict] = {}
    for place, stage in enumerate(flops, start=1):
        before[stage] = dict(list(flops.items())[:place])
    spent = {
        stage: {"flops": one, "exact_flops": {s: 2 * f for s, f in one.items()}, "tokens": one}
        for stage, one in before.items()
    }
    return [
        Result(
            stage="evaluate", of="rl", identity=f"last{seed}", parents={"rl": name["rl"]},
            pass_at_k=MEASURED, **spent["rl"], **common,
        ),
        Result(
            stage="rl", identity=name["rl"], parents={"sft": name["sft"]},
            measures={"steps": 4.0}, **spent["rl"], **common,
        ),
        Result(
            stage="sft", identity=name["sft"],
            parents={"traces": name["traces"], "pretrain": name["pretrain"]},
            **spent["sft"], **common,
        ),
        Result(stage="pretrain", identity=name["pretrain"], **spent["pretrain"], **common),
        Result(
            stage="evaluate", of="pretrain", identity=f"first{seed}",
            parents={"pretrain": name["pretrain"]}, measures={"game_nats_per_token": loss},
            pass_at_k=MEASURED, **spent["pretrain"], **common,
        ),
    ]  # fmt: skip


CURVE = pd.DataFrame(
    {
        "step": [0, 4], "tokens": [0, 40], "flops": [0.0, 40.0], "bin": ["all", "all"],
        "k": [1, 1], "mean": [0.1, 0.3], "low": [0.0, 0.2], "high": [0.2, 0.4],
        "puzzles": [6, 6], "samples": [2, 2],
    }
)  # fmt: skip


@pytest.fixture
def table() -> pd.DataFrame:
    return tidy([*chain(0, 1.5), *chain(1, 2.5)], {"rl0": CURVE})


def test_every_row_knows_the_model_it_comes_from(table):
    assert table.groupby("seed")["loss"].unique().map(list).to_dict() == {0: [1.5], 1: [2.5]}
    assert set(table[table["seed"] == 1]["pretrain"]) == {"pretrain1"}


def test_a_curve_has_a_row_for_each_point(table):
    rows = table[table["identity"] == "rl0"]
    assert rows["step"].tolist() == [0, 4]
    assert rows["pass_at_k"].tolist() == [0.1, 0.3]
    assert rows["flops_rl"].tolist() == [0, 40]
    assert rows["flops_total"].tolist() == [110, 150]
    assert rows["exact_flops_total"].tolist() == [220, 300]
    assert set(rows["of"]) == {"rl"} and set(rows["stage"]) == {"rl"}


def test_a_run_that_measured_nothing_has_one_row(table):
    rows = table[table["identity"] == "rl1"]
    assert len(rows) == 1 and math.isnan(rows["pass_at_k"].item())


def test_an_evaluation_of_rl_stands_at_its_last_step(table):
    rows = table[table["identity"] == "last0"]
    assert rows["step"].tolist() == [4, 4] and rows["k"].tolist() == [1, 2]


def test_the_loss_does_not_depend_on_the_order():
    results = chain(0, 1.5)
    again = Result(
        stage="evaluate", of="pretrain", identity="again", parents={"pretrain": "pretrain0"},
        measures={"game_nats_per_token": 9.0},
    )  # fmt: skip
    for order in ([again, *results], [*results, again]):
        assert set(tidy(order, {})["loss"]) == {9.0}  # of `again`, before `first0`


def test_an_unknown_model_has_no_loss():
    last = chain(0, 1.5)[0]
    row = tidy([last], {}).iloc[0]
    assert math.isnan(row["loss"] or math.nan) and row["pretrain"] is None
