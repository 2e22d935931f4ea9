"""The picture of a dataset: a panel for each thing that it has."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from chessrl.artifacts import atomic_path
from chessrl.board.records import SPLITS
from chessrl.report import panels
from chessrl.report.dataset import Statistics

STYLE = {
    "font.size": 9.5,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#9a9aa0",
    "axes.labelcolor": panels.INK,
    "text.color": panels.INK,
    "xtick.color": panels.INK,
    "ytick.color": panels.INK,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e6e6ea",
    "legend.frameon": False,
}
WIDTH, HEIGHT, TOP, DPI = 15.5, 3.7, 0.8, 110
"""Inches of the page, of a row of panels and of the title; dots per inch."""

Draw = Callable[[Axes], None]


def write_figure(path: Path, statistics: Statistics) -> None:
    """Write the picture as PNG, whole or not at all; equal numbers give equal bytes."""
    with matplotlib.rc_context(STYLE), atomic_path(path) as temporary:
        figure(statistics).savefig(temporary, format="png", dpi=DPI, metadata={"Software": None})


def figure(statistics: Statistics) -> Figure:
    """The picture, with one axes for each panel."""
    rows = layout(statistics)
    page = Figure(figsize=(WIDTH, HEIGHT * len(rows) + TOP), layout="constrained")
    page.get_layout_engine().set(w_pad=0.12, h_pad=0.12)
    height = page.get_figheight()
    page.suptitle(f"{statistics.name}\n", x=0.01, ha="left", fontsize=16, weight="bold")
    page.text(0.01, 1 - 0.5 / height, subtitle(statistics), va="top", fontsize=11.5)
    for strip, draws in zip(page.subfigures(len(rows), 1, squeeze=False).flat, rows, strict=True):
        places = strip.subplots(1, len(draws), squeeze=False).flat
        for axes, draw in zip(places, draws, strict=True):
            draw(axes)
    return page


def layout(statistics: Statistics) -> list[list[Draw]]:
    """What is drawn, row by row; nothing is drawn of what the dataset lacks.

    A year or time control that all games share stands in the title.
    """
    games, documents = statistics.all_games, statistics.all_documents
    together, puzzles = statistics.all_puzzles, statistics.puzzles
    groups: list[tuple[int, list[tuple[Any, Callable, Any]]]] = [
        (
            3,
            [
                (games.elo, panels.elo, games),
                (len(games.years.keys() - {0}) > 1, panels.years, games),
                (games.plies, panels.plies, games),
                (games.openings, panels.openings, games),
                (len(games.speeds) > 1, panels.speeds, games),
                (games.results, panels.results, games),
            ],
        ),
        (
            3,
            [
                (documents.lengths, panels.lengths, documents),
                (sum(documents.pieces.values()), panels.moves, documents),
                (documents.tokens, panels.squares, documents),
            ],
        ),
        (1, [(documents.tokens, panels.tokens, documents)]),
        (
            4,
            [
                (together.ratings, panels.ratings, puzzles),
                (together.solver_moves, panels.solver_moves, puzzles),
                (together.themes, panels.themes, puzzles),
                (together.popularity, panels.popularity, puzzles),
            ],
        ),
    ]
    rows = []
    for most, group in groups:
        draws = [partial(draw, of=of) for has, draw, of in group if has]
        count = -(-len(draws) // most)
        rows += [
            draws[len(draws) * i // count : len(draws) * (i + 1) // count] for i in range(count)
        ]
    return rows


def subtitle(statistics: Statistics) -> str:
    """What the dataset holds, in a line."""
    counts = {
        what: sum(statistics.counted(what, split) or 0 for split in SPLITS)
        for what in ("games", "plies")
    }
    games, documents = statistics.all_games, statistics.all_documents
    counts["documents"], counts["tokens"] = documents.total, documents.tokens.total()
    counts["puzzles"] = statistics.all_puzzles.total
    parts = [f"{count:,} {what}" for what, count in counts.items() if count]
    if known := games.years.keys() - {0}:
        parts.append("-".join(map(str, sorted({min(known), max(known)}))))
    if len(games.speeds) == 1:
        parts += [speed for speed in games.speeds if speed != "unknown"]
    if statistics.prompt:
        parts.append(f"{statistics.prompt} prompt")
    return "  ·  ".join(parts)
