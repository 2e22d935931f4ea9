"""The one application: `python -m chessrl stage=NAME key=value ...`, or `chessrl`."""

import dataclasses
import sys
import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

import hydra
import torch
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from chessrl.config import InputError, Run, parse
from chessrl.progress import console, say, silence
from chessrl.report.describe import describe
from chessrl.report.laws import report_advice, report_frontier
from chessrl.report.sweeps import print_plan
from chessrl.report.tables import print_table, write_results
from chessrl.scaling.cells import Cell, attempt, planned
from chessrl.scaling.collect import Curve, collect, curve_of, tidy
from chessrl.sources import resolve
from chessrl.stages.budget import budgeted
from chessrl.stages.group import check_group, group, take_place
from chessrl.stages.launch import SPREAD
from chessrl.stages.pipeline import perform, pipeline
from chessrl.stages.runs import folder as folder_of
from chessrl.stages.training import on_this_machine, quiet
from chessrl.stopping import stoppable

FETCHING = ("prepare", "pipeline", "mine")
"""Stages that may download what the data group names; the others take what is there."""


LEADER_SPEAKS = 5.0
"""Seconds that the other ranks leave to rank 0 to say what is wrong; it ends them by ending."""


def work(run: Run, overrides: Sequence[str], alone: bool = True) -> None:
    """Do the job that a configuration names.

    Args:
        overrides: the command line it comes from, for processes on other devices.
        alone: it is no cell of a sweep, whose tables are written at its end.
    """
    place = group()
    folder = Path(run.out or run.outputs)
    curves: Mapping[str, Curve] = {}
    if run.stage == "pipeline":
        results = pipeline(run, overrides)
        folder = folder / run.run
        tuned = next(one for one in results if one.stage == "rl")
        if (curve := curve_of(folder_of(run, "rl").path, tuned)) is not None:
            curves = {tuned.identity: curve}
        print_table(results, title=f"{run.run}, seed {run.seed}")
    elif run.stage == "describe":
        describe(run)
        return
    elif run.stage == "frontier":
        report_frontier(run)
        return
    elif run.stage == "advise":
        report_advice(run)
        return
    elif run.stage == "collect":
        results, curves = collect(run.runs)
        print_table(results, title=run.runs)
    else:
        result = perform(run, run.stage, overrides)
        if not place.started_by:
            print_table([result], title=run.stage)
        return
    if alone:
        write_results(folder, tidy(results, curves), results)
        say(f"written: {folder / 'results.csv'} and {folder / 'results.md'}")


def configured(config: DictConfig) -> Run:
    """The checked configuration of a job, with its data found and its budget split.

    Raises:
        InputError: it is refused.
    """
    run = budgeted(on_this_machine(parse(config)))
    check_group(run.trainer, place := group())
    if place.started_by:
        if run.stage not in SPREAD:
            raise InputError(f"stage={run.stage} works in one process, not in {place.size}")
        take_place(run.trainer)
    if _needs_data(run):
        fetch = run.stage in FETCHING and not run.dry
        run = dataclasses.replace(run, data=resolve(run.data, fetch=fetch))
    return run


def _needs_data(run: Run) -> bool:
    """Whether the stage, or the name of one of its parents, depends on games and puzzles."""
    if run.stage == "describe":
        return run.dataset is None
    if run.stage == "export":
        return run.checkpoint is None
    return run.stage not in ("collect", "import", "frontier", "advise")


CONF = Path(__file__).resolve().parent.parent / "conf"


@hydra.main(version_base="1.3", config_path=str(CONF), config_name="config")
def job(config: DictConfig) -> Cell | tuple[Cell, Run | None] | None:
    """One job of a command line; bad input ends with one line and exit status 2."""
    quiet()
    place = group()
    if not place.leads:
        silence()
    torch.set_float32_matmul_precision("highest")
    if HydraConfig.get().mode == RunMode.MULTIRUN:
        return cell_of_sweep(config)
    try:
        run = configured(config)
        if run.dry:
            print_plan([(Cell(identity="", overrides=[run.stage], sweep=""), run)], run.outputs)
        else:
            work(run, command_line())
    except (InputError, FileNotFoundError) as error:
        if not place.leads:
            time.sleep(LEADER_SPEAKS)
        print(f"chessrl: {error}", file=sys.stderr, flush=True)
        sys.exit(2)
    return None


def cell_of_sweep(config: DictConfig) -> Cell | tuple[Cell, Run | None]:
    """One job of `--multirun`, whose failure is recorded and ends no other."""
    told = list(HydraConfig.get().overrides.task)
    if config.dry:
        return planned(told, lambda: configured(config))
    return attempt(
        Path(config.outputs) / config.run,
        told,
        lambda: configured(config),
        lambda run: work(run, command_line(), alone=False),
    )


def command_line() -> list[str]:
    """Arguments that compose the configuration of this job again."""
    hydra_config = HydraConfig.get()
    folders = {each.provider: each.path for each in hydra_config.runtime.config_sources}
    words = [f"--config-path={folders['main']}", f"--config-name={hydra_config.job.config_name}"]
    if "command-line" in folders:
        words.append(f"--config-dir={folders['command-line']}")
    return [*words, *hydra_config.overrides.task]


def main() -> None:
    """Entry point; SIGINT and SIGTERM end it with one line and exit status 130."""
    for word in sys.argv[1:]:
        if word.startswith("hydra/launcher=") and (missing := missing_plugin(word)):
            say(f"chessrl: {word} needs `pip install {missing}`")
            sys.exit(2)
    stoppable(job, _farewell)


LAUNCHERS = {"slurm": "hydra-submitit-launcher", "parallel": "hydra-joblib-launcher"}
"""Packages that launchers of conf/hydra/launcher need."""


def missing_plugin(word: str) -> str | None:
    """The package that the launcher of `hydra/launcher=NAME` needs and that is not here."""
    package = LAUNCHERS.get(word.partition("=")[2])
    if package is None:
        return None
    plugins = find_spec("hydra_plugins")
    there = plugins and find_spec(f"hydra_plugins.{package.replace('-', '_')}")
    return None if there else package


def _farewell() -> None:
    console.show_cursor()
    if not group().started_by:
        say("chessrl: stopped; the same command goes on from the last checkpoint")


if __name__ == "__main__":
    main()
