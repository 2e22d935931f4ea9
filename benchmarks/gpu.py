"""Whether a GPU does what it should: speed of training and sampling, and losses against the CPU.

    python benchmarks/gpu.py [--device cuda] [--models 20m,100m] [--seconds 30]

For each model: tokens per second of training steps (bf16 autocast, fused AdamW) and the model FLOPs
utilisation that comes to, of the peak in a small table and of a measured matrix product; tokens per
second of sampling; and the largest difference to the CPU in 20 losses with the same seed and
batches, in float32 and in bf16. Under 10 minutes on one GPU with the defaults.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import torch
from hydra import compose, initialize_config_dir
from torch.nn.utils import clip_grad_norm_

from chessrl import compute
from chessrl.board import tokens
from chessrl.config import ModelConfig, OptimConfig, Run, parse
from chessrl.policy.losses import masked_nll
from chessrl.policy.optim import build_optimizer
from chessrl.policy.sampling import Turns, sample
from chessrl.policy.transformer import Transformer
from chessrl.policy.weights import new_model

CONF = Path(__file__).resolve().parent.parent / "conf"
VOCABULARY = len(tokens.TOKENS)
PEAKS = {
    "H200": 989e12, "H100": 989e12, "A100": 312e12, "L40S": 362e12, "L4": 121e12, "A10": 125e12,
    "V100": 125e12, "T4": 65e12, "4090": 165e12, "3090": 71e12,
}  # fmt: skip
"""Dense bf16 (V100 and T4: fp16) FLOP/s by the makers' data sheets, by a part of the name."""
OPTIM = OptimConfig(name="adamw", lr=1e-3)


def model_config(name: str) -> ModelConfig:
    """A model of `conf/model`."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        run: Run = parse(compose("config", [f"model={name}"]))
    return run.model


def finish(device: torch.device) -> None:
    """Wait for what was asked of the device."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def rate(work: Callable[[], int], device: torch.device, seconds: float) -> float:
    """Units per second of a piece of work that is repeated; the first two times are not counted."""
    for _ in range(2):
        work()
    finish(device)
    began, done = time.monotonic(), 0
    while time.monotonic() - began < seconds:
        done += work()
        finish(device)
    return done / (time.monotonic() - began)


def peak_of(device: torch.device) -> tuple[str, float | None]:
    """Name of the device and its peak in FLOP/s, where the table has it."""
    if device.type != "cuda":
        return device.type, None
    name = torch.cuda.get_device_name(device)
    return name, next((peak for part, peak in PEAKS.items() if part in name), None)


def matrix_rate(device: torch.device, seconds: float) -> float:
    """FLOP/s of a bf16 product of large square matrices: what the device really gives."""
    size = 8192 if device.type == "cuda" else 512
    a, b = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))

    def product() -> int:
        torch.mm(a, b)
        return 2 * size**3

    return rate(product, device, seconds)


def batch_of(rows: int, length: int, seed: int) -> torch.Tensor:
    """(rows, length + 1) random tokens: speed does not depend on them."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(VOCABULARY, (rows, length + 1), generator=generator)


class Trainer:
    """A model with its optimiser, and the training step of the project."""

    def __init__(self, config: ModelConfig, device: torch.device, mixed: bool) -> None:
        self.device, self.mixed = device, mixed
        self.model: Transformer = new_model(config, VOCABULARY, 0).to(device).train()
        self.optimizer = build_optimizer(self.model, OPTIM)

    def step(self, ids: torch.Tensor) -> torch.Tensor:
        """Loss in nats per token before one update; ids (B, T + 1)."""
        inputs, targets = ids[:, :-1].to(self.device), ids[:, 1:].to(self.device)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.mixed):
            logits = self.model(inputs)
            nats = masked_nll(logits, targets, torch.ones_like(targets, dtype=torch.bool))
        loss = nats / targets.numel()
        loss.backward()
        clip_grad_norm_(self.model.parameters(), OPTIM.clip)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()


def training_rate(
    config: ModelConfig, device: torch.device, rows: int, length: int, seconds: float
) -> float:
    """Tokens per second of training steps in mixed precision."""
    trainer, ids = Trainer(config, device, mixed=True), batch_of(rows, length, 0)

    def step() -> int:
        trainer.step(ids)
        return rows * length

    return rate(step, device, seconds)


def sampling_rate(config: ModelConfig, device: torch.device, rows: int, seconds: float) -> float:
    """Tokens per second that are sampled after prompts of 64 tokens, 64 for each row."""
    model = new_model(config, VOCABULARY, 0).to(device).eval()
    prompts = batch_of(rows, 63, 1).tolist()
    endless = Turns(lambda *_: False, lambda *_: None, keep_end=True, stops=())

    def play() -> int:
        done = sample(
            model, prompts, [1] * rows, endless, budgets=[64] * rows, temperature=1.0,
            pad=tokens.PAD, seeds=range(rows),
        )  # fmt: skip
        return sum(len(one.tokens) for one in done)

    return rate(play, device, seconds)


def difference(config: ModelConfig, device: torch.device, mixed: bool, steps: int) -> float:
    """Largest difference in nats per token between the losses on the device and on the CPU."""
    here, there = (Trainer(config, d, mixed) for d in (torch.device("cpu"), device))
    apart = 0.0
    for number in range(steps):
        ids = batch_of(4, 64, number)
        apart = max(apart, abs(float(here.step(ids)) - float(there.step(ids))))
    return apart


def main() -> None:
    """Print one block per model."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--models", default="20m,100m")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each measurement")
    parser.add_argument("--rows", type=int, default=64, help="of 1024 tokens in a training step")
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--sampled-rows", type=int, default=512)
    parser.add_argument("--steps", type=int, default=20, help="compared with the CPU")
    given = parser.parse_args()
    device = torch.device(given.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        parser.error("no CUDA device here: --device cpu")
    torch.set_float32_matmul_precision("highest")
    name, peak = peak_of(device)
    measured = matrix_rate(device, min(given.seconds, 5.0))
    stated = "unknown" if peak is None else f"{peak / 1e12:.0f} TFLOP/s"
    print(f"{name}: peak {stated}, matrix product {measured / 1e12:.3g} TFLOP/s")
    for model in given.models.split(","):
        config = model_config(model)
        speed = training_rate(config, device, given.rows, given.length, given.seconds)
        work = 3 * compute.exact_forward_flops(config, VOCABULARY, speed, given.length)
        used = "" if peak is None else f"{work / peak:.1%} of the peak, "
        print(f"{model}: training {speed:,.0f} tokens/s, {work / 1e12:.3g} TFLOP/s, {used}"
              f"{work / measured:.1%} of the matrix product")  # fmt: skip
        speed = sampling_rate(config, device, given.sampled_rows, given.seconds)
        print(f"{model}: sampling {speed:,.0f} tokens/s with {given.sampled_rows} rows")
        for mixed in (False, True):
            apart = difference(config, device, mixed, given.steps)
            print(f"{model}: losses of {given.steps} steps differ from the CPU's by at most "
                  f"{apart:.2g} nats in {'bf16-mixed' if mixed else 'float32'}")  # fmt: skip


if __name__ == "__main__":
    main()
