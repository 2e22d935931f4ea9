"""Where the measures of a training go: metrics.csv always, TensorBoard and W&B where asked for."""

import csv
import importlib.util
import io
import os
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import Logger

from chessrl.artifacts import RunFolder, write_text
from chessrl.config import InputError, TrainerConfig

PACKAGES = {"tensorboard": "tensorboard", "wandb": "wandb"}
"""What has to be installed for each of `trainer.loggers`."""


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


class EventFiles(Logger):
    """TensorBoard's event files in `tensorboard/` of the run folder."""

    name, version = "tensorboard", ""

    def __init__(self, folder: Path, first_step: int) -> None:
        """What an earlier part of the run logged from `first_step` on is superseded."""
        super().__init__()
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(str(folder), purge_step=first_step)

    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        """Nothing: config.yaml holds them."""

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        """One scalar for each."""
        for name, value in metrics.items():
            if name != "epoch":
                self.writer.add_scalar(name, value, step)

    def finalize(self, status: str) -> None:
        """Write what is still in memory."""
        self.writer.close()


class WandbRun(Logger):
    """A run of Weights & Biases, named by the identity of ours, so that a resume goes on in it."""

    name, version = "wandb", ""

    def __init__(self, folder: RunFolder, label: str) -> None:
        """Online for a user who is logged in, otherwise in `wandb/` of the run folder alone."""
        super().__init__()
        import wandb

        mode = os.environ.get("WANDB_MODE") or ("online" if wandb.api.api_key else "offline")
        self.run = wandb.init(
            project="chessrl",
            id=folder.identity,
            name=f"{label}-{folder.identity}",
            dir=str(folder.path),
            mode=mode,
            resume="allow",
        )
        # a resumed run repeats steps, which W&B's own counter of steps refuses
        self.run.define_metric("trained_steps")
        self.run.define_metric("*", step_metric="trained_steps")

    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        """Nothing: config.yaml holds them."""

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        """All of a step together."""
        values = {name: value for name, value in metrics.items() if name != "epoch"}
        self.run.log(values | {"trained_steps": step})

    def finalize(self, status: str) -> None:
        """Tell W&B how the run ended."""
        self.run.finish(exit_code=0 if status == "success" else 1)


def check_loggers(config: TrainerConfig) -> None:
    """Refuse a logger whose package is missing, before any work is done.

    Raises:
        InputError: it is; the message says what to install.
    """
    for name in config.loggers:
        if importlib.util.find_spec(PACKAGES[name]) is None:
            raise InputError(
                f"trainer.loggers: {name} is not installed; `pip install {PACKAGES[name]}`, "
                "or leave it out: metrics.csv is written in any case"
            )


def extra_loggers(
    config: TrainerConfig, folder: RunFolder, label: str, first_step: int
) -> list[Logger]:
    """The loggers asked for beside metrics.csv; their files lie in the run folder."""
    made: list[Logger] = []
    if "tensorboard" in config.loggers:
        made.append(EventFiles(folder.path / "tensorboard", first_step))
    if "wandb" in config.loggers:
        made.append(WandbRun(folder, label))
    return made
