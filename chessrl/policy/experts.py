"""A mixture of experts in the form of Qwen3-MoE (arXiv 2505.09388), in place of a block's SwiGLU.

A router gives each token a distribution over the experts; the token passes through the likeliest
few, and their outcomes are added, weighted by it. Shapes: N tokens, D width, X experts, K experts
per token, L blocks.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from chessrl.config import ModelConfig


class Expert(nn.Module):
    """A SwiGLU."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(width, hidden, bias=False)
        self.up_proj = nn.Linear(width, hidden, bias=False)
        self.down_proj = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Experts(nn.Module):
    """The experts of one block and their router.

    The rows of a batch are sorted by expert, so that each expert works once on all of its rows. One
    that gets none still takes part, with a gradient of 0: the optimiser's state is that of a model
    whose experts are all trained, whatever the first batches hold.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.per_token, self.normalised = config.experts_per_token, config.expert_norm
        self.router = nn.Linear(config.width, config.experts, bias=False)
        self.members = nn.ModuleList(
            Expert(config.width, config.expert_ffn) for _ in range(config.experts)
        )

    def forward(self, x: Tensor, routes: list[Tensor] | None = None) -> Tensor:
        """(..., D) to (..., D); the router's logits (N, X) are added to `routes` if it is given."""
        rows = x.flatten(0, -2)
        logits = self.router(rows)
        if routes is not None:
            routes.append(logits)
        weights, chosen = logits.softmax(-1, dtype=torch.float32).topk(self.per_token)
        if self.normalised:
            weights = weights / weights.sum(-1, keepdim=True)
        chosen = chosen.flatten()
        order = chosen.argsort(stable=True)
        counts = chosen.bincount(minlength=len(self.members)).tolist()
        parts = rows.index_select(0, order // self.per_token).split(counts)
        done = torch.cat([member(part) for member, part in zip(self.members, parts, strict=True)])
        # back to the order of the tokens: a sum over K, where adding in place may vary on a GPU
        done = done.index_select(0, order.argsort()).unflatten(0, (-1, self.per_token))
        return (done * weights.unsqueeze(-1)).sum(1).to(x.dtype).view(x.shape)


def counts_of(routes: Sequence[Tensor], per_token: int, mask: Tensor) -> Tensor:
    """How many tokens went to each expert of each block, (L, X).

    Args:
        routes: router logits of each block, (N, X).
        mask: N values in any shape, True where the token counts.
    """
    return _chosen(torch.stack(list(routes)), per_token)[:, mask.flatten()].sum(1)


def balance_loss(routes: Sequence[Tensor], per_token: int, mask: Tensor) -> Tensor:
    """Load-balancing loss over all blocks together, as Qwen3-MoE has it (arXiv 2101.03961, 4 to 6).

    X times the sum over the experts of (share of the tokens that went there) x (mean probability
    there). It is K where all experts are used alike, and larger otherwise. Arguments as in
    `counts_of`; the gradient flows through the probabilities alone.
    """
    kept = torch.stack(list(routes))[:, mask.flatten()]
    shares = _chosen(kept, per_token).mean((0, 1))
    return kept.shape[-1] * (shares * kept.softmax(-1, dtype=torch.float32).mean((0, 1))).sum()


def _chosen(logits: Tensor, per_token: int) -> Tensor:
    """(L, N, X): 1 where the token goes to the expert, else 0."""
    picks = logits.softmax(-1, dtype=torch.float32).topk(per_token).indices
    return torch.zeros(logits.shape, device=logits.device).scatter_(-1, picks, 1.0)


def use_of_experts(counts: Tensor) -> dict[str, Tensor]:
    """Measures of how evenly the experts are used, from the counts (L, X) of `counts_of`.

    `expert_entropy` is that of the experts' shares in nats, the mean over the blocks, ln X where
    all are used alike; `expert_least` and `expert_most` are the smallest and the largest share of
    any expert of any block, 1/X where all are used alike.
    """
    shares = counts / counts.sum(1, keepdim=True)
    return {
        "expert_entropy": torch.special.entr(shares).sum(1).mean(),
        "expert_least": shares.min(),
        "expert_most": shares.max(),
    }
