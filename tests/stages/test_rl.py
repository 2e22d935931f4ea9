"""The stage as a whole: exact resume under every scheme, what it writes, how it refuses."""

import csv

import pytest
import torch
from curves import curve
from killing import begin_and_kill
from safetensors.torch import load_file

from chessrl import compute
from chessrl.artifacts import Result
from chessrl.board import rewards, tokens
from chessrl.config import InputError
from chessrl.policy.weights import new_model, save_model
from chessrl.stages.rl import rl
from chessrl.stages.rollout_files import episodes_of, read_table
from chessrl.stages.runs import folder

SHORT = ("rl.kl.estimator=none", "rl.kl.weight=0", "rl.steps=6", "rl.checkpoint_every=2")


class Killed(BaseException):
    """As abrupt as a test can be."""


@pytest.fixture(scope="module")
def weights(tiny, tmp_path_factory):
    """An untrained model."""
    place = tmp_path_factory.mktemp("weights") / "model.safetensors"
    model = new_model(tiny(place.parent).model, len(tokens.TOKENS), 0)
    save_model(place, model, tokens.VOCABULARY_HASH)
    return place


@pytest.fixture
def finishing(monkeypatch):
    """Reward for ending a turn at all, which an untrained model does now and then."""

    def earned(puzzle, outcome) -> float:
        return float(outcome.ended_by != "truncated")

    monkeypatch.setattr("chessrl.stages.rl.choose", lambda *_: earned)


@pytest.fixture
def run(prepared, tiny, weights, tmp_path):
    """RL from these weights, in a folder of its own."""

    def made(name: str, *overrides: str):
        return tiny(
            prepared, "stage=rl", f"checkpoint={weights}", f"out={tmp_path / name}", *overrides
        )

    return made


SCHEMES = {
    "on-policy": (),
    "ppo": ("rl.ahead.scheme=ppo", "rl.ahead.k=4", "rl.loss.name=cispo", "rl.loss.low=0",
            "rl.loss.high=5"),
    "pipeline": ("rl.ahead.scheme=pipeline", "rl.ahead.k=2", "rl.advantage=batch"),
    "refill": ("rl.zero_variance=refill", "rl.refill_rounds=2"),
    "retiring": ("rl.curriculum.name=no-positive-resampling", "rl.curriculum.threshold=0.01"),
    "refreshed": ("rl.kl.estimator=k2", "rl.kl.weight=0.1", "rl.kl.refresh=2"),
    "in the reward": ("rl.kl.estimator=k1", "rl.kl.weight=0.1", "rl.kl.place=reward"),
    "interrupted": ("rl.length.control=interrupt", "rl.length.thought_min=3",
                    "rl.length.thought_max=9"),
    "bf16": ("trainer.rl_precision=bf16-mixed", "rl.fp32_head=true"),
}  # fmt: skip


@pytest.mark.parametrize("name", SCHEMES)
def test_a_killed_run_goes_on_to_the_same_end(name, run, finishing, monkeypatch):
    """Two checkpoints of six steps, killed in the middle of the fourth."""
    settings = (*SHORT, *SCHEMES[name])
    whole, broken = run("whole", *settings), run("broken", *settings)
    rl(whole)
    begin_and_kill(lambda: rl(broken), monkeypatch, 3, Killed)
    result = rl(broken)
    ours, theirs = folder(broken, "rl"), folder(whole, "rl")
    assert curve(ours.metrics) == curve(theirs.metrics)
    moved = [row for row in curve(ours.metrics) if row.get("gradient_norm")]
    assert moved and float(moved[-1]["gradient_norm"]) > 0
    weights = [load_file(out.checkpoints / "model.safetensors") for out in (ours, theirs)]
    assert all(torch.equal(weights[0][key], weights[1][key]) for key in weights[1])
    other = theirs.finished
    assert (result.tokens, result.flops, result.measures) == (
        other.tokens, other.flops, other.measures,
    )  # fmt: skip
    assert (ours.path / "curve.csv").read_text() == (theirs.path / "curve.csv").read_text()


def test_flops_by_hand(run, finishing):
    """2 N per token sampled, 6 N per token of what counts, 2 N per token of the reference."""
    settings = ("rl.zero_variance=drop", "rl.kl.estimator=k3", "rl.kl.weight=0.1")
    made = run("flops", "rl.steps=3", "rl.keep_rollouts=1000", *settings)
    result: Result = rl(made)
    sampled = trained = 0
    for path in sorted((folder(made, "rl").path / "rollouts").glob("*.parquet")):
        groups: dict[int, list] = {}
        for one in episodes_of(read_table(path)):
            groups.setdefault(one.group, []).append(one)
        for group in groups.values():
            read = sum(len(one.prompt) + len(one.tokens) for one in group)
            sampled += read
            trained += read * (len({one.reward for one in group}) > 1)
    n = compute.active_parameters(made.model, len(tokens.TOKENS))
    assert 0 < trained < sampled == result.tokens["rl"]
    assert result.measures["trained_tokens"] == trained
    assert result.flops["rl"] == n * (2 * sampled + 8 * trained)
    with open(folder(made, "rl").metrics, newline="") as file:
        assert float(list(csv.DictReader(file))[-1]["flops"]) == pytest.approx(
            result.flops["rl"], rel=1e-5
        )


def test_what_is_kept_is_bounded(run):
    made = run("kept", *SHORT, "rl.keep_rollouts=40")
    rl(made)
    files = sorted((folder(made, "rl").path / "rollouts").glob("*.parquet"))
    assert [path.stem for path in files] == ["step-00000004", "step-00000005"]  # 16 episodes each


def test_a_cold_run_ends_at_the_gate(run):
    made = run("cold", "rl.gate=8")
    with pytest.raises(InputError, match="nothing can be learned"):
        rl(made)
    assert folder(made, "rl").result.status == "failed"


def test_an_alarm_may_stop_the_run(run):
    """Forty tokens are too few for a model that knows nothing: most episodes are truncated."""
    made = run("alarm", *SHORT, "rl.alarms=stop")
    with pytest.raises(InputError, match=r"run out of tokens: raise rl\.max_new_tokens"):
        rl(made)
    rows = curve(folder(made, "rl").metrics)
    assert len(rows) == 5  # the window is full, and its row is written
    assert rl(run("alarm", *SHORT, "rl.alarms=say")).status == "done"


def test_a_judge_at_fault_stops_the_run_before_it_begins(run, monkeypatch):
    monkeypatch.setattr(
        "chessrl.board.tokens.read_move", lambda board, text: next(iter(board.legal_moves))
    )
    with pytest.raises(Exception, match="judge is at fault"):
        rl(run("judge", *SHORT))


def test_the_reward_by_an_engine_needs_one(run):
    with pytest.raises(InputError, match="engine=stockfish"):
        rl(run("engine", "rl.reward=engine"))


def test_config_and_rewards_name_the_same():
    from chessrl.config.rl import REWARDS

    assert set(REWARDS) == set(rewards.REWARDS)
