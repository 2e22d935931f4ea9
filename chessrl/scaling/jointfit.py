"""The joint law fitted to the curves of many runs, as the chess study fits it."""

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import ArrayLike

from chessrl.config import InputError
from chessrl.scaling.chinchilla import NAMES as SURFACE
from chessrl.scaling.chinchilla import fit_chinchilla
from chessrl.scaling.fitting import DRAWS, Fit, columns, enough, goodness, resampled_runs
from chessrl.scaling.joint import Exponential, JointLaw, LossSurface, Slope
from chessrl.scaling.lines import (
    ExponentialFit,
    SlopeFit,
    fit_exponential,
    fit_log_linear,
    fit_slope,
)

NAMES = (
    *(f"loss.{name}" for name in SURFACE),
    *(f"reward.{name}" for name in ("offset", "scale", "rate")),
    *(f"slope.{name}" for name in ("constant", "tokens", "params")),
    *(f"floor.{name}" for name in ("scale", "rate")),
)


@dataclass(frozen=True)
class Curves:
    """RL curves of many runs, a row per evaluation; all arrays are of shape (n,)."""

    run: np.ndarray
    """Name of the run; its rows share size, tokens and loss."""
    n_params: np.ndarray
    tokens: np.ndarray
    """Of pretraining."""
    loss: np.ndarray
    """After pretraining, in nats per token."""
    rl_flops: np.ndarray
    """FLOPs of RL so far; at 0 the reward is that of SFT."""
    reward: np.ndarray

    @staticmethod
    def of(
        run: ArrayLike, n_params: ArrayLike, tokens: ArrayLike, loss: ArrayLike,
        rl_flops: ArrayLike, reward: ArrayLike,
    ) -> "Curves":  # fmt: skip
        """Curves from columns in any order of the rows.

        Raises:
            InputError: columns of several lengths, values that cannot be, or a run whose rows
                differ in size, tokens or loss.
        """
        values = columns(
            ("n_params", "tokens", "loss"), n_params=n_params, tokens=tokens, loss=loss,
            rl_flops=rl_flops, reward=reward,
        )  # fmt: skip
        run = np.asarray(run).ravel()
        if len(run) != len(values[0]):
            raise InputError(f"{len(run)} names of runs for {len(values[0])} rows")
        if (values[3] < 0).any():
            raise InputError("rl_flops has negative values: leave those rows out")
        order = np.lexsort((values[4], values[3], run))
        curves = Curves(run[order], *(each[order] for each in values))
        for name, rows in curves.rows():
            for column in (curves.n_params, curves.tokens, curves.loss):
                if np.ptp(column[rows]) > 0:
                    raise InputError(
                        f"run {name} has rows that differ in size, tokens or loss: name them apart"
                    )
        return curves

    def rows(self) -> list[tuple[object, np.ndarray]]:
        """The rows of each run, by its name."""
        names, number = np.unique(self.run, return_inverse=True)
        return [(name, np.flatnonzero(number == i)) for i, name in enumerate(names)]

    def take(self, rows: np.ndarray) -> "Curves":
        """Some of the rows: indices, or a mask."""
        return Curves(*(getattr(self, field.name)[rows] for field in fields(self)))


@dataclass(frozen=True, kw_only=True)
class JointFit(JointLaw, Fit):
    """A fitted joint law; goodness is that of the rewards with predicted losses."""

    refits: tuple[JointLaw, ...]
    """The law fitted to samples that draw runs with replacement."""


