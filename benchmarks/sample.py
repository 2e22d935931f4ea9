"""Tokens/s of sampling on this machine, against `generate` of transformers on the same weights.

Each contender is a process of its own; all take their turns round after round, so that a busy
moment of the machine meets them alike. All read the same 256 rows of 64 tokens, 16 prompts in 16
copies each as in RL, and sample 64 tokens for each at temperature 1 with no token that ends a row.
What is timed is the whole, prompts included.

    python benchmarks/sample.py
    python benchmarks/sample.py --models 20m --rounds 2 --contenders hf-bf16-static fp32 bf16

Contenders: `hf-PRECISION-CACHE`, transformers' model as it comes, and with this project's handling
of memory as `hf-PRECISION-CACHE-memory`; `fp32` and `bf16` (autocast), this project's; and as
`fp32-apart`, `bf16-apart` the same where no two rows are known to share a prompt.
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
import yaml

from chessrl import compute
from chessrl.board.tokens import TOKENS
from chessrl.config import ModelConfig
from chessrl.policy.export import their_config, their_name
from chessrl.policy.machine import keep_memory
from chessrl.policy.sampling import Sampling, Turns
from chessrl.policy.weights import new_model
from chessrl.stages.exporting import VOCABULARY

CONF = Path(__file__).parents[1] / "conf" / "model"
THEIRS = tuple(
    f"hf-{precision}-{cache}" for precision in ("fp32", "bf16") for cache in ("dynamic", "static")
)
CONTENDERS = (*THEIRS, "fp32", "bf16", "fp32-apart", "bf16-apart")
SHOWN = ("avx2", "avx512_f", "avx512_bf16", "amx_tile", "amx_bf16")
PROMPTS, COPIES, READ, WRITTEN = 16, 16, 64, 64
ROWS = PROMPTS * COPIES
ENDLESS = Turns(lambda *_: False, lambda *_: None, keep_end=True, stops=())
Answer = tuple[float, float, float]
"""Seconds of a round in all, of reading prompts, of sampling; of theirs the first alone."""


def shape_of(name: str) -> ModelConfig:
    """The model that conf/model names."""
    return ModelConfig(**yaml.safe_load((CONF / f"{name}.yaml").read_text()))


def prompts_of(seed: int) -> torch.Tensor:
    """(PROMPTS, READ) random tokens: speed does not depend on them."""
    return torch.randint(
        len(TOKENS), (PROMPTS, READ), generator=torch.Generator().manual_seed(seed)
    )


def their_round(kind: str, name: str) -> Callable[[int], Answer]:
    """A round of transformers' `generate`, of so many tokens."""
    from transformers import GenerationConfig, Qwen3Config, Qwen3ForCausalLM

    _, precision, cache, *memory = kind.split("-")
    if memory:
        keep_memory()
    config = shape_of(name)
    theirs = Qwen3ForCausalLM(Qwen3Config(**their_config(config, VOCABULARY)))
    ours = new_model(config, len(TOKENS), 0).state_dict()
    theirs.load_state_dict({their_name(key): value for key, value in ours.items()})
    theirs = theirs.eval().to(torch.bfloat16 if precision == "bf16" else torch.float32)
    rows = prompts_of(0).repeat_interleave(COPIES, dim=0)

    def play(count: int) -> Answer:
        settings = GenerationConfig(
            do_sample=True, temperature=1.0, top_k=0, top_p=1.0, max_new_tokens=count,
            min_new_tokens=count, pad_token_id=VOCABULARY.pad, cache_implementation=cache,
        )  # fmt: skip
        began = time.perf_counter()
        out = theirs.generate(rows, settings, attention_mask=torch.ones_like(rows))
        assert out.shape == (ROWS, READ + count)
        return time.perf_counter() - began, 0.0, 0.0

    return play


def our_round(kind: str, name: str) -> Callable[[int], Answer]:
    """A round of this project's sampler, of so many tokens."""
    keep_memory()
    precision, *apart = kind.split("-")
    model = new_model(shape_of(name), len(TOKENS), 0).eval()
    prompts, copies = prompts_of(0), [COPIES] * PROMPTS
    if apart:
        prompts, copies = prompts.repeat_interleave(COPIES, dim=0), [1] * ROWS
    seeds = range(len(prompts))

    def play(count: int) -> Answer:
        began = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            sampling = Sampling(
                model, prompts.tolist(), copies, ENDLESS, budgets=[count] * ROWS, temperature=1.0,
                pad=VOCABULARY.pad, seeds=seeds,
            )  # fmt: skip
            sampling.advance(model)
        assert sum(len(one.tokens) for one in sampling.samples) == ROWS * count
        took = time.perf_counter() - began
        return took, sampling.prefill_seconds, sampling.decode_seconds

    return play


