"""A killed run that goes on equals one that was never killed: real processes, real kill -9."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from curves import curve
from safetensors.torch import load_file

from chessrl.board import tokens
from chessrl.stages.batches import Dataset, Schedule
from chessrl.stages.pretrain import pretrain
from chessrl.stages.runs import folder

ROOT = Path(__file__).parents[2]
DYING = ROOT / "tests" / "dying.py"


class Trained:
    """One folder in which pretraining is run, killed and run again."""

    def __init__(self, out: Path, settings: tuple[str, ...]) -> None:
        self.out, self.settings = out, (*settings, f"out={out}", "stage=pretrain")
        self.journal = out.with_suffix(".journal")

    def run(self, how: str = "never", at: int = 0) -> subprocess.CompletedProcess:
        """In a process of its own."""
        return subprocess.run(
            [sys.executable, DYING, how, str(at), self.journal, *self.settings],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=300,
        )

    def batches(self) -> dict[int, str]:
        """Content of the batch of each step; one that was read twice must be the same."""
        found: dict[int, str] = {}
        for line in self.journal.read_text().splitlines():
            step, content = line.split()
            assert found.setdefault(int(step), content) == content
        return found

    def saved(self) -> list[str]:
        """Names of the checkpoints."""
        return sorted(path.name for path in self.out.glob("checkpoints/step-*.ckpt"))


def same(ours: Trained, theirs: Trained) -> None:
    """The same batches, the same losses and the same weights."""
    assert ours.batches() == theirs.batches()
    rows, others = curve(ours.out / "metrics.csv"), curve(theirs.out / "metrics.csv")
    assert [row["step"] for row in rows] == [row["step"] for row in others]
    losses = ([float(row["loss"]) for row in table] for table in (rows, others))
    assert np.allclose(*losses, rtol=0, atol=1e-6)
    weights, others = (
        load_file(run.out / "checkpoints" / "model.safetensors") for run in (ours, theirs)
    )
    assert weights.keys() == others.keys()
    assert all(torch.equal(weights[name], others[name]) for name in weights)


@pytest.fixture(scope="module")
def settings(prepared, tiny, tiny_settings):
    """20 steps, and a dataset that is read more than once in them: settings, steps, the border."""
    fixed = (
        *tiny_settings, f"outputs={prepared}", "pretrain.batch_tokens=5888",
    )  # fmt: skip
    run = tiny(prepared, *fixed)
    dataset = Dataset(folder(run, "prepare").path / "train")
    plan = Schedule(
        dataset, batch_tokens=5888, context=run.pretrain.context, seed=0, pad=tokens.PAD, epochs=9
    )
    epoch = int(np.minimum(dataset.lengths, run.pretrain.context).sum())
    border = next(step for step, read in enumerate(plan.cumulative, 1) if read >= epoch)
    assert 7 < border < 18
    return (*fixed, f"pretrain.tokens={plan.cumulative[19]}"), border


@pytest.fixture(scope="module")
def unbroken(settings, tmp_path_factory):
    """The run that is never killed."""
    run = Trained(tmp_path_factory.mktemp("unbroken") / "run", settings[0])
    done = run.run()
    assert done.returncode == 0, done.stderr
    assert sorted(run.batches()) == list(range(20))
    return run


@pytest.mark.slow
def test_killed_between_two_checkpoints(settings, unbroken, tmp_path):
    run = Trained(tmp_path / "run", (*settings[0], "pretrain.checkpoint_every=7"))
    assert run.run("step", 10).returncode == -signal.SIGKILL
    assert run.saved() == ["step-00000007.ckpt"]
    assert not (run.out / "result.json").exists()
    again = run.run()
    assert again.returncode == 0, again.stderr
    assert "step-00000007.ckpt" in again.stderr
    same(run, unbroken)


@pytest.mark.slow
def test_killed_while_a_checkpoint_is_written(settings, unbroken, tmp_path):
    run = Trained(tmp_path / "run", (*settings[0], "pretrain.checkpoint_every=7"))
    assert run.run("save", 14).returncode == -signal.SIGKILL
    assert run.saved() == ["step-00000007.ckpt"]
    (half,) = run.out.glob("checkpoints/.step-00000014*.tmp")
    assert half.stat().st_size > 1000
    again = run.run()
    assert again.returncode == 0, again.stderr
    assert not half.exists()
    same(run, unbroken)


@pytest.mark.slow
def test_killed_on_the_border_of_an_epoch(settings, unbroken, tmp_path):
    border = settings[1]
    run = Trained(tmp_path / "run", (*settings[0], f"pretrain.checkpoint_every={border}"))
    # a batch is read while the step before it is still to come
    assert run.run("step", border + 1).returncode == -signal.SIGKILL
    assert run.saved() == [f"step-{border:08d}.ckpt"]
    again = run.run()
    assert again.returncode == 0, again.stderr
    same(run, unbroken)


@pytest.mark.slow
def test_a_truncated_checkpoint_is_passed_over_and_named(settings, unbroken, tmp_path):
    run = Trained(tmp_path / "run", (*settings[0], "pretrain.checkpoint_every=7"))
    assert run.run("step", 16).returncode == -signal.SIGKILL
    assert run.saved() == ["step-00000007.ckpt", "step-00000014.ckpt"]
    newest = run.out / "checkpoints" / "step-00000014.ckpt"
    newest.write_bytes(newest.read_bytes()[: newest.stat().st_size // 2])
    again = run.run()
    assert again.returncode == 0, again.stderr
    said = again.stderr.splitlines()
    assert sum("step-00000014.ckpt is damaged" in line for line in said) == 1
    assert sum("going on from" in line and "step-00000007" in line for line in said) == 1
    same(run, unbroken)


@pytest.mark.slow
def test_mixed_precision_moves_every_norm(prepared, tiny, tmp_path):
    """bf16 near 1 has steps of 1/128: weights kept in it would never leave 1."""
    run = tiny(
        prepared, "stage=pretrain", "trainer.precision=bf16-mixed", "pretrain.tokens=9.6e4",
        f"out={tmp_path}",
    )  # fmt: skip
    assert pretrain(run).measures["steps"] >= 50
    weights = load_file(tmp_path / "checkpoints" / "model.safetensors")
    norms = {name: weight for name, weight in weights.items() if "norm" in name}
    assert len(norms) == 4 * run.model.layers + 1
    for name, weight in norms.items():
        assert weight.dtype == torch.float32
        assert not torch.equal(weight, torch.ones_like(weight)), name
