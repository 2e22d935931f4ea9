"""Credit: how good an episode was among its group, and how much each of its tokens weighs.

B episodes in groups; `groups` (B,) numbers the group of each from 0, in any order, and groups may
be of different sizes. Formulas as compared in ScaleRL (arXiv 2510.13786).
"""

import torch
from torch import Tensor


def group_sum(values: Tensor, groups: Tensor) -> Tensor:
    """Sum (B,) over the group of each episode."""
    sums = values.new_zeros(int(groups.max()) + 1)
    return sums.index_add(0, groups, values)[groups]


def group_mean(values: Tensor, groups: Tensor) -> Tensor:
    """Mean (B,) over the group of each episode."""
    return group_sum(values, groups) / group_sum(torch.ones_like(values), groups)


def agree(reward: Tensor, groups: Tensor) -> Tensor:
    """True (B,) where all rewards of the group are equal: it teaches nothing."""
    count = int(groups.max()) + 1
    high = reward.new_empty(count).scatter_reduce(0, groups, reward, "amax", include_self=False)
    low = reward.new_empty(count).scatter_reduce(0, groups, reward, "amin", include_self=False)
    return (high == low)[groups]


def advantage_of(reward: Tensor, groups: Tensor, kind: str, counted: Tensor) -> Tensor:
    """Advantage (B,) of each episode; exactly 0 in a group that agrees.

    Args:
        reward: (B,).
        kind: what `reward - mean of the group` is divided by. `prompt`: the group's standard
            deviation over G, not G - 1, so that |A| <= sqrt(G - 1) (GRPO, arXiv 2402.03300).
            `batch`: the root mean square of all differences that are counted (ScaleRL). `none`: 1
            (Dr. GRPO, arXiv 2503.20783). `leave-one-out`: (G - 1) / G, which makes the baseline the
            mean of the others (RLOO, arXiv 2402.14740).
        counted: (B,) True where an episode takes part in the batch.
    """
    centred = torch.where(agree(reward, groups), 0.0, reward - group_mean(reward, groups))
    if kind == "prompt":
        scale = group_mean(centred.square(), groups).sqrt()
    elif kind == "batch":
        scale = centred[counted].square().mean().sqrt() if counted.any() else centred.new_zeros(())
    elif kind == "none":
        scale = torch.ones_like(centred)
    else:
        scale = 1 - 1 / group_sum(torch.ones_like(centred), groups)
    return torch.where(centred == 0, 0.0, centred / torch.where(scale == 0, 1.0, scale))


def token_weights(lengths: Tensor, groups: Tensor, counted: Tensor, kind: str) -> Tensor:
    """Weight (B,) of each token of an episode in the loss; over all tokens that count, 1 in all.

    Worked out over the whole batch, so that it does not depend on how the update is cut up.

    Args:
        lengths: (B,) tokens that the model chose, at least 1.
        counted: (B,) True where an episode takes part; the others weigh 0.
        kind: `sample`: the mean over the tokens of an episode, then over those of a group, then
            over groups (GRPO). `prompt`: over all tokens of a group, then over groups (DAPO).
            `token`: over all tokens.
    """
    one, length = counted.double(), torch.where(counted, lengths, 0).double()
    if kind == "token":
        share = one / length.sum().clamp(min=1)
    else:
        groups_left = (one / group_sum(one, groups).clamp(min=1)).sum().round().clamp(min=1)
        if kind == "prompt":
            inner = group_sum(length, groups)
        else:
            inner = group_sum(one, groups) * length
        share = one / inner.clamp(min=1) / groups_left
    return share.to(torch.get_default_dtype())


def length_penalty(lengths: Tensor, budget: int, margin: int) -> Tensor:
    """What a solved episode loses, (B,) in [-1, 0]: 0 until `margin` tokens before the budget.

    DAPO's soft punishment (arXiv 2503.14476): `clip((budget - length) / margin - 1, -1, 0)`.
    """
    return ((budget - lengths) / margin - 1).clamp(-1, 0)
