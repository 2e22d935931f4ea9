"""Reward against the compute of RL: ScaleRL's sigmoid."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import least_squares
from scipy.special import expit

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

EXPONENTS = np.geomspace(0.1, 10, 41)
"""Starts of B."""
MIDPOINTS = 81
"""Starts of C_mid, evenly spaced in its logarithm."""
REACH = 100.0
"""C_mid lies between the least compute over this and the largest times it."""
EARLY = ("keep", "first_epoch")
"""What may be done with the start of a run, whose growth is no sigmoid: keep it, or leave out
all that comes before the first epoch over the prompts is done (arXiv 2510.13786)."""
WIDE_REWARD, WIDE_RATIO = 0.2, 3.0
"""A and R0 are unidentified where their interval is wider than the one, B and C_mid where its ends
differ by more than the other."""
STARTS = 3
"""Points of the grid from which the fit is made exact."""


@dataclass(frozen=True, kw_only=True)
class SigmoidFit(Fit):
    """`R = R0 + (A - R0) / (1 + (C_mid / C)^B)`."""

    asymptote: float
    """A, reward at unlimited compute, in [0, 1]."""
    exponent: float
    """B."""
    midpoint: float
    """C_mid, compute at which half of the gain is made, in the unit of the data."""
    r0: float
    """Reward without RL."""
    over: str
    """What the intervals are over: `runs` resampled, or the `noise` of one run."""

    def predict(self, compute: ArrayLike) -> np.ndarray:
        """Reward at each compute."""
        place = self.asymptote, self.exponent, np.log(self.midpoint), self.r0
        return _sigmoid(_log(np.asarray(compute, float)), *place)


def after_start(compute: np.ndarray, early: str, epoch: float | None) -> np.ndarray:
    """Which points a rule of `EARLY` keeps.

    Args:
        epoch: compute at which the first epoch is done.

    Raises:
        InputError: there is no such rule, or the epoch that it needs is missing.
    """
    if early not in EARLY:
        raise InputError(f"early={early}: one of {', '.join(EARLY)}")
    if early == "keep":
        return np.ones(len(compute), bool)
    if epoch is None:
        raise InputError("early=first_epoch needs epoch=, the compute of the first epoch")
    return compute >= epoch


def fit_sigmoid(
    compute: ArrayLike,
    reward: ArrayLike,
    r0: float | None = None,
    *,
    asymptote: float | None = None,
    early: str = "keep",
    epoch: float | None = None,
    runs: ArrayLike | None = None,
    draws: int = DRAWS,
    seed: int = 0,
) -> SigmoidFit:
    """Fit the sigmoid by least squares: a grid of B and log C_mid, then an exact local fit.

    Args:
        compute: of RL in any unit, shape (n,), none negative.
        reward: pass rates in [0, 1], shape (n,).
        r0: reward without RL; fitted where it is left out.
        asymptote: A, where it is to be held, as in the comparison of recipes.
        early: a rule of `EARLY` for the start of the run.
        runs: which points belong to one run; one and the same where it is left out.
        draws: bootstrap samples. From 3 runs on they are of whole runs; of fewer they redraw the
            noise around the fit, which tells nothing of how seeds differ.

    Raises:
        InputError: not more points than parameters, or values that no such curve can have.
    """
    compute, reward = columns(compute=compute, reward=reward)
    if (compute < 0).any():
        raise InputError("compute has negative values: leave those rows out")
    names = np.zeros(len(reward), int) if runs is None else np.asarray(runs).ravel()
    kept = after_start(compute, early, epoch)
    order = np.lexsort((reward, compute))
    order = order[kept[order]]
    compute, reward, names = compute[order], reward[order], names[order]
    held = {"asymptote": asymptote, "r0": r0}
    free = [name for name in ("asymptote", "exponent", "midpoint", "r0") if held.get(name) is None]
    enough(len(reward), len(free), "sigmoid")
    if len(np.unique(compute[compute > 0])) < 2:
        raise InputError("sigmoid: one compute says nothing of a curve; measure along the run")

    x = _log(compute)
    place = _fit(x, reward, asymptote, r0, _grid(x, reward, asymptote, r0))
    predicted = _sigmoid(x, *place)
    deviation = float(np.sqrt(np.sum((reward - predicted) ** 2) / (len(reward) - len(free))))
    samples = resampled_runs(names, draws, seed)
    over = "runs" if samples else "noise"
    if samples:

        def refit(rows: np.ndarray) -> np.ndarray:
            return _values(_fit(x[rows], reward[rows], asymptote, r0, [place]))

    else:
        noise = np.random.default_rng(seed).normal(0, deviation, (draws, len(reward)))
        samples = list(predicted + noise)

        def refit(drawn: np.ndarray) -> np.ndarray:
            return _values(_fit(x, drawn, asymptote, r0, [place]))

    everything = ("asymptote", "exponent", "midpoint", "r0")
    bands = intervals(everything, samples, refit)
    values = dict(zip(everything, map(float, _values(place)), strict=True))
    jacobian = _jacobian(x, place)[:, [everything.index(name) for name in free]]
    vague = set(unidentified(free, jacobian, deviation))
    vague |= {name for name in free if _wide(name, *bands[name])}
    if values["asymptote"] >= 1 - 1e-6:
        vague |= {"asymptote"} & set(free)
    if values["midpoint"] > compute.max():
        vague |= {"midpoint"} | ({"asymptote"} & set(free))
    return SigmoidFit(
        **values,
        **goodness(reward, predicted),
        points=len(reward),
        runs=len(np.unique(names)),
        intervals={name: bands[name] for name in free},
        unidentified=tuple(name for name in free if name in vague),
        over=over,
    )


def _wide(name: str, low: float, high: float) -> bool:
    """Whether an interval says too little; one of NaN says nothing and is not wide."""
    if name in ("asymptote", "r0"):
        return high - low > WIDE_REWARD
    return high > WIDE_RATIO * low


def _log(compute: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.log(compute)


def _sigmoid(x: np.ndarray, a, b, middle, r0) -> np.ndarray:
    """Reward at log compute x."""
    return r0 + (a - r0) * expit(b * (x - middle))


def _values(place: np.ndarray) -> np.ndarray:
    return np.array([place[0], place[1], np.exp(place[2]), place[3]])


def _jacobian(x: np.ndarray, place: np.ndarray) -> np.ndarray:
    """Of the reward in the logarithms of A, B, C_mid and R0, shape (n, 4)."""
    a, b, middle, r0 = place
    rise = expit(b * (x - middle))
    bend = (a - r0) * rise * (1 - rise)
    far = np.where(np.isfinite(x), x, middle) - middle
    return np.stack([a * rise, bend * far * b, -bend * b, r0 * (1 - rise)], 1)


def _limits(x: np.ndarray) -> tuple[float, float]:
    seen = x[np.isfinite(x)]
    return seen.min() - np.log(REACH), seen.max() + np.log(REACH)


def _grid(x: np.ndarray, y: np.ndarray, a: float | None, r0: float | None) -> list[np.ndarray]:
    """The best points of the grid; A and R0 follow from B and C_mid by linear least squares."""
    b, middle = (
        each.ravel() for each in np.meshgrid(EXPONENTS, np.linspace(*_limits(x), MIDPOINTS))
    )
    rise = expit(b[:, None] * (x - middle[:, None]))
    fall = 1 - rise
    if a is None and r0 is None:
        hh, gg, hg = (rise**2).sum(1), (fall**2).sum(1), (rise * fall).sum(1)
        det = np.maximum(hh * gg - hg**2, 1e-12)
        top, bottom = (gg * (rise @ y) - hg * (fall @ y)) / det, 0
        top = np.clip(top, 0, 1)
        bottom = np.clip(((y - top[:, None] * rise) * fall).sum(1) / np.maximum(gg, 1e-12), 0, 1)
    elif a is None:
        bottom = np.full(len(b), r0)
        top = ((y - r0 * fall) * rise).sum(1) / np.maximum((rise**2).sum(1), 1e-12)
        top = np.clip(top, 0, 1)
    else:
        top = np.full(len(b), a)
        bottom = ((y - a * rise) * fall).sum(1) / np.maximum((fall**2).sum(1), 1e-12)
        bottom = np.full(len(b), r0) if r0 is not None else np.clip(bottom, 0, 1)
    misses = ((bottom[:, None] * fall + top[:, None] * rise - y) ** 2).sum(1)
    best = np.argsort(misses, kind="stable")[:STARTS]
    return [np.array([top[i], b[i], middle[i], bottom[i]]) for i in best]


def _fit(
    x: np.ndarray, y: np.ndarray, a: float | None, r0: float | None, starts: list[np.ndarray]
) -> np.ndarray:
    """A, B, log C_mid and R0 of the least squares, from the best of the starts."""
    free = np.array([a is None, True, True, r0 is None])
    lowest, highest = _limits(x)
    low = np.array([0, EXPONENTS[0], lowest, 0])[free]
    high = np.array([1, EXPONENTS[-1], highest, 1])[free]
    fixed = np.array([a if a is not None else 0, 0, 0, r0 if r0 is not None else 0], float)

    def whole(some: np.ndarray) -> np.ndarray:
        place = fixed.copy()
        place[free] = some
        return place

    def jacobian(some: np.ndarray) -> np.ndarray:
        place = whole(some)
        rise = expit(place[1] * (x - place[2]))
        bend = (place[0] - place[3]) * rise * (1 - rise)
        far = np.where(np.isfinite(x), x, place[2]) - place[2]
        return np.stack([rise, bend * far, -bend * place[1], 1 - rise], 1)[:, free]

    ends = []
    for start in starts:
        begin = np.clip(start[free], low + 1e-9, high - 1e-9)
        ends.append(
            least_squares(
                lambda some: _sigmoid(x, *whole(some)) - y, begin, jacobian, (low, high),
                xtol=1e-10, ftol=1e-12, gtol=1e-12, x_scale=np.array([0.1, 1, 1, 0.1])[free],
            )
        )  # fmt: skip
    return whole(min(ends, key=lambda end: end.cost).x)
