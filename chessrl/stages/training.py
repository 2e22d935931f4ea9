"""What the training stages share: Lightning, set up so that all log, save and resume alike."""

import csv
import dataclasses
import io
import logging
import time
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.fabric.plugins import TorchCheckpointIO
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import Logger

from chessrl.artifacts import RunFolder, atomic_path, write_text
from chessrl.config import InputError, Run, TrainerConfig
from chessrl.policy.machine import COMPILE_FROM, can_compile, keep_memory
from chessrl.progress import Meter, say


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


def last_checkpoint(folder: Path) -> Path | None:
    """The newest checkpoint that can be read; damaged ones are named and passed over."""
    for path in sorted(folder.glob("step-*.ckpt"), reverse=True):
        try:
            with zipfile.ZipFile(path) as archive:
                damaged = archive.testzip()  # checksums, which torch.load does not look at
        except (zipfile.BadZipFile, EOFError, OSError) as error:
            damaged = str(error)
        if damaged is None:
            return path
        say(f"{path} is damaged ({damaged}), going back to the one before")
    return None


class MetricsTable(Logger):
    """metrics.csv: one row per step, columns in the order of their first appearance.

    A resumed run keeps the earlier rows; a step that is logged again replaces its row.
    """

    name, version = "metrics", ""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.rows: dict[int, dict[str, Any]] = {}
        if path.exists():
            with open(path, newline="", encoding="utf-8") as file:
                self.rows = {int(row["step"]): row for row in csv.DictReader(file)}

    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        """Nothing: config.yaml holds them."""

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        """Add to the row of a step."""
        values = {name: f"{value:.6g}" for name, value in metrics.items() if name != "epoch"}
        if values:
            self.rows[step] = self.rows.get(step, {"step": step}) | values

    def save(self) -> None:
        """Write the table, whole or not at all."""
        columns = dict.fromkeys(name for row in self.rows.values() for name in row)
        text = io.StringIO()
        table = csv.DictWriter(text, list(columns), restval="", lineterminator="\n")
        table.writeheader()
        table.writerows(self.rows[step] for step in sorted(self.rows))
        write_text(self.path, text.getvalue())

    def finalize(self, status: str) -> None:
        """Write the table at the end, whatever the end was."""
        if self.rows:
            self.save()


