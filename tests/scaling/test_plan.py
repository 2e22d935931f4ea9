"""Plans: what cells cost, what they share, and how long it takes."""

import pytest

from chessrl import compute
from chessrl.artifacts import Result
from chessrl.board import tokens
from chessrl.scaling.plan import Plan, totals
from chessrl.stages.prepare import prepare
from chessrl.stages.runs import folder, with_stage

MEANS = (
    "budget.prompt_tokens=20", "budget.response_tokens=30", "budget.traces_tokens=1000",
    "budget.sft_tokens=2000", "stage=pipeline", "evaluate.puzzles=10", "evaluate.samples=4",
)  # fmt: skip


def finished(stage: str, seconds: float, flops: float = 0.0, episodes: float = 0.0) -> Result:
    """A run of this machine."""
    return Result(
        stage=stage, identity=stage, model="100k", seconds=seconds,
        flops={stage: flops} if flops else {}, tokens={stage: 500.0},
        measures={"episodes": episodes} if episodes else {},
    )  # fmt: skip


TIMED = [
    finished("prepare", 7.0),
    finished("evaluate", 2.0, episodes=40),
    finished("pretrain", 10.0, 1e10),
    finished("traces", 1.0, 1e8),
    finished("sft", 1.0, 1e9),
    finished("rl", 1.0, 1e8, episodes=10),
]


@pytest.fixture
def n(configure) -> int:
    return compute.parameters(configure("model=100k").model, len(tokens.TOKENS))


def test_a_plan_by_hand(tiny, tmp_path, n):
    run = tiny(tmp_path, *MEANS)
    plan = Plan(TIMED)
    plan.add("first", run)
    plan.add("second", tiny(tmp_path, *MEANS, "rl.steps=7"))
    first, second = plan.cells
    # RL: 5 steps of 4 x 4 episodes of 50 tokens, 10 N each, as there is a reference
    expected = {
        "pretrain": 6 * n * 3e4, "traces": 2 * n * 1000, "sft": 6 * n * 2000, "rl": 10 * n * 4000,
    }  # fmt: skip
    assert {name: stage.flops for name, stage in first.stages.items()} == expected
    assert {stage.state for stage in first.stages.values()} == {"to do"}
    assert {name: stage.state for name, stage in second.stages.items()} == {
        "pretrain": "shared", "traces": "shared", "sft": "shared", "rl": "to do",
    }  # fmt: skip
    assert second.stages["rl"].flops == 10 * n * 5600
    # a second per 1e9 FLOPs of pretraining and SFT, 1e8 of the others; 2 s per evaluation
    slow, fast = 2 * n * 1000 + 10 * n * 4000, 6 * n * 3.2e4
    assert first.seconds == pytest.approx(7 + 3 * 2 + fast / 1e9 + slow / 1e8)
    assert second.seconds == pytest.approx(2 + 10 * n * 5600 / 1e8)
    assert not plan.speed.measured
    every, spend, seconds = totals(plan.cells)
    assert spend == pytest.approx(sum(expected.values()) + 10 * n * 5600)
    assert every == pytest.approx(2 * sum(expected.values()) + 10 * n * 1600)
    assert seconds == first.seconds + second.seconds


def test_branches_of_a_trunk_spend_what_it_has_not(tiny, tmp_path, n):
    """Of 10 and 20 steps the last fifth decays: the trunk grows to step 8, then to 16."""
    plan = Plan(TIMED)
    wsd = ("pretrain/optim=wsd", "pretrain.optim.warmup_steps=1")
    for steps in (10, 20):
        plan.add(str(steps), tiny(tmp_path, *MEANS, *wsd, f"pretrain.tokens={2048 * steps}"))
    step = 6 * n * 2048
    assert [cell.stages["pretrain"].flops for cell in plan.cells] == [10 * step, 20 * step]
    assert [cell.stages["pretrain"].spent for cell in plan.cells] == [10 * step, 12 * step]


def test_what_is_finished_costs_nothing(tiny, tmp_path):
    run = tiny(tmp_path, *MEANS)
    prepare(with_stage(run, "prepare"))
    out = folder(run, "pretrain")
    with out.started(run, {}):
        out.write(Result(stage="pretrain", identity=out.identity, flops={"pretrain": 5.0}))
    plan = Plan(TIMED)
    plan.add("", run)
    done = plan.cells[0].stages["pretrain"]
    assert (done.flops, done.spent, done.state) == (5.0, 0.0, "finished")


def test_finished_runs_tell_what_nobody_stated(tiny, tmp_path, n):
    """Their tokens, and of RL the tokens of an episode; without any, nothing is made up."""
    plan = Plan(TIMED)
    plan.add("", tiny(tmp_path, "stage=pipeline"))
    stages = plan.cells[0].stages
    assert stages["traces"].flops == 2 * n * 500
    assert stages["sft"].flops == 6 * n * 500
    assert stages["rl"].flops == 10 * n * 5 * 16 * 50
    blank = Plan(TIMED[:3])
    blank.add("", tiny(tmp_path, "stage=pipeline"))
    assert [blank.cells[0].stages[name].flops for name in ("traces", "sft", "rl")] == [None] * 3


def test_an_unknown_machine_is_measured(tiny, tmp_path):
    plan = Plan([])
    plan.add("", tiny(tmp_path, *MEANS))
    assert plan.speed.measured
    assert 0.01 < plan.cells[0].seconds < 1000


@pytest.mark.parametrize("stage", ["collect", "describe", "frontier", "advise"])
def test_a_stage_without_a_run_folder_costs_nothing(configure, stage):
    plan = Plan(TIMED)
    plan.add("told", configure(f"stage={stage}"))
    assert plan.cells[0].stages == {} and totals(plan.cells) == (0, 0, 0)
