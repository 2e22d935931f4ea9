"""The rule that stops a run whose loss rises for good, and the checkpoint it leaves."""

import math
import re

import pytest
import torch
from curves import curve

from chessrl.config import InputError
from chessrl.stages.checkpoints import last_checkpoint, step_of
from chessrl.stages.divergence import WINDOW, Divergence, Smoothed
from chessrl.stages.pretrain import pretrain
from chessrl.stages.training import Steps


def fired(losses: list[float], allowed: float = 1.0) -> int | None:
    """The step at which the rule stops a run with these losses."""
    smoothed = Smoothed()
    for step, loss in enumerate(losses, 1):
        smoothed.add(step, loss)
        if smoothed.has_diverged(allowed):
            return step
    return None


def test_by_hand():
    # mean of 50 after n steps at 6: (50 - n) x 3 + n x 6 over 50 exceeds 3 + 1 first at n = 17
    assert fired([3.0] * 100 + [6.0] * 50) == 117
    assert fired([3.0] * 100 + [4.0] * 500) is None  # 1 nat above, no more


def test_one_spike_and_a_falling_loss_stop_nothing():
    assert fired([3.0] * 60 + [40.0] + [3.0] * 100) is None
    assert fired([4.5 * math.exp(-step / 30) + 1 for step in range(300)]) is None


def test_nothing_is_told_before_a_whole_window():
    assert fired([4.5] + [30.0] * (WINDOW - 2)) is None
    assert fired([4.5] + [30.0] * WINDOW) == WINDOW  # measured by where the run began


def test_the_rule_goes_on_after_a_resume():
    losses = [3.0] * 100 + [6.0] * 50
    for cut in (40, 110):
        first, second = Divergence("x", 1.0), Divergence("x", 1.0)
        for step, loss in enumerate(losses[:cut], 1):
            first.smoothed.add(step, loss)
        second.load_state_dict(first.state_dict())
        for step, loss in enumerate(losses[cut:], cut + 1):
            second.smoothed.add(step, loss)
            if second.smoothed.has_diverged(1.0):
                break
        assert step == 117 and second.sound_step() == first.sound_step()


ABSURD = (
    "stage=pretrain", "pretrain.tokens=4e5", "pretrain.optim.name=adamw", "pretrain.optim.lr=2",
    "pretrain.optim.matrix_lr=0", "pretrain.optim.warmup=0.99", "pretrain.checkpoint_every=5",
)  # fmt: skip


@pytest.fixture(scope="module")
def diverged(prepared, tiny, tmp_path_factory):
    """A run whose rate rises to the absurd: its folder and what stopped it."""
    out = tmp_path_factory.mktemp("diverged")
    with pytest.raises(InputError) as stopped:
        pretrain(tiny(prepared, *ABSURD, f"out={out}"))
    return out, str(stopped.value)


def test_the_last_checkpoint_is_from_before(diverged):
    out, message = diverged
    last = last_checkpoint(out / "checkpoints")
    assert "\n" not in message and "lower the learning rate" in message and last.name in message
    state = torch.load(last, weights_only=True)
    best_step = int(re.search(r"after [0-9.]+ at step (\d+)", message)[1])
    assert best_step - 5 < state["global_step"] == step_of(last) <= best_step
    losses = [float(row["loss"]) for row in curve(out / "metrics.csv")]
    before, end = losses[step_of(last) - 10 : step_of(last)], losses[-10:]
    assert sum(end) / 10 > sum(before) / 10 + 1
    assert len(list((out / "checkpoints").glob("step-*.ckpt"))) == 1


def test_one_that_is_resumed_is_stopped_at_the_same_step(
    diverged, prepared, tiny, tmp_path, monkeypatch
):
    _, message = diverged
    unpatched = Steps.__iter__

    def until_killed(self):
        for number, batch in enumerate(unpatched(self)):
            if number == 42:
                raise RuntimeError("killed")
            yield batch

    run = tiny(prepared, *ABSURD, f"out={tmp_path}")
    monkeypatch.setattr(Steps, "__iter__", until_killed)
    with pytest.raises(RuntimeError, match="killed"):
        pretrain(run)
    monkeypatch.setattr(Steps, "__iter__", unpatched)
    with pytest.raises(InputError) as stopped:
        pretrain(run)
    assert str(stopped.value) == message


def test_it_can_be_turned_off(prepared, tiny, tmp_path, diverged):
    short = (*ABSURD, "trainer.divergence=0", f"out={tmp_path}")
    assert pretrain(tiny(prepared, *short)).status == "done"
