"""The one application: `python -m chessrl stage=NAME key=value ...`, or `chessrl`."""

import dataclasses
import sys
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import hydra
import torch
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from chessrl.config import InputError, Run, parse
from chessrl.progress import console, say, silence
from chessrl.report.describe import describe
from chessrl.report.tables import print_table, write_results
from chessrl.scaling.collect import collect, tidy
from chessrl.sources import resolve
from chessrl.stages.group import check_group, group, take_place
from chessrl.stages.launch import SPREAD
from chessrl.stages.pipeline import perform, pipeline
from chessrl.stages.training import on_this_machine, quiet
from chessrl.stopping import stoppable

FETCHING = ("prepare", "pipeline", "mine")
"""Stages that may download what the data group names; the others take what is there."""


LEADER_SPEAKS = 5.0
"""Seconds that the other ranks leave to rank 0 to say what is wrong; it ends them by ending."""


def work(run: Run, overrides: Sequence[str]) -> None:
    """Do the job that a configuration names.

    Args:
        overrides: the command line it comes from, for processes on other devices.
    """
    check_group(run.trainer, place := group())
    if place.started_by:
        if run.stage not in SPREAD:
            raise InputError(f"stage={run.stage} works in one process, not in {place.size}")
        take_place(run.trainer)
    folder = Path(run.out or run.outputs)
    if _needs_data(run):
        data = resolve(run.data, fetch=run.stage in FETCHING)
        run = dataclasses.replace(run, data=data)
    if run.stage == "pipeline":
        results = pipeline(run, overrides)
        folder = folder / run.run
        print_table(results, title=f"{run.run}, seed {run.seed}")
    elif run.stage == "describe":
        describe(run)
        return
    elif run.stage == "collect":
        results = collect(run.runs)
        print_table(results, title=run.runs)
    else:
        result = perform(run, run.stage, overrides)
        if not place.started_by:
            print_table([result], title=run.stage)
        return
    write_results(folder, tidy(results), results)
    say(f"written: {folder / 'results.csv'} and {folder / 'results.md'}")


def _needs_data(run: Run) -> bool:
    """Whether the stage, or the name of one of its parents, depends on games and puzzles."""
    if run.stage == "describe":
        return run.dataset is None
    if run.stage == "export":
        return run.checkpoint is None
    return run.stage not in ("collect", "import")


CONF = Path(__file__).resolve().parent.parent / "conf"


@hydra.main(version_base="1.3", config_path=str(CONF), config_name="config")
def job(config: DictConfig) -> None:
    """One job of a command line; bad input ends with one line and exit status 2."""
    quiet()
    place = group()
    if not place.leads:
        silence()
    torch.set_float32_matmul_precision("highest")
    try:
        work(on_this_machine(parse(config)), command_line())
    except (InputError, FileNotFoundError) as error:
        if not place.leads:
            time.sleep(LEADER_SPEAKS)
        print(f"chessrl: {error}", file=sys.stderr, flush=True)
        sys.exit(2)


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
    if "hydra/launcher=slurm" in sys.argv and not _can_submit():
        say("chessrl: hydra/launcher=slurm needs `pip install hydra-submitit-launcher`")
        sys.exit(2)
    stoppable(job, _farewell)


def _can_submit() -> bool:
    plugins = find_spec("hydra_plugins")
    return plugins is not None and find_spec("hydra_plugins.hydra_submitit_launcher") is not None


def _farewell() -> None:
    console.show_cursor()
    if not group().started_by:
        say("chessrl: stopped; the same command goes on from the last checkpoint")


if __name__ == "__main__":
    main()
