"""Optimisers: who is decayed, what the schedule gives, and that a resumed run goes on the same."""

import math

import pytest
import torch
from torch import nn
from torch.optim import AdamW, Muon

from chessrl.config import OptimConfig
from chessrl.policy.optim import (
    MuonAdamW,
    branching_step,
    build_optimizer,
    build_schedule,
    schedule,
)

MUON = OptimConfig(name="muon", lr=1e-2, matrix_lr=3e-2, weight_decay=0.1, warmup=0.2)
ADAMW = OptimConfig(name="adamw", lr=1e-2, weight_decay=0.1, warmup=0.2)


def names(model: nn.Module, group: dict) -> set[str]:
    return {
        name
        for name, parameter in model.named_parameters()
        if any(parameter is other for other in group["params"])
    }


def test_norms_and_embeddings_are_not_decayed(model):
    optimizer = build_optimizer(model, ADAMW)
    assert type(optimizer) is AdamW
    decayed, plain = optimizer.param_groups
    assert (decayed["weight_decay"], plain["weight_decay"]) == (0.1, 0.0)
    assert (decayed["lr"], decayed["betas"]) == (1e-2, (0.9, 0.95))
    assert names(model, plain) == {"embedding.weight", "final_norm.weight"} | {
        f"blocks.{i}.{norm}.weight"
        for i in range(2)
        for norm in ("input_norm", "ffn_norm", "attention.q_norm", "attention.k_norm")
    }
    everything = {name for name, _ in model.named_parameters()}
    assert names(model, decayed) == everything - names(model, plain)


def test_muon_takes_the_matrices_of_the_blocks(model):
    optimizer = build_optimizer(model, MUON)
    assert isinstance(optimizer, MuonAdamW)
    matrices, decayed, plain = optimizer.param_groups
    assert names(model, matrices) == {
        f"blocks.{i}.{matrix}.weight"
        for i in range(2)
        for matrix in (
            "attention.q_proj", "attention.k_proj", "attention.v_proj", "attention.o_proj",
            "gate_proj", "up_proj", "down_proj",
        )
    }  # fmt: skip
    assert names(model, decayed) == {"head.weight"}
    assert "embedding.weight" in names(model, plain)
    assert [group["lr"] for group in optimizer.param_groups] == [3e-2, 1e-2, 1e-2]
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.1, 0.1, 0.0]
    taken = [p for group in optimizer.param_groups for p in group["params"]]
    assert len(taken) == len(list(model.parameters()))


def steps(model, optimizer, scheduler, first: int, last: int) -> None:
    """Descend on a loss that differs from step to step."""
    for step in range(first, last):
        generator = torch.Generator().manual_seed(step)
        tokens = torch.randint(13, (2, 9), generator=generator)
        logits = model(tokens[:, :-1])
        nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()


def test_one_optimiser_of_two_steps_as_the_two(model):
    start = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    optimizer = build_optimizer(model, MUON)
    steps(model, optimizer, build_schedule(optimizer, MUON, 3), 0, 3)
    together = {name: tensor.clone() for name, tensor in model.state_dict().items()}

    model.load_state_dict(start)
    named = dict(model.named_parameters())
    matrix = {n for n, p in named.items() if "blocks." in n and p.ndim == 2}
    muon = Muon([named[n] for n in named if n in matrix], lr=3e-2, weight_decay=0.1)
    plain = [n for n in named if n not in matrix and n != "head.weight"]
    adamw = AdamW(
        [{"params": [named["head.weight"]], "weight_decay": 0.1},
         {"params": [named[n] for n in plain], "weight_decay": 0.0}],
        lr=1e-2, betas=(0.9, 0.95),
    )  # fmt: skip
    share = schedule(MUON, 3)
    for step in range(3):
        for group, rate in [(muon.param_groups[0], 3e-2)] + [(g, 1e-2) for g in adamw.param_groups]:
            group["lr"] = rate * share(step)
        generator = torch.Generator().manual_seed(step)
        tokens = torch.randint(13, (2, 9), generator=generator)
        logits = model(tokens[:, :-1])
        nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()
        muon.step()
        adamw.step()
        model.zero_grad()
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(tensor, together[name], atol=1e-5, rtol=1e-4)
        assert not torch.equal(tensor, start[name])


