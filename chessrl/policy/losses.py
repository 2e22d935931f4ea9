"""Losses as pure functions of log-probabilities; a mask is True where the model chose the token."""

import torch
import torch.nn.functional as F
from torch import Tensor


def token_logprobs(logits: Tensor, tokens: Tensor, temperature: float = 1.0) -> Tensor:
    """Log-probability (B, T) in nats of each token (B, T) under the logits (B, T, V) at its place.

    At a temperature other than 1 it is that of the tempered distribution, from which tokens come.
    """
    losses = F.cross_entropy(
        logits.float().flatten(0, -2) / temperature, tokens.flatten(), reduction="none"
    )
    return -losses.view(tokens.shape)


def masked_nll(logits: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
    """Negative log-likelihood in nats, summed over the targets (B, T) that the mask keeps."""
    return -torch.where(mask, token_logprobs(logits, targets), 0.0).sum()


def group_advantage(reward: Tensor) -> Tensor:
    """Advantage of each answer over its group: (P, G) rewards to (P, G), in standard deviations.

    GRPO (arXiv 2402.03300) divides by the group's standard deviation, here over G and not G - 1, so
    that |A| <= sqrt(G - 1). A group that agrees teaches nothing: its advantages are exactly 0.
    """
    centred = reward - reward.mean(dim=1, keepdim=True)
    spread = centred.square().mean(dim=1, keepdim=True).sqrt()
    agrees = (reward == reward[:, :1]).all(dim=1, keepdim=True)
    return torch.where(agrees, 0.0, centred / torch.where(agrees, 1.0, spread))


def clipped_surrogate(logp: Tensor, behaviour: Tensor, advantage: Tensor, clip: float) -> Tensor:
    """PPO's clipped objective per token (B, T), to be maximised (arXiv 1707.06347).

    Args:
        logp: (B, T) log-probabilities now, in nats.
        behaviour: (B, T) log-probabilities when the tokens were sampled.
        advantage: (B,) one per answer.
        clip: the ratio counts within [1 - clip, 1 + clip] only.
    """
    ratio = (logp - behaviour).exp()
    gain = ratio * advantage[:, None]
    return torch.minimum(gain, ratio.clamp(1 - clip, 1 + clip) * advantage[:, None])


def kl_k3(logp: Tensor, reference: Tensor) -> Tensor:
    """Estimate k3 of KL(policy || reference) per token, in nats.

    r - 1 - log r with r = reference / policy: never negative, and unbiased for tokens sampled from
    the policy (Schulman 2020, "Approximating KL divergence"). Its gradient, as GRPO uses it, is on
    average that of KL(reference || policy).
    """
    log_ratio = reference - logp
    return log_ratio.expm1() - log_ratio


def sample_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Mean over the tokens of each answer (B,): GRPO's aggregation before the mean over answers."""
    return torch.where(mask, values, 0.0).sum(dim=1) / mask.sum(dim=1).clamp(min=1)
