"""A power law of reward in the compute of RL, for contrast with the sigmoid."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import least_squares

from chessrl.scaling.fitting import Fit, columns, enough, goodness, unidentified

EXPONENTS = np.geomspace(0.1, 10, 11)
"""Starts of B."""


@dataclass(frozen=True, kw_only=True)
class PowerFit(Fit):
    """`R = A - D / C^B`."""

    asymptote: float
    exponent: float
    factor: float
    """D, of the unit of compute to the power of B."""

    def predict(self, compute: ArrayLike) -> np.ndarray:
        """Reward at each compute."""
        return self.asymptote - self.factor * np.asarray(compute, float) ** -self.exponent


def fit_power(compute: ArrayLike, reward: ArrayLike) -> PowerFit:
    """Fit `R = A - D / C^B` by least squares, with A in [0, 1] and D at least 0.

    Raises:
        InputError: not more points than parameters, or compute that is not positive.
    """
    compute, reward = columns(("compute",), compute=compute, reward=reward)
    enough(len(reward), 3, "power law")
    order = np.lexsort((reward, compute))
    x, y = np.log(compute[order]), reward[order]
    centre = x.mean()

    def residuals(place: np.ndarray) -> np.ndarray:
        return place[0] - place[2] * np.exp(-place[1] * (x - centre)) - y

    best = None
    for exponent in EXPONENTS:
        start = [min(max(y.max(), 0.01), 0.99), exponent, max(np.ptp(y) / 2, 1e-3)]
        end = least_squares(residuals, start, bounds=([0, 1e-3, 0], [1, 20, np.inf]))
        if best is None or end.cost < best.cost:
            best = end
    a, b, d = best.x
    names = ("asymptote", "exponent", "factor")
    vague = set(unidentified(names, best.jac * best.x, float(np.sqrt(2 * best.cost / len(y)))))
    if a >= 1 - 1e-6:
        vague.add("asymptote")
    return PowerFit(
        asymptote=float(a),
        exponent=float(b),
        factor=float(d * np.exp(b * centre)),
        **goodness(y, residuals(best.x) + y),
        points=len(y),
        runs=1,
        intervals={name: (float("nan"), float("nan")) for name in names},
        unidentified=tuple(name for name in names if name in vague),
    )
