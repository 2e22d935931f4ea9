"""What is measured: pass@k and intervals. Pure functions of numbers."""

from dataclasses import dataclass

import numpy as np
from scipy import stats


def pass_at_k(n: int, c: int, k: int) -> float:
    """Unbiased chance that one of k answers is right, given c right of n (arXiv 2107.03374).

    One minus the chance that k answers drawn without replacement are all wrong.

    Raises:
        ValueError: k is not within 1 to n, or c not within 0 to n.
    """
    if not 1 <= k <= n:
        raise ValueError(f"pass@{k} cannot be told from {n} samples")
    if not 0 <= c <= n:
        raise ValueError(f"{c} right answers of {n}")
    still_wrong = 1.0
    for i in range(k):
        still_wrong *= max(n - c - i, 0) / (n - i)
    return 1.0 - still_wrong


@dataclass(frozen=True)
class Estimate:
    """A mean over puzzles with its 95% interval."""

    mean: float
    low: float
    high: float
    n: int
    """Puzzles behind it, the independent units."""


def clustered_mean(values: np.ndarray, level: float = 0.95) -> Estimate:
    """Mean of one value per puzzle, with Student's t interval over the puzzles.

    The samples of a puzzle are correlated, so the puzzle is the unit; values lie in [0, 1], and so
    does the interval. One puzzle tells nothing of the spread: its interval is [0, 1]. Where all
    values are 0, or all 1, the spread seen is none, and the bound is the exact one of Clopper and
    Pearson.

    Raises:
        ValueError: there is no value.
    """
    n = len(values)
    if n == 0:
        raise ValueError("no puzzle to average over")
    mean = float(np.mean(values))
    if n == 1:
        return Estimate(mean, 0.0, 1.0, 1)
    if mean in (0.0, 1.0):
        beyond = 1 - ((1 - level) / 2) ** (1 / n)
        return Estimate(mean, mean * (1 - beyond), mean + (1 - mean) * beyond, n)
    half = float(stats.t.ppf((1 + level) / 2, n - 1) * np.std(values, ddof=1) / np.sqrt(n))
    return Estimate(mean, max(mean - half, 0.0), min(mean + half, 1.0), n)


def powers_of_two(n: int) -> list[int]:
    """1, 2, 4, ... up to n, and n itself: the k for which pass@k is reported."""
    ks = [1 << i for i in range(n.bit_length()) if 1 << i <= n]
    return ks if ks[-1] == n else [*ks, n]
