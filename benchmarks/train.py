"""Tokens/s of a training step on this machine, against transformers' Qwen3 in a plain loop.

Each contender is a process of its own; all take their turns round after round, so that a busy
moment of the machine meets them alike. All train a model of the same shape and size on the same
number of rows with AdamW; the loss is that of the next token.

    python benchmarks/train.py
    python benchmarks/train.py --models 1m 5m 20m --rounds 9

Contenders: `hf-bf16` and `hf-fp32`, transformers' model as it comes, and with this project's
handling of memory as `hf-bf16-memory`; `eager` and `compiled`, this project's.
"""

import argparse
import multiprocessing
import os
import platform
import statistics
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import torch
import torch.nn.functional as F
import yaml

from chessrl import compute
from chessrl.board.tokens import TOKENS
from chessrl.config import ModelConfig
from chessrl.policy.export import their_config
from chessrl.policy.machine import compile_blocks, keep_memory
from chessrl.policy.transformer import Transformer
from chessrl.stages.exporting import VOCABULARY

CONF = Path(__file__).parents[1] / "conf" / "model"
CONTENDERS = ("hf-bf16", "hf-fp32", "hf-bf16-memory", "eager", "compiled")
SHOWN = ("avx2", "avx512_f", "avx512_bf16", "amx_tile", "amx_bf16")
"""Abilities of a processor that make the difference."""
STEPS = 2
"""Steps in a round."""


def shape_of(name: str) -> ModelConfig:
    """The model that conf/model names."""
    return ModelConfig(**yaml.safe_load((CONF / f"{name}.yaml").read_text()))


def step_of(kind: str, name: str, rows: int, context: int) -> Callable[[], None]:
    """One training step of a contender."""
    config = shape_of(name)
    if "hf" in kind:
        from transformers import Qwen3Config, Qwen3ForCausalLM

        settings = Qwen3Config(**their_config(config, VOCABULARY) | {"use_cache": False})
        model = Qwen3ForCausalLM(settings)
        logits_of = lambda tokens: model(tokens).logits  # noqa: E731
    else:
        model = logits_of = Transformer(config, len(TOKENS))
    if kind == "compiled":
        compile_blocks(model)
    if kind in ("hf-bf16-memory", "eager", "compiled"):
        keep_memory()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, fused=True)

    def step() -> None:
        tokens = torch.randint(len(TOKENS), (rows, context + 1))
        with torch.autocast("cpu", torch.bfloat16, enabled="fp32" not in kind):
            logits = logits_of(tokens[:, :-1])
        F.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def contend(pipe: Connection, kind: str, name: str, rows: int, context: int) -> None:
    """A contender's process: a round whenever it is asked for one; answers are seconds."""
    torch.manual_seed(0)
    step = step_of(kind, name, rows, context)
    began = time.perf_counter()
    step()
    pipe.send(time.perf_counter() - began)
    step()
    while pipe.recv():
        began = time.perf_counter()
        for _ in range(STEPS):
            step()
        pipe.send(time.perf_counter() - began)


def matrix_rate(precision: torch.dtype, size: int = 2048) -> float:
    """FLOP/s of square matrix products on this machine, the best of ten."""
    left, right = torch.randn(2, size, size).to(precision)
    left @ right
    seconds = []
    for _ in range(10):
        began = time.perf_counter()
        left @ right
        seconds.append(time.perf_counter() - began)
    return 2 * size**3 / min(seconds)


def race(name: str, rows: int, context: int, rounds: int) -> dict[str, list[float]]:
    """Seconds of every round of each contender; the first step's are told."""
    spawn = multiprocessing.get_context("spawn")
    pipes, first = {}, {}
    for kind in CONTENDERS:
        pipes[kind], other = spawn.Pipe()
        process = spawn.Process(
            target=contend, args=(other, kind, name, rows, context), daemon=True
        )
        process.start()
        first[kind] = pipes[kind].recv()
    taken: dict[str, list[float]] = {kind: [] for kind in CONTENDERS}
    for _ in range(rounds):
        for kind, pipe in pipes.items():
            pipe.send(True)
            taken[kind].append(pipe.recv())
    for pipe in pipes.values():
        pipe.send(False)
    print(f"first step of `compiled`: {first['compiled']:.0f} s")
    return taken


def report(name: str, rows: int, context: int, rounds: int, peak: float) -> None:
    """Race the contenders at one size, and print a row for each."""
    config = shape_of(name)
    taken = race(name, rows, context, rounds)
    n_params = compute.parameters(config, len(TOKENS))
    exact = 3 * compute.exact_forward_flops(config, len(TOKENS), 1, context)
    base = taken["hf-bf16"]
    print(f"\n{name}: {n_params / 1e6:.2f}M parameters, {rows} x {context} tokens a step\n")
    print("| contender | tokens/s | GFLOP/s by 6N | by matrix products | of the peak | ratio |")
    print("|---|---|---|---|---|---|")
    for kind, seconds in taken.items():
        rate = STEPS * rows * context / statistics.median(seconds)
        ratio = statistics.median(b / s for b, s in zip(base, seconds, strict=True))
        print(
            f"| `{kind}` | {rate:,.0f} | {6 * n_params * rate / 1e9:.0f} | "
            f"{exact * rate / 1e9:.0f} | {exact * rate / peak:.0%} | {ratio:.2f} |"
        )
    print(flush=True)


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=["1m", "5m"])
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    import transformers

    peak = matrix_rate(torch.bfloat16)
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, {torch.get_num_threads()} threads, "
        f"{', '.join(name for name in SHOWN if torch.cpu.get_capabilities().get(name))}\n"
        f"torch {torch.__version__}, transformers {transformers.__version__}; matrix products of "
        f"2048: bf16 {peak / 1e9:.0f} GFLOP/s, fp32 {matrix_rate(torch.float32) / 1e9:.0f}"
    )
    for name in options.models:
        report(name, options.rows, options.context, options.rounds, peak)


if __name__ == "__main__":
    main()