def contend(pipe: Connection, kind: str, name: str) -> None:
    """A contender's process: a round whenever it is asked for one."""
    torch.manual_seed(0)
    play = (their_round if kind.startswith("hf") else our_round)(kind, name)
    play(4)
    pipe.send(None)
    while pipe.recv():
        pipe.send(play(WRITTEN))


def race(name: str, kinds: list[str], rounds: int) -> dict[str, list[Answer]]:
    """The answers of every round of each contender."""
    spawn = multiprocessing.get_context("spawn")
    pipes = {}
    for kind in kinds:
        pipes[kind], other = spawn.Pipe()
        spawn.Process(target=contend, args=(other, kind, name), daemon=True).start()
        pipes[kind].recv()
    taken: dict[str, list[Answer]] = {kind: [] for kind in kinds}
    for _ in range(rounds):
        for kind, pipe in pipes.items():
            pipe.send(True)
            taken[kind].append(pipe.recv())
    for pipe in pipes.values():
        pipe.send(False)
    return taken


def copy_rate(size: int = 2**28) -> float:
    """Bytes read and written per second where `size` bytes are copied, the best of ten."""
    source, target = torch.zeros(size, dtype=torch.uint8), torch.zeros(size, dtype=torch.uint8)
    seconds = []
    for _ in range(10):
        began = time.perf_counter()
        target.copy_(source)
        seconds.append(time.perf_counter() - began)
    return 2 * size / min(seconds)


def bytes_read(kind: str, config: ModelConfig) -> float:
    """What a step must read: weights, prompts and rows, half of these written in the mean."""
    width = 2 if "bf16" in kind else 4
    place = 2 * config.layers * config.kv_heads * config.head_dim
    prompts = ROWS if "apart" in kind else PROMPTS
    weights = width * (compute.parameters(config, len(TOKENS)) - len(TOKENS) * config.width)
    # a row's own keys and values are float32 on a CPU
    return weights + width * place * prompts * READ + 4 * place * ROWS * (WRITTEN + 1) / 2


def report(name: str, kinds: list[str], rounds: int, bandwidth: float) -> None:
    """Race the contenders at one size, and print a row for each."""
    config = shape_of(name)
    taken = race(name, kinds, rounds)
    median = {
        kind: [statistics.median(part) for part in zip(*answers, strict=True)]
        for kind, answers in taken.items()
    }
    theirs = [kind for kind in kinds if kind.startswith("hf") and not kind.endswith("memory")]
    best = min(theirs, key=lambda kind: median[kind][0]) if theirs else kinds[0]
    print(f"\n{name}: {compute.parameters(config, len(TOKENS)) / 1e6:.2f}M parameters, {rounds} "
          f"rounds; ratios to {best}\n")  # fmt: skip
    print("| contender | tokens/s | ratio | prompts, ms | decoding, tokens/s | of bandwidth |")
    print("|---|---|---|---|---|---|")
    for kind in kinds:
        whole, read, sampled = median[kind]
        pairs = zip(taken[best], taken[kind], strict=True)
        ratio = statistics.median(b[0] / s[0] for b, s in pairs)
        said = "| | |"
        if sampled:
            used = bytes_read(kind, config) * (WRITTEN - 1) / sampled / bandwidth
            said = f"{1000 * read:,.0f} | {ROWS * WRITTEN / sampled:,.0f} | {used:.0%} |"
        print(f"| `{kind}` | {ROWS * WRITTEN / whole:,.0f} | {ratio:.2f} | {said}")
    print(flush=True)


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=["1m", "5m", "20m"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--contenders", nargs="+", default=list(CONTENDERS))
    options = parser.parse_args()
    import transformers

    bandwidth = copy_rate()
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, {torch.get_num_threads()} threads, "
        f"{', '.join(name for name in SHOWN if torch.cpu.get_capabilities().get(name))}\n"
        f"torch {torch.__version__}, transformers {transformers.__version__}; copies "
        f"{bandwidth / 1e9:.1f} GB/s; {PROMPTS} prompts x {COPIES} copies, {READ} tokens read and "
        f"{WRITTEN} sampled for each"
    )
    for name in options.models:
        report(name, options.contenders, options.rounds, bandwidth)


if __name__ == "__main__":
    main()
