"""Watching over a training: progress for the person, speed and norms for the logs."""

import time
from collections import deque
from collections.abc import Mapping
from typing import Any

import lightning as L
import torch
from torch.nn.utils import get_total_norm

from chessrl.progress import Meter
from chessrl.stages.logs import MetricsTable
from chessrl.stages.sharding import whole

RECENT = 20
"""Steps over which the speed is measured."""


class Watch(L.Callback):
    """Shows progress, and keeps metrics.csv and the clock."""

    def __init__(
        self, label: str, steps: int, table: MetricsTable, shown: Mapping[str, str], counted: str
    ) -> None:
        """Args:
        shown: measures to show, from the words for them to the names under which they are logged.
        counted: name under which the tokens so far are logged.
        """
        self.label, self.steps, self.table = label, steps, table
        self.shown, self.counted = shown, counted
        self.seconds = 0.0
        """Spent in training, earlier parts of a resumed run included."""
        self._recent: deque[tuple[float, float]] = deque(maxlen=RECENT + 1)
        self._step = 0
        self.meter: Meter | None = None

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Open the meter."""
        self._clock = time.monotonic()
        self._step = trainer.global_step
        if trainer.is_global_zero:
            self.meter = Meter(self.label, self.steps, done=trainer.global_step).__enter__()

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: L.LightningModule, *_: Any) -> None:
        """One step is done."""
        step = trainer.global_step
        if step == self._step:
            return
        self._step = step
        now = time.monotonic()
        self.seconds += now - self._clock
        self._clock = now
        logged = trainer.callback_metrics
        self._recent.append((now, float(logged[self.counted])))
        if step % trainer.log_every_n_steps == 0:
            with torch.no_grad():
                norm = whole(get_total_norm(list(pl_module.parameters())))
            measures = {"parameter_norm": norm, "seconds": self.seconds}
            if (speed := self.speed) is not None:
                measures["tokens_per_second"] = speed
            pl_module.log_dict(measures)
        if self.meter is not None:
            facts = {words: float(logged[name]) for words, name in self.shown.items()}
            if self.speed is not None:
                facts["tokens/s"] = f"{self.speed:,.0f}"
            self.meter.advance(step, **facts)

    @property
    def speed(self) -> float | None:
        """Tokens per second over the last steps; None before two are done."""
        (began, before), (ended, after) = self._recent[0], self._recent[-1]
        return (after - before) / (ended - began) if ended > began else None

    def on_exception(self, *_: Any) -> None:
        """Close the meter."""
        self._close()

    def on_train_end(self, *_: Any) -> None:
        """Close the meter."""
        self._close()

    def _close(self) -> None:
        if self.meter is not None:
            self.meter.__exit__(None, None, None)

    def on_save_checkpoint(self, trainer: L.Trainer, *_: Any) -> None:
        """What is saved can be continued: so must its table be on disk."""
        if trainer.is_global_zero:
            self.table.save()

    def state_dict(self) -> dict[str, float]:
        """The clock goes on after a resume."""
        return {"seconds": self.seconds}

    def load_state_dict(self, state_dict: dict[str, float]) -> None:
        """Take up the clock."""
        self.seconds = state_dict["seconds"]
