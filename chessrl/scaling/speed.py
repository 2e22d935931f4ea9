"""How fast this machine is: from the seconds of finished runs, or from a quick measurement."""

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterable

import torch

from chessrl import compute
from chessrl.artifacts import Result
from chessrl.board import tokens
from chessrl.config import ModelConfig
from chessrl.policy.losses import masked_nll
from chessrl.policy.sampling import Turns, sample
from chessrl.policy.weights import new_model

ROWS, LENGTH, SAMPLED = 64, 64, 32
"""Of the measurement: rows, tokens of each, and tokens that are sampled after them."""
COUNTED = ("pretrain", "traces", "sft", "rl")
"""Stages whose FLOPs are counted."""


class Speed:
    """Seconds of stages, as finished runs of the same model took them where there are any."""

    def __init__(self, results: Iterable[Result]) -> None:
        self._rates: dict[tuple[str, str], list[float]] = defaultdict(list)
        """FLOPs per second by stage and model; of an evaluation episodes per second."""
        self._quick: dict[str, tuple[float, float]] = {}
        self._prepare: list[float] = []
        self.measured = False
        """Whether a measurement was needed."""
        for result in results:
            if result.status != "done" or result.seconds <= 0:
                continue
            if result.stage == "prepare":
                self._prepare.append(result.seconds)
            amount = result.flops.get(result.stage)
            if result.stage == "evaluate":
                amount = result.measures.get("episodes")
            if amount:
                self._rates[result.stage, result.model].append(amount / result.seconds)

    def prepare(self) -> float:
        """Seconds that preparing the data took; 0 where it never ran."""
        return statistics.median(self._prepare) if self._prepare else 0.0

    def seconds(self, stage: str, model: ModelConfig, amount: float) -> float:
        """Of a stage that costs so many FLOPs, or of an evaluation of so many episodes."""
        if rates := self._rates[stage, model.name]:
            return amount / statistics.median(rates)
        self.measured = True
        if model.name not in self._quick:
            self._quick[model.name] = _rates_of(model)
        train, forward = self._quick[model.name]
        if stage == "evaluate":
            active = compute.active_parameters(model, len(tokens.TOKENS))
            return amount * (LENGTH + SAMPLED) * compute.FORWARD * active / forward
        if stage == "traces":
            return amount / forward
        if stage == "rl":  # as much sampled as trained on
            share = compute.FORWARD / (compute.FORWARD + compute.TRAIN)
            return amount * (share / forward + (1 - share) / train)
        return amount / train


def _rates_of(model: ModelConfig) -> tuple[float, float]:
    """FLOPs per second of training steps and of sampling, by an untrained model on the CPU."""
    policy = new_model(model, len(tokens.TOKENS), seed=0)
    active = compute.active_parameters(model, len(tokens.TOKENS))
    ids = torch.randint(len(tokens.TOKENS), (ROWS, LENGTH))

    def step() -> None:
        masked_nll(policy(ids), ids, torch.ones_like(ids, dtype=torch.bool)).backward()

    def played() -> None:
        turns = Turns(lambda *_: False, lambda *_: None, keep_end=False)
        sample(
            policy, ids.tolist(), [1] * ROWS, turns, budgets=[SAMPLED] * ROWS, temperature=1.0,
            pad=tokens.PAD, seeds=list(range(ROWS)),
        )  # fmt: skip

    trained = compute.training_flops(active, ROWS * LENGTH)
    read = compute.FORWARD * active * ROWS * (LENGTH + SAMPLED)
    return trained / _fastest(step), read / _fastest(played)


def _fastest(work: Callable[[], None]) -> float:
    """Seconds of the faster of two goes, after one that is not timed."""
    times = []
    for _ in range(3):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times[1:])
