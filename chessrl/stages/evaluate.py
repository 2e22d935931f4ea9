"""What a trained model can do: pass@k on the test puzzles, and the loss on held-out games."""

import csv
import io
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

from chessrl import compute
from chessrl.artifacts import PassAtK, Result, write_text
from chessrl.board import tokens
from chessrl.board.puzzles import BINS, Puzzle, read_puzzles
from chessrl.board.rewards import Reward, binary
from chessrl.board.skips import SkipReport
from chessrl.config import Run
from chessrl.metrics import clustered_mean, pass_at_k, powers_of_two
from chessrl.policy.losses import masked_nll
from chessrl.policy.transformer import Transformer
from chessrl.policy.weights import load_model
from chessrl.progress import Meter
from chessrl.stages.batches import Dataset, in_order
from chessrl.stages.group import gathered, group
from chessrl.stages.plies import moves_begun
from chessrl.stages.rollouts import Group, Play, Rollout, Rules, play
from chessrl.stages.runs import folder, inherited, parent, weights_file, working
from chessrl.stages.traces import selected
from chessrl.stages.training import device_of

AGGREGATES = {"all": BINS, "B1-B4": BINS[1:5]}
"""Bins that are also reported together; B1-B4 as in the chess study."""
AT_ONCE = 1024
"""Episodes sampled at a time outside of this stage, whose batch is a setting."""


def evaluate(run: Run) -> Result:
    """Measure the model that stage `evaluate.of` left, or that of `checkpoint=`."""
    out = folder(run, "evaluate")
    if (done := out.finished) is not None:
        return done
    config = run.evaluate
    prepared = parent(run, "prepare").path
    puzzles = selected(
        read_puzzles(prepared / "puzzles" / "test.csv", SkipReport()), config.puzzles, 0
    )
    model = load_model(weights_file(run, config.of), tokens.VOCABULARY_HASH)
    model.to(device_of(run.trainer))
    result = inherited(run, "evaluate")
    result.of, result.model = config.of, model.config.name
    result.n_params = compute.parameters(model.config, len(tokens.TOKENS))
    began = time.monotonic()
    label = f"evaluate {config.of}"
    rules = Rules(
        form=run.prompt.form,
        copies=config.samples,
        budget=config.max_new_tokens,
        temperature=config.temperature,
        thinks=config.of != "pretrain",
    )
    with working(run, out, "evaluate"):
        rollouts: list[Rollout] = []
        at_once = config.batch // config.samples
        with Meter(label, len(puzzles), "puzzles") as meter:
            for first in range(0, len(puzzles), at_once):
                batch = puzzles[first : first + at_once]
                rollouts += play(model, batch, rules, config.seed, first)
                meter.advance(first + len(batch))
        solved = np.array([r.outcome.reward for r in rollouts]).reshape(len(puzzles), -1)
        _write_counts(out.path / "puzzles.csv", puzzles, solved)
        result.pass_at_k = pass_at_k_by_bin(puzzles, solved)
        result.measures = rates(rollouts) | game_loss(
            model, Dataset(prepared / "validation"), config.game_context, config.game_tokens
        )
        result.seconds = time.monotonic() - began
        out.write(result)
    return result


def rewards_of(
    model: Transformer,
    puzzles: Sequence[Puzzle],
    rules: Rules,
    seed: int,
    reward: Reward = binary,
    told: Callable[[int], None] = lambda done: None,
) -> np.ndarray:
    """Rewards (puzzles, n) of episodes played now; the processes of a group share them out.

    Args:
        told: is told how many puzzles are done.
    """
    place = group()
    mine = [Group(i, puzzles[i]) for i in range(place.rank, len(puzzles), place.size)]
    found: list[tuple[int, list[float]]] = []
    at_once = max(AT_ONCE // rules.copies, 1)
    for first in range(0, len(mine), at_once):
        part = mine[first : first + at_once]
        batch = Play(model, part, rules, seed)
        batch.advance(model)
        earned = [reward(one.puzzle, one.outcome) for one in batch.rollouts()]
        rows = np.reshape(earned, (len(part), rules.copies)).tolist()
        found += [(one.number, row) for one, row in zip(part, rows, strict=True)]
        told(min((first + len(part)) * place.size, len(puzzles)))
    return np.array([row for _, row in sorted(gathered(found))])


def pass_at_k_by_bin(puzzles: Sequence[Puzzle], solved: np.ndarray) -> list[PassAtK]:
    """pass@k with intervals for each bin and aggregate that has puzzles.

    Args:
        solved: (puzzles, n) reward of each sample, 0 or 1.
    """
    n = solved.shape[1]
    right = solved.sum(axis=1).astype(int)
    groups = {name: (name,) for name in BINS} | AGGREGATES
    rows = []
    for name, bins in groups.items():
        counts = [c for puzzle, c in zip(puzzles, right, strict=True) if puzzle.bin in bins]
        if not counts:
            continue
        for k in powers_of_two(n):
            estimate = clustered_mean(np.array([pass_at_k(n, int(c), k) for c in counts]))
            rows.append(
                PassAtK(
                    bin=name,
                    k=k,
                    mean=estimate.mean,
                    low=estimate.low,
                    high=estimate.high,
                    puzzles=estimate.n,
                    samples=n,
                )
            )
    return rows


def rates(rollouts: Sequence[Rollout]) -> dict[str, float]:
    """Shares over all episodes, and mean lengths in tokens."""
    n = len(rollouts)
    ended: dict[str, int] = defaultdict(int)
    for rollout in rollouts:
        ended[f"ended_{rollout.outcome.ended_by}"] += 1
    return {
        "legal": sum(r.outcome.first_legal for r in rollouts) / n,
        "well_formed": sum(r.well_formed for r in rollouts) / n,
        "response_tokens": sum(sum(r.sample.sampled) for r in rollouts) / n,
        "episodes": float(n),
    } | {name: count / n for name, count in sorted(ended.items())}


@torch.inference_mode()
def game_loss(model: Transformer, games: Dataset, context: int, at_most: float) -> dict[str, float]:
    """Held-out loss in nats per move token and per ply, over the same documents for every model.

    Args:
        context: longest document read.
        at_most: tokens read; 0 means all.
    """
    nats = targets = plies = read = 0.0
    device = model.head.weight.device
    for batch in in_order(games, 16384, context, tokens.PAD):
        logits = model(batch.inputs.to(device)).cpu()
        nats += float(masked_nll(logits, batch.targets, batch.mask))
        targets += float(batch.mask.sum())
        plies += float(moves_begun(batch.inputs, batch.targets, batch.mask))
        read += batch.tokens
        if at_most and read >= at_most:
            break
    return {"game_nats_per_token": nats / targets, "game_nats_per_ply": nats / plies}


def _write_counts(path: Path, puzzles: Sequence[Puzzle], solved: np.ndarray) -> None:
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["puzzle", "rating", "bin", "samples", "solved"])
    for puzzle, row in zip(puzzles, solved, strict=True):
        table.writerow([puzzle.id, puzzle.rating, puzzle.bin, len(row), int(row.sum())])
    write_text(path, text.getvalue())
