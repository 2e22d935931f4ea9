"""What the starting model can do, before RL spends anything on it."""

import csv
import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from chessrl.artifacts import write_text
from chessrl.board.puzzles import Puzzle
from chessrl.board.rewards import Reward, binary
from chessrl.config import InputError
from chessrl.policy.sampling import mixed
from chessrl.policy.transformer import Transformer
from chessrl.progress import Meter, say
from chessrl.stages.evaluate import rewards_of
from chessrl.stages.group import group
from chessrl.stages.rollouts import Rules

SEED = 7
"""Keeps the dice apart from those of training."""


def gate(
    model: Transformer, puzzles: Sequence[Puzzle], rules: Rules, seed: int, reward: Reward
) -> None:
    """Let RL begin only where there is something to learn: a group whose rewards disagree.

    Raises:
        InputError: there is none among these puzzles; the message says what may help.
    """
    with Meter("rl: gate", len(puzzles), "puzzles") as meter:
        earned = rewards_of(model, puzzles, rules, mixed(seed, SEED), reward, meter.advance)
    mixed_share = float((earned.min(axis=1) < earned.max(axis=1)).mean())
    if mixed_share == 0:
        advice = (
            "train longer before (pretrain.tokens, sft.epochs), take easier puzzles "
            "(rl.max_rating) or more episodes of each (rl.group_size)"
            if earned.mean() < 0.5
            else "take harder puzzles (rl.max_rating)"
        )
        raise InputError(
            f"rl: nothing can be learned: {earned.size} episodes on {len(puzzles)} puzzles earn "
            f"{earned.mean():.3g} on average, and no group of {rules.copies} disagrees; {advice}. "
            "rl.gate=0 goes on all the same"
        )
    say(f"rl: {mixed_share:.0%} of {len(puzzles)} groups disagree at the start")


def solvable(
    model: Transformer,
    puzzles: Sequence[Puzzle],
    rules: Rules,
    seed: int,
    episodes: int,
    file: Path,
) -> list[Puzzle]:
    """The puzzles that the model solves sometimes, but not always.

    Args:
        episodes: of each puzzle.
        file: keeps what was found, so that an interrupted run need not look again.

    Raises:
        InputError: there is none.
    """
    if file.exists():
        with open(file, newline="", encoding="utf-8") as table:
            counts = [int(row["solved"]) for row in csv.DictReader(table)]
    else:
        rules = replace(rules, copies=episodes)
        with Meter("rl: solvable", len(puzzles), "puzzles") as meter:
            found = rewards_of(model, puzzles, rules, mixed(seed, SEED), binary, meter.advance)
        counts = found.sum(axis=1).astype(int).tolist()
        if group().leads:
            text = io.StringIO()
            rows = csv.writer(text, lineterminator="\n")
            rows.writerow(["puzzle", "episodes", "solved"])
            rows.writerows((p.id, episodes, c) for p, c in zip(puzzles, counts, strict=True))
            write_text(file, text.getvalue())
    kept = [p for p, count in zip(puzzles, counts, strict=True) if 0 < count < episodes]
    say(f"rl: {len(kept)} of {len(puzzles)} puzzles are solved sometimes, but not always")
    if not kept:
        raise InputError(
            f"rl.curriculum.name=solvable: no puzzle of {len(puzzles)} is solved in some of "
            f"{episodes} episodes but not in all: raise rl.curriculum.probe, or train longer before"
        )
    return kept
