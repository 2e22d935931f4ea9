"""Optimisers and their schedule."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.optim import AdamW, Muon, Optimizer
from torch.optim.lr_scheduler import LambdaLR

from chessrl.config import OptimConfig
from chessrl.policy.muon import GroupedMuon


class MuonAdamW(Optimizer):
    """Muon (Jordan et al. 2024) for some parameters and AdamW for the others, as one optimiser."""

    def __init__(self, muon: Muon, adamw: AdamW) -> None:
        self.parts = (muon, adamw)
        super().__init__(muon.param_groups + adamw.param_groups, {})
        self._share_groups()

    def _share_groups(self) -> None:
        self.param_groups = [group for part in self.parts for group in part.param_groups]

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """One step of both."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for part in self.parts:
            part.step()
        return loss

    def state_dict(self) -> dict[str, Any]:
        """State of both."""
        return {"parts": [part.state_dict() for part in self.parts]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take up the state of both."""
        for part, state in zip(self.parts, state_dict["parts"], strict=True):
            part.load_state_dict(state)
        self._share_groups()


def build_optimizer(model: nn.Module, config: OptimConfig) -> Optimizer:
    """The optimiser a config asks for; norms and embeddings are not decayed.

    Routers of experts are left to AdamW, as the head is: both choose among a few.
    """
    matrices, decayed, plain = [], [], []
    for name, parameter in model.named_parameters():
        if parameter.ndim < 2 or "embedding" in name:
            plain.append(parameter)
        elif config.name == "muon" and "blocks." in name and "router" not in name:
            matrices.append(parameter)
        else:
            decayed.append(parameter)
    adamw = AdamW(
        [
            {"params": decayed, "weight_decay": config.weight_decay, "name": "decayed"},
            {"params": plain, "weight_decay": 0.0, "name": "plain"},
        ],
        lr=config.lr,
        betas=(config.beta1, config.beta2),
        fused=True,
    )
    if config.name == "adamw":
        return adamw
    muon = GroupedMuon(
        [{"params": matrices, "name": "matrices"}],
        lr=config.matrix_lr,
        weight_decay=config.weight_decay,
    )
    return MuonAdamW(muon, adamw)


def rates_of(optimizer: Optimizer) -> dict[str, float]:
    """The rate of each group of parameters as it stands: `lr_matrices`, `lr_decayed`, `lr_plain`.

    `matrices` are Muon's, `decayed` and `plain` AdamW's with and without weight decay.
    """
    return {f"lr_{group['name']}": float(group["lr"]) for group in optimizer.param_groups}


def schedule(config: OptimConfig, steps: int) -> Callable[[int], float]:
    """Share of the peak rate at each step from 0: linear warm-up, and `final` at the last.

    Between them a cosine; or with `wsd` the peak until the last `decay` of the steps, which fall by
    1 - sqrt of what is done of them (arXiv 2405.18392).
    """
    stable = config.schedule == "wsd"
    warm = config.warmup_steps if stable else round(config.warmup * steps)
    begin = branching_step(config, steps) if stable else warm

    def share(step: int) -> float:
        if step < warm:
            return (step + 1) / (warm + 1)
        done = min(max(step - begin, 0) / max(steps - 1 - begin, 1), 1.0)
        left = 1 - math.sqrt(done) if stable else (1 + math.cos(math.pi * done)) / 2
        return config.final + (1 - config.final) * left

    return share


def branching_step(config: OptimConfig, steps: int) -> int:
    """Step at which a run of so many with `wsd` begins to decay."""
    return steps - round(config.decay * steps)


def build_schedule(optimizer: Optimizer, config: OptimConfig, steps: int) -> LambdaLR:
    """The schedule of `schedule` as a scheduler that advances once per step."""
    return LambdaLR(optimizer, schedule(config, steps))
