"""A model cut over the processes that train it (torch's `fully_shard`), and made whole again.

Each block is gathered when it is needed and cut again after; gradients are averaged over the
processes, as DDP does.
"""

from lightning.pytorch.strategies import ModelParallelStrategy
from torch import Tensor
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from chessrl.policy.transformer import Transformer


def sharded_strategy(size: int, backend: str) -> ModelParallelStrategy:
    """Lightning's strategy for it, with whole checkpoints."""
    return ModelParallelStrategy(
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
