"""Every file under conf/ makes a run, and what does not belong is refused before anything runs."""

import subprocess
import sys
from pathlib import Path

import pytest
from hydra.errors import ConfigCompositionException

from chessrl.config import InputError, Run

ROOT = Path(__file__).parent.parent
CONF = ROOT / "conf"
OPTIONS = sorted(
    f"{path.parent.relative_to(CONF)}={path.stem}"
    for path in CONF.glob("*/**/*.yaml")
    if path.stem not in ("pgn", "lichess", "fsdp")  # these must be told more
    and path.parent.parent.stem != "hydra"
)


def test_nested_groups_are_among_them():
    assert {"pretrain/optim=wsd", "sft/optim=adamw", "model=300k"} <= set(OPTIONS)


@pytest.mark.parametrize("option", OPTIONS)
def test_every_option_becomes_a_run(option, configure):
    assert isinstance(configure(option), Run)


def test_sharding_goes_with_adamw(configure):
    run = configure("trainer=fsdp", "pretrain/optim=adamw", "sft/optim=adamw")
    assert run.trainer.strategy == "fsdp"
    assert configure("trainer=fsdp", "stage=sft", "sft/optim=adamw").trainer.devices == 2


def test_named_files_become_a_run(configure):
    assert configure("data=pgn", "data.paths=[a.pgn]").data.paths == ["a.pgn"]


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("+pretrain.lrr=1", "lrr"),
        ("+speed=1", "speed"),
        ("stage=fly", "stage=fly"),
        ("seed=-1", "seed"),
        ("rl.group_size=1", "rl.group_size"),
        ("rl.clip=1.5", "rl.clip"),
        ("prompt.form=picture", "prompt.form"),
        ("data.validation=1.0", "data.validation"),
        ("model.kv_heads=2", "model.kv_heads"),
        ("pretrain.batch_tokens=8", "pretrain.batch_tokens"),
        ("pretrain.optim.name=sgd", "optim.name"),
        ("pretrain.optim.lr=0", "optim.lr"),
        ("pretrain.optim.schedule=step", "optim.schedule"),
        ("pretrain.optim.schedule=wsd", "optim.warmup_steps"),
        ("pretrain.optim.decay=0.1", "optim.decay"),
        ("sft.optim.warmup_steps=3", "optim.warmup_steps"),
        ("pretrain.batch_tokens=1000", "no multiple of pretrain.context=256"),
        ("sft.batch_tokens=300", "no multiple of sft.context=256"),
        ("pretrain.microbatch_tokens=100", "pretrain.microbatch_tokens"),
        ("trainer.compile=maybe", "trainer.compile"),
        ("trainer.strategy=horovod", "trainer.strategy"),
        ("trainer=fsdp", "choose pretrain/optim=adamw"),
        ("evaluate.of=prepare", "evaluate.of"),
        ("data=pgn", "data.paths"),
        ("pretrain.tokens=inf", "pretrain.tokens"),
        ("pretrain.optim.beta1=2", "optim.beta1"),
        ("pretrain.context=40", "pretrain.context"),
        ("traces.plies_mean=9", "traces.plies_mean"),
        ("trainer.precision=16-mixed", "trainer.precision"),
        ("trainer.rl_precision=bf16-true", "trainer.rl_precision"),
        ("trainer.accelerator=tpu", "trainer.accelerator"),
        ("trainer.devices=0", "trainer.devices"),
        ("trainer.divergence=-1", "trainer.divergence"),
        ("checkpoint=x", "checkpoint"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(override, named, configure):
    with pytest.raises(InputError, match=named) as refused:
        configure(override)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("override", ["pretrain.tokns=1", "speed=1", "rl.steps=many"])
def test_what_has_no_place_or_no_type_is_refused(override, configure):
    with pytest.raises(ConfigCompositionException, match=override.split("=")[0]):
        configure(override)


def test_the_console_script_finds_the_configuration(tmp_path):
    script = "import sys; from chessrl.__main__ import main; sys.argv[0] = 'chessrl'; main()"
    done = subprocess.run(
        [sys.executable, "-c", script, "--cfg", "job"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "stage: pipeline" in done.stdout


def test_the_command_line_ends_with_one_line_and_a_status():
    arguments = ("stage=prepare", "data=pgn", "data.paths=[no/such.pgn]", "outputs=/nowhere")
    done = subprocess.run(
        [sys.executable, "-m", "chessrl", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("chessrl: no/such.pgn")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("data.filter.results=[]", "results names no result"),
        ("data.filter.since='2020.13'", "since=2020.13"),
        ("data.filter.until='2020.02.32'", "until=2020.02.32"),
        ("data.filter.over_long=drop", "skip or cut"),
        ("data.filter.min_elo=-1", "min_elo=-1"),
        ("data.selection.balance=-1", "balance=-1"),
        ("mine.games=-1", "mine.games=-1"),
    ],
)
def test_a_refusal_names_the_setting(configure, override, named):
    with pytest.raises(InputError, match=named):
        configure(override)


@pytest.mark.parametrize(
    ("since", "until", "fits"),
    [
        ("2020", "1990", False), ("2020", "2020", True), ("2020.05", "2020", True),
        ("2020", "2020.03", True), ("2020.05", "2020.03", False),
    ],
)  # fmt: skip
def test_dates_are_in_order(configure, since, until, fits):
    dates = (f"data.filter.since='{since}'", f"data.filter.until='{until}'")
    if fits:
        assert configure(*dates).data.filter.until == until
    else:
        with pytest.raises(InputError, match="is before since"):
            configure(*dates)
