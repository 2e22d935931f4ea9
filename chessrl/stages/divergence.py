"""When a run has diverged: its smoothed loss lies far above the best that it had."""

import math
from typing import Any

import lightning as L

from chessrl.config import InputError
from chessrl.stages.checkpoints import Checkpoints

WINDOW = 50
"""Steps over which the loss is averaged."""


class Smoothed:
    """Mean loss of the last `WINDOW` steps, and the lowest it has been.

    The mean of fewer steps counts as a mark to be measured by, so that a run that leaps up in its
    first steps is measured by where it started; but no run has diverged before a whole window.
    """

    def __init__(self) -> None:
        self.losses: list[float] = []
        self.best, self.best_step = math.inf, 0

    def add(self, step: int, loss: float) -> None:
        """Take in the loss in nats of a step."""
        self.losses = [*self.losses, loss][-WINDOW:]
        if self.mean < self.best:
            self.best, self.best_step = self.mean, step

    @property
    def mean(self) -> float:
        """Of the last steps, in nats."""
        return sum(self.losses) / len(self.losses)

    def has_diverged(self, allowed: float) -> bool:
        """Whether the mean lies more than `allowed` nats above the best."""
        return len(self.losses) == WINDOW and self.mean > self.best + allowed


class Divergence(L.Callback):
    """Stops a run whose loss diverges, and leaves a checkpoint from before that as the last."""

    def __init__(self, label: str, allowed: float) -> None:
        """`allowed`: nats above the best smoothed loss."""
        self.label, self.allowed = label, allowed
        self.smoothed = Smoothed()
        self.checkpoints: Checkpoints | None = None
        self._step = 0

    def sound_step(self) -> int:
        """The step up to which the run is known to be sound: that of its best smoothed loss."""
        return self.smoothed.best_step

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Note where the run goes on."""
        self._step = trainer.global_step

    def on_train_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
        """Look at the loss of a step.

        Raises:
            InputError: the run has diverged.
        """
        step = trainer.global_step
        if step == self._step:
            return
        self._step = step
        smoothed = self.smoothed
        smoothed.add(step, float(trainer.callback_metrics["loss"]))
        if not smoothed.has_diverged(self.allowed):
            return
        left = "no checkpoint was saved before"
        if trainer.is_global_zero and self.checkpoints is not None:
            sound = self.checkpoints.go_back()
            if sound is not None:
                left = f"the last checkpoint, {sound.name}, is from before that"
        raise InputError(
            f"{self.label}: the loss diverged, {smoothed.mean:.3g} nats over the last {WINDOW} "
            f"steps at step {step} after {smoothed.best:.3g} at step {smoothed.best_step} "
            f"(trainer.divergence={self.allowed:g}); lower the learning rate; {left}"
        )

    def state_dict(self) -> dict[str, Any]:
        """The rule goes on after a resume."""
        return dict(vars(self.smoothed))

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take up the losses."""
        vars(self.smoothed).update(state_dict)
