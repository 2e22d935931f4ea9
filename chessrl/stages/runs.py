"""Which run a configuration names: its settings, its parents, its folder.

    prepare -> pretrain -> traces -> sft -> rl, and evaluate or export of any that trains
    rl -> harvest, whose folder goes to pretrain.harvest or sft.harvest of another run
    import, which has no parent: its weights go to the others with checkpoint=
    mine, which has no parent: its puzzles go to prepare as a file

The configuration alone decides all of them, so a stage finds its parents by working out what they
would be called.
"""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from chessrl.artifacts import Result, RunFolder, decisive, failure, identity
from chessrl.board.tokens import VOCABULARY_HASH
from chessrl.config import InputError, Run
from chessrl.policy.foreign import fingerprint
from chessrl.sources import content_hash
from chessrl.stages.contents import documents_content, rollouts_content
from chessrl.stages.group import group

PARENTS = {
    "mine": (),
    "prepare": (),
    "trunk": ("prepare",),
    "pretrain": ("prepare",),
    "traces": ("prepare", "pretrain"),
    "sft": ("traces", "pretrain"),
    "rl": ("prepare", "sft"),
    "harvest": ("prepare", "rl"),
    "evaluate": ("prepare",),
    "export": (),
    "import": (),
}
SETTINGS = {
    "mine": ("mine", "engine"),
    "prepare": ("data", "prompt"),
    "trunk": ("model", "pretrain", "seed"),
    "pretrain": ("model", "pretrain", "seed"),
    "traces": ("traces", "seed"),
    "sft": ("sft", "seed"),
    "rl": ("rl", "seed"),
    "harvest": ("harvest",),
    "evaluate": ("evaluate",),
    "export": (),
    "import": ("seed",),
}
TRAINED = ("pretrain", "sft", "rl")
OF_ANY = ("evaluate", "export")
"""Stages that take the model of stage `evaluate.of`."""


@cache
def _content(path: str) -> str:
    return content_hash(path)


@cache
def _folder_content(path: str) -> str:
    return fingerprint(Path(path))


def parents(run: Run, stage: str) -> dict[str, str]:
    """Identities of the runs that a stage builds on, by their stage."""
    names = (*PARENTS[stage], run.evaluate.of) if stage in OF_ANY else PARENTS[stage]
    if stage == "harvest" and run.harvest.rollouts:
        names = ("prepare",)
    if stage == "sft" and run.sft.data == "harvest":
        names = ("pretrain",)
    if run.checkpoint and stage not in ("mine", "prepare", "harvest"):
        known = {name: run_identity(run, name) for name in names if name not in TRAINED}
        return known | {"checkpoint": _content(run.checkpoint)[:12]}
    return {name: run_identity(run, name) for name in names}


def run_identity(run: Run, stage: str) -> str:
    """The hash that names a stage of this configuration."""
    settings = {name: decisive(getattr(run, name)) for name in SETTINGS[stage]}
    if stage == "prepare":
        for name in ("name", "paths", "months", "puzzles"):  # the content counts, not the place
            del settings["data"][name]
        settings["vocabulary"] = VOCABULARY_HASH
        settings["games"] = [_content(path) for path in run.data.paths]
        settings["puzzles"] = _content(run.data.puzzles)
    if stage in ("pretrain", "trunk") and run.checkpoint:  # it brings its model with it
        del settings["model"]
    if stage in ("pretrain", "trunk") and not run.pretrain.harvest:
        settings["pretrain"].pop("harvest_share", None)
    if stage in ("pretrain", "trunk", "sft"):
        given = run.sft.harvest if stage == "sft" else run.pretrain.harvest
        if given:
            settings["harvest"] = documents_content(given)
    if stage == "harvest" and run.harvest.rollouts:
        settings["rollouts"] = rollouts_content(run.harvest.rollouts)
    if stage == "import":
        settings["source"] = _folder_content(run.source)
        settings["vocabulary"] = VOCABULARY_HASH
    if stage == "mine":
        settings["min_plies"] = run.data.filter.min_plies
        settings["games"] = [_content(path) for path in run.data.paths]
    if stage == "trunk":  # whatever the length of its branches and their decay
        del settings["pretrain"]["tokens"]
        for name in ("decay", "final"):
            settings["pretrain"]["optim"].pop(name, None)
    if stage == "rl" and run.rl.reward == "engine":
        settings["engine"] = decisive(run.engine)
    if stage in (*TRAINED, "trunk"):
        trainer = run.trainer
        settings["precision"] = trainer.rl_precision if stage == "rl" else trainer.precision
    return identity(stage, settings, parents(run, stage))


