"""`stage=describe`: the statistics of a dataset as tables, numbers and a picture."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table as RichTable

from chessrl.artifacts import write_json, write_text
from chessrl.board.puzzles import BINS
from chessrl.board.records import SPLITS
from chessrl.board.tokens import ID, TOKENS
from chessrl.config import InputError, Run
from chessrl.config.data import SPEEDS
from chessrl.progress import say
from chessrl.report.contents import Documents, Games, Puzzles, opening
from chessrl.report.counting import PERCENTILES, by_count, classes, spread
from chessrl.report.dataset import (
    ELO_CLASS,
    POPULARITY_CLASS,
    Statistics,
    measure,
    numbers,
)
from chessrl.report.figures import write_figure
from chessrl.report.tables import markdown
from chessrl.stages.runs import parent

MOST = 20
"""Openings and themes named in the tables."""
FILES, RANKS = "abcdefgh", "12345678"
SQUARES = {ID[file + rank] for file in FILES for rank in RANKS}
PIECE_NAMES = {
    "P": "pawn", "N": "knight", "B": "bishop", "R": "rook", "Q": "queen", "K": "king",
    "castling": "castling",
}  # fmt: skip


class Table(NamedTuple):
    """One table: what it shows, its columns and its rows."""

    title: str
    header: list[str]
    rows: list[list[str]]


def describe(run: Run) -> None:
    """Print the statistics of a dataset and write dataset.md, dataset.json and dataset.png.

    They go into `out=`, or into the dataset folder itself.

    Raises:
        InputError: the folder holds no dataset, or cannot be written to.
    """
    folder = Path(run.dataset) if run.dataset else parent(run, "prepare").path
    statistics = measure(folder)
    if not (folder / "result.json").is_file():
        say(f"describe: {folder} has no result.json: the stage that fills it has not ended")
    found = tables(statistics)
    out = Path(run.out) if run.out else folder
    try:
        write_text(out / "dataset.md", as_markdown(statistics, found))
        write_json(out / "dataset.json", numbers(statistics))
        write_figure(out / "dataset.png", statistics)
    except OSError as error:
        raise InputError(
            f"cannot write to {out} ({error.strerror}): give another folder with out="
        ) from error
    show(statistics, found)
    say(f"written: dataset.md, dataset.json and dataset.png in {out}")


def show(statistics: Statistics, found: list[Table]) -> None:
    """The tables on standard output."""
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console = Console(highlight=False, markup=False, width=200)
    console.print(heading(statistics))
    for title, header, rows in found:
        table = RichTable(title=title, title_justify="left")
        for place, name in enumerate(header):
            table.add_column(name, justify="right" if place else "left")
        for row in rows:
            table.add_row(*row)
        console.print(table)


def as_markdown(statistics: Statistics, found: list[Table]) -> str:
    """The page dataset.md."""
    parts = [f"# {heading(statistics)}\n"]
    for title, header, rows in found:
        # a bare <bos> would be taken for HTML
        safe = [[f"`{cell}`" if cell.startswith("<") else cell for cell in row] for row in rows]
        parts.append(f"## {title}\n\n{markdown(header, safe)}")
    return "\n".join(parts)


def heading(statistics: Statistics) -> str:
    """Name of the dataset, and the form of its prompts where known."""
    form = f" ({statistics.prompt} prompt)" if statistics.prompt else ""
    return f"Dataset {statistics.name}{form}"


def tables(statistics: Statistics) -> list[Table]:
    """All tables that have a row to show."""
    games, documents = statistics.all_games, statistics.all_documents
    found = [
        _splits(statistics),
        _spreads(statistics),
        *_of_games(games),
        *_of_documents(documents),
        *_of_puzzles(statistics.puzzles, statistics.all_puzzles),
        Table(
            "Left out",
            ["reason", "what", "count"],
            [
                [reason, what, f"{times:,}"]
                for what in ("games", "puzzles")
                for reason, times in statistics.skipped(what).items()
            ],
        ),
    ]
    return [table for table in found if table.rows]


def _splits(statistics: Statistics) -> Table:
    rows = []
    for split in SPLITS:
        counts = [statistics.counted(what, split) for what in ("games", "plies")]
        documents = statistics.documents.get(split)
        if documents is None and not any(counts):
            continue
        documents = documents or Documents()
        tokens, targets = documents.tokens.total(), documents.targets.total()
        texts = ["" if value is None else f"{value:,}" for value in counts]
        texts += [f"{documents.total:,}", f"{tokens:,}", f"{targets:,}", _share(targets, tokens)]
        rows.append([split, *texts])
    header = ["split", "games", "plies", "documents", "tokens", "targets", "target share"]
    return Table("Splits", header, rows)


def _spreads(statistics: Statistics) -> Table:
    measured: list[tuple[str, Counter[int]]] = [
        *((f"plies per game, {name}", part.plies) for name, part in statistics.games.items()),
        *((f"mean Elo, {name}", part.elo) for name, part in statistics.games.items()),
        *(
            (f"tokens per document, {name}", part.lengths)
            for name, part in statistics.documents.items()
        ),
        *((f"puzzle rating, {name}", part.ratings) for name, part in statistics.puzzles.items()),
        ("solver moves per puzzle", statistics.all_puzzles.solver_moves),
        ("popularity of puzzles", statistics.all_puzzles.popularity),
    ]
    rows = []
    for name, counts in measured:
        if counts:
            facts = spread(counts)
            ends = [f"{facts[key]:,}" for key in ("least", *PERCENTILES, "most")]
            rows.append([name, f"{facts['count']:,}", f"{facts['mean']:,.1f}", *ends])
    return Table("Spreads", ["of", "known", "mean", "least", *PERCENTILES, "most"], rows)


def _of_games(games: Games) -> list[Table]:
    elo = {
        f"{least}-{least + ELO_CLASS - 1}": times
        for least, times in sorted(classes(games.elo, ELO_CLASS).items())
    }
    years = {str(year): times for year, times in sorted(games.years.items()) if year}
    speeds = {name: games.speeds[name] for name in SPEEDS if games.speeds[name]}
    openings = {opening(code): times for code, times in by_count(games.openings)[:MOST]}
    return [
        _tally("Mean Elo of both players", elo | _unknown(games.total - games.elo.total())),
        _tally("Years", years | _unknown(games.years[0])),
        _tally("Results", dict(by_count(games.results))),
        _tally("Time controls", speeds),
        _tally("Openings, the first four plies", openings, of=games.total),
    ]


def _unknown(times: int) -> dict[str, int]:
    return {"unknown": times} if times else {}


def _tally(title: str, counts: dict[str, int], of: int = 0) -> Table:
    whole = of or sum(counts.values())
    rows = [[name, f"{times:,}", _share(times, whole)] for name, times in counts.items()]
    return Table(title, ["", "games", "share"], rows)


def _of_documents(documents: Documents) -> list[Table]:
    total = documents.tokens.total()
    if not total:
        return []
    moves = sum(documents.pieces.values())
    kinds = {PIECE_NAMES[name]: times for name, times in documents.pieces.items()}
    per_100 = [
        [name, f"{times:,}", f"{100 * times / max(moves, 1):.2f}"]
        for name, times in (kinds | documents.signs).items()
    ]
    ranks = [
        [rank, *(f"{100 * documents.tokens[ID[file + rank]] / total:.2f}" for file in FILES)]
        for rank in reversed(RANKS)
    ]
    others = [
        [
            token,
            f"{documents.tokens[i]:,}",
            _share(documents.tokens[i], total, digits=3),
            f"{documents.targets[i]:,}",
        ]
        for i, token in enumerate(TOKENS)
        if i not in SQUARES
    ]
    return [
        Table(f"Moves to be predicted: {moves:,}", ["of these", "moves", "per 100"], per_100),
        Table("Squares, % of all tokens", ["", *FILES], ranks),
        Table("Other tokens", ["token", "count", "share", "targets"], others),
    ]


def _of_puzzles(puzzles: dict[str, Puzzles], together: Puzzles) -> list[Table]:
    def table(title: str, counts: Callable[[Puzzles], Mapping], keys: Iterable) -> Table:
        rows = []
        for key in keys:
            times = [counts(part)[key] for part in puzzles.values()]
            share = _share(sum(times), together.total)
            rows.append([str(key), *(f"{n:,}" for n in times), share])
        return Table(title, ["", *puzzles, "share"], rows if together.total else [])

    def liked(part: Puzzles) -> Counter[int]:
        return classes(part.popularity, POPULARITY_CLASS)

    themes = [theme for theme, _ in by_count(together.themes)[:MOST]]
    return [
        table("Puzzles by rating", lambda part: part.bins, BINS),
        table("Solver moves of a puzzle", lambda p: p.solver_moves, sorted(together.solver_moves)),
        table("Themes of puzzles", lambda part: part.themes, themes),
        table("Popularity of puzzles, in tens", liked, sorted(liked(together))),
    ]


def _share(part: int, whole: int, digits: int = 1) -> str:
    return f"{100 * part / whole:.{digits}f}%" if whole else ""
