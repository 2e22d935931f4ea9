"""Log-probabilities and what follows from them; a mask is True where the model chose the token."""

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


def token_entropy(logits: Tensor, temperature: float = 1.0) -> Tensor:
    """Entropy (B, T) in nats of the tempered distribution at each place of logits (B, T, V)."""
    logp = F.log_softmax(logits.float() / temperature, dim=-1)
    return -(logp.exp() * logp).sum(dim=-1)
