"""What makes a step fast on the machine at hand: compiled blocks, and memory that is kept."""

import ctypes
import os
from functools import cache
from pathlib import Path

import torch

from chessrl.policy.transformer import Transformer

COMPILE_FROM = 5e12
"""FLOPs of a stage from which compiling, some 20 s the first time, gives more than it costs."""
MMAP_MAX, TRIM_THRESHOLD = -4, -1
"""Numbers of these parameters in mallopt(3)."""


def keep_memory() -> bool:
    """Keep freed memory in this process; False where its allocator is not glibc's.

    By default each large buffer is returned to the system and its pages are cleared when it is
    asked for again, which takes a third of a training step on a CPU.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
    return mallopt is not None and bool(mallopt(MMAP_MAX, 0) and mallopt(TRIM_THRESHOLD, -1))


@cache
def can_compile(device: str) -> bool:
    """Whether code for a device can be compiled here; the first answer takes seconds."""
    cached = Path.home() / ".cache" / "chessrl" / "compiled"
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cached))  # and not a temporary folder
    try:
        torch.compile(lambda x: x + 1)(torch.zeros(8, device=device))
    except Exception:  # no compiler, one too old, no headers: all mean that there is none
        torch.compiler.reset()
        return False
    return True


def compile_blocks(model: Transformer) -> None:
    """Compile each block on its own: they are alike, so the first one's code serves them all.

    A mixture of experts sends as many rows to each as come, which no fixed code can do: there the
    attention alone is compiled.
    """
    for block in model.blocks:
        (block.attention if model.config.experts else block).compile(dynamic=False)
