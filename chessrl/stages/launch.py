"""Training on many devices: one process for each, started as `torch.distributed.run` does."""

import logging
import sys
import uuid
from collections.abc import Sequence

from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from chessrl.config import Run
from chessrl.progress import say
from chessrl.stages.group import group
from chessrl.stopping import STATUS

SPREAD = ("pretrain", "sft", "rl")
"""Stages that work on many devices."""


def needs_group(run: Run, stage: str) -> bool:
    """Whether processes have to be started for a stage; not where this is one of them."""
    return stage in SPREAD and run.trainer.devices > 1 and not group().started_by


def command(run: Run, stage: str, overrides: Sequence[str]) -> list[str]:
    """Arguments of Python that train one stage of this job in a process of a group."""
    here = ["out=null"] if run.out is None else []
    return ["-m", "chessrl", *overrides, f"stage={stage}", *here]


def launch(run: Run, stage: str, overrides: Sequence[str]) -> None:
    """Train a stage in a group of processes and wait for its end.

    Args:
        overrides: the command line of this job, which each process gets too.

    Raises:
        SystemExit: a process failed; it has said why, and its status is passed on.
        KeyboardInterrupt: it, or this process, was interrupted.
    """
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=run.trainer.devices,
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        local_addr="localhost",
        max_restarts=0,
        signals_to_handle="",  # our own do, which a second signal does not disturb
    )
    try:
        elastic_launch(config, sys.executable)(*command(run, stage, overrides))
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        if failure.exitcode == STATUS:
            raise KeyboardInterrupt from None
        if failure.exitcode < 0:
            say(f"chessrl: {stage}: rank {rank} was killed by signal {-failure.exitcode}")
            sys.exit(128 - failure.exitcode)
        sys.exit(failure.exitcode)
