"""RL in two processes: the same episodes, the same update, the same end as in one."""

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from curves import curve
from safetensors.torch import load_file

from chessrl.board import tokens
from chessrl.policy.weights import new_model, save_model
from chessrl.stages.rollout_files import episodes_of, read_table

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow
# an untrained model earns nothing, so its entropy is what there is to raise
SETTINGS = (
    "stage=rl", "rl.kl.estimator=none", "rl.kl.weight=0", "rl.loss.entropy=0.1", "rl.steps=6",
    "rl.checkpoint_every=2", "rl.keep_rollouts=10000", "rl.prompts=5",
)  # fmt: skip
SCHEMES = {
    "on-policy": (),
    "ppo": ("rl.ahead.scheme=ppo", "rl.ahead.k=3"),
    "pipeline": ("rl.ahead.scheme=pipeline", "rl.ahead.k=2"),
}


@pytest.fixture(scope="module")
def settings(prepared, tiny, tiny_settings, tmp_path_factory):
    place = tmp_path_factory.mktemp("weights") / "model.safetensors"
    model = new_model(tiny(prepared).model, len(tokens.TOKENS), 0)
    save_model(place, model, tokens.VOCABULARY_HASH)
    return (*tiny_settings, f"outputs={prepared}", f"checkpoint={place}", *SETTINGS)


def start(out: Path, devices: int, settings) -> subprocess.Popen:
    """A real launch of the command line."""
    many = ("trainer=ddp", "trainer.accelerator=cpu", "trainer.precision=32-true")
    return subprocess.Popen(
        [sys.executable, "-m", "chessrl", *settings, *(many if devices > 1 else ()),
         f"trainer.devices={devices}", f"out={out}"],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )  # fmt: skip


def finish(process: subprocess.Popen) -> str:
    said = process.communicate(timeout=300)[1]
    assert process.returncode == 0, said
    return said


def written(out: Path):
    return [
        (one.step, one.group, one.puzzle.id, one.tokens, one.ended_by)
        for path in sorted((out / "rollouts").glob("*.parquet"))
        for one in episodes_of(read_table(path))
    ]


def same(ours: Path, theirs: Path) -> None:
    assert written(ours) == written(theirs)
    rows, others = curve(ours / "metrics.csv"), curve(theirs / "metrics.csv")
    assert [row["step"] for row in rows] == [row["step"] for row in others]
    for name, bound in (("loss", 1e-5), ("gradient_norm", 1e-4), ("ratio_mean", 1e-5)):
        one, two = ([float(row[name]) for row in table] for table in (rows, others))
        assert np.allclose(one, two, rtol=0, atol=bound) and any(one), name
    for name in ("reward", "lag", "response_tokens", "rollout_tokens", "flops"):
        assert [row[name] for row in rows] == [row[name] for row in others], name
    weights = [load_file(out / "checkpoints" / "model.safetensors") for out in (ours, theirs)]
    for name, value in weights[1].items():
        torch.testing.assert_close(weights[0][name], value, atol=1e-4, rtol=1e-3)
    assert (ours / "curve.csv").read_text() == (theirs / "curve.csv").read_text()


@pytest.mark.parametrize("name", SCHEMES)
def test_two_processes_train_as_one(name, settings, tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    finish(start(one, 1, (*settings, *SCHEMES[name])))
    said = finish(start(two, 2, (*settings, *SCHEMES[name])))
    assert said.count("6/6 steps") == 1  # rank 0 alone speaks
    same(two, one)


def test_a_killed_group_goes_on(settings, tmp_path):
    settings = (*settings, *SCHEMES["pipeline"], "rl.steps=12")
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    finish(start(whole, 2, settings))
    process = start(broken, 2, settings)
    while process.poll() is None and not list(broken.glob("checkpoints/step-*.ckpt")):
        time.sleep(0.01)
    process.kill()
    process.communicate(timeout=90)
    time.sleep(2)  # the ranks end when they see that their parent has
    assert "going on from" in finish(start(broken, 2, settings))
    same(broken, whole)


def test_flights_are_of_as_many_processes_as_before(settings, tmp_path):
    settings = (*settings, *SCHEMES["pipeline"], "rl.steps=200")
    process = start(tmp_path, 1, settings)
    while process.poll() is None and not list(tmp_path.glob("checkpoints/step-*.ckpt")):
        time.sleep(0.01)
    process.kill()
    process.communicate(timeout=90)
    process = start(tmp_path, 2, settings)
    said = process.communicate(timeout=90)[1]
    assert process.returncode == 2
    assert "1 processes with batches in flight, not of 2: set trainer.devices" in said
