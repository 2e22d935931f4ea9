"""Do laws predict what they were not fitted to? Runs, sizes and the rest of a curve left out."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from chessrl.config import InputError
from chessrl.scaling.fitting import columns
from chessrl.scaling.joint import LossSurface
from chessrl.scaling.jointfit import Curves, fit_joint
from chessrl.scaling.power import PowerFit
from chessrl.scaling.sigmoid import SigmoidFit, fit_sigmoid

LEFT_OUT = ("run", "size")


@dataclass(frozen=True)
class Prediction:
    """Predictions of points that took no part in the fit, shape (n,)."""

    observed: np.ndarray
    predicted: np.ndarray
    group: np.ndarray
    """The run or the size that was left out for each."""

    @property
    def rmse(self) -> float:
        """Root of the mean square error over all points."""
        return float(np.sqrt(np.mean((self.predicted - self.observed) ** 2)))


def leave_one_out(
    curves: Curves,
    by: str = "run",
    anchor: float = 1e20,
    *,
    surface: LossSurface | None = None,
    measured_loss: bool = False,
) -> Prediction:
    """Predict each run, or all runs of each size, by the joint law fitted to the others.

    Args:
        by: `run` or `size`.
        surface: of the loss, where it is known from other runs; else fitted without those left out.
        measured_loss: predict from the loss that was measured instead of the predicted one.

    Raises:
        InputError: too few runs are left to fit.
    """
    if by not in LEFT_OUT:
        raise InputError(f"leave_one_out by {by}: one of {', '.join(LEFT_OUT)}")
    group = curves.run if by == "run" else curves.n_params
    predicted = np.full(len(group), np.nan)
    start = fit_joint(curves, anchor, surface=surface, draws=0).loss
    for name in np.unique(group):
        out = group == name
        law = fit_joint(curves.take(~out), anchor, surface=surface, start=start, draws=0)
        held = curves.take(out)
        loss = held.loss if measured_loss else None
        predicted[out] = law.predict(held.n_params, held.tokens, held.rl_flops, loss)
    return Prediction(curves.reward, predicted, group)


@dataclass(frozen=True)
class Extrapolation:
    """A curve fitted up to some compute and its error on what came after."""

    fit: SigmoidFit | PowerFit
    compute: np.ndarray
    """Of the points that came after, ascending, shape (n,)."""
    error: np.ndarray
    """Predicted less observed reward at each of them."""

    @property
    def rmse(self) -> float:
        """Root of the mean square error after the fitted part."""
        return float(np.sqrt(np.mean(self.error**2)))


def extrapolate(
    compute: ArrayLike,
    reward: ArrayLike,
    until: float,
    fit: Callable[[np.ndarray, np.ndarray], SigmoidFit | PowerFit] = fit_sigmoid,
) -> Extrapolation:
    """Fit the part of a curve up to `until` and compare the rest.

    Args:
        until: compute; ScaleRL takes half of the target budget.
        fit: a law of compute and reward, with its options bound.

    Raises:
        InputError: nothing comes after, or too little before.
    """
    compute, reward = columns(compute=compute, reward=reward)
    order = np.lexsort((reward, compute))
    compute, reward = compute[order], reward[order]
    first = compute <= until
    if first.all():
        raise InputError(f"no point lies beyond {until:g}: nothing to predict")
    fitted = fit(compute[first], reward[first])
    return Extrapolation(fitted, compute[~first], fitted.predict(compute[~first]) - reward[~first])
