"""Sweeps from the command line: failures, kills and cells side by side."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).parents[2]
SMALL = (
    "stage=pipeline", "run=study", "pretrain.tokens=1e4", "traces.puzzles=12", "traces.per_puzzle=1",
    "sft.epochs=1", "rl.steps=2", "rl.curve.points=2", "evaluate.puzzles=6",
)  # fmt: skip


@pytest.fixture(scope="module")
def sweep(tiny_settings):
    """Starts a sweep of the tiny settings: `sweep(outputs, *overrides)`."""

    def made(outputs: Path, *overrides: str) -> subprocess.Popen:
        words = ["-m", f"outputs={outputs}", *tiny_settings, *SMALL, *overrides]
        return subprocess.Popen(
            [sys.executable, "-m", "chessrl", *words],
            cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )  # fmt: skip

    return made


def ended(process: subprocess.Popen) -> tuple[int, str]:
    """Status and what was said."""
    said = process.communicate(timeout=300)[1]
    return process.returncode, said


def written(outputs: Path) -> dict[Path, int]:
    """When each result was written."""
    return {path: path.stat().st_mtime_ns for path in outputs.rglob("result.json")}


def cells(outputs: Path) -> dict[str, dict]:
    """Records of cells by the number of prompts that they were told."""
    found = [json.loads(path.read_text()) for path in outputs.rglob("cells/*.json")]
    return {
        next(word for word in cell["overrides"] if word.startswith("rl.prompts")): cell
        for cell in found
    }


PROMPTS = "rl.prompts=4,5000,3,0"
"""The second cell asks for more puzzles than there are, the fourth is refused at once."""


@pytest.fixture(scope="module")
def failing(sweep, tmp_path_factory):
    """A sweep two of whose cells failed: its outputs, status and what it said."""
    outputs = tmp_path_factory.mktemp("failing")
    return outputs, *ended(sweep(outputs, PROMPTS))


def test_a_cell_that_fails_has_a_row_and_the_others_go_on(failing):
    outputs, status, said = failing
    assert status == 1, said
    assert "2 of 4 cells failed" in said.splitlines()[-1]
    assert {name: cell["status"] for name, cell in cells(outputs).items()} == {
        "rl.prompts=4": "done",
        "rl.prompts=5000": "failed",
        "rl.prompts=3": "done",
        "rl.prompts=0": "failed",
    }
    table = pd.read_csv(outputs / "study" / "results.csv")
    points = table.dropna(subset="pass_at_k").groupby(["stage", "of"])["identity"].nunique()
    assert points.to_dict() == {
        ("evaluate", "pretrain"): 1, ("evaluate", "sft"): 1, ("evaluate", "rl"): 2, ("rl", "rl"): 2,
    }  # fmt: skip
    failed = table[table["status"] == "failed"].set_index("stage")["message"]
    assert set(failed.index) == {"rl", "cell"}
    assert "fewer than rl.prompts=5000" in failed["rl"]
    assert "rl.prompts=0 must be positive" in failed["cell"]


def test_a_rerun_does_the_failed_cell_alone(failing, sweep):
    outputs, *_ = failing
    before = written(outputs)
    table = (outputs / "study" / "results.csv").read_bytes()
    status, said = ended(sweep(outputs, PROMPTS))
    assert status == 1, said
    again = {path for path, when in written(outputs).items() if before.get(path) != when}
    failed = cells(outputs)["rl.prompts=5000"]["told_by"]
    assert [path.parent.name for path in again] == [f"rl-{failed}"]
    assert (outputs / "study" / "results.csv").read_bytes() == table