@pytest.mark.parametrize("config", [MUON, ADAMW], ids=lambda config: config.name)
def test_a_resumed_run_takes_the_same_steps(model, config, tmp_path):
    optimizer = build_optimizer(model, config)
    scheduler = build_schedule(optimizer, config, 8)
    steps(model, optimizer, scheduler, 0, 3)
    state = (model.state_dict(), optimizer.state_dict(), scheduler.state_dict())
    torch.save(state, tmp_path / "state.pt")
    steps(model, optimizer, scheduler, 3, 6)
    straight = {name: tensor.clone() for name, tensor in model.state_dict().items()}

    weights, moments, place = torch.load(tmp_path / "state.pt", weights_only=True)
    model.load_state_dict(weights)
    optimizer = build_optimizer(model, config)
    scheduler = build_schedule(optimizer, config, 8)
    optimizer.load_state_dict(moments)
    scheduler.load_state_dict(place)
    steps(model, optimizer, scheduler, 3, 6)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, straight[name]), name


def test_the_schedule_drives_both_parts_also_after_loading(model):
    optimizer = build_optimizer(model, MUON)
    optimizer.load_state_dict(build_optimizer(model, MUON).state_dict())
    scheduler = build_schedule(optimizer, MUON, 10)
    share = schedule(MUON, 10)
    for step in range(10):
        rates = [group["lr"] for part in optimizer.parts for group in part.param_groups]
        expected = [3e-2 * share(step), 1e-2 * share(step), 1e-2 * share(step)]
        assert rates == pytest.approx(expected)
        assert [group["lr"] for group in optimizer.param_groups] == rates
        optimizer.step()
        scheduler.step()
        if step == 4:  # in the middle as well
            optimizer.load_state_dict(optimizer.state_dict())


def test_gradients_are_cleared_in_both_parts(model):
    optimizer = build_optimizer(model, MUON)
    model(torch.arange(5)[None]).sum().backward()
    optimizer.zero_grad()
    assert all(parameter.grad is None for parameter in model.parameters())


def test_the_schedule_by_hand():
    share = schedule(OptimConfig(name="adamw", lr=1.0, warmup=0.2, final=0.1), 21)
    # 4 of 21 steps warm up: 1/5, 2/5, 3/5, 4/5, then the peak
    assert [share(step) for step in range(5)] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    # half way from step 4 to step 20 the cosine is 0: 0.1 + 0.9 / 2
    assert share(12) == pytest.approx(0.55)
    # a quarter: 0.1 + 0.9 (1 + cos 45 deg) / 2
    assert share(8) == pytest.approx(0.1 + 0.45 * (1 + math.sqrt(0.5)))
    assert share(20) == pytest.approx(0.1)  # the last step
    assert share(21) == share(100) == pytest.approx(0.1)  # and never up again


def test_warmup_stable_decay_by_hand():
    config = OptimConfig(
        name="adamw", lr=1.0, schedule="wsd", warmup=0.0, warmup_steps=4, decay=0.25, final=0.2
    )
    share = schedule(config, 20)
    assert [share(step) for step in range(5)] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    assert [share(step) for step in range(4, 16)] == [1.0] * 12
    # five steps decay: 0, 1/4, 1/2, 3/4 and all of it done; 0.2 + 0.8 (1 - sqrt)
    down = [1.0, 0.6, 1 - 0.8 * math.sqrt(0.5), 1 - 0.8 * math.sqrt(0.75), 0.2]
    assert [share(step) for step in range(15, 20)] == pytest.approx(down)
    assert share(20) == share(99) == pytest.approx(0.2)
    longer = schedule(config, 200)  # begins in the same way
    assert [longer(step) for step in range(15)] == [share(step) for step in range(15)]
    assert (branching_step(config, 20), branching_step(config, 200)) == (15, 150)


def test_a_final_share_of_1_stays_at_the_peak():
    share = schedule(OptimConfig(name="adamw", lr=1.0, warmup=0.5, final=1.0), 4)
    assert [share(step) for step in range(4)] == pytest.approx([1 / 3, 2 / 3, 1, 1])


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("warmup", [0.0, 0.05, 0.9])
def test_short_runs_have_a_schedule_too(count, warmup):
    share = schedule(OptimConfig(name="adamw", lr=1.0, warmup=warmup), count)
    assert all(0 < share(step) <= 1 for step in range(count + 1))


def test_norm_weights_move():
    # pains 51: at the default rate no norm stays exactly at 1
    torch.manual_seed(0)
    layer = nn.Sequential(nn.Linear(4, 4), nn.RMSNorm(4), nn.Linear(4, 1))
    config = OptimConfig(name="adamw", lr=3e-4, warmup=0.0)
    optimizer = build_optimizer(layer, config)
    for _ in range(50):
        layer(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    assert (layer[1].weight != 1.0).all()
