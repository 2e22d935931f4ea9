"""Where measures go: the table, and the loggers that are asked for."""

import csv
import sys
import types
from importlib.machinery import ModuleSpec

import pytest

from chessrl.artifacts import RunFolder
from chessrl.config import InputError
from chessrl.policy.transformer import Transformer
from chessrl.stages import logs
from chessrl.stages.pretrain import pretrain
from chessrl.stages.runs import folder, run_identity
from chessrl.stages.training import on_this_machine


class FakeWandb(types.ModuleType):
    """Remembers what it is told."""

    def __init__(self, key: str | None) -> None:
        super().__init__("wandb")
        self.__spec__ = ModuleSpec("wandb", None)
        self.api = types.SimpleNamespace(api_key=key)
        self.begun, self.logged, self.ended = [], [], []

    def init(self, **settings):
        self.begun.append(settings)
        return types.SimpleNamespace(
            log=self.logged.append,
            define_metric=lambda *_, **__: None,
            finish=lambda exit_code: self.ended.append(exit_code),
        )


class FakeWriter:
    """Stands for TensorBoard's SummaryWriter."""

    made: list["FakeWriter"]

    def __init__(self, folder: str, purge_step: int) -> None:
        self.folder, self.purge_step, self.scalars, self.closed = folder, purge_step, [], False
        self.made.append(self)

    def add_scalar(self, name, value, step):
        self.scalars.append((name, value, step))

    def close(self):
        self.closed = True


@pytest.fixture
def wandb(monkeypatch):
    fake = FakeWandb(key=None)
    monkeypatch.setitem(sys.modules, "wandb", fake)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    return fake


@pytest.fixture
def writers(monkeypatch):
    FakeWriter.made = []
    module = types.ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = FakeWriter
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    tensorboard = types.ModuleType("tensorboard")
    tensorboard.__spec__ = ModuleSpec("tensorboard", None)
    monkeypatch.setitem(sys.modules, "tensorboard", tensorboard)
    return FakeWriter.made


@pytest.mark.parametrize("name", ["tensorboard", "wandb"])
def test_one_that_is_missing_is_refused_with_what_to_install(name, tiny, tmp_path, monkeypatch):
    run = tiny(tmp_path, f"trainer.loggers=[{name}]")
    monkeypatch.setattr(logs.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(InputError, match=f"pip install {name}"):
        on_this_machine(run)


def test_an_unknown_one_is_refused(tiny, tmp_path):
    with pytest.raises(InputError, match="mlflow is neither tensorboard nor wandb"):
        tiny(tmp_path, "trainer.loggers=[mlflow]")


def test_loggers_change_no_identity(tiny, tmp_path):
    plain, more = tiny(tmp_path), tiny(tmp_path, "trainer.loggers=[wandb]", "trainer.divergence=3")
    assert run_identity(plain, "rl") == run_identity(more, "rl")


def test_all_get_the_rows_of_the_table(prepared, tiny, tmp_path, wandb, writers):
    run = tiny(prepared, "stage=pretrain", f"out={tmp_path}", "trainer.loggers=[tensorboard,wandb]")
    on_this_machine(run)
    pretrain(run)
    with open(folder(run, "pretrain").metrics, newline="") as file:
        table = list(csv.DictReader(file))
    assert [int(row["step"]) for row in table] == list(range(18))
    (writer,) = writers
    assert writer.closed and writer.purge_step == 0
    assert writer.folder == str(tmp_path / "tensorboard")
    assert [values["trained_steps"] for values in wandb.logged] == list(range(18))
    for row, values in zip(table, wandb.logged, strict=True):
        there = {name: float(value) for name, value in row.items() if value and name != "step"}
        assert there == pytest.approx(
            {n: v for n, v in values.items() if n != "trained_steps"}, 1e-4
        )
        scalars = {name: v for name, v, step in writer.scalars if step == int(row["step"])}
        assert there == pytest.approx(scalars, 1e-4)
    assert wandb.ended == [0]


@pytest.mark.parametrize(
    ("key", "asked", "mode"),
    [(None, None, "offline"), ("secret", None, "online"), ("secret", "disabled", "disabled")],
)
def test_wandb_goes_on_in_the_run_of_our_identity(key, asked, mode, wandb, tmp_path, monkeypatch):
    wandb.api.api_key = key
    if asked:
        monkeypatch.setenv("WANDB_MODE", asked)
    logs.WandbRun(RunFolder(tmp_path, "0123456789ab"), "pretrain").finalize("failed")
    (settings,) = wandb.begun
    assert settings["id"] == "0123456789ab" and settings["resume"] == "allow"
    assert settings["mode"] == mode and settings["dir"] == str(tmp_path)
    assert wandb.ended == [1]


def test_what_is_logged(prepared, tiny, tmp_path, capsys):
    run = tiny(prepared, "stage=pretrain", f"out={tmp_path}", "pretrain.log_every=3")
    pretrain(run)
    with open(tmp_path / "metrics.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["step"]) for row in rows] == [2, 5, 8, 11, 14, 17]
    for row in rows:
        assert float(row["nats_per_ply"]) > 2 * float(row["loss"])  # a move has 3 tokens or more
        assert float(row["lr_decayed"]) == float(row["lr_plain"]) < float(row["lr_matrices"])
        assert float(row["gradient_norm"]) > 0 and float(row["tokens_per_second"]) > 0
    assert [float(row["seconds"]) for row in rows] == sorted(float(row["seconds"]) for row in rows)
    said = capsys.readouterr().err
    assert "18/18 steps" in said
    assert all(words in said for words in ("s to go", "nats/token", "nats/ply", "tokens/s"))


def test_the_parameter_norm_is_that_of_all_weights(prepared, tiny, tmp_path):
    from safetensors.torch import load_file

    run = tiny(prepared, "stage=pretrain", f"out={tmp_path}")
    pretrain(run)
    weights = load_file(tmp_path / "checkpoints" / "model.safetensors")
    total = sum(float(w.double().square().sum()) for w in weights.values()) ** 0.5
    with open(tmp_path / "metrics.csv", newline="") as file:
        last = list(csv.DictReader(file))[-1]
    assert len(weights) == len(list(Transformer(run.model, 95).parameters()))
    assert float(last["parameter_norm"]) == pytest.approx(total, rel=1e-5)
