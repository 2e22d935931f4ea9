"""Experts: against a loop over tokens, and the measures of their use by hand."""

import dataclasses
import math

import pytest
import torch
import torch.nn.functional as F
from torch.optim import Muon
from torch.utils.flop_counter import FlopCounterMode

from chessrl import compute
from chessrl.config import ModelConfig, OptimConfig
from chessrl.policy.experts import Experts, balance_loss, counts_of, use_of_experts
from chessrl.policy.optim import build_optimizer
from chessrl.policy.sampling import Turns, sample
from chessrl.policy.transformer import Transformer
from chessrl.policy.weights import load_model, new_model, save_model

SHAPE = ModelConfig(
    name="moe", width=8, layers=2, heads=2, kv_heads=1, head_dim=4, ffn=0, experts=5,
    experts_per_token=2, expert_ffn=6, router_aux=0.01,
)  # fmt: skip
VOCABULARY = 13


@pytest.fixture
def moe() -> Transformer:
    """Routers decided enough to differ from token to token."""
    model = new_model(SHAPE, VOCABULARY, 0)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.copy_(0.5 * torch.randn(parameter.shape, generator=generator))
    return model.eval()


def token_by_token(experts: Experts, row: torch.Tensor) -> torch.Tensor:
    """What the paper says of one token (D,)."""
    probabilities = (experts.router.weight @ row).softmax(0)
    chosen = sorted(range(len(probabilities)), key=lambda i: -probabilities[i])
    chosen = chosen[: experts.per_token]
    total = sum(probabilities[i] for i in chosen) if experts.normalised else 1.0
    outcome = torch.zeros_like(row)
    for i in chosen:
        member = experts.members[i]
        gate, up = member.gate_proj.weight @ row, member.up_proj.weight @ row
        outcome += probabilities[i] / total * (member.down_proj.weight @ (F.silu(gate) * up))
    return outcome


@pytest.mark.parametrize("normalised", [True, False])
@pytest.mark.parametrize("per_token", [1, 2, 5])
def test_tokens_pass_through_the_likeliest_experts(per_token, normalised):
    config = dataclasses.replace(SHAPE, experts_per_token=per_token, expert_norm=normalised)
    torch.manual_seed(0)
    experts = Experts(config)
    x = torch.randn(3, 7, 8)
    expected = torch.stack([token_by_token(experts, row) for row in x.flatten(0, 1)])
    torch.testing.assert_close(experts(x), expected.view(x.shape), atol=1e-6, rtol=1e-5)


def test_an_expert_without_tokens_has_a_gradient_of_0(moe):
    experts = moe.blocks[0].experts
    with torch.no_grad():
        experts.router.weight[3] = 0
        experts.router.weight[[0, 1, 2, 4], 0] = 9.0
    x = torch.randn(6, 8, generator=torch.Generator().manual_seed(0))
    x[:, 0] = 5.0
    experts(x).sum().backward()
    for name, parameter in experts.members[3].named_parameters():
        assert parameter.grad is not None and not parameter.grad.any(), name
    assert any(p.grad.any() for p in experts.members[0].parameters())


def test_one_token_may_be_all_there_is(moe):
    with torch.autocast("cpu", torch.bfloat16):
        assert moe(torch.tensor([[3]])).isfinite().all()


def test_use_by_hand():
    # two blocks, three tokens, the last one padding, three experts, one per token
    routes = [
        torch.tensor([[2.0, 0, 0], [0, 1, 0], [0, 0, 5]]),
        torch.tensor([[0.0, 3, 0], [0, 1, 0], [9, 0, 0]]),
    ]
    mask = torch.tensor([[True, True, False]])
    counts = counts_of(routes, 1, mask)
    assert counts.tolist() == [[1, 1, 0], [0, 2, 0]]
    use = use_of_experts(counts)
    assert use["expert_entropy"].item() == pytest.approx(math.log(2) / 2)  # ln 2 and 0
    assert (use["expert_least"].item(), use["expert_most"].item()) == (0.0, 1.0)
    even = use_of_experts(torch.full((2, 4), 3.0))
    assert even["expert_entropy"].item() == pytest.approx(math.log(4))
    assert even["expert_least"] == even["expert_most"] == 0.25


def test_the_balance_by_hand():
    """f is (1/2, 1/2) and (1, 0) in two cases; P is the mean probability."""
    probabilities = torch.tensor([[0.8, 0.2], [0.3, 0.7]])
    mask = torch.tensor([True, True])
    # 2 (1/2 x 0.55 + 1/2 x 0.45) = 1
    assert balance_loss([probabilities.log()], 1, mask).item() == pytest.approx(1.0)
    skewed = torch.tensor([[0.8, 0.2], [0.7, 0.3]])
    # 2 (1 x 0.75 + 0 x 0.25) = 1.5
    assert balance_loss([skewed.log()], 1, mask).item() == pytest.approx(1.5)
    # padding is left out: only the first token, 2 x 0.8
    first = torch.tensor([True, False])
    assert balance_loss([probabilities.log()], 1, first).item() == pytest.approx(1.6)
    # with every expert taken, f is 1 for each: 2 x (P1 + P2)
    assert balance_loss([skewed.log()], 2, mask).item() == pytest.approx(2.0)


