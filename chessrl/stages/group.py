"""The group of processes that train together, one for each device.

A group is started by `torch.distributed.run` (this project starts it so itself: `launch.py`) or by
SLURM's `srun`; both tell a process its place through the environment.
"""

import atexit
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


def gathered(values: list[Any]) -> list[Any]:
    """What all processes of the group hold, in the order of their ranks; each gets all of it."""
    if not torch.distributed.is_initialized():
        return values
    parts: list[list[Any]] = [[] for _ in range(torch.distributed.get_world_size())]
    torch.distributed.all_gather_object(parts, values)
    return [value for part in parts for value in part]


def reduced(value: torch.Tensor, how: str) -> torch.Tensor:
    """`sum`, `min` or `max` of a tensor over all processes of the group."""
    if torch.distributed.is_initialized():
        kinds = torch.distributed.ReduceOp
        operation = {"sum": kinds.SUM, "min": kinds.MIN, "max": kinds.MAX}[how]
        torch.distributed.all_reduce(value, operation)
    return value


class Replicas(DDPStrategy):
    """Every process holds the model and works out its gradients; who trains adds them up.

    DDP's own wrapper expects as many backward passes in each process, which RL does not have.
    """

    def configure_ddp(self) -> None:
        """Leave the module unwrapped."""


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


def placement(config: TrainerConfig, place: Group, adds_up: bool = False) -> dict[str, Any]:
    """Lightning's arguments for the devices; its own start of processes is never used.

    Args:
        adds_up: whether the module adds up the gradients of the processes itself.
    """
    strategy: str | Strategy = "auto"
    if place.size > 1:
        backend = _backend(config)
        if adds_up:
            strategy = Replicas(process_group_backend=backend)
        elif config.strategy == "fsdp":
            strategy = sharded_strategy(place.size, backend)
        else:
            strategy = DDPStrategy(process_group_backend=backend)
    return {
        "accelerator": config.accelerator,
        "devices": config.devices,
        "num_nodes": max(place.size // config.devices, 1),
        "strategy": strategy,
        "plugins": [_environment(place)],
    }


def _environment(place: Group) -> ClusterEnvironment:
    kinds: dict[str, type[ClusterEnvironment]] = {
        "torchrun": TorchElasticEnvironment,
        "slurm": SLURMEnvironment,
        "": LightningEnvironment,
    }
    kind = kinds[place.started_by]
    return kind(auto_requeue=False) if kind is SLURMEnvironment else kind()


def _backend(config: TrainerConfig) -> str:
    return "nccl" if config.accelerator == "cuda" else "gloo"


def join(config: TrainerConfig, place: Group) -> None:
    """Meet the other processes, where there are any, before training does so."""
    if place.size == 1 or torch.distributed.is_initialized():
        return
    meeting = _environment(place)
    if config.accelerator == "cuda":
        torch.cuda.set_device(meeting.local_rank())
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = (
        meeting.main_address,
        str(meeting.main_port),
    )
    torch.distributed.init_process_group(_backend(config), rank=place.rank, world_size=place.size)
    atexit.register(torch.distributed.destroy_process_group)


def take_place(config: TrainerConfig) -> None:
    """What a process of a group does at its start: share the cores, end with its parent."""
    if config.accelerator == "cpu" and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max((os.cpu_count() or 1) // config.devices, 1))
    threading.Thread(target=end_with, args=(os.getppid(),), daemon=True).start()


def end_with(parent: int) -> None:
    """End this process when its parent has ended; for a thread of its own."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGKILL)  # files appear whole or not at all
