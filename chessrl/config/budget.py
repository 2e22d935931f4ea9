"""A budget of FLOPs, of which a share goes to pretraining."""

import math
from dataclasses import dataclass

from chessrl.config.base import require


@dataclass(kw_only=True)
class BudgetConfig:
    """What is to be spent, and what is known beforehand of the stages between.

    With `flops` given, `pretrain.tokens` and `rl.steps` follow from it; what they were told
    before counts no more.
    """

    flops: float | None = None
    """Of pretraining, traces, SFT and RL together, by the study's accounting; null derives
    nothing."""
    alpha: float = 0.5
    """Share of `flops` that goes to pretraining; traces, SFT and RL take the rest."""
    prompt_tokens: float = 0.0
    """Mean tokens of the prompt of an episode of RL."""
    response_tokens: float = 0.0
    """Mean tokens after the prompt of an episode of RL, replies included."""
    traces_tokens: float = 0.0
    """Tokens read and sampled by stage traces in all."""
    sft_tokens: float = 0.0
    """Tokens read by SFT in all, every epoch counted."""

    def __post_init__(self) -> None:
        require(
            self.flops is None or 0 < self.flops < math.inf,
            f"budget.flops={self.flops} must be positive and finite",
        )
        require(0 < self.alpha < 1, f"budget.alpha={self.alpha} is not in (0, 1)")
        means = (self.prompt_tokens, self.response_tokens, self.traces_tokens, self.sft_tokens)
        require(min(means) >= 0, "budget: mean tokens are negative")
        require(
            self.flops is None or min(means) > 0,
            "budget.flops needs the mean tokens budget.prompt_tokens, response_tokens, "
            "traces_tokens, sft_tokens: budget=tabletop has those of the starter",
        )
