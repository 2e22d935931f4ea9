"""Processes that train together: their places, and the same curve as one alone."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from curves import curve

from chessrl.board import tokens
from chessrl.config import InputError
from chessrl.policy.optim import build_optimizer
from chessrl.policy.weights import new_model
from chessrl.stages.group import Group, check_group, group
from chessrl.stages.launch import command, needs_group
from chessrl.stages.runs import run_identity

ROOT = Path(__file__).parents[2]
CPU = ("trainer=ddp", "trainer.accelerator=cpu", "trainer.precision=32-true")


def test_the_place_is_read_from_torchrun_and_srun():
    assert group({}) == Group(0, 1, "")
    torchrun = {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "localhost"}
    assert group(torchrun) == Group(3, 4, "torchrun")
    batch_script = {"SLURM_NTASKS": "8", "SLURM_PROCID": "0"}
    assert group(batch_script) == Group(0, 1, "")
    task = batch_script | {"SLURM_PROCID": "5", "SLURM_STEP_NUM_TASKS": "8"}
    assert group(task) == Group(5, 8, "slurm")


def test_a_group_must_fit_the_devices(tiny, tmp_path):
    one, two = tiny(tmp_path).trainer, tiny(tmp_path, *CPU).trainer
    check_group(one, Group())
    check_group(two, Group())
    check_group(two, Group(3, 4, "torchrun"))
    for config, size in ((one, 2), (two, 3)):
        with pytest.raises(InputError, match=r"trainer\.devices"):
            check_group(config, Group(0, size, "torchrun"))


def test_what_many_devices_cannot_do_is_refused(tiny, tmp_path):
    ahead = ("rl.ahead.scheme=pipeline", "rl.ahead.asynchronous=true")
    with pytest.raises(InputError, match=r"rl\.ahead\.asynchronous trains on one device"):
        tiny(tmp_path, *CPU, "stage=rl", *ahead)
    with pytest.raises(InputError, match="experts"):
        tiny(tmp_path, *CPU, "model=1m-moe")


def test_devices_are_no_part_of_the_identity(tiny, tmp_path):
    one, two = tiny(tmp_path), tiny(tmp_path, *CPU)
    assert run_identity(one, "pretrain") == run_identity(two, "pretrain")
    assert needs_group(two, "pretrain") and needs_group(two, "rl")
    assert not needs_group(two, "traces")
    assert not needs_group(one, "pretrain")


def test_each_process_gets_the_same_command(tiny, tmp_path):
    run = tiny(tmp_path, *CPU, "stage=pipeline")
    words = command(run, "sft", ["run=x", "stage=pipeline", "out=there"])
    assert words == [
        "-m", "chessrl", "run=x", "stage=pipeline", "out=there", "stage=sft", "out=null",
    ]  # fmt: skip


ADAMW = (
    "pretrain.optim.name=adamw", "pretrain.optim.lr=3e-3", "pretrain.optim.matrix_lr=0",
)  # fmt: skip


def start(out: Path, settings, *more: str) -> subprocess.Popen:
    """A real launch of the command line, in a session of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "chessrl", *settings, *ADAMW, *CPU, "stage=pretrain",
         f"out={out}", *more],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )  # fmt: skip


