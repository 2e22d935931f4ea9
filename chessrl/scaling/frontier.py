"""The compute-optimal split between pretraining and RL, by a law or from measured points."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from chessrl.compute import TRAIN
from chessrl.config import InputError
from chessrl.scaling.joint import JointLaw

COLUMNS = (
    "n_params", "total_flops", "reward", "rl_share", "tokens", "tokens_over_chinchilla",
    "first_on_frontier", "on_frontier", "rl_share_low", "rl_share_high",
)  # fmt: skip
"""A row per size and budget; the last two bound the shares within epsilon of the best reward."""
SHARES = 1001
"""Shares of RL that are tried, evenly spaced over 0 to 1, and again around the best."""
NEEDED = ("n_params", "tokens", "rl_flops", "total_flops", "reward")


@dataclass(frozen=True)
class Splits:
    """The best split of each of M budgets for one size; all arrays are of shape (M,).

    A budget that no split can meet has NaN throughout.
    """

    reward: np.ndarray
    rl_share: np.ndarray
    """RL's part of the whole budget, SFT included in the whole."""
    tokens: np.ndarray
    low: np.ndarray
    high: np.ndarray
    """Least and largest share whose reward is within epsilon of the best."""


def best_splits(
    law: JointLaw, n_params: float, budgets: np.ndarray, sft_flops: float, epsilon: float
) -> Splits:
    """Search the share of RL for each budget `C = 6 N T + C_SFT + C_RL`.

    Splits of which the law does not hold are left out; of equal rewards the least share is
    taken. The best share is exact to 1e-5 or so.

    Args:
        budgets: total FLOPs, shape (M,).
    """
    budgets = np.asarray(budgets, float)[:, None]

    def reward(shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        tokens = (budgets * (1 - shares) - sft_flops) / (TRAIN * n_params)
        return law.attainable(n_params, tokens, budgets * shares), tokens

    coarse = np.broadcast_to(np.linspace(0, 1, SHARES), (len(budgets), SHARES))
    rewards, _ = reward(coarse)
    rows = np.arange(len(budgets))
    centre = coarse[rows, rewards.argmax(1)][:, None]
    step = 1 / (SHARES - 1)
    around = np.clip(centre + step * np.linspace(-1, 1, 201), 0, 1)
    fine, tokens = reward(around)
    best = fine.argmax(1)
    top = fine[rows, best]
    near = rewards >= top[:, None] - epsilon
    share = around[rows, best]
    low = np.minimum(coarse[rows, near.argmax(1)], share)
    high = np.maximum(coarse[rows, SHARES - 1 - near[:, ::-1].argmax(1)], share)
    met = np.isfinite(top)
    return Splits(
        *(np.where(met, values, np.nan) for values in (top, share, tokens[rows, best], low, high))
    )


def frontier(
    law: JointLaw,
    sizes: np.ndarray,
    budgets: np.ndarray,
    sft_flops: float = 0.0,
    epsilon: float = 0.005,
) -> pd.DataFrame:
    """The best split of each size and budget, and the sizes that are best at each budget.

    Args:
        sizes: parameters.
        budgets: total FLOPs.

    Returns:
        a table of `COLUMNS`, budgets ascending within each size; what no split can meet is left
        out. `first_on_frontier` marks the least budget at which a size is the best of all.

    Raises:
        InputError: no size can do anything with any budget.
    """
    sizes = np.unique(np.asarray(sizes, float))
    budgets = np.unique(np.asarray(budgets, float))
    found = [best_splits(law, size, budgets, sft_flops, epsilon) for size in sizes]
    rewards = np.array([each.reward for each in found])
    if not np.isfinite(rewards).any():
        raise InputError(
            f"no split of up to {budgets[-1]:.3g} FLOPs pretrains any of these sizes to where the "
            "law holds: give larger budgets or smaller sizes"
        )
    winner = np.where(np.isfinite(rewards).any(0), np.nan_to_num(rewards, nan=-1.0).argmax(0), -1)
    tables = []
    for number, (size, each) in enumerate(zip(sizes, found, strict=True)):
        on = winner == number
        table = pd.DataFrame(
            {
                "n_params": size,
                "total_flops": budgets,
                "reward": each.reward,
                "rl_share": each.rl_share,
                "tokens": each.tokens,
                "tokens_over_chinchilla": each.tokens / law.loss.optimal_tokens(size),
                "first_on_frontier": on & (np.cumsum(on) == 1),
                "on_frontier": on,
                "rl_share_low": each.low,
                "rl_share_high": each.high,
            }
        )
        tables.append(table.dropna())
    return pd.concat(tables, ignore_index=True)[list(COLUMNS)]


def points_of(table: pd.DataFrame) -> pd.DataFrame:
    """Points for `measured_frontier` from results.csv: pass@1 over all bins of each evaluation.

    A table that has their columns already is returned as it is.
    """
    if "pass_at_k" not in table:
        return table
    chosen = table[(table["bin"] == "all") & (table["k"] == 1)]
    return pd.DataFrame(
        {
            "n_params": chosen["n_params"],
            "tokens": chosen["tokens_pretrain"],
            "rl_flops": chosen["flops_rl"].fillna(0.0),
            "total_flops": chosen["flops_total"],
            "reward": chosen["pass_at_k"],
        }
    )


def measured_frontier(
    points: pd.DataFrame, law: JointLaw | None = None, epsilon: float = 0.005
) -> pd.DataFrame:
    """The Pareto frontier of measured points, without any law between them.

    A point is on the frontier where none that costs as much or less earns as much.

    Args:
        points: with the columns of `NEEDED`, in any order.
        law: whose loss tells the Chinchilla-optimal tokens; without one they are unknown.

    Returns:
        a row per point in the columns of `frontier`, ascending in FLOPs within a size. The
        interval of shares is that of the points that cost no more and lose at most epsilon.

    Raises:
        InputError: a column is missing, or there is no complete point.
    """
    missing = [name for name in NEEDED if name not in points]
    if missing:
        raise InputError(f"points without {', '.join(missing)}: needed are {', '.join(NEEDED)}")
    points = points[list(NEEDED)].dropna().astype(float)
    points = points[(points > 0)[["n_params", "tokens", "total_flops"]].all(axis=1)]
    if points.empty:
        raise InputError("no point with size, tokens, FLOPs and reward: nothing to choose from")
    points = points.sort_values(
        ["total_flops", "reward", "n_params"], ascending=[True, False, True], ignore_index=True
    )
    rewards = points["reward"].to_numpy()
    shares = (points["rl_flops"] / points["total_flops"]).to_numpy()
    sizes = points["n_params"].to_numpy()
    before = np.concatenate([[-np.inf], np.maximum.accumulate(rewards)[:-1]])
    on = rewards > before
    first = on & ~pd.Series(np.where(on, sizes, np.nan)).duplicated().to_numpy()
    bounds = []
    for last in range(len(points)):
        near = shares[: last + 1][rewards[: last + 1] >= rewards[last] - epsilon]
        bounds.append((near.min(), near.max()))
    low, high = np.array(bounds).T
    optimal = law.loss.optimal_tokens(sizes) if law else np.full(len(points), np.nan)
    table = points[["n_params", "total_flops", "reward"]].assign(
        rl_share=shares,
        tokens=points["tokens"],
        tokens_over_chinchilla=points["tokens"] / optimal,
        first_on_frontier=first,
        on_frontier=on,
        rl_share_low=low,
        rl_share_high=high,
    )
    return table.sort_values(["n_params", "total_flops"], ignore_index=True)[list(COLUMNS)]


def takeovers(table: pd.DataFrame) -> pd.DataFrame:
    """Rows of a frontier at which another size becomes the best, ascending in FLOPs."""
    best = table[table["on_frontier"]].sort_values("total_flops")
    changed = best["n_params"] != best["n_params"].shift()
    return best[changed].reset_index(drop=True)
