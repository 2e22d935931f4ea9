"""Parameters and FLOPs: by hand, and against what torch counts."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from chessrl import compute
from chessrl.config import ModelConfig
from chessrl.policy.transformer import Transformer

TWO = ModelConfig(name="two", width=8, layers=2, heads=4, kv_heads=2, head_dim=6, ffn=20)


def test_parameters_by_hand():
    # q and o: 8 x 24 each; k and v: 8 x 12 each; SwiGLU: 3 x 8 x 20
    assert compute.block_matrices(TWO) == 2 * 192 + 2 * 96 + 480 == 1056
    # norms of a block: two of width 8, two of head 6; embedding and head: 10 x 8 each; last norm 8
    assert compute.parameters(TWO, 10) == 2 * (1056 + 28) + 160 + 8 == 2336


def test_the_studys_accounting_by_hand():
    assert compute.training_flops(1000, 50) == 300_000  # 6 N T
    assert compute.rl_flops(1000, 50, 50, 50) == 500_000  # 2 + 6 + 2
    assert compute.rl_flops(1000, 50, 50, 0) == 400_000  # 2 + 6
    assert compute.rl_flops(1000, 50, 20, 30) == 280_000  # 100 + 120 + 60


def test_a_forward_pass_by_hand():
    # per token: 2 blocks x 1056 + head 10 x 8 = 2192 weights, two FLOPs each; looking up is free.
    # attention: scores and mix, 2 x 24 products per attended token, of which 3 on average in 5
    attention = 2 * 2 * 24 * 3
    assert compute.exact_forward_flops(TWO, 10, tokens=1, length=5) == 2 * (2192 + attention)
    assert compute.exact_forward_flops(TWO, 10, tokens=35, length=5) == 70 * (2192 + attention)


@pytest.mark.parametrize("length", [1, 7, 16])
def test_torch_counts_the_same_products(length):
    model = Transformer(TWO, 10)
    with FlopCounterMode(display=False) as counter:
        model(torch.zeros(3, length, dtype=torch.long))
    # torch multiplies the whole square, L per token, where the causal half is (L + 1) / 2
    full = compute.exact_forward_flops(TWO, 10, tokens=3 * length, length=2 * length - 1)
    assert counter.get_total_flops() == full


def test_a_training_step_takes_three_forward_passes():
    model = Transformer(TWO, 10)
    with FlopCounterMode(display=False) as counter:
        model(torch.zeros(3, 8, dtype=torch.long)).sum().backward()
    full = compute.exact_forward_flops(TWO, 10, tokens=24, length=15)
    assert counter.get_total_flops() == pytest.approx(3 * full, rel=0.01)
