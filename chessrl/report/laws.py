"""What laws say, for people: the frontier as a file and a table, advice in a few lines."""

from pathlib import Path

import numpy as np
import pandas as pd

from chessrl.artifacts import write_text
from chessrl.config import InputError, Run
from chessrl.progress import say
from chessrl.report.tables import markdown, show
from chessrl.scaling.advise import Advice, advise
from chessrl.scaling.frontier import frontier, measured_frontier, points_of, takeovers
from chessrl.scaling.lawfile import law_of


def report_frontier(run: Run) -> None:
    """Write frontier.csv and frontier.md, and show where one size takes over from another.

    Raises:
        InputError: the table of points cannot be used, no split lies within the law, or the
            folder cannot be written to.
    """
    settings = run.frontier
    law = law_of(run.law)
    if settings.points is None:
        low, high = np.log10([settings.budgets.low, settings.budgets.high])
        budgets = np.logspace(low, high, settings.budgets.count)
        table = frontier(law, settings.sizes, budgets, settings.sft_flops, settings.epsilon)
    else:
        table = measured_frontier(_read(settings.points), law, settings.epsilon)
    folder = Path(run.out or run.outputs)
    header, rows = takeover_rows(table)
    try:
        write_text(folder / "frontier.csv", table.to_csv(index=False))
        write_text(folder / "frontier.md", markdown(header, rows))
    except OSError as error:
        raise InputError(
            f"cannot write to {folder} ({error.strerror}): give another folder with out="
        ) from error
    show("where a size takes over", header, rows)
    say(f"written: {folder / 'frontier.csv'} and {folder / 'frontier.md'}")


def takeover_rows(table: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    """Header and rows: the points at which the best size changes."""
    header = [
        "parameters", "total FLOPs", "reward", "RL share (as good)", "tokens", "T / Chinchilla",
    ]  # fmt: skip
    rows = [
        [
            f"{row.n_params / 1e6:.4g}M",
            f"{row.total_flops:.2e}",
            f"{row.reward:.3f}",
            f"{row.rl_share:.1%} ({row.rl_share_low:.0%} - {row.rl_share_high:.0%})",
            f"{row.tokens:.3g}",
            f"{row.tokens_over_chinchilla:.2f}",
        ]
        for row in takeovers(table).itertuples()
    ]
    return header, rows


def report_advice(run: Run) -> None:
    """Say how to divide the budget that `advise.flops` leaves.

    Raises:
        InputError: the size or the budget is missing, or the law has no answer.
    """
    asked = run.advise
    if asked.n_params is None or asked.flops is None:
        raise InputError(
            "stage=advise needs advise.n_params= and advise.flops=, the budget that is left"
        )
    advice = advise(
        law_of(run.law),
        asked.n_params,
        asked.tokens,
        asked.flops,
        asked.loss,
        run.frontier.sft_flops,
        run.frontier.epsilon,
    )
    print("\n".join(advice_lines(advice, asked.tokens, run.frontier.epsilon, run.law.error)))


def advice_lines(advice: Advice, tokens: float, epsilon: float, error: float) -> list[str]:
    """The advice in words.

    Args:
        tokens: pretraining so far.
        error: RMSE of the law for runs that it was not fitted to.
    """
    if advice.more_tokens > 0:
        whole = tokens + advice.more_tokens
        begin = f"pretrain on {advice.more_tokens:.3g} more tokens, {whole:.3g} in all"
    else:
        begin = "pretrain no more"
    then = (
        f"then switch to RL with {advice.rl_flops:.3g} FLOPs"
        if advice.rl_flops > 0
        else "RL does not pay with this budget"
    )
    now = "outside the law" if np.isnan(advice.reward_now) else f"{advice.reward_now:.3f}"
    spread = f", resampled runs +- {advice.spread:.3f}" if advice.spread else ""
    return [
        f"{begin} (loss {advice.loss:.3f}); {then}",
        f"as good within {epsilon:g}: {advice.tokens_low:.3g} to {advice.tokens_high:.3g} more "
        "tokens",
        f"expected reward {advice.reward:.3f} +- {error:.3f} (error for new runs{spread})",
        f"with RL at once: {now}",
    ]


def _read(path: str) -> pd.DataFrame:
    try:
        return points_of(pd.read_csv(path))
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            f"frontier.points={path} is no table that can be read: {reason}"
        ) from error
