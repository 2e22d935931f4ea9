"""The model: against a plain rendering of its formulas, and with and without its cache."""

import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
import yaml
from torch import Tensor

from chessrl import compute
from chessrl.config import ModelConfig
from chessrl.policy import transformer
from chessrl.policy.decoding import pad_left
from chessrl.policy.transformer import (
    KVCache,
    RMSNorm,
    Transformer,
    attend,
    places_within,
    rotary_angles,
    rotate,
)

MODELS = sorted((Path(__file__).parents[2] / "conf" / "model").glob("*.yaml"))
# Table of the study (arXiv 2607.16097), in millions; its vocabulary has 81 tokens.
STUDY = {
    "5m": 5.1, "10m": 11.8, "20m": 20.5, "32m": 31.6, "50m": 47.3, "100m": 101.6, "200m": 203.1,
    "410m": 411.3, "680m": 678.6, "1b": 1030.0,
}  # fmt: skip


def model_config(name: str) -> ModelConfig:
    (path,) = [path for path in MODELS if path.stem == name]
    return ModelConfig(**yaml.safe_load(path.read_text()))


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_the_formula_counts_the_parameters(path):
    config = ModelConfig(**yaml.safe_load(path.read_text()))
    assert config.name == path.stem
    with torch.device("meta"):
        model = Transformer(config, 95)
    assert compute.parameters(config, 95) == sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("name", STUDY)
def test_the_study_had_models_of_these_sizes(name):
    assert compute.parameters(model_config(name), 81) / 1e6 == pytest.approx(STUDY[name], rel=0.015)


def test_embeddings_are_not_tied(model):
    assert model.embedding.weight.data_ptr() != model.head.weight.data_ptr()


def norm(x: Tensor, weight: Tensor) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * weight


def turned(x: Tensor) -> Tensor:
    """(B, H, T, E): dimension i and i + E/2 make a complex number, turned by t / 10000^(2i/E)."""
    half = x.shape[-1] // 2
    z = torch.complex(x[..., :half], x[..., half:])
    rate = torch.tensor([10000 ** (-2 * i / x.shape[-1]) for i in range(half)], dtype=x.dtype)
    z = z * torch.polar(torch.ones(()).to(x), torch.arange(x.shape[2])[:, None] * rate)
    return torch.cat([z.real, z.imag], dim=-1)


def plain_forward(model: Transformer, tokens: Tensor) -> Tensor:
    """The same network by the formulas of the Qwen3 report, with the library's attention."""
    config, w = model.config, dict(model.named_parameters())
    x = w["embedding.weight"][tokens]
    for i in range(config.layers):
        b = f"blocks.{i}."
        h = norm(x, w[b + "input_norm.weight"])
        q, k, v = (
            (h @ w[f"{b}attention.{name}_proj.weight"].T)
            .view(*tokens.shape, -1, config.head_dim)
            .transpose(1, 2)
            for name in "qkv"
        )
        q = turned(norm(q, w[b + "attention.q_norm.weight"]))
        k = turned(norm(k, w[b + "attention.k_norm.weight"]))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + out.transpose(1, 2).flatten(2) @ w[b + "attention.o_proj.weight"].T
        h = norm(x, w[b + "ffn_norm.weight"])
        gate, up = h @ w[b + "gate_proj.weight"].T, h @ w[b + "up_proj.weight"].T
        x = x + (gate * torch.sigmoid(gate) * up) @ w[b + "down_proj.weight"].T
    return norm(x, w["final_norm.weight"]) @ w["head.weight"].T


def test_the_model_is_what_its_formulas_say(model):
    tokens = torch.randint(13, (3, 20), generator=torch.Generator().manual_seed(0))
    logits = model(tokens)
    assert logits.std() > 0.5  # it says something
    torch.testing.assert_close(logits, plain_forward(model, tokens), atol=2e-5, rtol=1e-4)


def test_the_norm_by_hand():
    layer = RMSNorm(2, 0.0)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([1.0, 10.0]))
    # mean square of (3, 4) is 12.5
    expected = [3 / math.sqrt(12.5), 40 / math.sqrt(12.5)]
    assert layer(torch.tensor([3.0, 4.0])).tolist() == pytest.approx(expected)
    # eps stands under the root: x = 0.001 twice, mean square 1e-6, eps 3e-6: 0.001 / 0.002
    assert RMSNorm(2, 3e-6)(torch.full((2,), 1e-3)).tolist() == pytest.approx([0.5, 0.5])
    assert RMSNorm(2, 1e-6)(torch.ones(2, dtype=torch.bfloat16)).dtype == torch.bfloat16


def test_rotation_by_hand():
    # E = 4, base 100: rates 1 and 100^(-2/4) = 0.1; pairs are (0, 2) and (1, 3)
    cos, sin = rotary_angles(torch.tensor([2]), 4, 100.0)
    turned_by_hand = [math.cos(2), math.cos(0.2), math.sin(2), math.sin(0.2)]
    x = torch.tensor([[1.0, 1.0, 0.0, 0.0]])
    assert rotate(x, cos, sin)[0].tolist() == pytest.approx(turned_by_hand)