def processes_of(out: Path) -> list[int]:
    """Processes whose command line names a folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if f"out={out}".encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            pass
    return found


def none_left(out: Path) -> bool:
    """Whether all of them end within seconds."""
    for _ in range(60):
        if not processes_of(out):
            return True
        time.sleep(0.25)
    return False


@pytest.fixture(scope="module")
def settings(prepared, tiny_settings):
    return (*tiny_settings, f"outputs={prepared}")


@pytest.fixture(scope="module")
def alone(settings, tmp_path_factory):
    """The curve of one process."""
    out = tmp_path_factory.mktemp("alone")
    process = start(out, settings, "trainer.devices=1")
    assert process.communicate(timeout=300) and process.returncode == 0
    return curve(out / "metrics.csv")


def same_curve(rows, others) -> None:
    assert [row["step"] for row in rows] == [row["step"] for row in others]
    assert rows
    for name, bound in (("loss", 1e-5), ("nats_per_ply", 1e-4), ("gradient_norm", 1e-4)):
        if name not in others[0]:  # SFT has no plies
            continue
        ours, theirs = ([float(row[name]) for row in table] for table in (rows, others))
        assert np.allclose(ours, theirs, rtol=0, atol=bound), name
    assert [row["tokens"] for row in rows] == [row["tokens"] for row in others]


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_two_processes_learn_as_one(strategy, settings, alone, tmp_path):
    process = start(tmp_path, settings, f"trainer.strategy={strategy}")
    said = process.communicate(timeout=300)[1]
    assert process.returncode == 0, said
    assert said.count("18/18 steps") == 1  # rank 0 alone speaks
    same_curve(curve(tmp_path / "metrics.csv"), alone)
    assert (tmp_path / "result.json").exists()


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").exists(), reason="looks for processes in /proc")
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_stopped_parent_leaves_no_process_and_goes_on(sent, settings, alone, tmp_path):
    slow = tmp_path / "slow"
    process = start(slow, settings, "pretrain.tokens=1e8")  # long enough to be met at work
    while process.poll() is None and not list(slow.glob("checkpoints/step-*.ckpt")):
        time.sleep(0.1)
    process.send_signal(sent)
    said = process.communicate(timeout=90)[1]
    assert none_left(slow), said
    result = slow / "result.json"
    if sent == signal.SIGKILL:  # a rank may see that another is gone before it ends itself
        assert not result.exists() or json.loads(result.read_text())["status"] == "failed"
    else:
        assert not result.exists()
        assert process.returncode == 130, said
        assert said.splitlines()[-1].startswith("chessrl: stopped; the same command goes on")
        assert said.count("stopped") == 1
    again = start(slow, settings, "pretrain.tokens=1e8", "pretrain.checkpoint_every=100000")
    for line in again.stderr:
        if "going on from" in line:
            break
    again.send_signal(signal.SIGTERM)
    again.communicate(timeout=90)
    assert again.returncode == 130 and none_left(slow)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "after"), [("ddp", "ddp"), ("fsdp", "fsdp"), ("ddp", "fsdp"), ("fsdp", "ddp")]
)
def test_a_resumed_group_ends_as_one_that_was_never_stopped(
    before, after, settings, alone, tmp_path
):
    process = start(tmp_path, settings, f"trainer.strategy={before}")
    while process.poll() is None and not list(tmp_path.glob("checkpoints/step-*.ckpt")):
        time.sleep(0.01)
    process.kill()
    process.communicate(timeout=90)
    assert none_left(tmp_path)
    process = start(tmp_path, settings, f"trainer.strategy={after}")
    said = process.communicate(timeout=300)[1]
    assert process.returncode == 0, said
    assert "going on from" in said
    same_curve(curve(tmp_path / "metrics.csv"), alone)


def moments(path: Path, settings, configure) -> dict[str, torch.Tensor]:
    """Each tensor of a saved AdamW under the name of its parameter, by torch's own reading."""
    run = configure(*settings, *ADAMW)
    model = new_model(run.model, len(tokens.TOKENS), run.seed)
    optimizer = build_optimizer(model, run.pretrain.optim)
    (state,) = torch.load(path, weights_only=True)["optimizer_states"]
    optimizer.load_state_dict(state)
    return {
        f"{name} {kind}": value
        for name, parameter in model.named_parameters()
        for kind, value in optimizer.state[parameter].items()
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "after"),
    [(("devices=1",), ("strategy=fsdp",)), (("strategy=fsdp",), ("devices=1",))],
    ids=["one-fsdp", "fsdp-one"],
)
def test_a_state_saved_again_by_another_strategy_is_the_same(
    before, after, settings, configure, prepared, tmp_path
):
    """A trunk of 6 steps leaves its state of step 4; a branch from there saves it unchanged."""
    (tmp_path / "work").mkdir()
    for path in prepared.glob("*/prepare-*"):
        (tmp_path / path.parent.name).symlink_to(tmp_path / "work")
        (tmp_path / "work" / path.name).symlink_to(path)
    wsd = (
        "pretrain.optim.schedule=wsd", "pretrain.optim.warmup=0", "pretrain.optim.warmup_steps=3",
        "pretrain.checkpoint_every=4", "pretrain.tokens=1.5e4", f"outputs={tmp_path}",
    )  # fmt: skip
    for decay, how in ((0.3, before), (0.55, after)):
        trainer = (f"trainer.{setting}" for setting in how)
        decays = f"pretrain.optim.decay={decay}"
        process = start(tmp_path / str(decay), settings, *wsd, decays, *trainer)
        said = process.communicate(timeout=300)[1]
        assert process.returncode == 0, said
    (trunk,) = (tmp_path / "work").glob("trunk-*")
    saved, again = trunk / "checkpoints" / "step-00000004.ckpt", trunk / "branches"
    again = again / "step-00000004.ckpt"
    weights, others = (torch.load(path, weights_only=True)["state_dict"] for path in (saved, again))
    assert weights.keys() == others.keys()
    assert all(torch.equal(weights[name], others[name]) for name in weights)
    ours, theirs = (moments(path, settings, configure) for path in (saved, again))
    assert len(ours) == 3 * len(weights) and ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.slow