class Watch(L.Callback):
    """Shows progress, and keeps metrics.csv and the clock."""

    def __init__(self, label: str, steps: int, table: MetricsTable, shown: Iterable[str]) -> None:
        self.label, self.steps, self.table, self.shown = label, steps, table, tuple(shown)
        self.seconds = 0.0
        """Spent in training, earlier parts of a resumed run included."""

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Open the meter."""
        self._clock = time.monotonic()
        self._step = trainer.global_step
        self.meter = Meter(self.label, self.steps, done=trainer.global_step).__enter__()

    def on_train_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
        """One step is done, or a part of it."""
        now = time.monotonic()
        self.seconds += now - self._clock
        self._clock = now
        logged = trainer.logged_metrics
        facts = {name: float(logged[name]) for name in self.shown if name in logged}
        self.meter.advance(trainer.global_step, **facts)

    def on_exception(self, *_: Any) -> None:
        """Close the meter."""
        self.meter.__exit__(None, None, None)

    def on_train_end(self, *_: Any) -> None:
        """Close the meter."""
        self.meter.__exit__(None, None, None)

    def on_save_checkpoint(self, *_: Any) -> None:
        """What is saved can be continued: so must its table be on disk."""
        self.table.save()

    def state_dict(self) -> dict[str, float]:
        """The clock goes on after a resume."""
        return {"seconds": self.seconds}

    def load_state_dict(self, state_dict: dict[str, float]) -> None:
        """Take up the clock."""
        self.seconds = state_dict["seconds"]


class Steps(Iterable):
    """Batches of a run from the step at which the trainer stands: `batch_of(step)` is pure.

    Where gradients are accumulated, each batch comes in that many parts.
    """

    def __init__(self, batch_of: Callable[[int], Any], steps: int, trainer: L.Trainer) -> None:
        self.batch_of, self.steps, self.trainer = batch_of, steps, trainer

    def __iter__(self) -> Iterator[Any]:
        parts = self.trainer.accumulate_grad_batches
        for step in range(self.trainer.global_step, self.steps):
            batch = self.batch_of(step)
            yield from [batch] if parts == 1 else (batch.part(i, parts) for i in range(parts))


def fit(
    module: L.LightningModule,
    batch_of: Callable[[int], Any],
    *,
    label: str,
    steps: int,
    folder: RunFolder,
    config: TrainerConfig,
    precision: str,
    checkpoint_every: int,
    log_every: int,
    shown: Iterable[str],
    parts: int = 1,
) -> float:
    """Train a module to `steps`, going on from its last readable checkpoint if there is one.

    Args:
        batch_of: batch of a step from 0, the same whenever it is asked for.
        shown: logged names to show with the progress.
        parts: parts of a batch whose gradients are added up, one after the other.

    Returns:
        Seconds spent in training, earlier parts included.
    """
    keep_memory()
    table = MetricsTable(folder.metrics)
    watch = Watch(label, steps, table, shown)
    keep = ModelCheckpoint(
        dirpath=folder.checkpoints,
        filename="step-{step:08d}",
        auto_insert_metric_name=False,
        every_n_train_steps=checkpoint_every,
        monitor="step",
        mode="max",
        save_top_k=2,
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="lightning")
        trainer = L.Trainer(
            accelerator=config.accelerator,
            devices=config.devices,
            precision=precision,
            max_steps=steps,
            accumulate_grad_batches=parts,
            logger=table,
            log_every_n_steps=log_every,
            callbacks=[watch, keep],
            enable_progress_bar=False,
            enable_model_summary=False,
            plugins=[AtomicCheckpoints()],
            use_distributed_sampler=False,
        )
        resume = last_checkpoint(folder.checkpoints)
        if resume is not None:
            say(f"{label}: going on from {resume}")
        try:
            batches = Steps(batch_of, steps, trainer)
            trainer.fit(module, batches, ckpt_path=resume, weights_only=True)
        except SystemExit:  # what Lightning makes of SIGINT and SIGTERM
            raise KeyboardInterrupt from None
    return watch.seconds


def on_this_machine(run: Run) -> Run:
    """The configuration with `auto` settled, so that it takes part in the identity.

    Raises:
        InputError: the accelerator is not here.
    """
    trainer = run.trainer
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.mps.is_available()}
    if not there[trainer.accelerator]:
        raise InputError(
            f"trainer.accelerator={trainer.accelerator}: there is none on this machine"
        )
    if trainer.precision != "auto":
        return run
    bf16 = trainer.accelerator != "cpu" or _cpu_has_bf16()
    settled = dataclasses.replace(trainer, precision="bf16-mixed" if bf16 else "32-true")
    return dataclasses.replace(run, trainer=settled)


def _cpu_has_bf16() -> bool:
    return any(has for name, has in torch.cpu.get_capabilities().items() if name.endswith("bf16"))


def worth_compiling(config: TrainerConfig, flops: float) -> bool:
    """Whether a stage of so many FLOPs is to be compiled; asked for in vain, it says so."""
    if config.compile == "off" or (config.compile == "auto" and flops < COMPILE_FROM):
        return False
    if can_compile(config.accelerator):
        return True
    say("no working compiler is here: training goes on without, at about half the speed")
    return False


def device_of(config: TrainerConfig) -> torch.device:
    """Where a model works outside of Lightning's training."""
    return torch.device(config.accelerator)


def check_finite(value: torch.Tensor, what: str, label: str, step: int) -> None:
    """Stop a run whose loss or gradient is no longer a number, before it is applied.

    Raises:
        InputError: it is not.
    """
    if not torch.isfinite(value):
        raise InputError(
            f"{label}: the {what} is {value.item()} at step {step}; lower the learning rate. "
            "The last checkpoint is whole"
        )


def quiet() -> None:
    """Keep Lightning's remarks on hardware and loaders out of the log."""
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