def test_rotation_makes_scores_depend_on_distance_alone():
    generator = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, 1, 8, generator=generator)
    scores = []
    for q_at, k_at in ((3, 1), (30, 28), (12, 10), (3, 2)):
        turned_q = rotate(q, *rotary_angles(torch.tensor([q_at]), 8, 10000.0))
        turned_k = rotate(k, *rotary_angles(torch.tensor([k_at]), 8, 10000.0))
        scores.append(float((turned_q * turned_k).sum()))
    assert scores[:3] == pytest.approx([scores[0]] * 3, abs=1e-5)
    assert abs(scores[3] - scores[0]) > 0.01


@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (4, 2), (6, 1)])
@pytest.mark.parametrize("given", ["causal", "bias"])
@pytest.mark.parametrize("chunk", [2, 3, 128])
def test_attention_is_that_of_the_library(heads, kv_heads, given, chunk, monkeypatch):
    monkeypatch.setattr(transformer, "query_chunk", lambda head_dim: chunk)
    generator = torch.Generator().manual_seed(0)
    rows, columns = (7, 7) if given == "causal" else (3, 7)
    q = torch.randn(2, heads, rows, 8, generator=generator, requires_grad=True)
    k, v = (
        torch.randn(2, kv_heads, columns, 8, generator=generator, requires_grad=True)
        for _ in range(2)
    )
    bias = None
    if given == "bias":
        visible = torch.rand(2, 1, rows, columns, generator=generator) < 0.6
        visible[..., 0] = True  # or a row sees nothing
        visible &= torch.arange(columns) <= torch.arange(rows)[:, None] + columns - rows
        bias = torch.zeros(visible.shape).masked_fill(~visible, float("-inf"))
    out = attend(q, k, v, bias)
    expected = F.scaled_dot_product_attention(
        q, k, v, attn_mask=bias, is_causal=bias is None, enable_gqa=True
    )
    torch.testing.assert_close(out, expected)
    weight = torch.randn(out.shape, generator=generator)
    ours = torch.autograd.grad((out * weight).sum(), (q, k, v))
    theirs = torch.autograd.grad((expected * weight).sum(), (q, k, v))
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other)


def test_the_future_does_not_reach_the_past(model):
    tokens = torch.randint(13, (2, 12), generator=torch.Generator().manual_seed(0))
    before = model(tokens)
    for place in (1, 6, 11):
        changed = tokens.clone()
        changed[:, place] = (changed[:, place] + 1) % 13
        after = model(changed)
        assert torch.equal(after[:, :place], before[:, :place])
        assert (after[:, place:] - before[:, place:]).abs().amax(-1).min() > 1e-3


PACKED = [[5, 1, 2, 2, 7], [3, 11], [8, 4, 4]]


@pytest.mark.parametrize("chunk", [2, 128])
def test_documents_in_one_row_are_read_as_each_alone(model, chunk, monkeypatch):
    monkeypatch.setattr(transformer, "query_chunk", lambda head_dim: chunk)
    ids = [token for document in PACKED for token in document] + [0, 0]
    numbers = [n for n, document in enumerate(PACKED, 1) for _ in document] + [0, 0]
    rows, documents = torch.tensor([ids, ids[:5] + [0] * 7]), torch.tensor([numbers, [1] * 12])
    logits = model(rows, documents=documents)
    assert logits.isfinite().all()
    first = 0
    losses = []
    for document in PACKED:
        last = first + len(document)
        alone = model(torch.tensor([document]))
        torch.testing.assert_close(logits[0, first:last], alone[0], atol=2e-6, rtol=1e-5)
        losses.append(F.cross_entropy(alone[0, :-1], torch.tensor(document[1:])))
        ours = F.cross_entropy(logits[0, first : last - 1], rows[0, first + 1 : last])
        assert ours.item() == pytest.approx(losses[-1].item(), abs=1e-5)
        first = last
    # and no gradient passes from one to another
    packed = torch.autograd.grad(logits[0, 5].sum(), model.embedding.weight, retain_graph=True)[0]
    assert packed[3].abs().sum() > 0 and packed[[5, 1, 2, 7, 8, 4]].abs().sum() == 0


def test_places_by_hand():
    documents = torch.tensor([[1, 1, 1, 2, 3, 3, 0, 0], [1, 1, 1, 1, 1, 1, 1, 1]])
    assert places_within(documents).tolist() == [[0, 1, 2, 0, 0, 1, 0, 1], list(range(8))]


def test_padding_on_the_right_changes_nothing(model):
    tokens = torch.randint(13, (2, 9), generator=torch.Generator().manual_seed(0))
    for pad in (0, 5):
        padded = F.pad(tokens, (0, 7), value=pad)
        torch.testing.assert_close(model(padded)[:, :9], model(tokens), atol=2e-6, rtol=1e-5)


