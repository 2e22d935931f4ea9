"""Trunks: what runs of many lengths share where the rate is constant until the last steps.

A run with `schedule=wsd` (arXiv 2405.18392) goes along a trunk at the peak rate and leaves it as a
branch that decays. The trunk has a run folder of its own, whose identity knows neither the length
of a branch nor its decay; it grows as far as any branch asks, and keeps the training state at each
branching step. Batches and weights are functions of seed and step, so that a branch equals a run
of its length alone.
"""

import dataclasses
from pathlib import Path

from chessrl import compute
from chessrl.artifacts import RunFolder
from chessrl.board import tokens
from chessrl.config import Run
from chessrl.policy.optim import branching_step
from chessrl.policy.weights import new_model
from chessrl.stages.batches import Schedule
from chessrl.stages.checkpoints import last_checkpoint, newest, step_of
from chessrl.stages.group import group
from chessrl.stages.language import fit_documents
from chessrl.stages.logs import MetricsTable
from chessrl.stages.runs import folder, inherited, working


def branch_off(run: Run, schedule: Schedule) -> Path | None:
    """The trunk's state where this run begins to decay, the trunk grown to there if need be.

    Where hardly a step comes before the decay there is no trunk: None.
    """
    step = branching_step(run.pretrain.optim, len(schedule))
    if step == 0:
        return None
    branches = folder(run, "trunk").path / "branches"
    state = branches / f"step-{step:08d}.ckpt"
    if last_checkpoint(branches, at_most=step) != state:
        _grow(run, schedule, step, state)
    return state


def continue_metrics(run: Run, out: RunFolder, state: Path) -> None:
    """Begin the metrics of a branch with those of the trunk up to where it leaves."""
    if group().leads and not out.metrics.exists():
        table = MetricsTable(folder(run, "trunk").metrics)
        table.rows = {step: row for step, row in table.rows.items() if step < step_of(state)}
        table.path = out.metrics
        table.save()


def _grow(run: Run, schedule: Schedule, step: int, state: Path) -> None:
    """Train the trunk up to a step, from its nearest state before it, and keep the state there."""
    config, trunk = run.pretrain, folder(run, "trunk")
    optim = dataclasses.replace(config.optim, decay=0.0)
    model = new_model(run.model, len(tokens.TOKENS), run.seed)
    active = compute.active_parameters(run.model, len(tokens.TOKENS))
    flops = compute.training_flops(active, float(schedule.cumulative[step - 1]))
    with working(run, trunk, "trunk"):
        kept = last_checkpoint(state.parent, at_most=step)
        begun = newest(kept, last_checkpoint(trunk.checkpoints, at_most=step))
        seconds = fit_documents(
            run, "trunk", trunk, model, schedule, optim,
            steps=step, flops=flops, games=True, microbatch_tokens=config.microbatch_tokens,
            checkpoint_every=config.checkpoint_every, log_every=config.log_every,
            start=begun, end=state,
        )  # fmt: skip
        if not group().leads:
            return
        spent = trunk.manifest.get("flops_spent", 0.0)
        spent += flops - spent_before(schedule, active, begun)
        trunk.describe({"flops_spent": spent})
        result = inherited(run, "trunk")
        result.status = "open"
        result.n_params = compute.parameters(run.model, len(tokens.TOKENS))
        result.measures = {"flops_spent": spent}
        result.seconds = seconds
        trunk.write(result)


def spent_before(schedule: Schedule, active: int, start: Path | None) -> float:
    """FLOPs of the steps up to a training state; 0 where there is none."""
    if start is None:
        return 0.0
    return compute.training_flops(active, float(schedule.cumulative[step_of(start) - 1]))
