"""The whole pipeline: every stage in turn, the model measured after each training stage."""

import dataclasses
from collections.abc import Sequence

from chessrl.artifacts import Busy, Result
from chessrl.config import Run
from chessrl.progress import say
from chessrl.stages.evaluate import evaluate
from chessrl.stages.exporting import export, import_model
from chessrl.stages.harvest import harvest
from chessrl.stages.launch import SPREAD, launch, needs_group
from chessrl.stages.mine import mine
from chessrl.stages.prepare import prepare
from chessrl.stages.pretrain import pretrain
from chessrl.stages.rl import rl
from chessrl.stages.runs import SETTINGS, TRAINED, folder, folders, with_stage
from chessrl.stages.sft import sft
from chessrl.stages.traces import traces

STAGES = {
    "mine": mine,
    "prepare": prepare,
    "pretrain": pretrain,
    "traces": traces,
    "sft": sft,
    "rl": rl,
    "harvest": harvest,
    "evaluate": evaluate,
    "export": export,
    "import": import_model,
}


def pipeline(run: Run, overrides: Sequence[str] = ()) -> list[Result]:
    """Run what has not been run yet; results in the order of the stages.

    A stage that another process is making is waited for. `overrides` as in `perform`.
    """
    return [_do(one, one.stage, overrides) for one in stages_of(run)]


def stages_of(run: Run) -> list[Run]:
    """The configuration of each stage with a run folder that a job does, in their order."""
    if run.stage != "pipeline":
        return [run] if run.stage in SETTINGS else []
    each = []
    for stage in ("prepare", "pretrain", "traces", "sft", "rl"):
        each.append(with_stage(_on_its_devices(run, stage), stage))
        if stage in TRAINED:
            each.append(with_stage(run, "evaluate", stage))
    return each


def perform(run: Run, stage: str, overrides: Sequence[str] = ()) -> Result:
    """Do one stage, on all its devices.

    Args:
        overrides: the command line of the job, for the processes that have to be started.
    """
    if needs_group(run, stage) and folder(run, stage).finished is None:
        launch(run, stage, overrides)
    return STAGES[stage](_on_its_devices(run, stage))


def _on_its_devices(run: Run, stage: str) -> Run:
    """The configuration on one device, for stages that work on no more."""
    if stage in SPREAD or run.trainer.devices == 1:
        return run
    return dataclasses.replace(run, trainer=dataclasses.replace(run.trainer, devices=1))


def _do(run: Run, stage: str, overrides: Sequence[str]) -> Result:
    out = folder(run, stage)
    if needs_group(run, stage):  # whose processes could only say that they were refused
        for made in folders(run, stage):
            made.settle(say)
    while True:
        known = out.finished is not None
        try:
            result = perform(run, stage, overrides)
            break
        except Busy as error:
            error.folder.settle(say)
    name = f"{stage} of {run.evaluate.of}" if stage == "evaluate" else stage
    state = "was finished before" if known else f"took {result.seconds:.0f} s"
    say(f"{name}: {state}, {out.path}")
    return result