def test_a_failure_is_one_line_and_its_status(prepared, tiny_settings, tmp_path):
    (tmp_path / "manifest.json").write_text('{"identity": "another"}')
    process = start(tmp_path, (*tiny_settings, f"outputs={prepared}"))
    said = process.communicate(timeout=120)[1]
    assert process.returncode == 2, said
    lines = [line for line in said.splitlines() if line.startswith("chessrl:")]
    assert len(lines) == 1 and "holds run another" in lines[0]
    assert "Traceback" not in said


@pytest.mark.slow
def test_the_processes_find_a_configuration_from_elsewhere(settings, tmp_path):
    """The size of the model is written nowhere but there."""
    (tmp_path / "conf" / "model").mkdir(parents=True)
    here = (ROOT / "conf" / "model" / "100k.yaml").read_text()
    (tmp_path / "conf" / "model" / "mine.yaml").write_text(here.replace("100k", "mine"))
    (tmp_path / "conf" / "other.yaml").write_text("defaults: [config, _self_]\n")
    more = (f"--config-dir={tmp_path / 'conf'}", "--config-name=other")
    process = start(tmp_path / "out", (*more, *settings), "model=mine")
    said = process.communicate(timeout=300)[1]
    assert process.returncode == 0, said
    assert json.loads((tmp_path / "out" / "result.json").read_text())["model"] == "mine"


@pytest.mark.slow
def test_a_pipeline_trains_two_stages_in_a_group_and_sft_as_one_process_does(
    tiny_settings, tmp_path
):
    more = ("rl.steps=1", "sft/optim=adamw", f"outputs={tmp_path}")
    process = start(tmp_path, tiny_settings, *more, "out=null", "stage=pipeline")
    said = process.communicate(timeout=400)[1]
    assert process.returncode == 0, said
    assert len(list(tmp_path.glob("*/*/result.json"))) == 8
    (group_of_two,) = tmp_path.glob("*/sft-*/metrics.csv")
    one = tmp_path / "one"
    process = start(one, tiny_settings, *more, "trainer.devices=1", "stage=sft")
    said = process.communicate(timeout=300)[1]
    assert process.returncode == 0, said
    same_curve(curve(group_of_two), curve(one / "metrics.csv"))
