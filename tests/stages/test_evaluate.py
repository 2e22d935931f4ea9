"""Measures of a model against arithmetic by hand."""

import math

import numpy as np
import pytest
import torch

from chessrl.board import tokens
from chessrl.board.puzzles import Puzzle
from chessrl.config import ModelConfig
from chessrl.policy.weights import new_model
from chessrl.stages import evaluate as module
from chessrl.stages.batches import Dataset, DatasetWriter
from chessrl.stages.evaluate import game_loss, pass_at_k_by_bin

FEN = "7k/8/6K1/8/8/8/8/QR6 b - - 0 1"


def puzzle(name: str, rating: int) -> Puzzle:
    return Puzzle(id=name, fen=FEN, moves=("h8g8", "a1a8"), rating=rating)


def test_pass_at_k_by_bin():
    """B1: 1 of 4 and 3 of 4; B4: 0 of 4. pass@2 of c=1 is 1 - (3/4)(2/3) = 1/2, of c=3 it is 1."""
    puzzles = [puzzle("a", 1000), puzzle("b", 1200), puzzle("c", 2400)]
    solved = np.array([[1, 0, 0, 0], [1, 1, 0, 1], [0, 0, 0, 0]], float)
    rows = {(row.bin, row.k): row for row in pass_at_k_by_bin(puzzles, solved)}
    assert {k for _, k in rows} == {1, 2, 4}
    assert {name for name, _ in rows} == {"B1", "B4", "all", "B1-B4"}
    assert rows["B1", 1].mean == pytest.approx((1 / 4 + 3 / 4) / 2)
    assert rows["B1", 2].mean == pytest.approx((1 / 2 + 1) / 2)
    assert rows["all", 1].mean == pytest.approx(1 / 3)
    assert rows["all", 4].mean == pytest.approx(2 / 3)
    assert rows["all", 1].puzzles == 3
    assert rows["all", 1].low < 1 / 3 < rows["all", 1].high


def test_game_loss_of_a_model_that_knows_nothing(tmp_path):
    """All logits 0: each of 95 tokens costs log 95. Pe2e4 Pe7e5 <eos>: 7 targets, 2 plies."""
    ids = tokens.ID
    document = [ids[t] for t in ("<bos>", "P", "e2", "e4", "P", "e7", "e5", "<eos>")]
    promotion = [ids[t] for t in ("<bos>", "P", "e7", "e8", "=", "Q")]
    writer = DatasetWriter(tmp_path)
    writer.add(document, [False] + [True] * 7)
    writer.add(promotion, [False] + [True] * 5)
    writer.close()
    config = ModelConfig(name="t", width=8, layers=1, heads=1, kv_heads=1, head_dim=8, ffn=8)
    model = new_model(config, len(tokens.TOKENS), 0)
    torch.nn.init.zeros_(model.head.weight)
    loss = game_loss(model, Dataset(tmp_path), 64, 0)
    assert loss["game_nats_per_token"] == pytest.approx(math.log(95))
    assert loss["game_nats_per_ply"] == pytest.approx(12 * math.log(95) / 3)


def test_game_loss_does_not_depend_on_batches(tmp_path, monkeypatch):
    writer = DatasetWriter(tmp_path)
    rng = np.random.default_rng(0)
    for length in (5, 40, 17, 33, 8):
        writer.add(rng.integers(3, 80, length), [False] * 2 + [True] * (length - 2))
    writer.close()
    config = ModelConfig(name="t", width=16, layers=1, heads=2, kv_heads=1, head_dim=8, ffn=8)
    model = new_model(config, len(tokens.TOKENS), 0)
    whole = game_loss(model, Dataset(tmp_path), 64, 0)
    one_by_one = module.in_order
    monkeypatch.setattr(module, "in_order", lambda *a: one_by_one(a[0], 1, *a[2:]))
    assert game_loss(model, Dataset(tmp_path), 64, 0) == pytest.approx(whole, rel=1e-5)
