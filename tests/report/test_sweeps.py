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
    "stage=pipeline", "run=study", "pretrain.tokens=1e4", "traces.puzzles=12",
    "traces.per_puzzle=1", "sft.epochs=1", "rl.steps=2", "rl.curve.points=2", "evaluate.puzzles=6",
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


LENGTHS = (
    "pretrain/optim=wsd", "pretrain.optim.warmup_steps=1", "pretrain.tokens=1e4,6e4", "rl.steps=6",
)  # fmt: skip


@pytest.fixture(scope="module")
def unbroken(sweep, tmp_path_factory):
    """The table of a sweep over two lengths of pretraining that nothing disturbed."""
    outputs = tmp_path_factory.mktemp("unbroken")
    status, said = ended(sweep(outputs, *LENGTHS))
    assert status == 0, said
    return (outputs / "study" / "results.csv").read_bytes()


def second_grows(outputs: Path) -> bool:
    """The trunk is growing for the second cell: its result is gone while it does."""
    return bool(cells(outputs)) and not list(outputs.rglob("trunk-*/result.json"))


def second_practises(outputs: Path) -> bool:
    """RL of the second cell has begun to make updates."""
    tables = {path.parent for path in outputs.rglob("rl-*/metrics.csv")}
    return any(not (folder / "result.json").exists() for folder in tables) and len(tables) == 2


@pytest.mark.slow
@pytest.mark.parametrize("now", [second_grows, second_practises])
def test_a_sweep_that_was_killed_ends_as_an_unbroken_one(now, sweep, unbroken, tmp_path):
    process = sweep(tmp_path, *LENGTHS)
    while process.poll() is None and not now(tmp_path):
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert ended(process)[0] == -signal.SIGKILL
    assert not (tmp_path / "study" / "results.csv").exists()
    before = written(tmp_path)
    status, said = ended(sweep(tmp_path, *LENGTHS))
    assert status == 0, said
    assert before.items() <= written(tmp_path).items()
    assert (tmp_path / "study" / "results.csv").read_bytes() == unbroken


@pytest.mark.slow
@pytest.mark.parametrize("dies", [False, True])
def test_two_sweeps_at_once_share_what_both_need(dies, sweep, tmp_path):
    """The second waits for the model that the first makes, or goes on with it if that one dies."""
    first = sweep(tmp_path, "rl.prompts=3", "pretrain.tokens=6e4")
    while first.poll() is None and not list(tmp_path.rglob("pretrain-*/metrics.csv")):
        time.sleep(0.01)
    first.send_signal(signal.SIGSTOP)  # in the middle of pretraining
    second = sweep(tmp_path, "rl.prompts=4", "pretrain.tokens=6e4")
    for line in second.stderr:
        if line.startswith("waiting for "):
            break
    assert "pretrain-" in line and "another process is making it" in line
    first.send_signal(signal.SIGKILL if dies else signal.SIGCONT)
    for process, expected in ((first, -signal.SIGKILL if dies else 0), (second, 0)):
        status, said = ended(process)
        assert status == expected, said
    assert len(list(tmp_path.rglob("pretrain-*/manifest.json"))) == 1
    table = pd.read_csv(tmp_path / "study" / "results.csv")
    assert set(table["status"]) == {"done"}
    assert table[table["stage"] == "rl"]["identity"].nunique() == 2 - dies
