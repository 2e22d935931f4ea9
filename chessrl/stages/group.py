"""The group of processes that train together, one for each device.

A group is started by `torch.distributed.run` (this project starts it so itself: `launch.py`) or by
SLURM's `srun`; both tell a process its place through the environment.
"""

import os
import signal
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from lightning.fabric.plugins.environments import (
    ClusterEnvironment,
    LightningEnvironment,
    SLURMEnvironment,
    TorchElasticEnvironment,
)
from lightning.pytorch.strategies import DDPStrategy, Strategy

from chessrl.config import InputError, TrainerConfig
from chessrl.stages.sharding import sharded_strategy


@dataclass(frozen=True)
class Group:
    """The place of this process."""

    rank: int = 0
    size: int = 1
    started_by: str = ""
    """`torchrun`, `slurm`, or nothing where the process works alone."""

    @property
    def leads(self) -> bool:
        """Whether this process writes files and shows progress: rank 0 does."""
        return self.rank == 0


def group(environment: Mapping[str, str] = os.environ) -> Group:
    """The group that the environment tells of."""
    if {"RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR"} <= environment.keys():
        return Group(int(environment["RANK"]), int(environment["WORLD_SIZE"]), "torchrun")
    if int(environment.get("SLURM_STEP_NUM_TASKS", 1)) > 1:  # of srun, not of the batch script
        size = int(environment["SLURM_STEP_NUM_TASKS"])
        return Group(int(environment["SLURM_PROCID"]), size, "slurm")
    return Group()


def check_group(config: TrainerConfig, place: Group) -> None:
    """Refuse a group that does not fit the configuration.

    Raises:
        InputError: its size is no multiple of `trainer.devices`, those of one node.
    """
    if place.started_by and (config.devices == 1 or place.size % config.devices):
        raise InputError(
            f"started as {place.size} processes, but trainer.devices={config.devices}: set "
            "trainer=ddp and trainer.devices to the processes of one node"
        )


def placement(config: TrainerConfig, place: Group) -> dict[str, Any]:
    """Lightning's arguments for the devices; its own start of processes is never used."""
    environments: dict[str, type[ClusterEnvironment]] = {
        "torchrun": TorchElasticEnvironment,
        "slurm": SLURMEnvironment,
        "": LightningEnvironment,
    }
    kind = environments[place.started_by]
    made = kind(auto_requeue=False) if kind is SLURMEnvironment else kind()
    strategy: str | Strategy = "auto"
    if place.size > 1:
        backend = "nccl" if config.accelerator == "cuda" else "gloo"
        if config.strategy == "fsdp":
            strategy = sharded_strategy(place.size, backend)
        else:
            strategy = DDPStrategy(process_group_backend=backend)
    return {
        "accelerator": config.accelerator,
        "devices": config.devices,
        "num_nodes": max(place.size // config.devices, 1),
        "strategy": strategy,
        "plugins": [made],
    }


def take_place(config: TrainerConfig) -> None:
    """What a process of a group does at its start: share the cores, end with its parent."""
    if config.accelerator == "cpu" and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max((os.cpu_count() or 1) // config.devices, 1))
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGKILL)  # files appear whole or not at all
