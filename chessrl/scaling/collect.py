"""Run folders become one tidy table: a row per measured pass@k, or per run where none was."""

import glob
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd

from chessrl.artifacts import Result
from chessrl.config import InputError
from chessrl.progress import say

FLOP_STAGES = ("pretrain", "traces", "sft", "rl")


def collect(pattern: str) -> list[Result]:
    """Results of all run folders that a glob names or that lie within what it names.

    Folders of runs that have not ended are named and left out.

    Raises:
        InputError: there is no result.
    """
    folders: dict[Path, None] = {}
    for found in sorted(glob.glob(pattern, recursive=True)):
        for manifest in sorted(Path(found).rglob("manifest.json")):
            folders[manifest.parent.resolve()] = None
    results = []
    for folder in folders:
        if not (folder / "result.json").is_file():
            say(f"collect: {folder} has not ended and is left out")
            continue
        try:
            results.append(Result.read(folder / "result.json"))
        except InputError as error:
            say(f"collect: left out, {error}")
    if not results:
        raise InputError(f"runs={pattern}: no finished run there; `make run` makes some")
    return results


def tidy(results: Iterable[Result]) -> pd.DataFrame:
    """One row per run, bin and k; a run that measured no pass@k has one row without them."""
    rows: list[dict[str, Any]] = []
    for result in results:
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
            **{f"tokens_{name}": result.tokens.get(name) for name in FLOP_STAGES},
            **{f"flops_{name}": result.flops.get(name) for name in FLOP_STAGES},
            **{f"exact_flops_{name}": result.exact_flops.get(name) for name in FLOP_STAGES},
            "flops_total": sum(result.flops.values()) or None,
            "exact_flops_total": sum(result.exact_flops.values()) or None,
            **result.measures,
            "seconds": result.seconds,
        }
        measured = [
            about
            | {
                "bin": row.bin,
                "k": row.k,
                "pass_at_k": row.mean,
                "low": row.low,
                "high": row.high,
                "puzzles": row.puzzles,
                "samples": row.samples,
            }
            for row in result.pass_at_k
        ]
        rows += measured or [about]
    return pd.DataFrame(rows)
