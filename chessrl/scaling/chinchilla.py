"""The Chinchilla surface of the pretraining loss, fitted as arXiv 2203.15556 does."""

from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize, nnls

from chessrl.scaling.fitting import (
    DRAWS,
    Fit,
    columns,
    enough,
    goodness,
    intervals,
    resampled_runs,
    unidentified,
)
from chessrl.scaling.joint import LossSurface

HUBER = 1e-3
"""Residual of the log loss from which on the penalty grows linearly."""
EXPONENTS = (0.1, 0.2, 0.3, 0.4, 0.55, 0.7, 0.9, 1.2)
"""Starts of alpha and of beta; E, A and B follow from each pair by linear least squares."""
AGREEING = 1e-3
"""Starts agree where their sums of losses differ by at most this share."""
NAMES = ("e", "a", "alpha", "b", "beta")
BOUNDS = ((np.log(1e-6), 1.0), (-30.0, 5.0), (1e-3, 4.0), (-30.0, 5.0), (1e-3, 4.0))


@dataclass(frozen=True, kw_only=True)
class ChinchillaFit(LossSurface, Fit):
    """A fitted surface; errors and goodness are of the loss, in its unit."""

    agreeing: float
    """Share of the starts that end at the optimum; few of them call for more data."""


def fit_chinchilla(
    n_params: ArrayLike,
    tokens: ArrayLike,
    loss: ArrayLike,
    *,
    runs: ArrayLike | None = None,
    start: LossSurface | None = None,
    draws: int = DRAWS,
    seed: int = 0,
) -> ChinchillaFit:
    """Fit `L = E + A / N^alpha + B / T^beta` by the sum of Huber losses of log L.

    L-BFGS from a grid of starts. Order of the rows and unit of the loss do not matter.

    Args:
        n_params, tokens, loss: one final loss per row, shape (n,); all positive.
        runs: which rows belong to one run; each row is a run of its own where it is left out.
        start: a surface near the optimum, instead of the grid of starts; for refits.
        draws: bootstrap samples over runs for the intervals.

    Raises:
        InputError: not more points than parameters, or values that no law can have.
    """
    n_params, tokens, loss = columns(
        ("n_params", "tokens", "loss"), n_params=n_params, tokens=tokens, loss=loss
    )
    enough(len(loss), len(NAMES), "Chinchilla law")
    order = np.lexsort((loss, tokens, n_params))
    n_params, tokens, loss = n_params[order], tokens[order], loss[order]
    names = np.arange(len(loss)) if runs is None else np.asarray(runs).ravel()[order]
    centre = np.log(n_params).mean(), np.log(tokens).mean(), np.log(loss).mean()
    x, y, z = np.log(n_params) - centre[0], np.log(tokens) - centre[1], np.log(loss) - centre[2]

    starts = _starts(x, y, z) if start is None else [_centred(start, centre)]
    ends = [_descend(each, x, y, z, restarts=1) for each in starts]
    value, best = _descend(min(ends, key=lambda end: end[0])[1], x, y, z)
    agreeing = np.mean([end[0] <= value * (1 + AGREEING) + AGREEING for end in ends])

    def refit(rows: np.ndarray) -> np.ndarray:
        return _plain(_descend(best, x[rows], y[rows], z[rows])[1], centre)

    parameters = dict(zip(NAMES, map(float, _plain(best, centre)), strict=True))
    surface = LossSurface(**parameters)
    predicted, terms = _log_loss(best, x, y)
    weights = np.exp(terms - predicted)
    jacobian = np.stack(
        [weights[0], weights[1], -best[2] * x * weights[1], weights[2], -best[4] * y * weights[2]]
    ).T
    residuals = predicted - z
    deviation = float(np.sqrt(np.sum(residuals**2) / (len(z) - len(NAMES))))
    bound = [np.isclose(value, limits).any() for value, limits in zip(best, BOUNDS, strict=True)]
    vague = unidentified(NAMES, jacobian, deviation)
    return ChinchillaFit(
        **parameters,
        **goodness(loss, surface.predict(n_params, tokens)),
        points=len(loss),
        runs=len(np.unique(names)),
        intervals=intervals(NAMES, resampled_runs(names, draws, seed), refit),
        unidentified=tuple(
            name for name, at in zip(NAMES, bound, strict=True) if at or name in vague
        ),
        agreeing=float(agreeing),
    )


def _log_loss(parameters: np.ndarray, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, ...]:
    """Log of the loss, and of its three terms, shape (3, n); all of centred logarithms."""
    e, a, alpha, b, beta = parameters
    terms = np.stack([np.full_like(x, e), a - alpha * x, b - beta * y])
    return np.logaddexp.reduce(terms, axis=0), terms


def _penalty(parameters, x, y, z) -> tuple[float, np.ndarray]:
    """The sum of Huber losses in units of HUBER squared, and its gradient.

    A sum of order 1 per row: the tolerances of L-BFGS are absolute below 1.
    """
    predicted, terms = _log_loss(parameters, x, y)
    scaled = (predicted - z) / HUBER
    inside = np.abs(scaled) <= 1
    value = np.sum(np.where(inside, scaled**2 / 2, np.abs(scaled) - 0.5))
    pull = np.clip(scaled, -1, 1) / HUBER * np.exp(terms - predicted)
    gradient = [pull[0], pull[1], -pull[1] * x, pull[2], -pull[2] * y]
    return float(value), np.sum(gradient, axis=1)


def _descend(start: np.ndarray, x, y, z, restarts: int = 5) -> tuple[float, np.ndarray]:
    """Value and place of the optimum from one start; restarted until it stands still."""
    value, place = np.inf, start
    for _ in range(restarts):
        end = minimize(
            _penalty, place, (x, y, z), method="L-BFGS-B", jac=True, bounds=BOUNDS,
            options={"maxiter": 2000, "maxfun": 4000, "ftol": 1e-13, "gtol": 1e-7, "maxcor": 20},
        )  # fmt: skip
        stands = end.fun >= value - 1e-10 * max(value, 1.0) if np.isfinite(value) else False
        value, place = min((value, place), (float(end.fun), end.x), key=lambda pair: pair[0])
        if stands:
            break
    return value, place


def _starts(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> list[np.ndarray]:
    found = []
    for alpha, beta in product(EXPONENTS, EXPONENTS):
        design = np.stack([np.ones_like(x), np.exp(-alpha * x), np.exp(-beta * y)], 1)
        weights, _ = nnls(design * np.exp(-z)[:, None], np.ones_like(z))
        e, a, b = np.log(np.maximum(weights, 1e-4))
        start = np.array([e, a, alpha, b, beta])
        found.append(np.clip(start, *np.array(BOUNDS).T))
    return found


def _plain(parameters: np.ndarray, centre: tuple[float, float, float]) -> np.ndarray:
    """E, A, alpha, B, beta in the units of the data."""
    e, a, alpha, b, beta = parameters
    x, y, z = centre
    return np.array(
        [np.exp(e + z), np.exp(a + z + alpha * x), alpha, np.exp(b + z + beta * y), beta]
    )


def _centred(surface: LossSurface, centre: tuple[float, float, float]) -> np.ndarray:
    """The inverse of `_plain`."""
    x, y, z = centre
    e, a, b = (np.log(max(value, 1e-300)) for value in (surface.e, surface.a, surface.b))
    place = e - z, a - z - surface.alpha * x, surface.alpha, b - z - surface.beta * y, surface.beta
    return np.clip(place, *np.array(BOUNDS).T)
