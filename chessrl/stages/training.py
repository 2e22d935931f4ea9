"""What the training stages share: Lightning, set up so that all log, save and resume alike."""

import dataclasses
import logging
import signal
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import lightning as L
import torch

from chessrl.artifacts import RunFolder
from chessrl.config import InputError, Run, TrainerConfig
from chessrl.policy.machine import COMPILE_FROM, can_compile, keep_memory
from chessrl.progress import say
from chessrl.stages.checkpoints import (
    AtomicCheckpoints,
    Checkpoints,
    last_checkpoint,
    newest,
    step_of,
)
from chessrl.stages.divergence import Divergence
from chessrl.stages.group import group, placement
from chessrl.stages.logs import MetricsTable, check_loggers, extra_loggers
from chessrl.stages.watch import Watch


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
    shown: Mapping[str, str],
    counted: str,
    watched: bool,
    adds_up: bool = False,
    parts: int = 1,
    start: Path | None = None,
    end: Path | None = None,
) -> float:
    """Train a module to `steps`, going on from its last readable checkpoint if there is one.

    Args:
        batch_of: batch of a step from 0, the same whenever it is asked for.
        shown: measures to show with the progress: the words for them, and their logged names.
        counted: logged name of the tokens so far, of which the speed is told.
        watched: whether a logged `loss` that rises for good stops the run.
        adds_up: whether the module adds up the gradients of several processes itself.
        parts: parts of a batch whose gradients are added up, one after the other.
        start: checkpoint to go on from where the folder has none that is newer.
        end: where the checkpoint of the last step is kept.

    Returns:
        Seconds spent in training, earlier parts included.
    """
    keep_memory()
    place = group()
    resume = newest(last_checkpoint(folder.checkpoints, at_most=steps), start)
    if resume is not None:
        say(f"{label}: going on from {resume}")
    done = 0 if resume is None else step_of(resume)
    table = MetricsTable(folder.metrics)
    watch = Watch(label, steps, table, shown, counted)
    divergence = Divergence(label, config.divergence) if watched and config.divergence else None
    keep = Checkpoints(
        folder.checkpoints,
        checkpoint_every,
        sound=lambda: None if divergence is None else divergence.sound_step(),
    )
    if divergence is not None:
        divergence.checkpoints = keep
    where = placement(config, place, adds_up)
    where["plugins"] += [AtomicCheckpoints()]
    loggers = [table, *extra_loggers(config, folder, label, done)] if place.leads else []
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="lightning")
        trainer = L.Trainer(
            **where,
            precision=precision,
            max_steps=steps,
            accumulate_grad_batches=parts,
            logger=loggers,
            log_every_n_steps=log_every,
            callbacks=[OwnSignals(), watch, *([] if divergence is None else [divergence]), keep],
            enable_progress_bar=False,
            enable_model_summary=False,
            use_distributed_sampler=False,
        )
        try:
            batches = Steps(batch_of, steps, trainer)
            trainer.fit(module, batches, ckpt_path=resume, weights_only=True)
            if end is not None:
                trainer.save_checkpoint(end)
        except SystemExit:  # what Lightning makes of KeyboardInterrupt
            raise KeyboardInterrupt from None
    return watch.seconds


class OwnSignals(L.Callback):
    """Takes SIGTERM back from Lightning.

    Its handler enters a collective with the other processes, in the middle of another perhaps.
    """

    def __init__(self) -> None:
        self._sigterm = signal.getsignal(signal.SIGTERM)

    def on_train_start(self, *_: Any) -> None:
        """By now Lightning has taken it."""
        signal.signal(signal.SIGTERM, self._sigterm)


def on_this_machine(run: Run) -> Run:
    """The configuration with `auto` settled, so that it takes part in the identity.

    Raises:
        InputError: the accelerator, or what a logger needs, is not here.
    """
    trainer = run.trainer
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.mps.is_available()}
    if not there[trainer.accelerator]:
        raise InputError(
            f"trainer.accelerator={trainer.accelerator}: there is none on this machine"
        )
    if trainer.accelerator == "cuda" and trainer.devices > torch.cuda.device_count():
        raise InputError(
            f"trainer.devices={trainer.devices}: this machine has {torch.cuda.device_count()}"
        )
    check_loggers(trainer)
    if trainer.precision != "auto":
        return run
    bf16 = trainer.accelerator != "cpu" or _cpu_has_bf16()
    settled = dataclasses.replace(trainer, precision="bf16-mixed" if bf16 else "32-true")
    return dataclasses.replace(run, trainer=settled)


def _cpu_has_bf16() -> bool:
    return any(has for name, has in torch.cpu.get_capabilities().items() if name.endswith("bf16"))


def worth_compiling(config: TrainerConfig, flops: float) -> bool:
    """Whether a stage of so many FLOPs is to be compiled; asked for in vain, it says so."""
    if config.devices > 1 and config.strategy == "fsdp":
        return False
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
