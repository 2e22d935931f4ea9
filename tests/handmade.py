"""Episodes written by hand, and a model small enough for them."""

import dataclasses

import torch

from chessrl.board import tokens
from chessrl.board.episodes import replay
from chessrl.board.puzzles import Puzzle
from chessrl.config import ModelConfig
from chessrl.policy.sampling import Sample
from chessrl.stages.rollouts import Rollout

MODEL = ModelConfig(name="t", width=16, layers=1, heads=2, kv_heads=1, head_dim=8, ffn=32)
MATE = Puzzle(id="mate", fen="7k/8/6K1/8/8/8/8/QR6 b - - 0 1", moves=("h8g8", "a1a8"), rating=600)


def episode(length: int, seed: int, group: int = 0, reward: float = 0.0) -> Rollout:
    """An episode of so many tokens, one of them put in by the environment."""
    draw = torch.Generator().manual_seed(seed)
    ids = torch.randint(3, 80, (length,), generator=draw).tolist()
    logprobs = (-torch.rand(length, generator=draw)).tolist()
    sampled = [True] * length
    sampled[length // 2] = False
    logprobs[length // 2] = 0.0
    return Rollout(
        puzzle=MATE,
        prompt=[tokens.BOS, 5, 6],
        sample=Sample(ids, logprobs, sampled),
        outcome=dataclasses.replace(replay(MATE, []), reward=reward),
        thought=None,
        group=group,
        reward=reward,
    )
