"""Tables that people read: on the terminal and as Markdown."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import pandas as pd
from rich.console import Console
from rich.table import Table

from chessrl.artifacts import PassAtK, Result, write_text

BINS = ("all", "B0", "B1", "B2", "B3", "B4", "B5")


def summary(results: Iterable[Result]) -> tuple[list[str], list[list[str]]]:
    """Header and rows: one row per measured model, or per stage where none was measured.

    Failed runs have a row of their own. The largest k is one that all models have, as it is where
    the numbers of samples are powers of two.
    """
    results = list(results)
    measured = [result for result in results if result.pass_at_k]
    if not measured:
        header = ["stage", "model", "parameters", "tokens", "FLOPs", "seconds"]
        rows = [
            [
                result.stage,
                result.model,
                _count(result.n_params),
                _count(result.tokens.get(result.stage)),
                flops(sum(result.flops.values())),
                f"{result.seconds:.0f}",
            ]
            for result in results
        ]
        return header, rows
    most = min(max(row.k for row in result.pass_at_k) for result in measured)
    header = [
        "after", "model", "seed", "tokens", "FLOPs", "nats/token", "nats/ply", "legal",
        "well formed", "pass@1 (95%)", f"pass@{most} (95%)",
        *(f"{name} @1 / @{most}" for name in BINS[1:]),
    ]  # fmt: skip
    rows = []
    for result in results:
        if result.status == "failed":
            name = f"{result.stage} failed"
            rows.append([name, result.model, str(result.seed), *[""] * (len(header) - 3)])
        if not result.pass_at_k:
            continue
        found = {(row.bin, row.k): row for row in result.pass_at_k}
        measures = result.measures
        rows.append(
            [
                result.of,
                result.model,
                str(result.seed),
                _count(result.tokens.get(result.of)),
                flops(sum(result.flops.values())),
                *_game_loss(result),
                _percent(measures["legal"]),
                _percent(measures["well_formed"]),
                _interval(found["all", 1]),
                _interval(found["all", most]),
                *(_pair(found.get((name, 1)), found.get((name, most))) for name in BINS[1:]),
            ]
        )
    return header, rows


def print_table(results: Iterable[Result], title: str) -> None:
    """Show the summary on standard output."""
    show(title, *summary(results))


def show(title: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Show a table on standard output."""
    table = Table(title=title, title_justify="left")
    for name in header:
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(*row)
    width = None if Console().is_terminal else 200
    Console(width=width, markup=False).print(table)


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def write_results(folder: Path, table: pd.DataFrame, results: Iterable[Result]) -> None:
    """Write results.csv, all numbers in full, and results.md, the summary."""
    write_text(folder / "results.csv", table.to_csv(index=False))
    write_text(folder / "results.md", markdown(*summary(results)))


def _game_loss(result: Result) -> list[str]:
    """Nats per token and per ply; in brackets where thinking first makes them incomparable."""
    losses = [result.measures[f"game_nats_per_{unit}"] for unit in ("token", "ply")]
    return [f"{loss:.3f}" if result.of == "pretrain" else f"({loss:.3f})" for loss in losses]


def _count(value: float | None) -> str:
    if not value:
        return ""
    for size, unit in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.0f}"


def flops(value: float) -> str:
    """FLOPs for people; nothing where there are none."""
    return f"{value:.2e}" if value else ""


def _percent(value: float) -> str:
    return f"{100 * value:.1f}%"


def _interval(row: PassAtK) -> str:
    return f"{100 * row.mean:.1f}% ({100 * row.low:.1f}-{100 * row.high:.1f})"


def _pair(one: PassAtK | None, many: PassAtK | None) -> str:
    return f"{100 * one.mean:.1f} / {100 * many.mean:.1f}" if one and many else ""
