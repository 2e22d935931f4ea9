"""How many moves a batch begins: what turns nats per token into nats per ply."""

import torch
from torch import Tensor

from chessrl.board import tokens

OPENERS = torch.tensor([tokens.begins_move([], i) for i in range(len(tokens.TOKENS))])
"""(V,) True for a token that may begin a move."""
PROMOTES = tokens.ID["="]
"""After this sign a piece letter ends a move instead of beginning one."""


def moves_begun(inputs: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
    """Moves that begin among the targets, a number of plies.

    Args:
        inputs: (B, T) tokens read.
        targets: (B, T) tokens to predict, each one later than in `inputs`.
        mask: (B, T) True where the target counts.
    """
    openers = OPENERS.to(targets.device)
    return (openers[targets] & (inputs != PROMOTES) & mask).sum()
