"""Trunks: what runs of many lengths share where the rate is constant until the last steps.

A run with `schedule=wsd` (arXiv 2405.18392) goes along a trunk at the peak rate and leaves it as a
branch that decays. The trunk has a run folder of its own, whose identity knows neither the length
of a branch nor its decay; it grows as far as any branch asks, and keeps the training state at each
branching step. Batches and weights are functions of seed and step, so that a branch equals a run
of its length alone.
"""

import copy
import dataclasses
from collections.abc import Mapping
from pathlib import Path

from chessrl import compute
from chessrl.artifacts import RunFolder
from chessrl.board import tokens
from chessrl.config import InputError, Run
from chessrl.policy.optim import branching_step
from chessrl.policy.transformer import Transformer
from chessrl.stages.batches import Schedule
from chessrl.stages.checkpoints import last_checkpoint, newest, step_of
from chessrl.stages.group import group
from chessrl.stages.language import fit_documents
from chessrl.stages.logs import MetricsTable
from chessrl.stages.runs import folder, inherited, working


def branch_off(run: Run, schedule: Schedule, model: Transformer) -> Path | None:
    """The trunk's state where this run begins to decay, the trunk grown to there if need be.

    Where hardly a step comes before the decay there is no trunk: None.

    Args:
        model: what the run begins with; it is left as it is.

    Raises:
        InputError: the run is too short for its warm-up, or for a single step of decay.
    """
    optim, steps = run.pretrain.optim, len(schedule)
    step = branching_step(optim, steps)
    if step < optim.warmup_steps:
        raise InputError(
            f"pretrain.optim.warmup_steps={optim.warmup_steps}: the decay begins at step {step} of "
            f"{steps}, before the warm-up is over; raise pretrain.tokens, or lower it"
        )
    if step == steps:
        raise InputError(
            f"pretrain.optim.decay={optim.decay} is not one of {steps} steps; raise it, or "
            "pretrain.tokens"
        )
    if step == 0:
        return None
    branches = folder(run, "trunk").path / "branches"
    state = branches / f"step-{step:08d}.ckpt"
    if last_checkpoint(branches, at_most=step) != state:
        _grow(run, schedule, copy.deepcopy(model), step, state)
    return state


def continue_metrics(run: Run, out: RunFolder, state: Path) -> None:
    """Begin the metrics of a branch with those of the trunk up to where it leaves."""
    if group().leads and not out.metrics.exists():
        table = MetricsTable(folder(run, "trunk").metrics)
        table.rows = {step: row for step, row in table.rows.items() if step < step_of(state)}
        table.path = out.metrics
        table.save()


def _grow(run: Run, schedule: Schedule, model: Transformer, step: int, state: Path) -> None:
    """Train the trunk up to a step, from its nearest state before it, and keep the state there.

    What was spent is counted from where the trunk had grown to, or from that state where it lies
    before: a growth that was interrupted left states beyond, whose steps are counted here.
    """
    config, trunk = run.pretrain, folder(run, "trunk")
    optim = dataclasses.replace(config.optim, decay=0.0)
    active = compute.active_parameters(model.config, len(tokens.TOKENS))
    flops = flops_until(schedule, active, step)
    grown = {"steps": 0, "flops_spent": 0.0, "seconds": 0.0}
    if (trunk.path / "manifest.json").exists():
        grown |= trunk.manifest.get("grown", {})
    with working(run, trunk, "trunk", measures=_spent(grown)):
        kept = last_checkpoint(state.parent, at_most=step)
        begun = newest(kept, last_checkpoint(trunk.checkpoints, at_most=step))
        seconds = fit_documents(
            run, "trunk", trunk, model, schedule, optim,
            steps=step, flops=flops, games=config.harvest is None,
            microbatch_tokens=config.microbatch_tokens, checkpoint_every=config.checkpoint_every,
            log_every=config.log_every, start=begun, end=state,
        )  # fmt: skip
        if not group().leads:
            return
        first = min(grown["steps"], 0 if begun is None else step_of(begun))
        grown = {
            "steps": max(grown["steps"], step),
            "flops_spent": grown["flops_spent"] + flops - flops_until(schedule, active, first),
            "seconds": max(grown["seconds"], seconds),
        }
        trunk.describe({"grown": grown})
        result = inherited(run, "trunk")
        result.status = "open"
        result.model = model.config.name
        result.n_params = compute.parameters(model.config, len(tokens.TOKENS))
        result.measures = _spent(grown)
        result.seconds = grown["seconds"]
        trunk.write(result)


def _spent(grown: Mapping[str, float]) -> dict[str, float]:
    """What the result of a trunk tells of its growth."""
    return {name: float(grown[name]) for name in ("steps", "flops_spent")}


def spent_before(schedule: Schedule, active: int, start: Path | None) -> float:
    """FLOPs of the steps up to a training state; 0 where there is none."""
    return 0.0 if start is None else flops_until(schedule, active, step_of(start))


def flops_until(schedule: Schedule, active: int, step: int) -> float:
    """FLOPs of the first so many steps."""
    return compute.training_flops(active, float(schedule.cumulative[step - 1])) if step else 0.0
