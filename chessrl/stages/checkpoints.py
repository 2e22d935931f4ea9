"""Checkpoints of training: they appear whole, are checked when read, and a sound one is kept."""

import math
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.fabric.plugins import TorchCheckpointIO
from lightning.pytorch.callbacks import Checkpoint

from chessrl.artifacts import atomic_path
from chessrl.progress import say

KEPT = 2
"""Newest checkpoints that stay, so that one may be damaged."""


class AtomicCheckpoints(TorchCheckpointIO):
    """Checkpoints that appear whole or not at all, and load without running pickled code."""

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None
    ) -> None:
        """Write beside the place, then move there."""
        with atomic_path(Path(path)) as temporary:
            torch.save(checkpoint, temporary)

    def load_checkpoint(
        self, path: Any, map_location: Any = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Read plain data and tensors only."""
        return torch.load(path, map_location="cpu", weights_only=True)


def step_of(path: Path) -> int:
    """Steps done when a checkpoint was saved."""
    return int(path.stem.removeprefix("step-"))


def checkpoints_in(folder: Path) -> list[Path]:
    """Training states, the oldest first."""
    return sorted(folder.glob("step-*.ckpt"), key=step_of)


def last_checkpoint(folder: Path, at_most: float = math.inf) -> Path | None:
    """The newest checkpoint of at most so many steps that can be read.

    Damaged ones are named and passed over.
    """
    for path in reversed(checkpoints_in(folder)):
        if step_of(path) > at_most:
            continue
        try:
            with zipfile.ZipFile(path) as archive:
                damaged = archive.testzip()  # checksums, which torch.load does not look at
        except (zipfile.BadZipFile, EOFError, OSError) as error:
            damaged = str(error)
        if damaged is None:
            return path
        say(f"{path} is damaged ({damaged}), going back to the one before")
    return None


def newest(*paths: Path | None) -> Path | None:
    """The checkpoint of the most steps."""
    return max((path for path in paths if path is not None), key=step_of, default=None)


class Checkpoints(Checkpoint):
    """Saves the state every so many steps, and removes what is no longer needed.

    The two newest stay, and the newest one up to the last step that is known to be sound.
    """

    def __init__(self, folder: Path, every: int, sound: Callable[[], int | None]) -> None:
        """`sound` tells that step, or None where nothing watches over the loss."""
        self.folder, self.every, self.sound = folder, every, sound
        self._step = 0

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Note where the run goes on."""
        self._step = trainer.global_step

    def on_train_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
        """Save where it is time to."""
        step = trainer.global_step
        if step == self._step:
            return
        self._step = step
        if step % self.every == 0:
            trainer.save_checkpoint(self.folder / f"step-{step:08d}.ckpt")
            if trainer.is_global_zero:
                self._rotate()

    def _rotate(self) -> None:
        saved = checkpoints_in(self.folder)
        kept = set(saved[-KEPT:])
        if (sound := self.last_sound()) is not None:
            kept.add(sound)
        for path in saved:
            if path not in kept:
                path.unlink()

    def last_sound(self) -> Path | None:
        """The newest checkpoint up to the last step known to be sound."""
        bound = self.sound()
        if bound is None:
            return None
        return max(
            (path for path in checkpoints_in(self.folder) if step_of(path) <= bound),
            key=step_of,
            default=None,
        )

    def go_back(self) -> Path | None:
        """Remove what was saved after the last sound checkpoint, and return that."""
        sound = self.last_sound()
        for path in checkpoints_in(self.folder):
            if sound is None or step_of(path) > step_of(sound):
                path.unlink()
        return sound
