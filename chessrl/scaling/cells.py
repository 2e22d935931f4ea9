"""Cells of a sweep: each is done or fails by itself, and leaves a record of how it ended.

Records lie in `outputs/RUN/cells/`, one file each. They are an index and no memory: what is done
is known from the run folders.
"""

import dataclasses
import hashlib
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chessrl.artifacts import Result, failure, read_json, write_json
from chessrl.config import InputError, Run
from chessrl.stages.pipeline import stages_of
from chessrl.stages.runs import folders, run_identity

SWEEP = "CHESSRL_SWEEP"
"""Environment variable that names the sweep of a process, and with it the time of its beginning."""
FOLDER = "cells"


@dataclass(kw_only=True)
class Cell:
    """How a cell ended the last time."""

    identity: str
    """Of its last stage; of its overrides where its configuration is refused."""
    overrides: list[str]
    sweep: str
    """The command that ran it, as `begin` names it."""
    status: str = "done"
    """`done` or `failed`."""
    message: str = ""
    """Why it failed."""
    told_by: str = ""
    """Identity of the failed run that says so too; empty where no run folder could."""
    model: str = ""
    seed: int = 0


def begin() -> str:
    """Name the sweep that begins here, for the processes of its cells too."""
    os.environ[SWEEP] = name = f"{time.time():.3f}-{os.getpid()}"
    return name


def attempt(
    place: Path, overrides: Sequence[str], configured: Callable[[], Run], work: Callable[[Run], Any]
) -> Cell:
    """Work on a cell; whatever goes wrong becomes its record, so that the others go on.

    A stage that has failed in this sweep fails the other cells that build on it at once.

    Args:
        place: folder of the run, `outputs/RUN`.
        overrides: what the cell was told.
        configured: makes its configuration, and may refuse it.
    """
    cell = _named(overrides)
    since = float(cell.sweep.partition("-")[0] or time.time())
    run = None
    try:
        run = configured()
        _file(place, cell).unlink(missing_ok=True)  # of a time when it was refused
        for one in stages_of(run)[-1:]:
            cell.identity = run_identity(one, one.stage)
        cell.model, cell.seed = run.model.name, run.seed
        for result in _failures(run, since):
            raise InputError(f"{result.stage} has failed in this sweep: {result.message}")
        work(run)
    except (Exception, SystemExit) as error:
        cell.status, cell.message = "failed", failure(error)
        if not isinstance(error, (InputError, FileNotFoundError, SystemExit)):
            traceback.print_exc()
        print(f"chessrl: failed: {cell.message}", file=sys.stderr, flush=True)
        if run is not None:
            cell.told_by = next((result.identity for result in _failures(run, since)), "")
    write_json(_file(place, cell), dataclasses.asdict(cell))
    return cell


def planned(overrides: Sequence[str], configured: Callable[[], Run]) -> tuple[Cell, Run | None]:
    """A cell that is not run, with its configuration, or None and a message where it is refused."""
    cell = _named(overrides)
    try:
        return cell, configured()
    except (InputError, FileNotFoundError) as error:
        cell.status, cell.message = "failed", str(error)
        return cell, None


def cells_in(place: Path) -> list[Cell]:
    """Records of all cells in the folders of runs within a folder, by their identity.

    Raises:
        InputError: one is damaged.
    """
    cells = []
    for path in _records(place):
        try:
            cells.append(Cell(**read_json(path)))
        except (TypeError, ValueError) as error:
            raise InputError(f"{path} is damaged ({error}): remove it") from error
    return sorted(cells, key=lambda cell: cell.identity)


def runs_with_cells(outputs: Path) -> list[Path]:
    """Folders of runs within a folder that have records of cells."""
    return sorted({path.parent.parent for path in _records(outputs)})


def as_result(cell: Cell) -> Result:
    """A failed cell that no run folder tells of, as a row among the results."""
    return Result(
        stage="cell",
        identity=cell.identity,
        status=cell.status,
        message=cell.message,
        model=cell.model,
        seed=cell.seed,
    )


def told_apart(cells: Sequence[Cell]) -> list[str]:
    """What each cell was told and others were not."""
    common = set.intersection(*(set(cell.overrides) for cell in cells)) if len(cells) > 1 else set()
    return [" ".join(word for word in cell.overrides if word not in common) for cell in cells]


def _records(place: Path) -> Iterator[Path]:
    return place.rglob(f"{FOLDER}/*.json")


def _file(place: Path, cell: Cell) -> Path:
    return place / FOLDER / f"{cell.identity}.json"


def _named(overrides: Sequence[str]) -> Cell:
    text = "\n".join(sorted(overrides))
    return Cell(
        identity=hashlib.sha256(text.encode()).hexdigest()[:12],
        overrides=list(overrides),
        sweep=os.environ.get(SWEEP, ""),
    )


def _failures(run: Run, since: float) -> Iterator[Result]:
    """Results of the stages of a cell that failed since a time, in seconds of the epoch."""
    for one in stages_of(run):
        for out in folders(one, one.stage):
            if (result := out.result) is None or result.status != "failed":
                continue
            if (out.path / "result.json").stat().st_mtime >= since:
                yield result
