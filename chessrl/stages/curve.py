"""The curve of a run: pass@k on test puzzles at steps along the way, against its compute."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from chessrl.artifacts import write_text
from chessrl.board.puzzles import Puzzle
from chessrl.policy.transformer import Transformer
from chessrl.stages.evaluate import pass_at_k_by_bin, rewards_of
from chessrl.stages.group import group
from chessrl.stages.rollouts import Rules

COLUMNS = ("step", "tokens", "flops", "bin", "k", "mean", "low", "high", "puzzles", "samples")


def log_spaced(points: int, last: int) -> list[int]:
    """Steps 0 and `last`, and between them such that each is about as many times the one before.

    Fewer than asked for where there are not so many steps.
    """
    if points == 0:
        return []
    spread = np.geomspace(1, last, points - 1) if points > 2 else [last]
    return sorted({0, last} | {round(step) for step in spread})


class Curve:
    """curve.csv of a run: a row per step, bin and k; a step measured again replaces its rows."""

    def __init__(
        self, path: Path, puzzles: Sequence[Puzzle], rules: Rules, seed: int, steps: Sequence[int]
    ) -> None:
        """Args:
        rules: with the episodes of each puzzle.
        seed: of the dice, the same at each step.
        steps: updates done when it is measured.
        """
        self.path, self.puzzles, self.rules, self.seed = path, puzzles, rules, seed
        self.steps = frozenset(steps)

    def measure(
        self, model: Transformer, step: int, tokens: float, flops: float
    ) -> dict[str, float]:
        """Measure where it is time to, and write; every process of a group takes its share.

        Args:
            tokens: that RL has read and written so far.
            flops: that it has spent so far.

        Returns:
            pass@k over all the puzzles by the names of the columns of metrics.csv.
        """
        if step not in self.steps:
            return {}
        solved = rewards_of(model, self.puzzles, self.rules, self.seed)
        rows = pass_at_k_by_bin(self.puzzles, solved)
        if group().leads:
            new = [
                [step, f"{tokens:.0f}", f"{flops:.6g}", row.bin, row.k]
                + [f"{value:.6g}" for value in (row.mean, row.low, row.high)]
                + [row.puzzles, row.samples]
                for row in rows
            ]
            self._write(step, new)
        return {f"test_pass@{row.k}": row.mean for row in rows if row.bin == "all"}

    def _write(self, step: int, new: list[list]) -> None:
        kept: list[list] = []
        if self.path.exists():
            with open(self.path, newline="", encoding="utf-8") as file:
                kept = [row for row in list(csv.reader(file))[1:] if int(row[0]) != step]
        text = io.StringIO()
        table = csv.writer(text, lineterminator="\n")
        table.writerow(COLUMNS)
        table.writerows(sorted(kept + new, key=lambda row: int(row[0])))
        write_text(self.path, text.getvalue())
