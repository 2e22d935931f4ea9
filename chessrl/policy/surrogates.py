"""Losses of RL: what each token contributes, to be maximised; shapes (B, T), B episodes.

`logp` are log-probabilities in nats now, `behaviour` those when the tokens were sampled,
`advantage` (B,) is one per episode. The ratio is `exp(logp - behaviour)`.
"""

import torch
from torch import Tensor


def reinforce(logp: Tensor, advantage: Tensor) -> Tensor:
    """The score function, `A logp`: for samples of the policy itself, it corrects no lag."""
    return advantage[:, None] * logp


def clipped(ratio: Tensor, advantage: Tensor, low: float, high: float) -> Tensor:
    """PPO's objective (arXiv 1707.06347): `min(ratio A, clip(ratio, 1 - low, 1 + high) A)`.

    GRPO clips alike on both sides, DAPO (arXiv 2503.14476) leaves more room above.
    """
    gain = ratio * advantage[:, None]
    return torch.minimum(gain, ratio.clamp(1 - low, 1 + high) * advantage[:, None])


def cispo(logp: Tensor, ratio: Tensor, advantage: Tensor, cap: float) -> Tensor:
    """`sg(min(ratio, cap)) A logp` (MiniMax-M1, arXiv 2506.13585): no token loses its gradient."""
    return ratio.detach().clamp(max=cap) * advantage[:, None] * logp


def sequence_ratio(log_ratio: Tensor, mask: Tensor) -> Tensor:
    """Geometric mean (B, 1) of the ratios of an episode's tokens (GSPO, arXiv 2507.18071)."""
    total = torch.where(mask, log_ratio, 0.0).sum(dim=1, keepdim=True)
    return (total / mask.sum(dim=1, keepdim=True).clamp(min=1)).exp()


def surrogate(
    name: str,
    logp: Tensor,
    behaviour: Tensor,
    advantage: Tensor,
    mask: Tensor,
    low: float,
    high: float,
) -> tuple[Tensor, Tensor]:
    """Contribution of each token under a loss by name, and where its ratio is out of bounds (B, T).

    Args:
        mask: (B, T) True where the model chose the token.
        low, high: as in `rl.loss`.
    """
    log_ratio = logp - behaviour
    if name == "reinforce":
        return reinforce(logp, advantage), torch.zeros_like(mask)
    if name == "cispo":
        ratio = log_ratio.detach().exp()
        return cispo(logp, ratio, advantage, high), ratio > high
    ratio = sequence_ratio(log_ratio, mask) if name == "gspo" else log_ratio.exp()
    outside = (ratio < 1 - low) | (ratio > 1 + high)
    return clipped(ratio, advantage, low, high).expand_as(logp), outside.expand_as(mask)
