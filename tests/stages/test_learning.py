"""RL teaches what is rewarded, and nothing where rewards belong to other episodes.

Mates in one, from a fixed model, under three seeds. What is compared is pass@1 on puzzles that
nobody practised on, each with itself before RL.
"""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from learner import LEARNER, PUZZLES

from chessrl.board import tokens
from chessrl.board.puzzles import Puzzle, read_puzzles
from chessrl.board.skips import SkipReport
from chessrl.config import Run
from chessrl.metrics import Estimate, clustered_mean
from chessrl.policy.weights import load_model
from chessrl.stages.evaluate import rewards_of
from chessrl.stages.generation import Source, rules_of
from chessrl.stages.prepare import prepare
from chessrl.stages.rl import rl
from chessrl.stages.runs import folder

pytestmark = pytest.mark.slow
SEEDS = (0, 1, 2)
DICE = 12345
"""Of the measurement, before and after."""
SETTINGS = (
    *PUZZLES, f"checkpoint={LEARNER}", "stage=rl", "data.workers=1", "model=100k", "rl.steps=40",
    "rl.prompts=32", "rl.group_size=16", "rl.max_new_tokens=64", "rl.optim.lr=5e-4", "rl.gate=0",
    "rl.curve.points=0", "rl.max_rating=0", "rl.checkpoint_every=100",
)  # fmt: skip


@pytest.fixture(scope="module")
def mates(configure, tiny_files, tmp_path_factory):
    """A run on the mates in one of the starter: `mates(*overrides)`."""
    outputs = tmp_path_factory.mktemp("mates")
    fixed = (f"outputs={outputs}", f"data.paths=[{tiny_files['games']}]", *SETTINGS)

    def made(*overrides: str) -> Run:
        return configure(*fixed, *overrides)

    prepare(dataclasses.replace(made(), stage="prepare", checkpoint=None))
    return made


@pytest.fixture(scope="module")
def held_out(mates) -> list[Puzzle]:
    """Puzzles that neither SFT nor RL has seen."""
    puzzles = folder(mates(), "prepare").path / "puzzles"
    test, practised, taught = (
        read_puzzles(puzzles / f"{name}.csv", SkipReport()) for name in ("test", "rl", "sft")
    )
    assert len(test) > 300 and len(practised) > 150
    assert not {one.id for one in test} & {one.id for one in (*practised, *taught)}
    assert all(len(one.solver_moves) == 1 for one in test)
    return test


def pass_at_1(weights: Path, puzzles: list[Puzzle], run: Run) -> np.ndarray:
    """(puzzles,) share of eight episodes that solve each."""
    rules = dataclasses.replace(rules_of(run.rl, run.prompt.form), copies=8)
    model = load_model(weights, tokens.VOCABULARY_HASH)
    return rewards_of(model, puzzles, rules, DICE).mean(axis=1)


@pytest.fixture(scope="module")
def before(mates, held_out) -> np.ndarray:
    return pass_at_1(LEARNER, held_out, mates())


@pytest.fixture
def gain(mates, held_out, before, tmp_path):
    """What RL under a seed adds to pass@1: mean and 95% interval over the puzzles."""

    def measured(seed: int) -> Estimate:
        run = mates(f"seed={seed}", f"out={tmp_path}")
        rl(run)
        after = pass_at_1(tmp_path / "checkpoints" / "model.safetensors", held_out, run)
        halved = clustered_mean((after - before + 1) / 2)  # in [0, 1], as it takes them
        told = dataclasses.replace(
            halved, mean=2 * halved.mean - 1, low=2 * halved.low - 1, high=2 * halved.high - 1
        )
        print(f"seed {seed}: {before.mean():.4f} -> {after.mean():.4f}, {told}")
        return told

    return measured


@pytest.mark.parametrize("seed", SEEDS)
def test_rl_solves_mates_that_it_never_saw(seed, gain):
    assert gain(seed).low > 0


@pytest.mark.parametrize("seed", SEEDS)
def test_rewards_of_other_episodes_teach_nothing(seed, gain, monkeypatch):
    dice, own = np.random.default_rng(seed), Source.paid
    moved = []

    def shuffled(self, rollouts):
        paid = own(self, rollouts)
        rewards = [paid[i].reward for i in dice.permutation(len(paid))]
        moved.extend(one.reward != other for one, other in zip(paid, rewards, strict=True))
        return [
            dataclasses.replace(one, reward=other) for one, other in zip(paid, rewards, strict=True)
        ]

    monkeypatch.setattr(Source, "paid", shuffled)
    assert gain(seed).low <= 0
    assert sum(moved) > 100  # rewards there were