def fit_joint(
    curves: Curves,
    anchor: float = 1e20,
    *,
    surface: LossSurface | None = None,
    start: LossSurface | None = None,
    max_loss: float = np.inf,
    draws: int = DRAWS,
    seed: int = 0,
) -> JointFit:
    """Fit the joint law in the steps of the study.

    The surface from the loss of each run; level and slope of each run by least squares on its
    points with RL; f from levels against measured losses; g from slopes; the floor from the
    points without RL.

    Args:
        anchor: FLOPs of RL at which f holds; within what was measured, best.
        surface: of the loss, where it is known from more runs than have RL.
        start: a surface near the optimum, instead of a grid of starts; for refits.
        draws: bootstrap samples of whole runs.

    Raises:
        InputError: too few runs, points with RL, or points without it.
    """
    steps = _steps(curves, anchor, surface, start)
    law = _law(steps, anchor, max_loss)
    refits = []
    for rows in resampled_runs(curves.run, draws, seed):
        try:
            again = _steps(_renamed(curves, rows), anchor, surface, law.loss)
            refits.append(_law(again, anchor, max_loss))
        except InputError:
            continue
    told = len(refits) >= max(2, draws / 2)
    bands = {name: (float("nan"), float("nan")) for name in NAMES}
    if told:
        found = np.array([values(refit) for refit in refits])
        low, high = np.quantile(found, [0.025, 0.975], axis=0)
        bands = {name: (float(a), float(b)) for name, a, b in zip(NAMES, low, high, strict=True)}
    predicted = law.predict(curves.n_params, curves.tokens, curves.rl_flops)
    return JointFit(
        **{field.name: getattr(law, field.name) for field in fields(JointLaw)},
        **goodness(curves.reward, predicted),
        points=len(curves.run),
        runs=len(np.unique(curves.run)),
        intervals=bands,
        unidentified=tuple(
            f"{part}.{name}"
            for part, fit in zip(("loss", "reward", "slope", "floor"), steps, strict=True)
            for name in getattr(fit, "unidentified", ())
        ),
        refits=tuple(refits),
    )


def values(law: JointLaw) -> np.ndarray:
    """The parameters in the order of `NAMES`."""
    return np.array(
        [
            *(getattr(law.loss, name) for name in SURFACE),
            law.reward.offset, law.reward.scale, law.reward.rate,
            law.slope.constant, law.slope.tokens, law.slope.params,
            law.floor.scale, law.floor.rate,
        ]
    )  # fmt: skip


def _parts(curves: Curves, anchor: float) -> dict[str, np.ndarray]:
    """One row per run: its size, tokens, loss, level, slope, and reward without RL or NaN."""
    rows = []
    for _, those in curves.rows():
        one = curves.take(those)
        trained = one.rl_flops > 0
        before = one.reward[~trained].mean() if not trained.all() else np.nan
        line = (np.nan, np.nan)
        if len(np.unique(one.rl_flops[trained])) >= 3:
            fit = fit_log_linear(one.rl_flops[trained], one.reward[trained], anchor)
            line = (fit.level, fit.slope)
        rows.append((one.n_params[0], one.tokens[0], one.loss[0], *line, before))
    names = ("n_params", "tokens", "loss", "level", "slope", "before")
    return dict(zip(names, np.array(rows).T, strict=True))


def _steps(
    curves: Curves, anchor: float, known: LossSurface | None, start: LossSurface | None = None
) -> tuple[LossSurface, ExponentialFit, SlopeFit, ExponentialFit]:
    """The surface, or the one known; f, g and the floor."""
    part = _parts(curves, anchor)
    risen = np.isfinite(part["level"])
    begun = np.isfinite(part["before"])
    enough(int(risen.sum()), 3, "joint law", "runs with 3 points of RL each")
    enough(int(begun.sum()), 2, "floor of the joint law", "runs measured without RL")
    n_params, tokens, loss = part["n_params"], part["tokens"], part["loss"]
    surface = known or fit_chinchilla(n_params, tokens, loss, start=start, draws=0)
    f = fit_exponential(loss[risen], part["level"][risen], draws=0)
    g = fit_slope(n_params[risen], tokens[risen], part["slope"][risen], draws=0)
    floor = fit_exponential(loss[begun], part["before"][begun], offset=False, draws=0)
    return surface, f, g, floor


def _law(steps, anchor: float, max_loss: float) -> JointLaw:
    surface, f, g, floor = steps
    return JointLaw(
        loss=LossSurface(*(getattr(surface, name) for name in SURFACE)),
        anchor=anchor,
        reward=Exponential(f.offset, f.scale, f.rate),
        slope=Slope(g.constant, g.tokens, g.params),
        floor=Exponential(0.0, floor.scale, floor.rate),
        max_loss=max_loss,
    )


def _renamed(curves: Curves, rows: np.ndarray) -> Curves:
    """A sample of runs in which a run drawn twice is two runs."""
    sample = curves.take(rows)
    # within one drawing of a run its rows ascend: a fall begins the next
    begins = np.ones(len(rows), bool)
    begins[1:] = (sample.run[1:] != sample.run[:-1]) | (np.diff(rows) < 0)
    return Curves(np.cumsum(begins), *(getattr(sample, f.name) for f in fields(sample)[1:]))
