"""What a sweep says at its end: a row per cell and how many failed, or the plan of a dry one."""

import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra.core.utils import JobReturn
from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from chessrl.config import InputError, Run
from chessrl.progress import say
from chessrl.report.tables import flops, show, write_results
from chessrl.scaling.cells import Cell, begin, cells_in, runs_with_cells, told_apart
from chessrl.scaling.collect import collect, tidy
from chessrl.scaling.plan import Plan, Planned, PlannedCell, totals
from chessrl.scaling.speed import COUNTED

MARKS = {"to do": "", "shared": " shared", "finished": " done"}


class Sweep(Callback):
    """Hydra's hooks around the jobs of `--multirun`; conf/config.yaml names it."""

    def __init__(self) -> None:
        self.planned: list[tuple[Cell, Run | None]] = []

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        """Before the first job."""
        self.name = begin()

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **_: Any) -> None:
        """After each job, in its process."""
        if config.dry and isinstance(job_return._return_value, tuple):
            self.planned.append(job_return._return_value)

    def on_multirun_end(self, config: DictConfig, **_: Any) -> None:
        """After the last job.

        Raises:
            SystemExit: a cell failed.
        """
        try:  # Hydra makes a mere warning of an exception
            sys.exit(self._plan(config) if config.dry else self._close(Path(config.outputs)))
        except InputError as error:
            say(f"chessrl: {error}")
            sys.exit(2)
        except Exception:
            traceback.print_exc()
            sys.exit(1)

    def _plan(self, config: DictConfig) -> int:
        if not self.planned:
            raise InputError("dry=true works out the plan in one process: add hydra/launcher=basic")
        return print_plan(self.planned, config.outputs)

    def _close(self, outputs: Path) -> int:
        """Tables of every run that had a cell; returns the exit status."""
        ran = 0
        failed: list[Cell] = []
        for place in runs_with_cells(outputs):
            ours = [cell for cell in cells_in(place) if cell.sweep == self.name]
            if not ours:
                continue
            ran += len(ours)
            failed += [cell for cell in ours if cell.status == "failed"]
            results, curves = collect(str(place))
            write_results(place, tidy(results, curves), results)
            show(f"{place}: cells", *cell_table(ours))
            say(f"written: {place / 'results.csv'} and {place / 'results.md'}")
        if failed:
            say(f"chessrl: {len(failed)} of {ran} cells failed; the same command redoes only those")
        return int(bool(failed))


def cell_table(cells: Sequence[Cell]) -> tuple[list[str], list[list[str]]]:
    """Header and a row for each cell of a sweep."""
    rows = [
        [cell.identity, told, cell.status, cell.message]
        for cell, told in zip(cells, told_apart(cells), strict=True)
    ]
    return ["cell", "settings", "status", "message"], rows


def print_plan(cells: Sequence[tuple[Cell, Run | None]], outputs: str) -> int:
    """Show what would be done; returns the exit status.

    Args:
        cells: each with its configuration, None where that is refused.
        outputs: folder whose finished runs tell how long things take.
    """
    try:
        known, _ = collect(outputs)
    except InputError:
        known = []
    plan = Plan(known)
    for (cell, run), told in zip(cells, told_apart([cell for cell, _ in cells]), strict=True):
        if run is None:
            plan.refuse(f"{told}: {cell.message}")
        else:
            plan.add(told, run)
    header = ["cell", *COUNTED, "FLOPs", "to spend", "seconds"]
    show("plan", header, [_planned_row(cell) for cell in plan.cells])
    every, spend, seconds = totals(plan.cells)
    source = "the seconds of finished runs"
    if plan.speed.measured:
        source += ", and a quick measurement where there are none"
    say(
        f"plan: {len(plan.cells)} cells, {flops(every) or 0} FLOPs by the cells' accounts, "
        f"{flops(spend) or 0} to be spent; about {_duration(seconds)} here one after the other, by "
        f"{source}"
    )
    unknown = sorted(
        {name for cell in plan.cells for name, one in cell.stages.items() if one.flops is None}
    )
    if unknown:
        say(
            f"plan: nothing tells what {', '.join(unknown)} will cost: finish a run in {outputs}, "
            "or give the mean tokens of budget.*"
        )
    return 2 * any(cell.refused for cell in plan.cells)


def _planned_row(cell: PlannedCell) -> list[str]:
    if cell.refused:
        return [cell.told, *[""] * (len(COUNTED) + 3)]
    stages = [cell.stages.get(name) for name in COUNTED]
    known = [stage for stage in stages if stage is not None]
    return [
        cell.told,
        *(_amount(stage) for stage in stages),
        flops(sum(stage.flops or 0 for stage in known)),
        flops(sum(stage.spent or 0 for stage in known)) or "0",
        f"{cell.seconds:.0f}",
    ]


def _amount(stage: Planned | None) -> str:
    if stage is None:
        return ""
    return (flops(stage.flops) if stage.flops is not None else "?") + MARKS[stage.state]


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
