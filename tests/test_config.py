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
        ("pretrain.harvest_share=1", "pretrain.harvest_share=1.0 is not in"),
        ("sft.data=all", "sft.data=all: traces, harvest or both"),
        ("sft.data=both", "needs sft.harvest=FOLDER"),
        ("sft.harvest=x", "sft.harvest is for sft.data=harvest"),
        ("harvest.per_puzzle=0", "harvest.per_puzzle"),
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


RL_REFUSED = (
    ("rl.loss.name=ppo", "rl.loss.name=ppo: one of reinforce, grpo, dapo, cispo, gspo"),
    ("rl.loss.aggregation=mean", "rl.loss.aggregation=mean: one of sample, prompt, token"),
    ("rl.loss.name=reinforce", "rl.loss.low=0.2, rl.loss.high=0.2: both 0 with reinforce"),
    ("rl.loss.name=cispo rl.loss.high=5", "rl.loss.low=0.2, rl.loss.high=5.0: cispo has no lower"),
    ("rl.loss.name=cispo rl.loss.low=0", "rl.loss.high=0.2: cispo has no lower bound"),
    ("rl.loss.name=dapo rl.loss.low=0", "rl.loss.low=0.0, rl.loss.high=0.2: needs 0 < low < 1"),
    ("rl.loss.name=dapo rl.loss.low=1", "rl.loss.low=1.0, rl.loss.high=0.2: needs 0 < low < 1"),
    ("rl.loss.name=gspo rl.loss.high=0", "needs 0 < low < 1 and high > 0"),
    ("rl.loss.high=0.28", "grpo clips alike on both sides"),
    ("rl.loss.entropy=-1", "rl.loss.entropy=-1.0 is negative"),
    ("rl.kl.estimator=k4", "rl.kl.estimator=k4: one of none, k1, k2, k3"),
    ("rl.kl.place=advantage", "rl.kl.place=advantage: one of loss, reward"),
    ("rl.kl.estimator=k3", "rl.kl.weight=0.0 with rl.kl.estimator=k3"),
    ("rl.kl.weight=0.1", "rl.kl.weight=0.1 with rl.kl.estimator=none"),
    ("rl.kl.refresh=-1", "rl.kl.refresh=-1: a number of steps, and 0 without an estimator"),
    ("rl.kl.refresh=5", "rl.kl.refresh=5: a number of steps, and 0 without an estimator"),
    ("rl.curriculum.name=easy", "rl.curriculum.name=easy: one of uniform"),
    ("rl.curriculum.threshold=0", r"rl.curriculum.threshold=0.0 is not in \(0, 1\]"),
    ("rl.curriculum.threshold=1.1", r"rl.curriculum.threshold=1.1 is not in \(0, 1\]"),
    ("rl.curriculum.probe=1", "rl.curriculum.probe=1: at least 2"),
    ("rl.length.control=cut", "rl.length.control=cut: one of budget, interrupt, penalty"),
    ("rl.length.control=interrupt", "rl.length.thought_min=0, thought_max=0: 0 < thought_min"),
    ("rl.length.thought_max=9", "thought_max=9: 0 < thought_min <= thought_max with interrupt"),
    ("rl.length.control=penalty", "rl.length.margin=0: above 0 with penalty"),
    ("rl.length.margin=9", "rl.length.margin=9: above 0 with penalty, 0 without"),
    ("rl.ahead.scheme=far", "rl.ahead.scheme=far: one of on-policy, ppo, pipeline"),
    ("rl.ahead.k=1", "rl.ahead.k=1: 0 with on-policy"),
    ("rl.ahead.scheme=ppo", "rl.ahead.k=0: 0 with on-policy, at least 1 with ppo"),
    ("rl.ahead.scheme=pipeline rl.ahead.k=-1", "rl.ahead.k=-1"),
    ("rl.ahead.asynchronous=true", "rl.ahead.asynchronous is for rl.ahead.scheme=pipeline"),
    ("rl.curve.points=1", "rl.curve.points=1: 0, or >= 2"),
    ("rl.curve.puzzles=-1", "rl.curve.puzzles=-1 is negative"),
    ("rl.curve.samples=0", "rl.curve.samples=0 must be positive"),
    ("rl.steps=0", "rl.steps=0 must be positive"),
    (
        "rl.optim.schedule=wsd rl.optim.warmup=0 rl.optim.decay=0.1",
        "rl.optim.schedule: only a cosine",
    ),
    ("rl.prompts=0", "rl.prompts=0 must be positive"),
    ("rl.group_size=1", "rl.group_size=1: a group needs two"),
    ("rl.max_new_tokens=0", "rl.max_new_tokens=0: not positive"),
    ("rl.temperature=0", "rl.temperature=0.0 must be positive"),
    ("rl.advantage=gae", "rl.advantage=gae: one of prompt, batch, none, leave-one-out"),
    ("rl.reward=mate", "rl.reward=mate: one of binary, share, legality, engine"),
    ("rl.zero_variance=skip", "rl.zero_variance=skip: one of keep, drop, refill"),
    ("rl.refill_rounds=0", "rl.refill_rounds=0 must be positive"),
    ("rl=scalerl rl.zero_variance=refill", "rl.zero_variance=refill samples until the batch"),
    ("rl=scalerl rl.max_new_tokens=48", "rl.length: a thought or margin of rl.max_new_tokens=48"),
    ("rl.length.control=penalty rl.length.margin=97", "rl.length: a thought or margin"),
    ("rl.alarms=ring", "rl.alarms=ring: one of say, stop"),
    ("rl.gate=-1", "rl.gate, rl.keep_rollouts: negative"),
    ("rl.keep_rollouts=-1", "rl.gate, rl.keep_rollouts: negative"),
    ("rl.max_rating=-1", "rl.max_rating=-1 is negative"),
    ("rl.microbatch_tokens=0", "rl.microbatch_tokens must be positive"),
    ("rl.checkpoint_every=0", "rl.checkpoint_every must be positive"),
)


