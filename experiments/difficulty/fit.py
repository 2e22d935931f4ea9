"""Fit the table of `chessrl/board/difficulty.py` on rated puzzles, and say how well it guesses.

python experiments/difficulty/fit.py lichess_db_puzzle.csv.zst
"""

import argparse
import csv
from collections.abc import Iterable, Iterator
from itertools import chain

import chess
import numpy as np
from scipy.stats import spearmanr

from chessrl.board.difficulty import HIGHEST, KINDS, LOWEST, describe
from chessrl.board.splits import unit_hash
from chessrl.board.streams import open_lines

STARTER = "data/starter/puzzles.csv"
DEVIATION = 95
"""Highest RatingDeviation of a puzzle that takes part."""


def rows(path: str) -> Iterator[dict[str, str]]:
    """Rows of a puzzle CSV, plain or compressed."""
    yield from csv.DictReader(line.decode() for line in open_lines(path))


def drawn(table: Iterable[dict[str, str]], size: int) -> dict[str, list[dict[str, str]]]:
    """Puzzles of each kind, those with the lowest hashes of their ids, by hash."""
    ordered = sorted(table, key=lambda row: unit_hash(row["PuzzleId"], "difficulty"))
    drawn: dict[str, list[dict[str, str]]] = {kind: [] for kind in KINDS}
    for row in ordered:
        themes = row["Themes"].split()
        kind = next((kind for kind in KINDS if kind in themes), "other")
        if len(drawn[kind]) < size:
            drawn[kind].append(row)
    return drawn


def measured(table: Iterable[dict[str, str]]) -> dict[str, tuple[list[dict], np.ndarray]]:
    """Features and ratings by kind, as the position tells the kind."""
    found: dict[str, tuple[list[dict], list[int]]] = {kind: ([], []) for kind in KINDS}
    for row in table:
        kind, values = describe(chess.Board(row["FEN"]), row["Moves"].split())
        found[kind][0].append(values)
        found[kind][1].append(int(row["Rating"]))
    return {kind: (values, np.array(ratings)) for kind, (values, ratings) in found.items()}


def matrix(values: list[dict], names: list[str]) -> np.ndarray:
    """One row per puzzle."""
    return np.array([[row[name] for name in names] for row in values])


def say(label: str, guess: np.ndarray, ratings: np.ndarray) -> None:
    """One line of figures."""
    guess = np.clip(guess, LOWEST, HIGHEST)
    r2 = 1 - ((ratings - guess) ** 2).sum() / ((ratings - ratings.mean()) ** 2).sum()
    error = np.abs(ratings - guess).mean()
    constant = np.abs(ratings - np.median(ratings)).mean()
    rank = spearmanr(guess, ratings).statistic
    print(
        f"{label}: {len(ratings):,} puzzles, R2 {r2:.2f}, MAE {error:.0f} "
        f"(median of all: {constant:.0f}), Spearman {rank:.2f}, "
        f"sd {guess.std():.0f} of {ratings.std():.0f}, mean {guess.mean() - ratings.mean():+.0f}"
    )


def main() -> None:
    """Print figures on held-out puzzles, on the starter, and the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("puzzles", help="CSV in the columns of Lichess, with RatingDeviation")
    parser.add_argument("--fit", type=int, default=24_000, help="puzzles of each kind to fit")
    parser.add_argument("--held", type=int, default=6_000, help="puzzles of each kind held out")
    args = parser.parse_args()
    table = [row for row in rows(args.puzzles) if int(row["RatingDeviation"]) <= DEVIATION]
    sample = drawn(table, args.fit + args.held)
    known = {row["PuzzleId"] for row in table}
    fitted = measured(chain.from_iterable(part[: args.fit] for part in sample.values()))
    held = measured(chain.from_iterable(part[args.fit :] for part in sample.values()))
    others = measured(row for row in rows(STARTER) if row["PuzzleId"] not in known)
    names = list(fitted[KINDS[0]][0][0])
    columns = {}
    for kind in KINDS:
        x = matrix(fitted[kind][0], names)
        varies = x.std(axis=0) > 0.01
        varies[names.index("constant")] = True
        weights = np.zeros(len(names))
        weights[varies] = np.linalg.lstsq(x[:, varies], fitted[kind][1], rcond=None)[0]
        columns[kind] = np.round(weights, 1)
        for label, part in (("fitted", fitted), ("held out", held), ("starter", others)):
            say(f"{kind}, {label}", matrix(part[kind][0], names) @ columns[kind], part[kind][1])
    for number, name in enumerate(names):
        print(f'    "{name}": ({", ".join(str(columns[kind][number]) for kind in KINDS)}),')


if __name__ == "__main__":
    main()
