"""Progress that a person sees: a bar with ETA on a terminal, a line per interval in a log."""

import sys
import time
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

console = Console(stderr=True, highlight=False)
LINE_EVERY = 10.0
"""Seconds between the lines of a log."""


class Meter:
    """Shows how far a piece of work is; used as a context manager."""

    def __init__(self, label: str, total: int | None, unit: str = "steps", done: int = 0) -> None:
        self.label, self.total, self.unit = label, total, unit
        self.done = self.first = done
        self.began = self.spoke = time.monotonic()
        self.bar: Progress | None = None

    def __enter__(self) -> "Meter":
        if console.is_terminal:
            self.bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                TextColumn("{task.fields[facts]}"),
                console=console,
            )
            self.task = self.bar.add_task(
                self.label, total=self.total, completed=self.done, facts=""
            )
            self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()

    def advance(self, done: int, **facts: float | str) -> None:
        """Tell how much is done by now, and what else is worth seeing."""
        self.done = done
        text = "  ".join(
            f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}"
            for name, value in facts.items()
        )
        if self.bar is not None:
            self.bar.update(self.task, completed=done, facts=text)
            return
        now = time.monotonic()
        if now - self.spoke < LINE_EVERY and done != self.total:
            return
        self.spoke = now
        passed = now - self.began
        if self.total is None:
            say(f"{self.label}: {done:,} {self.unit}, {passed:.0f} s  {text}".rstrip())
            return
        left = (self.total - done) * passed / max(done - self.first, 1)
        say(
            f"{self.label}: {done:,}/{self.total:,} {self.unit}, "
            f"{passed:.0f} s, {left:.0f} s to go  {text}".rstrip()
        )


def say_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A small table for the person who watches; the second column is of numbers."""
    table = Table(title=title, title_justify="left")
    for number, name in enumerate(columns):
        table.add_column(name, justify="left" if number != 1 else "right", overflow="fold")
    for row in rows:
        table.add_row(*row)
    console.print(table)


def say(text: str) -> None:
    """A line for the person who watches."""
    if not console.quiet:
        print(text, file=sys.stderr, flush=True)


def silence() -> None:
    """Say nothing from now on: another process of the group speaks."""
    console.quiet = True
