"""What a reader leaves out, counted by reason and with its place in the file."""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import ClassVar

from chessrl.artifacts import write_text

MAX_TOKEN = 80
"""Characters of a bad token that are kept."""


@dataclass(frozen=True, slots=True)
class Skip:
    """One game or puzzle that was not taken, and why."""

    file: str
    """Path of the file as it was given."""
    index: int
    """Place among the games or rows of the file, from 0."""
    line: int
    """Line of the first bad token (of the game where no token is to blame), from 1."""
    reason: str
    """What was wrong, in snake_case; the key in `SkipReport.counts`."""
    token: str = ""
    """The first text that did not fit; empty where nothing single is to blame."""


@dataclass(slots=True)
class SkipReport:
    """Everything that was left out: exact counts, and the first places of each reason."""

    MAX_RECORDS: ClassVar[int] = 10_000
    """Places kept of each reason."""
    counts: Counter[str] = field(default_factory=Counter)
    records: list[Skip] = field(default_factory=list)

    def add(self, skip: Skip) -> None:
        """Count one skip, and keep its place while there is room."""
        self.counts[skip.reason] += 1
        if self.counts[skip.reason] <= self.MAX_RECORDS:
            self.records.append(skip)


def write_skips(path: Path, skips: Iterable[Skip]) -> None:
    """A file of JSON lines, one per skip, whole or not at all."""
    write_text(path, "".join(json.dumps(asdict(skip)) + "\n" for skip in skips))
