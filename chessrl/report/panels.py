"""The panels of a dataset's picture: each draws one thing on the axes that it is given."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.ticker import FuncFormatter, MaxNLocator

from chessrl.board.puzzles import BIN_EDGES, BINS
from chessrl.board.tokens import ID, TOKENS
from chessrl.config.data import SPEEDS
from chessrl.report.contents import Documents, Games, Puzzles, opening
from chessrl.report.counting import by_count, classes, spread
from chessrl.report.dataset import ELO_CLASS, POPULARITY_CLASS

INK, GAMES, DOCUMENTS, PALE = "#3b3b40", "#3a6ea5", "#4f8a5b", "#c3d9c6"
SPLITS = {"sft": "#e3a83b", "rl": "#c8553d", "test": "#6a4c93"}
RESULTS = {"1-0": "#f0ead9", "1/2-1/2": "#a8a49a", "0-1": "#3b3b40", "*": "#d9a5a0"}
BOARD = LinearSegmentedColormap.from_list("board", ["#fbf9f2", "#a9cbaa", "#2f6b41"])
OPENINGS, THEMES = 14, 14
"""How many are shown."""
BARS = 45
"""Classes of a histogram, about."""
FILES, RANKS = "abcdefgh", "12345678"
STEPS = [1, 2, 5, 10]


def elo(axes: Axes, of: Games) -> None:
    """Games by mean Elo."""
    _histogram(axes, of.elo, ELO_CLASS, GAMES)
    unknown = 1 - of.elo.total() / of.total
    title = "Elo" if not unknown else f"Elo (unknown of {_percent(unknown)} of the games)"
    axes.set(title=title, xlabel="mean Elo of both players", ylabel="games")


def years(axes: Axes, of: Games) -> None:
    """Games by year."""
    known = Counter({year: times for year, times in of.years.items() if year})
    width = _width(known)
    _bars(axes, classes(known, width), width, GAMES)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True, steps=STEPS))
    unknown = of.years[0] / of.total
    title = "Years" if not unknown else f"Years (unknown of {_percent(unknown)} of the games)"
    ylabel = "games" if width == 1 else f"games in {width} years"
    axes.set(title=title, xlabel="year", ylabel=ylabel)


def plies(axes: Axes, of: Games) -> None:
    """Games by their plies."""
    _histogram(axes, of.plies, _width(of.plies), GAMES)
    axes.set(title="Length of games", xlabel="plies per game", ylabel="games")


def openings(axes: Axes, of: Games) -> None:
    """The most common first four plies."""
    most = by_count(of.openings)[:OPENINGS]
    _ranking(axes, {opening(code): times for code, times in most}, of.total, GAMES)
    axes.set(title="Openings, the first four plies", xlabel="% of the games")


def speeds(axes: Axes, of: Games) -> None:
    """Games by class of time control."""
    counts = {name: of.speeds[name] for name in SPEEDS if of.speeds[name]}
    _ranking(axes, counts, of.total, GAMES)
    axes.set(title="Time controls", xlabel="% of the games")


def results(axes: Axes, of: Games) -> None:
    """Games by result."""
    counts = {name: of.results[name] for name in RESULTS if of.results[name]}
    _ranking(axes, counts, of.total, [RESULTS[name] for name in counts])
    axes.set(title="Results", xlabel="% of the games")


def lengths(axes: Axes, of: Documents) -> None:
    """Documents by their tokens."""
    _histogram(axes, of.lengths, _width(of.lengths), DOCUMENTS)
    axes.set(title="Length of documents", xlabel="tokens per document", ylabel="documents")


def moves(axes: Axes, of: Documents) -> None:
    """Moves to be predicted: which piece moves, and what else the move does."""
    names = dict(zip("KQRBNP", ("king", "queen", "rook", "bishop", "knight", "pawn"), strict=True))
    pieces = {names.get(name, name): times for name, times in of.pieces.items()}
    pieces = dict(by_count(Counter(pieces)))
    total = sum(pieces.values())
    _ranking(axes, pieces | of.signs, total, [DOCUMENTS] * 7 + [PALE] * 4)
    axes.set(title=f"Moves to be predicted ({total:,})", xlabel="% of the moves")


def squares(axes: Axes, of: Documents) -> None:
    """The tokens of the squares, on a board."""
    total = of.tokens.total()
    share = np.array([[100 * of.tokens[ID[f + r]] / total for f in FILES] for r in RANKS])
    axes.imshow(share, cmap=BOARD, origin="lower", vmin=0)
    for (rank, file), value in np.ndenumerate(share):
        colour = "white" if value > 0.75 * share.max() else INK
        axes.text(file, rank, f"{value:.2f}", ha="center", va="center", fontsize=8, color=colour)
    axes.set(title="Squares, % of all tokens", xticks=range(8), yticks=range(8))
    axes.set(xticklabels=list(FILES), yticklabels=list(RANKS))
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.grid(False)


def tokens(axes: Axes, of: Documents) -> None:
    """Every token that occurs, in the order of the vocabulary."""
    total = of.tokens.total()
    ids = [i for i in range(len(TOKENS)) if of.tokens[i]]
    places = range(len(ids))
    for counts, colour, label in (
        (of.tokens, PALE, "all"),
        (of.targets, DOCUMENTS, "to be predicted"),
    ):
        axes.bar(places, [100 * counts[i] / total for i in ids], color=colour, label=label)
    axes.set_xticks(places, [TOKENS[i] for i in ids], rotation=90, fontsize=8, family="monospace")
    axes.set(title="Tokens", ylabel="% of all tokens", yscale="log", xlim=(-1, len(ids)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.tick_params(axis="x", length=0)
    axes.grid(False, axis="x")
    axes.set_ylim(top=2 * axes.get_ylim()[1])
    axes.legend(loc="upper right", ncols=2)


def ratings(axes: Axes, of: dict[str, Puzzles]) -> None:
    """Puzzles by rating, and where the bins lie."""
    _stacked(axes, of, lambda part: classes(part.ratings, ELO_CLASS), ELO_CLASS)
    low, high = axes.get_xlim()
    edges = [low, *BIN_EDGES, high]
    for name, start, end in zip(BINS, edges, edges[1:], strict=False):
        if low < end and start < high:
            axes.axvline(end, color="#b9b9c0", linewidth=0.8, linestyle=":")
            middle = (max(start, low) + min(end, high)) / 2
            axes.text(
                middle, 1.0, name, transform=axes.get_xaxis_transform(), ha="center", va="bottom"
            )
    axes.set_xlim(low, high)
    axes.set_title("Puzzle ratings", pad=16)
    axes.set(xlabel="rating", ylabel="puzzles")
    axes.legend(loc="upper right", ncols=3, columnspacing=1, handlelength=1, borderpad=0)


def solver_moves(axes: Axes, of: dict[str, Puzzles]) -> None:
    """Puzzles by the moves to find."""
    _stacked(axes, of, lambda part: part.solver_moves, 1)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(title="Solver moves", xlabel="moves to find in a puzzle", ylabel="puzzles")


def themes(axes: Axes, of: dict[str, Puzzles]) -> None:
    """The most common themes, by split."""
    together = sum((part.themes for part in of.values()), Counter())
    total = sum(part.total for part in of.values())
    names = [name for name, _ in by_count(together)[:THEMES]][::-1]
    left = np.zeros(len(names))
    for split, part in of.items():
        share = np.array([100 * part.themes[name] / total for name in names])
        axes.barh(names, share, left=left, color=SPLITS[split])
        left += share
    axes.set(title="Themes", xlabel="% of the puzzles")
    axes.tick_params(axis="y", length=0)
    axes.grid(False, axis="y")


def popularity(axes: Axes, of: dict[str, Puzzles]) -> None:
    """Puzzles by popularity."""
    width = POPULARITY_CLASS
    _stacked(axes, of, lambda part: classes(part.popularity, width), width)
    axes.set(title="Popularity", xlabel="popularity, -100 to 100", ylabel="puzzles")


def _histogram(axes: Axes, counts: Counter[int], width: int, colour: str) -> None:
    _bars(axes, classes(counts, width), width, colour)
    _at_least(axes, counts, width)
    median = spread(counts)["median"]
    axes.axvline(median, color=INK, linewidth=1, linestyle="--")
    axes.annotate(
        f"median {median:,}",
        (median, 1),
        xycoords=("data", "axes fraction"),
        xytext=(5, -2),
        textcoords="offset points",
        va="top",
    )


def _stacked(
    axes: Axes, of: dict[str, Puzzles], counted: Callable[[Puzzles], Counter[int]], width: int
) -> None:
    below = Counter[int]()
    for split, part in of.items():
        counts = counted(part)
        _bars(axes, counts, width, SPLITS[split], below, label=split)
        below += counts
    _at_least(axes, below, width)


def _bars(
    axes: Axes,
    counts: Counter[int],
    width: int,
    colour: str,
    below: Counter[int] | None = None,
    label: str = "",
) -> None:
    """Classes of counts as bars, on top of what is below, with room for a line of text above."""
    below = below or Counter()
    values, bottom = list(counts), [below[value] for value in counts]
    align, drawn = ("center", 0.9) if width == 1 else ("edge", 0.92 * width)
    axes.bar(values, list(counts.values()), drawn, bottom, align=align, color=colour, label=label)
    axes.set_ylim(0, 1.13 * max([1, *(counts + below).values()]))
    axes.yaxis.set_major_locator(MaxNLocator(6, integer=True, steps=STEPS))
    axes.yaxis.set_major_formatter(FuncFormatter(_short))
    axes.grid(False, axis="x")


def _at_least(axes: Axes, counts: Counter[int], width: int) -> None:
    """Give a lone bar no more room than if there were a few."""
    if max(counts) - min(counts) < width:
        axes.set_xlim(min(counts) - 4 * width, min(counts) + 5 * width)


def _ranking(
    axes: Axes, counts: Mapping[str, int], total: int, colour: str | Sequence[str]
) -> None:
    share = [100 * times / total for times in counts.values()]
    bars = axes.barh(list(counts), share, color=colour, edgecolor="#8a8a90", linewidth=0.4)
    axes.bar_label(bars, [_digits(value) for value in share], padding=3, fontsize=8.5)
    axes.set_ylim(max(len(counts), 4) - 0.4, -0.6)
    axes.margins(x=0.12)
    axes.tick_params(axis="y", length=0)
    axes.grid(False, axis="y")


def _width(counts: Counter[int]) -> int:
    """Width of classes that gives about `BARS` of them: 1, 2 or 5 with noughts."""
    wanted = (max(counts) - min(counts)) / BARS
    sizes = [factor * 10**power for power in range(9) for factor in (1, 2, 5)]
    return next(size for size in sizes if size >= wanted)


def _short(value: float, _: int | None = None) -> str:
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"


def _digits(value: float) -> str:
    return f"{value:.1f}" if value >= 1 or not value else f"{value:.2g}"


def _percent(share: float) -> str:
    return f"{100 * share:.3g}%"
