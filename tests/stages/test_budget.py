"""What a budget makes of a configuration."""

import pytest

from chessrl import compute
from chessrl.board import tokens
from chessrl.config import InputError
from chessrl.stages.budget import budgeted
from chessrl.stages.runs import run_identity


def test_without_a_budget_nothing_changes(configure):
    run = configure()
    assert budgeted(run) is run


def test_the_budget_of_the_readme_is_its_run(configure):
    """6M tokens and 120 steps, 1.23e13 and 1.30e13 FLOPs, were what it took."""
    run = budgeted(configure("budget=tabletop"))
    assert run.pretrain.tokens == pytest.approx(6e6, rel=0.03)
    assert run.rl.steps == pytest.approx(120, abs=2)
    active = compute.parameters(run.model, len(tokens.TOKENS))
    assert 6 * active * run.pretrain.tokens == pytest.approx(0.45 * 2.8e13, rel=0.01)


def test_a_derived_run_is_the_run_that_is_told_the_same(configure):
    run = budgeted(configure("budget=tabletop", "budget.alpha=0.3", "pretrain.tokens=7"))
    told = configure(f"pretrain.tokens={run.pretrain.tokens!r}", f"rl.steps={run.rl.steps}")
    for stage in ("pretrain", "rl"):
        assert run_identity(run, stage) == run_identity(told, stage)
    other = budgeted(configure("budget=tabletop", "budget.alpha=0.6"))
    assert other.pretrain.tokens > run.pretrain.tokens and other.rl.steps < run.rl.steps


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (("budget.flops=1e13",), "budget=tabletop has those of the starter"),
        (("budget=tabletop", "budget.alpha=1"), "budget.alpha=1.0 is not in"),
        (("budget=tabletop", "budget.flops=0"), "must be positive"),
        (("budget=tabletop", "stage=rl", "checkpoint=x"), "cannot be used with checkpoint"),
    ],
)
def test_what_cannot_be_split_is_refused_in_a_line(overrides, said, configure):
    with pytest.raises(InputError, match=said) as refused:
        configure(*overrides)
    assert "\n" not in str(refused.value)