@pytest.mark.parametrize(("overrides", "said"), RL_REFUSED)
def test_rl_refuses_in_one_line(overrides, said, configure):
    with pytest.raises(InputError, match=said) as refused:
        configure(*overrides.split())
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


# arXiv 2510.13786 as far as it tells, otherwise the choice that the recipe's file gives reasons for
SCALERL_PAPER = {
    # loss, low, high, aggregation, advantage, zero variance, FP32 head, scheme, k, prompts
    "scalerl_base": ("dapo", 0.2, 0.28, "sample", "prompt", "keep", False, "pipeline", 8, 48),
    "deepseek_grpo": ("grpo", 0.2, 0.2, "sample", "prompt", "keep", False, "ppo", 8, 48),
    "qwen25_dapo": ("dapo", 0.2, 0.26, "prompt", "prompt", "drop", False, "ppo", 8, 80),
    "magistral": ("dapo", 0.2, 0.26, "prompt", "batch", "drop", False, "pipeline", 8, 48),
    "minimax_m1": ("cispo", 0, 5, "prompt", "prompt", "drop", True, "ppo", 8, 80),
    "scalerl": ("cispo", 0, 5, "prompt", "batch", "drop", True, "pipeline", 8, 48),
}


@pytest.mark.parametrize("name", SCALERL_PAPER)
def test_a_recipe_is_that_of_the_paper(name, configure):
    rl = configure(f"rl={name}").rl
    loss, ahead, optim = rl.loss, rl.ahead, rl.optim
    assert SCALERL_PAPER[name] == (
        loss.name, loss.low, loss.high, loss.aggregation, rl.advantage, rl.zero_variance,
        rl.fp32_head, ahead.scheme, ahead.k, rl.prompts,
    )  # fmt: skip
    assert (rl.group_size, loss.entropy, rl.kl.estimator) == (16, 0, "none")
    assert (rl.reward, rl.length.control) == ("binary", "interrupt")
    assert (optim.name, optim.final, optim.weight_decay) == ("adamw", 1, 0.01)
    assert round(optim.warmup * rl.steps) == 100
    retires = rl.curriculum.name == "no-positive-resampling"
    assert (retires, rl.length.drop_truncated) == ((name == "scalerl"),) * 2
    assert not retires or rl.curriculum.threshold == 0.9


def test_no_recipe_is_without_its_row():
    others = {"study", "tabletop"}
    assert {path.stem for path in (CONF / "rl").glob("*.yaml")} - others == SCALERL_PAPER.keys()