def test_descending_on_the_balance_evens_out_the_use(moe):
    tokens = torch.arange(13).repeat(4, 1)
    mask = torch.ones_like(tokens, dtype=torch.bool)
    optimizer = torch.optim.SGD(moe.parameters(), lr=0.5)
    seen = []
    for _ in range(40):
        routes: list[torch.Tensor] = []
        moe(tokens, routes=routes)
        balance = balance_loss(routes, 2, mask)
        seen.append(use_of_experts(counts_of(routes, 2, mask))["expert_entropy"].item())
        optimizer.zero_grad()
        balance.backward()
        optimizer.step()
    assert seen[-1] > seen[0] + 0.02
    assert balance.item() == pytest.approx(2.0, abs=0.05)  # K, where all are used alike


def test_a_file_rebuilds_its_experts(moe, tmp_path):
    save_model(tmp_path / "model.safetensors", moe, "abc")
    loaded = load_model(tmp_path / "model.safetensors", "abc")
    assert loaded.config == SHAPE
    tokens = torch.arange(13)[None]
    assert torch.equal(loaded(tokens), moe(tokens))


def test_sampled_log_probabilities_are_those_of_a_full_pass(moe):
    prompts = [[1, 2, 3, 4], [5]]
    samples = sample(
        moe, prompts, [3, 3], Turns(lambda *_: False, lambda *_: None, True), budgets=[6] * 6,
        temperature=1.0, pad=0, seeds=[0, 1],
    )  # fmt: skip
    for row, one in enumerate(samples):
        prompt = prompts[row // 3]
        ids = torch.tensor([prompt + one.tokens])
        with torch.no_grad():
            logprobs = moe(ids[:, :-1])[0, len(prompt) - 1 :].log_softmax(-1)
        expected = logprobs.gather(1, ids[0, len(prompt) :, None])[:, 0]
        torch.testing.assert_close(torch.tensor(one.logprobs), expected, atol=1e-5, rtol=1e-4)


def test_parameters_in_all_and_active():
    model = new_model(SHAPE, VOCABULARY, 0)
    held = sum(parameter.numel() for parameter in model.parameters())
    assert compute.parameters(SHAPE, VOCABULARY) == held
    # three of five experts are idle, in each of two blocks: 3 x 8 x 6 weights each
    assert compute.active_parameters(SHAPE, VOCABULARY) == held - 2 * 3 * 3 * 8 * 6
    dense = ModelConfig(name="d", width=8, layers=2, heads=2, kv_heads=1, head_dim=4, ffn=12)
    assert compute.active_parameters(dense, 9) == compute.parameters(dense, 9)


def test_torch_counts_the_same_products():
    model = new_model(SHAPE, VOCABULARY, 0)
    with FlopCounterMode(display=False) as counter:
        model(torch.zeros(3, 8, dtype=torch.long))
    full = compute.exact_forward_flops(SHAPE, VOCABULARY, tokens=24, length=15)
    assert counter.get_total_flops() == full


def test_muon_takes_experts_and_leaves_routers(moe):
    config = OptimConfig(name="muon", lr=1e-2, matrix_lr=1e-2)
    optimizer = build_optimizer(moe, config)
    assert isinstance(optimizer.parts[0], Muon)
    matrices, decayed, _ = optimizer.param_groups
    named = {id(parameter): name for name, parameter in moe.named_parameters()}
    taken = {named[id(parameter)] for parameter in matrices["params"]}
    left = {named[id(parameter)] for parameter in decayed["params"]}
    assert "blocks.1.experts.members.4.down_proj.weight" in taken
    assert left == {"head.weight"} | {f"blocks.{i}.experts.router.weight" for i in range(2)}


def test_untrained_experts_have_the_stated_spread():
    wide = dataclasses.replace(SHAPE, width=64, expert_ffn=192)
    experts = new_model(wide, VOCABULARY, 0).blocks[1].experts
    member = experts.members[2]
    assert member.up_proj.weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert experts.router.weight.std().item() == pytest.approx(0.02, rel=0.1)
    assert member.down_proj.weight.std().item() == pytest.approx(0.01, rel=0.05)  # / sqrt(2 x 2)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"ffn": 8}, "model.ffn=8"),
        ({"experts_per_token": 6}, "experts_per_token=6"),
        ({"experts_per_token": 0}, "experts_per_token=0"),
        ({"expert_ffn": 0}, "expert_ffn=0"),
        ({"router_aux": -0.1}, "router_aux"),
        ({"experts": 0, "ffn": 8}, "model.experts above 0"),
        ({"experts": 0}, "model.ffn=0"),
    ],
)
def test_settings_that_do_not_fit_are_refused(changes, named):
    with pytest.raises(ValueError, match=named):
        dataclasses.replace(SHAPE, **changes)
