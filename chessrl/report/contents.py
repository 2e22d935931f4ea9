"""What lies in a dataset folder, counted: tables of games, shards of tokens, files of puzzles.

Everything is a `Counter`, so that shards and splits add up. Shards are mapped into memory and
counted piece by piece; puzzles are taken as they were written, without a second check.
"""

import dataclasses
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import chess
import numpy as np
import pandas as pd

from chessrl.board.puzzles import BIN_EDGES, BINS
from chessrl.board.records import GAME, RESULTS
from chessrl.board.tokens import ID, PIECES, TOKENS
from chessrl.config import InputError
from chessrl.config.data import SPEEDS
from chessrl.report.counting import count

CHUNK = 1 << 22
"""Tokens counted at a time."""
ROWS = 200_000
"""Puzzles counted at a time."""


class _Added:
    """Counters that add up field by field."""

    def __add__(self, other: Self) -> Self:
        names = [f.name for f in dataclasses.fields(self)]
        return type(self)(**{name: getattr(self, name) + getattr(other, name) for name in names})


@dataclass
class Games(_Added):
    """What tables of games say; each counter counts games."""

    plies: Counter[int] = field(default_factory=Counter)
    elo: Counter[int] = field(default_factory=Counter)
    """Mean of both players, rounded down, where both are known."""
    years: Counter[int] = field(default_factory=Counter)
    """0 where unknown."""
    results: Counter[str] = field(default_factory=Counter)
    speeds: Counter[str] = field(default_factory=Counter)
    openings: Counter[int] = field(default_factory=Counter)
    """The first four moves, 16 bits each, the first one lowest; see `opening`."""

    @property
    def total(self) -> int:
        """Number of games."""
        return self.plies.total()


@dataclass
class Documents(_Added):
    """What shards of tokens hold."""

    lengths: Counter[int] = field(default_factory=Counter)
    """Documents by their tokens."""
    tokens: Counter[int] = field(default_factory=Counter)
    """All tokens, by id."""
    targets: Counter[int] = field(default_factory=Counter)
    """Those of them that are to be predicted."""
    promoted: Counter[int] = field(default_factory=Counter)
    """Piece letters after `=` among these targets: they begin no move."""

    @property
    def total(self) -> int:
        """Number of documents."""
        return self.lengths.total()

    @property
    def pieces(self) -> dict[str, int]:
        """Moves to be predicted, by the piece that moves; castling stands apart."""
        moves = {letter: self.targets[ID[letter]] - self.promoted[ID[letter]] for letter in PIECES}
        return moves | {"castling": self.targets[ID["O-O"]] + self.targets[ID["O-O-O"]]}

    @property
    def signs(self) -> dict[str, int]:
        """How many of these moves capture, give check (mate apart), mate or promote."""
        marks = {"captures": "x", "checks": "+", "mates": "#", "promotions": "="}
        return {name: self.targets[ID[mark]] for name, mark in marks.items()}


@dataclass
class Puzzles(_Added):
    """What files of puzzles hold; each counter counts puzzles."""

    ratings: Counter[int] = field(default_factory=Counter)
    solver_moves: Counter[int] = field(default_factory=Counter)
    themes: Counter[str] = field(default_factory=Counter)
    popularity: Counter[int] = field(default_factory=Counter)
    """Where known."""

    @property
    def total(self) -> int:
        """Number of puzzles."""
        return self.ratings.total()

    @property
    def bins(self) -> dict[str, int]:
        """Puzzles of each rating bin."""
        found = Counter[str]()
        for rating, times in self.ratings.items():
            found[BINS[bisect_left(BIN_EDGES, rating)]] += times
        return {name: found[name] for name in BINS}