ROWS = [[1, 2, 3, 4, 5, 6, 7], [8, 9], [3, 1, 4, 1, 5], [2]]
MORE = [[1, 1, 2, 3, 5, 8], [9, 7, 5, 3, 1, 0], [2, 7, 1, 8, 2, 8], [12, 11, 10, 9, 8, 7]]


def alone(model: Transformer, ids: list[int]) -> Tensor:
    """Logits after each token of one row, read in one go."""
    return model(torch.tensor([ids]))[0]


def same(ours: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(ours, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("growth", [0, 2, 32])
@torch.no_grad()
def test_the_cache_changes_nothing(model, growth, monkeypatch):
    """Left-padded rows of mixed lengths, a few tokens at a time, with room made on the way."""
    prompts, start = pad_left(ROWS, pad=0)
    monkeypatch.setattr(KVCache, "GROWTH", growth)
    cache = KVCache(model.config, start, torch.float32)
    logits = model(prompts, cache)
    for row, ids in enumerate(ROWS):
        same(logits[row, start[row] :], alone(model, ids))
    read = [list(row) for row in ROWS]
    for begin, end in ((0, 1), (1, 2), (2, 5), (5, 6)):
        last = model.last_logits(torch.tensor([more[begin:end] for more in MORE]), cache)
        for row, more in enumerate(MORE):
            read[row] += more[begin:end]
            same(last[row], alone(model, read[row])[-1])
    assert cache.length == 7 + 6
    assert cache.keys.shape[3] >= 13


@torch.no_grad()
def test_rows_of_the_cache_may_be_copied_and_dropped(model):
    prompts, start = pad_left(ROWS, pad=0)
    cache = KVCache(model.config, start, torch.float32)
    model(prompts, cache)
    cache.select(torch.tensor([2, 0, 0, 3]))
    last = model.last_logits(torch.tensor([[7], [8], [9], [10]]), cache)
    read = [ROWS[2] + [7], ROWS[0] + [8], ROWS[0] + [9], ROWS[3] + [10]]
    for row, ids in enumerate(read):
        same(last[row], alone(model, ids)[-1])
    cache.select(torch.tensor([3, 1]))
    last = model.last_logits(torch.tensor([[1, 2], [3, 4]]), cache)
    same(last[0], alone(model, read[3] + [1, 2])[-1])
    same(last[1], alone(model, read[1] + [3, 4])[-1])


@torch.no_grad()
def test_the_padding_token_does_not_matter_on_the_left(model):
    outcomes = []
    for pad in (0, 12):
        prompts, start = pad_left(ROWS, pad)
        cache = KVCache(model.config, start, torch.float32)
        outcomes.append(model.last_logits(prompts, cache))
    assert outcomes[0].isfinite().all()
    assert torch.equal(*outcomes)


def test_left_padding_by_hand():
    rows, start = pad_left([[1, 2, 3], [4]], pad=9)
    assert rows.tolist() == [[1, 2, 3], [9, 9, 4]]
    assert start.tolist() == [0, 2]


def test_initial_weights_have_the_stated_spread():
    torch.manual_seed(0)
    config = ModelConfig(name="m", width=64, layers=8, heads=4, kv_heads=2, head_dim=32, ffn=192)
    model = Transformer(config, 95)
    block = model.blocks[3]
    for matrix in (block.up_proj, block.attention.q_proj, model.head, model.embedding):
        assert matrix.weight.std().item() == pytest.approx(0.02, rel=0.05)
    for matrix in (block.down_proj, block.attention.o_proj):  # 0.02 / sqrt(2 x 8)
        assert matrix.weight.std().item() == pytest.approx(0.005, rel=0.05)
    assert torch.equal(block.input_norm.weight, torch.ones(64))
    # untrained, it guesses evenly: ln 95 nats
    loss = F.cross_entropy(model(torch.arange(90)[None])[0], torch.arange(90))
    assert loss.item() == pytest.approx(math.log(95), abs=0.05)


@torch.no_grad()
def test_an_fp32_head_multiplies_in_float32_under_autocast(model):
    tokens = torch.arange(13).repeat(2, 1)
    with torch.autocast("cpu", torch.bfloat16):
        low = model(tokens)
        model.fp32_head = True
        features, logits = model.features(tokens), model(tokens)
        cache = KVCache(model.config, torch.zeros(2, dtype=torch.long), torch.bfloat16)
        last = model.last_logits(tokens, cache)
    exact = features.double() @ model.head.weight.double().T
    assert (low.dtype, logits.dtype, last.dtype) == (torch.bfloat16, torch.float32, torch.float32)
    assert torch.equal(logits, features.float() @ model.head.weight.T)
    assert (logits - exact).abs().max() < 1e-5 < 1e-3 < (low - exact).abs().max()
