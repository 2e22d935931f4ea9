"""What all fits share: checks of the data, goodness, intervals over runs, identification."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from chessrl.config import InputError

DRAWS = 200
"""Bootstrap samples behind an interval."""
UNCERTAIN = 0.5
"""A positive parameter is unidentified where its standard error reaches this share of it."""
FLAT = 1e-6
"""Singular values below this share of the largest mean directions that the data do not see."""


@dataclass(frozen=True, kw_only=True)
class Fit:
    """How well a law fits, and how well the data tell its parameters."""

    rmse: float
    r2: float
    spearman: float
    """Rank correlation of observed and predicted values; NaN where either is constant."""
    points: int
    runs: int
    intervals: Mapping[str, tuple[float, float]]
    """95% interval of each parameter; NaN where there are too few runs to tell."""
    unidentified: tuple[str, ...]
    """Parameters that the data do not tell: several values fit as well."""


def goodness(observed: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
    """RMSE, R2 and Spearman's rank correlation, by the names of the fields of `Fit`."""
    residuals = observed - predicted
    varied = np.ptp(observed) > 0 and np.ptp(predicted) > 0
    total = float(np.sum((observed - observed.mean()) ** 2))
    return {
        "rmse": float(np.sqrt(np.mean(residuals**2))),
        "r2": 1 - float(np.sum(residuals**2)) / total if total > 0 else float("nan"),
        "spearman": float(stats.spearmanr(observed, predicted)[0]) if varied else float("nan"),
    }


def columns(positive: Sequence[str] = (), **values: ArrayLike) -> list[np.ndarray]:
    """The values as float arrays of one length.

    Args:
        positive: names of those that must be above 0.

    Raises:
        InputError: lengths differ, or a value is not finite, or not positive where it must be.
    """
    arrays = {name: np.asarray(value, float).ravel() for name, value in values.items()}
    lengths = {len(array) for array in arrays.values()}
    if len(lengths) != 1:
        told = ", ".join(f"{len(array)} of {name}" for name, array in arrays.items())
        raise InputError(f"columns of one length are needed, not {told}")
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise InputError(f"{name} has values that are no numbers: leave those rows out")
        if name in positive and (array <= 0).any():
            raise InputError(f"{name} has values that are not positive: leave those rows out")
    return list(arrays.values())


def enough(count: int, parameters: int, law: str, unit: str = "points") -> None:
    """Refuse a fit without a degree of freedom left.

    Raises:
        InputError: there are no more points than parameters.
    """
    if count <= parameters:
        raise InputError(
            f"{law}: {count} {unit} for {parameters} parameters; at least {parameters + 1} are "
            "needed"
        )


def resampled_runs(runs: np.ndarray, draws: int, seed: int) -> list[np.ndarray]:
    """Rows of bootstrap samples that draw whole runs with replacement; none from fewer than 3.

    Args:
        runs: the run of each row, shape (n,).
    """
    names, number = np.unique(runs, return_inverse=True)
    if len(names) < 3:
        return []
    rows = [np.flatnonzero(number == i) for i in range(len(names))]
    dice = np.random.default_rng(seed)
    chosen = dice.integers(len(names), size=(draws, len(names)))
    return [np.concatenate([rows[i] for i in row]) for row in chosen]


def intervals(
    names: Sequence[str], samples: Sequence[np.ndarray], refit: Callable[[np.ndarray], np.ndarray]
) -> dict[str, tuple[float, float]]:
    """95% percentile interval of each parameter over refits of the samples.

    A sample that cannot be fitted is left out; with fewer than half of them left all are NaN.
    """
    found = []
    for sample in samples:
        try:
            found.append(refit(sample))
        except InputError:
            continue
    if not found or 2 * len(found) < len(samples):
        return {name: (float("nan"), float("nan")) for name in names}
    low, high = np.quantile(np.array(found), [0.025, 0.975], axis=0)
    return {name: (float(a), float(b)) for name, a, b in zip(names, low, high, strict=True)}


def unidentified(names: Sequence[str], jacobian: np.ndarray, deviation: float) -> tuple[str, ...]:
    """Parameters that the data do not tell, from the least-squares problem at its optimum.

    Two rules: a combination of parameters changes no prediction, or the standard error of one
    exceeds `UNCERTAIN` of its value.

    Args:
        jacobian: of the residuals in the logarithms of the parameters, shape (n, k).
        deviation: standard deviation of the residuals.
    """
    size = np.linalg.norm(jacobian, axis=0)
    seen = size > FLAT * size.max()
    found = {name for name, whether in zip(names, seen, strict=True) if not whether}
    kept = [name for name, whether in zip(names, seen, strict=True) if whether]
    scaled = jacobian[:, seen] / size[seen]
    _, singular, axes = np.linalg.svd(scaled, full_matrices=len(scaled) < scaled.shape[1])
    singular = np.pad(singular, (0, len(axes) - len(singular)))
    flat = singular < FLAT * singular[0]
    variance = np.sum((axes[~flat] / singular[~flat, None]) ** 2, axis=0) * deviation**2
    errors = np.sqrt(variance) / size[seen]
    for column, name in enumerate(kept):
        if (np.abs(axes[flat, column]) > 0.1).any() or errors[column] > UNCERTAIN:
            found.add(name)
    return tuple(name for name in names if name in found)
