"""The ceiling of RL, A of each run's sigmoid, against what pretraining gave."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats

from chessrl.scaling.fitting import DRAWS, enough
from chessrl.scaling.jointfit import Curves
from chessrl.scaling.sigmoid import fit_sigmoid

COLUMNS = (
    "run", "n_params", "tokens", "loss", "r0", "asymptote", "low", "high", "exponent", "midpoint",
    "rmse", "points", "identified",
)  # fmt: skip


def ceilings(curves: Curves, *, draws: int = DRAWS, seed: int = 0) -> pd.DataFrame:
    """The sigmoid of each run, in the columns of `COLUMNS`.

    R0 is the reward without RL where the run was measured there, else it is fitted. The interval
    is of the noise within a run, not of seeds.

    Raises:
        InputError: a run has too few points; fit what has more.
    """
    rows = []
    for name, those in curves.rows():
        one = curves.take(those)
        before = one.rl_flops == 0
        r0 = float(one.reward[before].mean()) if before.any() else None
        after = ~before
        fit = fit_sigmoid(one.rl_flops[after], one.reward[after], r0, draws=draws, seed=seed)
        low, high = fit.intervals["asymptote"]
        rows.append(
            (
                name, one.n_params[0], one.tokens[0], one.loss[0], fit.r0, fit.asymptote, low, high,
                fit.exponent, fit.midpoint, fit.rmse, fit.points,
                "asymptote" not in fit.unidentified,
            )
        )  # fmt: skip
    return pd.DataFrame(rows, columns=list(COLUMNS))


@dataclass(frozen=True)
class Trend:
    """A line through the ceilings that the data identify."""

    intercept: float
    slope: float
    low: float
    high: float
    """95% interval of the slope by Student's t over runs."""
    r2: float
    runs: int


def trend(table: pd.DataFrame, against: str = "loss") -> Trend:
    """A of the identified runs against the loss, or against log10 of the tokens.

    Args:
        table: what `ceilings` gives.
        against: `loss`, or `tokens` whose logarithm is taken.

    Raises:
        InputError: fewer than 3 runs have an identified ceiling.
    """
    known = table[table["identified"]]
    enough(len(known), 2, "trend of ceilings", "runs with an identified ceiling")
    x = known[against].to_numpy(float)
    line = stats.linregress(np.log10(x) if against == "tokens" else x, known["asymptote"])
    half = stats.t.ppf(0.975, len(known) - 2) * line.stderr
    return Trend(
        float(line.intercept), float(line.slope), float(line.slope - half),
        float(line.slope + half), float(line.rvalue**2), len(known),
    )  # fmt: skip