def read_games(folder: Path) -> Games | None:
    """The tables of games of a split; None where there is none."""
    found = None
    for file in sorted(folder.glob("*.games.npy")):
        table = _load(file)
        if not set(GAME.names) <= set(table.dtype.names or ()):
            raise damaged(file, "no table of games")
        if not (table["result"] < len(RESULTS)).all() or not (table["speed"] < len(SPEEDS)).all():
            raise damaged(file, "an unknown result or speed")
        both = (table["white_elo"] > 0) & (table["black_elo"] > 0)
        elo = table["white_elo"][both].astype(np.int64) + table["black_elo"][both]
        codes = np.ascontiguousarray(table["opening"], "<u2").view("<u8").ravel()
        openings, times = np.unique(codes, return_counts=True)
        games = Games(
            plies=count(table["plies"]),
            elo=count(elo // 2),
            years=count(table["year"]),
            results=_named(RESULTS, count(table["result"])),
            speeds=_named(SPEEDS, count(table["speed"])),
            openings=Counter(dict(zip(openings.tolist(), times.tolist(), strict=True))),
        )
        found = games if found is None else found + games
    return found


def read_documents(folder: Path) -> Documents | None:
    """The shards of a split; None where there is none."""
    found = None
    for file in sorted(folder.glob("*.offsets.npy")):
        stem = file.name.split(".")[0]
        offsets, ids, flags = (
            _load(folder / f"{stem}.{what}.npy") for what in ("offsets", "tokens", "targets")
        )
        lengths = np.diff(offsets)
        if (lengths < 1).any() or not len(ids) == len(flags) == lengths.sum():
            raise damaged(file, "tokens, targets and offsets do not fit")
        documents = Documents(lengths=count(lengths))
        for part in _parts(ids, flags):
            documents += part
        if max(documents.tokens, default=0) >= len(TOKENS):
            raise damaged(folder / f"{stem}.tokens.npy", "tokens outside the vocabulary")
        found = documents if found is None else found + documents
    return found


def _parts(ids: np.ndarray, flags: np.ndarray) -> Iterator[Documents]:
    for start in range(0, len(ids), CHUNK):
        part, target = ids[start : start + CHUNK], flags[start : start + CHUNK]
        signs = start + np.flatnonzero((part == ID["="]) & target)
        yield Documents(
            tokens=count(part),
            targets=count(part[target]),
            promoted=count(ids[signs[signs < len(ids) - 1] + 1]),
        )


def read_puzzles(file: Path) -> Puzzles | None:
    """A file of puzzles that prepare wrote; None where there is none."""
    if not file.is_file():
        return None
    names = ("Rating", "Moves", "Themes", "Popularity")
    puzzles = Puzzles()
    try:
        with pd.read_csv(
            file,
            usecols=lambda name: name in names,
            dtype=str,
            keep_default_na=False,
            chunksize=ROWS,
        ) as tables:
            for table in tables:
                puzzles += _puzzles(table)
    except KeyError as error:
        raise damaged(file, f"no column {error.args[0]}") from error
    except ValueError as error:
        raise damaged(file, error) from error
    return puzzles


def _puzzles(table: pd.DataFrame) -> Puzzles:
    none = pd.Series(dtype=str)
    popularity = table.get("Popularity", none)
    plies = table["Moves"].str.count(" ") + 1
    themes = Counter[str]()
    for text, times in Counter(table.get("Themes", none)).items():
        themes.update(dict.fromkeys(text.split(), times))
    return Puzzles(
        ratings=Counter(table["Rating"].astype(int)),
        solver_moves=Counter(plies.astype(int) // 2),
        themes=themes,
        popularity=Counter(popularity[popularity != ""].astype(int)),
    )


def opening(code: int) -> str:
    """The moves that a code of `Games.openings` names, in SAN: `1.e4 c5 2.Nf3 d6`.

    Raises:
        InputError: they are no legal moves.
    """
    moves = []
    for shift in range(0, 64, 16):
        if part := code >> shift & 0xFFFF:
            moves.append(chess.Move(part & 63, part >> 6 & 63, part >> 12 or None))
    try:
        return chess.Board().variation_san(moves).replace(". ", ".")
    except ValueError as error:
        raise InputError(f"a table of games is damaged ({error}): prepare it again") from error


def damaged(file: Path, why: object) -> InputError:
    """The error of a file that cannot be what its name says."""
    reason = str(why).splitlines()[0] if str(why) else type(why).__name__
    return InputError(f"{file} is damaged ({reason}): remove its folder and make it again")


def _load(file: Path) -> np.ndarray:
    try:
        return np.load(file, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise damaged(file, error) from error


def _named(names: tuple[str, ...], counts: Counter[int]) -> Counter[str]:
    return Counter({names[place]: times for place, times in counts.items()})
