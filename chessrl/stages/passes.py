"""A pass over all games of the sources, for what must be known before any is written."""

from collections.abc import Callable, Iterator
from typing import TypeVar

from chessrl.board.blocks import Block, read_blocks
from chessrl.config import Run
from chessrl.progress import Meter
from chessrl.workers import map_in_order

Done = TypeVar("Done")


def over_blocks(run: Run, label: str, work: Callable[[Block], Done]) -> Iterator[Done]:
    """Do the work on every block of `data.paths`, and show how many files are done.

    Args:
        run: the configuration; its sources are local files.
        label: what the person who watches sees.
        work: see `map_in_order`.
    """
    paths = run.data.paths
    with Meter(f"prepare: {label}", len(paths), "files") as meter:
        for number, path in enumerate(paths, 1):
            yield from map_in_order(work, read_blocks(path), run.data.workers)
            meter.advance(number)
