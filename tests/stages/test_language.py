"""The step of pretraining and SFT: the same however it is cut, packed or compiled."""

import pytest
import torch
from curves import curve
from safetensors.torch import load_file

from chessrl.policy import machine
from chessrl.policy.machine import can_compile, compile_blocks, keep_memory
from chessrl.policy.weights import new_model
from chessrl.stages.pretrain import pretrain
from chessrl.stages.training import worth_compiling

STEPS = "pretrain.tokens=8e3"


def trained(tiny, prepared, out, *more: str):
    """Losses of each step, gradient norms, and the weights at the end."""
    run = tiny(prepared, "stage=pretrain", f"out={out}", STEPS, "pretrain/optim=adamw", *more)
    pretrain(run)
    rows = curve(out / "metrics.csv")
    weights = load_file(out / "checkpoints" / "model.safetensors")
    return [[float(row[name]) for row in rows] for name in ("loss", "gradient_norm")], weights


@pytest.mark.parametrize("model", ["100k", "1m-moe"])
@pytest.mark.parametrize("microbatch", [128, 384, 1024])
def test_micro_batches_change_nothing(tiny, prepared, tmp_path, model, microbatch):
    """16 rows of 128 in parts of 1, 3 and 8 rows."""
    more = (f"model={model}", "model.router_aux=0") if "moe" in model else (f"model={model}",)
    whole, weights = trained(tiny, prepared, tmp_path / "whole", *more)
    parts, others = trained(
        tiny, prepared, tmp_path / "parts", *more, f"pretrain.microbatch_tokens={microbatch}"
    )
    assert len(whole[0]) == 5
    for ours, theirs in zip(whole, parts, strict=True):
        assert ours[:2] == pytest.approx(theirs[:2], abs=2e-5)
        assert ours == pytest.approx(theirs, abs=2e-3)  # a token may change its expert by rounding
    if "moe" not in model:
        for name, tensor in weights.items():
            torch.testing.assert_close(tensor, others[name], atol=2e-4, rtol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["100k", "1m-moe"])
def test_compiled_training_takes_the_same_steps(tiny, prepared, tmp_path, model):
    if not can_compile("cpu"):
        pytest.skip("no compiler is here")
    eager, _ = trained(tiny, prepared, tmp_path / "eager", f"model={model}")
    torch._dynamo.utils.counters.clear()
    compiled, _ = trained(
        tiny, prepared, tmp_path / "compiled", f"model={model}", "trainer.compile=on"
    )
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] >= 1
    for ours, theirs in zip(eager, compiled, strict=True):
        assert ours[:2] == pytest.approx(theirs[:2], abs=1e-4)
        assert ours == pytest.approx(theirs, abs=2e-3)


@pytest.mark.slow
def test_one_compilation_serves_all_blocks(configure):
    """Of more blocks than torch would compile one by one before it gives up."""
    if not can_compile("cpu"):
        pytest.skip("no compiler is here")
    model = new_model(configure("model=100k", "model.layers=12").model, 95, 0)
    tokens = torch.arange(64)[None]
    documents = torch.ones_like(tokens)
    expected = model(tokens, documents=documents)
    compile_blocks(model)
    torch._dynamo.utils.counters.clear()
    ours = model(tokens, documents=documents)
    ours.sum().backward()
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    torch.testing.assert_close(ours, expected, atol=1e-5, rtol=1e-4)


def test_compiling_is_for_long_stages_and_falls_back(configure, monkeypatch, capsys):
    trainers = {choice: configure(f"trainer.compile={choice}").trainer for choice in
                ("auto", "on", "off")}  # fmt: skip
    monkeypatch.setattr("chessrl.stages.training.can_compile", lambda device: True)
    assert [worth_compiling(trainers[c], 1e15) for c in ("auto", "on", "off")] == [
        True,
        True,
        False,
    ]
    assert [worth_compiling(trainers[c], 1e9) for c in ("auto", "on", "off")] == [
        False,
        True,
        False,
    ]
    assert not capsys.readouterr().err
    monkeypatch.setattr("chessrl.stages.training.can_compile", lambda device: False)
    assert not worth_compiling(trainers["auto"], 1e15)
    assert "no working compiler is here" in capsys.readouterr().err


def test_a_machine_without_a_compiler_is_told_by_trying(monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("no C++ compiler")

    monkeypatch.setattr(machine.torch, "compile", broken)
    assert not can_compile.__wrapped__("cpu")


def test_memory_is_kept_where_the_allocator_can():
    assert keep_memory() in (True, False)  # and is harmless twice
    assert keep_memory() == keep_memory()
