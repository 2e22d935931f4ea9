"""Whole numbers counted: classes, sums and quantiles of a `Counter`."""

from collections import Counter
from typing import Any

import numpy as np

PERCENTILES = {"5%": 5, "25%": 25, "median": 50, "75%": 75, "95%": 95}


def count(values: np.ndarray) -> Counter[int]:
    """How often each of some whole numbers from 0 occurs."""
    times = np.bincount(values)
    found = np.flatnonzero(times)
    return Counter(dict(zip(found.tolist(), times[found].tolist(), strict=True)))


def classes(counts: Counter[int], width: int) -> Counter[int]:
    """The same counts in classes of a width, each named by its least number."""
    found = Counter[int]()
    for value, times in counts.items():
        found[value // width * width] += times
    return found


def sum_of(counts: Counter[int]) -> int:
    """Sum of the numbers counted."""
    return sum(value * times for value, times in counts.items())


def spread(counts: Counter[int]) -> dict[str, float]:
    """Count, mean, ends and quantiles; a quantile is one of the numbers, the lower of two."""
    if not counts:
        return {"count": 0}
    values = sorted(counts)
    up_to = np.cumsum([counts[value] for value in values])
    total = int(up_to[-1])
    ranks = {name: -(-total * percent // 100) for name, percent in PERCENTILES.items()}
    return {
        "count": total,
        "mean": sum_of(counts) / total,
        "least": values[0],
        **{name: values[np.searchsorted(up_to, rank)] for name, rank in ranks.items()},
        "most": values[-1],
    }


def by_count(counts: Counter) -> list[tuple[Any, int]]:
    """Counts, the most frequent first; equal ones in the order of their names."""
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))
