"""Statistics of a whole dataset folder, and the same as plain numbers for dataset.json."""

from collections import Counter
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

from chessrl.artifacts import read_json
from chessrl.board.records import SPLITS
from chessrl.board.tokens import TOKENS, VOCABULARY_HASH
from chessrl.config import InputError
from chessrl.report.contents import (
    Documents,
    Games,
    Puzzles,
    damaged,
    opening,
    read_documents,
    read_games,
    read_puzzles,
)
from chessrl.report.counting import by_count, classes, spread, sum_of

PUZZLE_SPLITS = ("sft", "rl", "test")
ELO_CLASS = 100
POPULARITY_CLASS = 10
MOST_OPENINGS = 50
"""Openings named in dataset.json; there may be tens of thousands."""


@dataclass
class Statistics:
    """All that is known of a dataset; what it lacks is not in the dictionaries."""

    name: str
    manifest: dict[str, Any]
    games: dict[str, Games]
    documents: dict[str, Documents]
    puzzles: dict[str, Puzzles]

    @property
    def all_games(self) -> Games:
        """Games of all splits together."""
        return reduce(Games.__add__, self.games.values(), Games())

    @property
    def all_documents(self) -> Documents:
        """Documents of all splits together."""
        return reduce(Documents.__add__, self.documents.values(), Documents())

    @property
    def all_puzzles(self) -> Puzzles:
        """Puzzles of all splits together."""
        return reduce(Puzzles.__add__, self.puzzles.values(), Puzzles())

    @property
    def prompt(self) -> str:
        """Form of the prompts, empty where the manifest does not say."""
        return self._facts("prompt").get("form", "")

    def counted(self, what: str, split: str) -> int | None:
        """`games` or `plies` of a split, by its table or else the manifest; None where neither."""
        if split in self.games:
            games = self.games[split]
            return games.total if what == "games" else sum_of(games.plies)
        return self._facts("counts").get(f"{what}_{split}")

    def skipped(self, what: str) -> dict[str, int]:
        """`games` or `puzzles` left out, by reason, the most frequent first."""
        facts = self._facts("skipped" if what == "games" else "skipped_puzzles")
        return dict(by_count(Counter(facts)))

    def _facts(self, name: str) -> dict[str, Any]:
        known = self.manifest.get(name)
        return known if isinstance(known, dict) else {}


def measure(folder: Path) -> Statistics:
    """Count everything in a dataset folder.

    Raises:
        InputError: it is no dataset folder, or a damaged one, or of another vocabulary.
    """
    manifest = _manifest(folder)
    spoken = manifest.get("vocabulary", VOCABULARY_HASH)
    if spoken != VOCABULARY_HASH:
        raise InputError(
            f"{folder} speaks vocabulary {spoken}, this version {VOCABULARY_HASH}: prepare it again"
        )
    documents = {name: read_documents(folder / name) for name in SPLITS}
    games = {name: read_games(folder / name) for name in SPLITS}
    puzzles = {name: read_puzzles(folder / "puzzles" / f"{name}.csv") for name in PUZZLE_SPLITS}
    statistics = Statistics(
        name="/".join(folder.resolve().parts[-2:]).lstrip("/"),
        manifest=manifest,
        games={name: found for name, found in games.items() if found},
        documents={name: found for name, found in documents.items() if found},
        puzzles={name: found for name, found in puzzles.items() if found},
    )
    if not (statistics.games or statistics.documents or statistics.puzzles):
        raise InputError(
            f"{folder} is no dataset folder: give dataset= a folder that prepare or traces wrote"
        )
    return statistics


def _manifest(folder: Path) -> dict[str, Any]:
    file = folder / "manifest.json"
    if not file.is_file():
        return {}
    try:
        manifest = read_json(file)
    except ValueError as error:
        raise damaged(file, error) from error
    if not isinstance(manifest, dict):
        raise damaged(file, "no JSON object")
    return manifest


def numbers(statistics: Statistics) -> dict[str, Any]:
    """All numbers as plain data: of each split, and of `all` together."""
    return {
        "name": statistics.name,
        "prompt": statistics.prompt or None,
        "counts": {
            f"{what}_{split}": statistics.counted(what, split)
            for what in ("games", "plies")
            for split in SPLITS
        },
        "games": _of_each(statistics.games, statistics.all_games, _games),
        "documents": _of_each(statistics.documents, statistics.all_documents, _documents),
        "puzzles": _of_each(statistics.puzzles, statistics.all_puzzles, _puzzles),
        "skipped": {what: statistics.skipped(what) for what in ("games", "puzzles")},
    }


def _of_each(parts: dict[str, Any], together: Any, plain: Any) -> dict[str, Any]:
    return {name: plain(part) for name, part in [*parts.items(), ("all", together)] if parts}


def _games(games: Games) -> dict[str, Any]:
    openings = by_count(games.openings)[:MOST_OPENINGS]
    return {
        "games": games.total,
        "plies": sum_of(games.plies),
        "plies_per_game": spread(games.plies) | {"counts": _sorted(games.plies)},
        "mean_elo": spread(games.elo)
        | {
            "unknown": games.total - games.elo.total(),
            "class_width": ELO_CLASS,
            "counts": _sorted(classes(games.elo, ELO_CLASS)),
        },
        "years": {year or "unknown": n for year, n in sorted(games.years.items())},
        "results": dict(games.results),
        "speeds": dict(games.speeds),
        "distinct_openings": len(games.openings),
        "openings": [{"moves": opening(code), "games": times} for code, times in openings],
    }


def _documents(documents: Documents) -> dict[str, Any]:
    pieces = documents.pieces
    moves = sum(pieces.values())
    return {
        "documents": documents.total,
        "tokens": documents.tokens.total(),
        "targets": documents.targets.total(),
        "target_share": share(documents.targets.total(), documents.tokens.total()),
        "tokens_per_document": spread(documents.lengths) | {"counts": _sorted(documents.lengths)},
        "moves": moves,
        "moves_by_piece": pieces,
        "moves_with": documents.signs,
        "per_move": {
            name: share(times, moves) for name, times in (pieces | documents.signs).items()
        },
        "token_counts": {token: documents.tokens[i] for i, token in enumerate(TOKENS)},
        "target_counts": {token: documents.targets[i] for i, token in enumerate(TOKENS)},
    }


def _puzzles(puzzles: Puzzles) -> dict[str, Any]:
    return {
        "puzzles": puzzles.total,
        "bins": puzzles.bins,
        "rating": spread(puzzles.ratings)
        | {"class_width": ELO_CLASS, "counts": _sorted(classes(puzzles.ratings, ELO_CLASS))},
        "solver_moves": spread(puzzles.solver_moves) | {"counts": _sorted(puzzles.solver_moves)},
        "themes": dict(by_count(puzzles.themes)),
        "popularity": spread(puzzles.popularity)
        | {
            "unknown": puzzles.total - puzzles.popularity.total(),
            "class_width": POPULARITY_CLASS,
            "counts": _sorted(classes(puzzles.popularity, POPULARITY_CLASS)),
        },
    }


def _sorted(counts: Counter[int]) -> dict[int, int]:
    return dict(sorted(counts.items()))


def share(part: int, whole: int) -> float | None:
    """Part of a whole, 0 to 1; None where there is nothing."""
    return part / whole if whole else None