def folder(run: Run, stage: str) -> RunFolder:
    """The folder of a stage; the stage that runs may be sent elsewhere by `out=`."""
    name = run_identity(run, stage)
    if run.out is not None and stage == run.stage:
        return RunFolder(Path(run.out), name)
    label = f"{stage}-{run.evaluate.of}" if stage in OF_ANY else stage
    return RunFolder(Path(run.outputs) / run.run / f"{label}-{name}", name)


def folders(run: Run, stage: str) -> list[RunFolder]:
    """The folders that a stage may work in: pretraining has its trunk's before its own."""
    names = ("trunk", stage) if stage == "pretrain" else (stage,)
    return [folder(run, name) for name in names]


def parent(run: Run, stage: str) -> RunFolder:
    """The finished run of an earlier stage.

    Raises:
        InputError: it has not been made yet.
    """
    found = folder(run, stage)
    if found.finished is None:
        target = "data" if stage == "prepare" else stage
        raise InputError(
            f"{stage} has not finished in {found.path}: run `make {target}` or "
            f"`python -m chessrl stage={stage}` with the same settings first"
        )
    return found


def weights_file(run: Run, stage: str) -> Path:
    """Weights that a stage left, or those of `checkpoint=`."""
    if run.checkpoint:
        return Path(run.checkpoint)
    return parent(run, stage).checkpoints / "model.safetensors"


@contextlib.contextmanager
def working(
    run: Run, out: RunFolder, stage: str, measures: Mapping[str, float] | None = None
) -> Iterator[None]:
    """Work on a stage in its folder; an error leaves a result that says what failed.

    In a group of processes rank 0 alone claims the folder.

    Args:
        measures: what holds of the folder even after an error.
    """
    if not group().leads:
        yield
        return
    with out.started(run, {"stage": stage, "parents": parents(run, stage)}):
        try:
            yield
        except Exception as error:
            out.write(
                Result(
                    stage=stage,
                    identity=out.identity,
                    parents=parents(run, stage),
                    status="failed",
                    message=failure(error),
                    seed=run.seed,
                    of=run.evaluate.of if stage in OF_ANY else "",
                    prompt=run.prompt.form,
                    model=run.model.name,
                    measures=dict(measures or {}),
                )
            )
            raise


def inherited(run: Run, stage: str) -> Result:
    """An unwritten result that starts from what the parents of a stage spent."""
    result = Result(
        stage=stage,
        identity=run_identity(run, stage),
        parents=parents(run, stage),
        seed=run.seed,
        prompt=run.prompt.form,
        model=run.model.name,
    )
    for name in result.parents:
        if name == "checkpoint":
            continue
        spent = parent(run, name).finished
        result.n_params = spent.n_params or result.n_params
        for field in ("tokens", "flops", "exact_flops"):
            getattr(result, field).update(getattr(spent, field))
    return result


def with_stage(run: Run, stage: str, of: str | None = None) -> Run:
    """The same configuration for another stage."""
    evaluate = dataclasses.replace(run.evaluate, of=of or run.evaluate.of)
    return dataclasses.replace(run, stage=stage, evaluate=evaluate, out=None)
