"""The rule that stops a run whose loss rises for good, and the checkpoint it leaves."""

import math

import pytest
import torch
from curves import curve
from torch.optim.lr_scheduler import LambdaLR

from chessrl.config import InputError
from chessrl.stages import language
from chessrl.stages.checkpoints import checkpoints_in, last_checkpoint, step_of
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


HEALTHY = 60
SETTINGS = (
    "stage=pretrain", "pretrain.tokens=2.4e5", "pretrain.optim.name=adamw",
    "pretrain.optim.lr=5e-3", "pretrain.optim.matrix_lr=0", "pretrain.checkpoint_every=5",
)  # fmt: skip


@pytest.fixture(autouse=True)
def absurd_rate(monkeypatch):
    """A rate that is a thousand times too high after so many steps."""
    monkeypatch.setattr(
        language,
        "build_schedule",
        lambda optimizer, *_: LambdaLR(optimizer, lambda step: 1.0 if step < HEALTHY else 1e3),
    )


def stopped(run) -> str:
    """The line with which a run is stopped."""
    with pytest.raises(InputError) as line:
        pretrain(run)
    return str(line.value)


def test_a_diverging_run_leaves_a_sound_checkpoint_also_when_resumed(
    prepared, tiny, tmp_path, monkeypatch
):
    out = tmp_path / "unbroken"
    message = stopped(tiny(prepared, *SETTINGS, f"out={out}"))
    last = last_checkpoint(out / "checkpoints")
    assert "\n" not in message and "lower the learning rate" in message and last.name in message
    assert torch.load(last, weights_only=True)["global_step"] == HEALTHY
    assert all(step_of(path) <= HEALTHY for path in checkpoints_in(out / "checkpoints"))
    losses = [float(row["loss"]) for row in curve(out / "metrics.csv")]
    assert HEALTHY <= len(losses) < 110  # of 120 steps
    assert max(losses[HEALTHY - 10 : HEALTHY]) < 4.2

    unpatched = Steps.__iter__

    def until_killed(self):
        for number, batch in enumerate(unpatched(self)):
            if number == HEALTHY + 1:
                raise RuntimeError("killed")
            yield batch

    run = tiny(prepared, *SETTINGS, f"out={tmp_path / 'resumed'}")
    monkeypatch.setattr(Steps, "__iter__", until_killed)
    with pytest.raises(RuntimeError, match="killed"):
        pretrain(run)
    monkeypatch.setattr(Steps, "__iter__", unpatched)
    assert stopped(run) == message
