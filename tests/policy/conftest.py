"""A model small enough to check by other means, and wild enough to show differences."""

import pytest
import torch

from chessrl.config import ModelConfig
from chessrl.policy.transformer import Transformer
from chessrl.policy.weights import new_model

TINY = ModelConfig(name="tiny", width=24, layers=2, heads=4, kv_heads=2, head_dim=6, ffn=40)
VOCABULARY = 13


@pytest.fixture
def model() -> Transformer:
    """Weights of random scale: at initialisation all logits are near 0 and hide mistakes."""
    model = new_model(TINY, VOCABULARY, seed=1)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.copy_(0.5 + torch.rand(parameter.shape, generator=generator))
            else:
                parameter.copy_(0.4 * torch.randn(parameter.shape, generator=generator))
    return model.eval()
