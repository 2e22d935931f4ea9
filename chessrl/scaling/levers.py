"""What a change of recipe moves: the ceiling of RL, or how fast it is reached."""

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import pandas as pd

from chessrl.config import InputError
from chessrl.scaling.fitting import DRAWS
from chessrl.scaling.sigmoid import SigmoidFit, fit_sigmoid

COLUMNS = (
    "recipe", "runs", "asymptote", "asymptote_low", "asymptote_high", "common_asymptote",
    "exponent", "exponent_low", "exponent_high", "lever",
)  # fmt: skip
CEILING, EFFICIENCY, NEITHER, UNTOLD = (
    "ceiling mover", "efficiency shaper", "neither", "not identified",
)  # fmt: skip


def levers(
    recipes: Mapping[str, Sequence[tuple[np.ndarray, np.ndarray]]],
    base: str,
    r0: float | None = None,
    *,
    margin: float | None = None,
    draws: int = DRAWS,
    seed: int = 0,
) -> pd.DataFrame:
    """Name each recipe's lever by ScaleRL's rule (arXiv 2510.13786).

    A recipe whose A differs from the base's by more than the margin moves the ceiling. The others
    are refitted with one A, the mean over their runs; one whose B then lies apart from the base's
    is an efficiency shaper. Intervals span all runs of a recipe and the noise of each.

    Args:
        recipes: by name, compute and reward of each run; several runs differ in their seed.
        base: the recipe that others are compared with.
        r0: reward without RL; fitted where it is left out.
        margin: of A; where it is left out, the largest deviation of a run from the mean of its
            recipe.

    Returns:
        a row per recipe in the columns of `COLUMNS`, the base first.

    Raises:
        InputError: the base is missing, or there is neither a margin nor a recipe with two seeds.
    """
    if base not in recipes:
        raise InputError(f"levers: {base} is none of {', '.join(recipes)}")
    fit = partial(fit_sigmoid, r0=r0, draws=draws, seed=seed)
    free = {name: [fit(*run) for run in runs] for name, runs in recipes.items()}
    means = {name: float(np.mean([f.asymptote for f in fits])) for name, fits in free.items()}
    if margin is None:
        spreads = [
            max(abs(f.asymptote - means[name]) for f in fits)
            for name, fits in free.items()
            if len(fits) > 1
        ]
        if not spreads:
            raise InputError(
                "levers: no recipe has two seeds to tell the margin of A: run more, or give margin="
            )
        margin = max(spreads)
    told = {
        name: not any("asymptote" in f.unidentified for f in fits) for name, fits in free.items()
    }
    close = [name for name in recipes if abs(means[name] - means[base]) <= margin]
    common = float(
        np.mean([f.asymptote for name in close if told[name] for f in free[name]] or [np.nan])
    )
    rows = []
    fixed: dict[str, tuple[float, float, float]] = {}
    if told[base]:
        for name in close:
            if told[name]:
                again = [fit(*run, asymptote=common) for run in recipes[name]]
                fixed[name] = _span(again, "exponent")
    nothing = (float("nan"),) * 3
    for name in [base, *(other for other in recipes if other != base)]:
        b, low, high = fixed.get(name, nothing)
        if not (told[name] and told[base]):
            lever = UNTOLD
        elif name not in close:
            lever = CEILING
        elif name != base and (low > fixed[base][2] or high < fixed[base][1]):
            lever = EFFICIENCY
        else:
            lever = NEITHER
        a, a_low, a_high = _span(free[name], "asymptote")
        shared = common if name in fixed else float("nan")
        rows.append((name, len(free[name]), a, a_low, a_high, shared, b, low, high, lever))
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _span(fits: Sequence[SigmoidFit], name: str) -> tuple[float, float, float]:
    """Mean of a parameter over runs, and the ends of their intervals."""
    bands = [fit.intervals[name] for fit in fits]
    mean = float(np.mean([getattr(fit, name) for fit in fits]))
    return mean, min(low for low, _ in bands), max(high for _, high in bands)
