"""Run folders become one tidy table: a row per measured pass@k, or per run where none was."""

import dataclasses
import glob
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from chessrl.artifacts import PassAtK, Result
from chessrl.config import InputError
from chessrl.progress import say
from chessrl.scaling.cells import as_result, cells_in

FLOP_STAGES = ("pretrain", "traces", "sft", "rl")
Curve = pd.DataFrame
"""curve.csv of a run of RL: chessrl/stages/curve.py has the columns."""


def collect(pattern: str) -> tuple[list[Result], dict[str, Curve]]:
    """Results of all run folders that a glob names or that lie within what it names.

    Cells of a sweep that failed before there was a run folder are among them. Folders of runs that
    have not ended are named and left out.

    Returns:
        The results, and the curves of runs of RL by their identity.

    Raises:
        InputError: there is no result.
    """
    folders: dict[Path, None] = {}
    cells: dict[str, Result] = {}
    for found in sorted(glob.glob(pattern, recursive=True)):
        for manifest in sorted(Path(found).rglob("manifest.json")):
            folders[manifest.parent.resolve()] = None
        for cell in cells_in(Path(found)):
            if cell.status == "failed" and not cell.told_by:
                cells[cell.identity] = as_result(cell)
    results, curves = [], {}
    for folder in folders:
        if not (folder / "result.json").is_file():
            say(f"collect: {folder} has not ended and is left out")
            continue
        try:
            results.append(result := Result.read(folder / "result.json"))
        except InputError as error:
            say(f"collect: left out, {error}")
            continue
        if (curve := curve_of(folder, result)) is not None:
            curves[result.identity] = curve
    results += cells.values()
    if not results:
        raise InputError(f"runs={pattern}: no finished run there; `make run` makes some")
    return results, curves


def curve_of(folder: Path, result: Result) -> Curve | None:
    """The curve in the folder of a finished run, if it has one."""
    file = folder / "curve.csv"
    return pd.read_csv(file) if result.status == "done" and file.is_file() else None


def tidy(results: Iterable[Result], curves: Mapping[str, Curve]) -> pd.DataFrame:
    """One row per evaluation point, bin and k; a run that measured no pass@k has one row without.

    An evaluation is one point, a curve of RL has one for each step. `loss` is that of the
    pretrained model that a row descends from, nats per token of held-out games; `step` is the
    updates that RL had made. Nothing in it depends on when and where the runs were made.
    """
    by_identity = {result.identity: result for result in results}
    losses = _losses(by_identity.values())
    steps = {name: one.measures.get("steps") for name, one in by_identity.items()}
    rows: list[dict[str, Any]] = []
    for result in by_identity.values():
        pretrained = _ancestor(result, "pretrain", by_identity)
        trained = _ancestor(result, "rl", by_identity)
        about = {
            "identity": result.identity,
            "stage": result.stage,
            "of": result.of or None,
            "status": result.status,
            "message": result.message or None,
            "seed": result.seed,
            "model": result.model,
            "prompt": result.prompt,
            "n_params": result.n_params or None,
            "pretrain": pretrained,
            "loss": losses.get(pretrained),
            "step": 0 if result.of == "sft" else steps.get(trained),
        }
        if result.identity in curves:
            points = list(_along(result, curves[result.identity]))
        else:
            points = [_spent(result) | _measured(row) for row in result.pass_at_k]
        points = points or [_spent(result)]
        rows += [about | point | result.measures for point in points]
    return pd.DataFrame(rows)


def _ancestor(result: Result, stage: str, known: Mapping[str, Result]) -> str | None:
    """Identity of the run of a stage that a result is of or descends from."""
    if result.stage == stage:
        return result.identity
    if stage in result.parents:
        return result.parents[stage]
    found = (
        _ancestor(known[parent], stage, known)
        for parent in result.parents.values()
        if parent in known
    )
    return next((name for name in found if name is not None), None)


def _losses(results: Iterable[Result]) -> dict[str | None, float]:
    """Held-out nats per token of pretrained models, by their identity.

    Where one was measured with several settings the evaluation of the lowest identity counts, so
    that the order of the results does not.
    """
    measured = [
        (result.parents["pretrain"], result.identity, result.measures["game_nats_per_token"])
        for result in results
        if result.status == "done" and result.of == "pretrain" and "pretrain" in result.parents
        and "game_nats_per_token" in result.measures
    ]  # fmt: skip
    return {name: loss for name, _, loss in sorted(measured, reverse=True)}


def _spent(result: Result) -> dict[str, Any]:
    """Tokens and FLOPs of each stage up to a result."""
    return {
        **{f"tokens_{name}": result.tokens.get(name) for name in FLOP_STAGES},
        **{f"flops_{name}": result.flops.get(name) for name in FLOP_STAGES},
        **{f"exact_flops_{name}": result.exact_flops.get(name) for name in FLOP_STAGES},
        "flops_total": sum(result.flops.values()) or None,
        "exact_flops_total": sum(result.exact_flops.values()) or None,
    }


def _measured(row: PassAtK) -> dict[str, Any]:
    return {
        "bin": row.bin,
        "k": row.k,
        "pass_at_k": row.mean,
        "low": row.low,
        "high": row.high,
        "puzzles": row.puzzles,
        "samples": row.samples,
    }


def _along(result: Result, curve: Curve) -> Iterator[dict[str, Any]]:
    """Points of a curve, each with what RL had spent by then."""
    for row in curve.to_dict("records"):
        part = row["flops"] / result.flops["rl"]
        spent = dataclasses.replace(
            result,
            tokens=result.tokens | {"rl": row["tokens"]},
            flops=result.flops | {"rl": row["flops"]},
            exact_flops=result.exact_flops | {"rl": part * result.exact_flops["rl"]},
        )
        names = {field.name for field in dataclasses.fields(PassAtK)}
        measured = PassAtK(**{name: row[name] for name in row.keys() & names})
        yield {"of": "rl", "step": row["step"]} | _spent(spent) | _measured(measured)
