"""Straight lines and exponentials: the parts of the joint law, and pass@k against the loss."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize_scalar

from chessrl.config import InputError
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
from chessrl.scaling.joint import Exponential, Slope

RATES = np.geomspace(0.1, 100, 31)
"""Starts of the rate, times the spread of x; scale and offset follow by linear least squares."""


@dataclass(frozen=True, kw_only=True)
class LogLinearFit(Fit):
    """`R = level + slope (log10 C - log10 anchor)` of one run."""

    level: float
    """Reward at the anchor, R_ref."""
    slope: float
    """Reward per factor of ten."""
    anchor: float


@dataclass(frozen=True, kw_only=True)
class ExponentialFit(Exponential, Fit):
    """A fitted exponential."""


@dataclass(frozen=True, kw_only=True)
class SlopeFit(Slope, Fit):
    """A fitted plane of slopes."""


def fit_log_linear(rl_flops: ArrayLike, reward: ArrayLike, anchor: float = 1e20) -> LogLinearFit:
    """The local law of RL for one run, by least squares; one run has no interval over runs.

    Raises:
        InputError: fewer than 3 points, one compute only, or compute that is not positive.
    """
    rl_flops, reward = columns(("rl_flops",), rl_flops=rl_flops, reward=reward)
    enough(len(reward), 2, "log-linear law of RL")
    decades = np.log10(rl_flops) - np.log10(anchor)
    if np.ptp(decades) == 0:
        raise InputError("log-linear law of RL: one compute says nothing of a slope")
    slope, level = np.polyfit(decades, reward, 1)
    names = ("level", "slope")
    return LogLinearFit(
        level=float(level),
        slope=float(slope),
        anchor=anchor,
        **goodness(reward, level + slope * decades),
        points=len(reward),
        runs=1,
        intervals={name: (float("nan"), float("nan")) for name in names},
        unidentified=(),
    )


def fit_exponential(
    x: ArrayLike,
    y: ArrayLike,
    *,
    offset: bool = True,
    runs: ArrayLike | None = None,
    draws: int = DRAWS,
    seed: int = 0,
) -> ExponentialFit:
    """Fit `y = offset + scale exp(-rate x)` by least squares, scale and rate positive.

    f(L) has an offset; the floor R0(L) and pass@k(L) have none. `alpha 10^(beta L)` is scale alpha
    and rate `-beta ln 10`.

    Args:
        runs: which points belong to one run; each point is a run of its own where left out.

    Raises:
        InputError: not more points than parameters.
    """
    x, y = columns(x=x, y=y)
    names = ("offset", "scale", "rate") if offset else ("scale", "rate")
    enough(len(x), len(names), "exponential")
    order = np.lexsort((y, x))
    x, y = x[order], y[order]
    labels = np.arange(len(x)) if runs is None else np.asarray(runs).ravel()[order]
    place = _fit(x, y, offset)

    def refit(rows: np.ndarray) -> np.ndarray:
        return _fit(x[rows], y[rows], offset)[not offset :]

    bottom, scale, rate = place
    curve = np.exp(-rate * x)
    level = np.full_like(x, max(np.ptp(y), 1e-12))  # the offset may be 0: its unit is y's range
    jacobian = np.stack([level, scale * curve, -scale * rate * x * curve], 1)[:, not offset :]
    deviation = float(np.sqrt(np.sum((bottom + scale * curve - y) ** 2) / (len(x) - len(names))))
    return ExponentialFit(
        offset=float(bottom),
        scale=float(scale),
        rate=float(rate),
        **goodness(y, bottom + scale * curve),
        points=len(x),
        runs=len(np.unique(labels)),
        intervals=intervals(names, resampled_runs(labels, draws, seed), refit),
        unidentified=unidentified(names, jacobian, deviation),
    )


def fit_slope(
    n_params: ArrayLike, tokens: ArrayLike, slope: ArrayLike, *, draws: int = DRAWS, seed: int = 0
) -> SlopeFit:
    """Fit `slope = constant + tokens log10 T + params log10 N` by least squares, a run per row.

    Raises:
        InputError: not more runs than parameters.
    """
    n_params, tokens, slope = columns(
        ("n_params", "tokens"), n_params=n_params, tokens=tokens, slope=slope
    )
    names = ("constant", "tokens", "params")
    enough(len(slope), len(names), "law of slopes", "runs")
    order = np.lexsort((slope, tokens, n_params))
    slope = slope[order]
    design = np.stack([np.ones(len(slope)), np.log10(tokens[order]), np.log10(n_params[order])], 1)

    def refit(rows: np.ndarray) -> np.ndarray:
        return np.linalg.lstsq(design[rows], slope[rows], rcond=None)[0]

    constant, by_tokens, by_params = map(float, refit(np.arange(len(slope))))
    flat = [
        name for name, column in zip(names[1:], design.T[1:], strict=True) if not np.ptp(column)
    ]
    if not flat and np.linalg.matrix_rank(design) < len(names):
        flat = list(names)
    return SlopeFit(
        constant=constant,
        tokens=by_tokens,
        params=by_params,
        **goodness(slope, design @ [constant, by_tokens, by_params]),
        points=len(slope),
        runs=len(slope),
        intervals=intervals(names, resampled_runs(np.arange(len(slope)), draws, seed), refit),
        unidentified=tuple(name for name in names if name in flat or (flat and name == "constant")),
    )


def _fit(x: np.ndarray, y: np.ndarray, offset: bool) -> np.ndarray:
    """Offset, scale and rate; for each rate the others are a linear problem."""
    spread = np.ptp(x)
    if spread == 0:
        raise InputError("exponential: one value of x says nothing of a rate")
    centre = x.mean()

    def solve(log_rate: float) -> tuple[float, float, float]:
        curve = np.exp(-np.exp(log_rate) * (x - centre))
        bottom = 0.0
        if offset:
            rest = curve - curve.mean()
            scale = max(float(rest @ y / (rest @ rest)), 0.0)
            bottom = float(y.mean() - scale * curve.mean())
        else:
            scale = max(float(curve @ y / (curve @ curve)), 0.0)
        return float(np.sum((bottom + scale * curve - y) ** 2)), bottom, scale

    grid = np.log(RATES / spread)
    best = int(np.argmin([solve(rate)[0] for rate in grid]))
    around = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    end = minimize_scalar(
        lambda rate: solve(rate)[0], bounds=around, method="bounded", options={"xatol": 1e-9}
    )
    _, bottom, scale = solve(end.x)
    rate = np.exp(end.x)
    return np.array([bottom, scale * np.exp(rate * centre), rate])
