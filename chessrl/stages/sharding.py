"""A model cut over the processes that train it (torch's `fully_shard`), and made whole again.

Each block is gathered when it is needed and cut again after; gradients are averaged over the
processes, as DDP does.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.strategies import ModelParallelStrategy
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from chessrl.policy.transformer import Transformer


class ShardedStrategy(ModelParallelStrategy):
    """Lightning's strategy for it, going on from checkpoints of any number of devices."""

    def load_checkpoint(
        self, checkpoint_path: Any, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Cut a whole checkpoint that rank 0 names.

        Lightning matches moments by the order of the model's parameters, which is not that of the
        optimiser's groups.
        """
        path = Path(self.broadcast(checkpoint_path))
        checkpoint = torch.load(path, mmap=True, map_location="cpu", weights_only=True)
        options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
        set_model_state_dict(self.model, checkpoint.pop("state_dict"), options=options)
        for optimizer, state in zip(self.optimizers, checkpoint["optimizer_states"], strict=True):
            named = by_name(state, optimizer, self.model)
            set_optimizer_state_dict(self.model, optimizer, named, options=options)
        return checkpoint


def by_name(state: Mapping[str, Any], optimizer: Optimizer, model: nn.Module) -> dict[str, Any]:
    """The saved state of an optimiser, with names of parameters in the place of numbers.

    A number stands for the parameter at the same place of the same group, as in torch.

    Raises:
        ValueError: the groups are not those of the optimiser.
    """
    names = {parameter: name for name, parameter in model.named_parameters()}
    named: dict[int, str] = {}
    for saved, group in zip(state["param_groups"], optimizer.param_groups, strict=True):
        ours = (names[parameter] for parameter in group["params"])
        named |= zip(saved["params"], ours, strict=True)
    return {
        "state": {named[number]: value for number, value in state["state"].items()},
        "param_groups": [
            {**saved, "params": [named[number] for number in saved["params"]]}
            for saved in state["param_groups"]
        ],
    }


def sharded_strategy(size: int, backend: str) -> ShardedStrategy:
    """The strategy for so many processes, with whole checkpoints."""
    return ShardedStrategy(
        data_parallel_size=size,
        tensor_parallel_size=1,
        save_distributed_checkpoint=False,
        process_group_backend=backend,
    )


def shard(model: Transformer, mesh: DeviceMesh) -> None:
    """Cut the weights over the processes, block by block."""
    for block in model.blocks:
        fully_shard(block, mesh=mesh["data_parallel"])
    fully_shard(model, mesh=mesh["data_parallel"])


def whole(value: Tensor) -> Tensor:
    """A tensor as it would be on one device; all processes must ask together."""
    return value.full_tensor() if isinstance(value, DTensor) else value


def whole_weights(model: Transformer) -> dict[str, Tensor]:
    """All weights on the CPU; nothing in processes other than the first, where the model is cut."""
    if not any(isinstance(parameter, DTensor) for parameter in model.parameters()):
        return model.state_dict()
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    return get_model_state_dict(model, options=options)
