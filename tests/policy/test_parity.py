"""The model against another implementation of the same formulas: that of transformers.

Same weights, single precision, eager attention: logits and gradients agree within 1e-5.
"""

import dataclasses

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import (
    DynamicCache,
    PreTrainedModel,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

from chessrl.config import ModelConfig
from chessrl.policy.decoding import pad_left
from chessrl.policy.experts import balance_loss
from chessrl.policy.export import their_name
from chessrl.policy.losses import masked_nll
from chessrl.policy.transformer import KVCache, Transformer
from chessrl.policy.weights import new_model

VOCABULARY = 19
BASE = ModelConfig(name="base", width=24, layers=2, heads=4, kv_heads=4, head_dim=6, ffn=40)
MOE = dataclasses.replace(
    BASE, name="moe", kv_heads=2, ffn=0, experts=4, experts_per_token=2, expert_ffn=16
)
DENSE = {
    "every head its own keys": BASE,
    "keys shared by two": dataclasses.replace(BASE, kv_heads=2),
    "keys shared by all": dataclasses.replace(BASE, heads=6, kv_heads=1, head_dim=4),
    "heads wider than the stream": dataclasses.replace(BASE, heads=2, kv_heads=1, head_dim=32),
    "another base": dataclasses.replace(BASE, rope_base=37.0),
    "another eps": dataclasses.replace(BASE, norm_eps=0.1),
}
MIXED = {
    "two of four experts": MOE,
    "one of three": dataclasses.replace(MOE, experts=3, experts_per_token=1),
    "three of eight, weights as they are": dataclasses.replace(
        MOE, experts=8, experts_per_token=3, expert_norm=False
    ),
}
SHAPES = DENSE | MIXED


def wild(config: ModelConfig) -> Transformer:
    """Weights of a scale at which logits differ and mistakes show."""
    model = new_model(config, VOCABULARY, 0)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.copy_(0.5 + torch.rand(parameter.shape, generator=generator))
            else:
                parameter.copy_(0.25 * torch.randn(parameter.shape, generator=generator))
    return model.eval()


def in_their_form(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Ours under their names; in memory they keep the experts of a layer as two tensors."""
    theirs, apart = {}, {}
    for name, tensor in tensors.items():
        layer, found, part = their_name(name).partition(".experts.")
        if found:  # such as 3.gate_proj.weight
            apart.setdefault(layer, {}).setdefault(part.split(".")[1], []).append(tensor)
        else:
            theirs[layer] = tensor
    for layer, parts in apart.items():
        gate, up, down = (torch.stack(parts[f"{name}_proj"]) for name in ("gate", "up", "down"))
        theirs[f"{layer}.experts.gate_up_proj"] = torch.cat([gate, up], dim=1)
        theirs[f"{layer}.experts.down_proj"] = down
    return theirs


def their_model(model: Transformer) -> PreTrainedModel:
    """The same model in transformers, told its shape field by field."""
    config = model.config
    shape = {
        "vocab_size": VOCABULARY,
        "hidden_size": config.width,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "rms_norm_eps": config.norm_eps,
        "rope_theta": config.rope_base,
        "attn_implementation": "eager",
    }
    if config.experts:
        theirs = Qwen3MoeForCausalLM(
            Qwen3MoeConfig(
                **shape,
                num_experts=config.experts,
                num_experts_per_tok=config.experts_per_token,
                moe_intermediate_size=config.expert_ffn,
                norm_topk_prob=config.expert_norm,
                router_aux_loss_coef=0.3,
            )
        )
    else:
        theirs = Qwen3ForCausalLM(Qwen3Config(**shape, intermediate_size=config.ffn))
    theirs.load_state_dict(in_their_form(model.state_dict()))
    return theirs.eval()


def same(ours: Tensor, theirs: Tensor) -> None:
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


def same_gradients(model: Transformer, theirs: PreTrainedModel) -> None:
    """After one backward pass of each."""
    ours = in_their_form({name: p.grad for name, p in model.named_parameters()})
    expected = {name: p.grad for name, p in theirs.named_parameters()}
    assert ours.keys() == expected.keys()
    for name, gradient in expected.items():
        assert gradient.any() or "gate.weight" in name, name
        same(ours[name], gradient)


def some_tokens(rows: int, columns: int) -> Tensor:
    return torch.randint(VOCABULARY, (rows, columns), generator=torch.Generator().manual_seed(2))


def mean_loss(logits: Tensor, tokens: Tensor, mask: Tensor) -> Tensor:
    """Next-token loss over the targets that the mask keeps."""
    return masked_nll(logits[:, :-1], tokens[:, 1:], mask[:, 1:]) / mask[:, 1:].sum()


@pytest.mark.parametrize("shape", SHAPES)
def test_logits_and_gradients(shape):
    model = wild(SHAPES[shape])
    theirs = their_model(model)
    tokens = some_tokens(3, 21)
    logits, expected = model(tokens), theirs(tokens).logits
    assert expected.std() > 0.5  # it says something
    same(logits, expected)
    everywhere = torch.ones_like(tokens, dtype=torch.bool)
    mean_loss(logits, tokens, everywhere).backward()
    mean_loss(expected, tokens, everywhere).backward()
    same_gradients(model, theirs)


@pytest.mark.parametrize("shape", ["keys shared by two", "two of four experts"])
def test_rows_padded_on_the_right(shape):
    """They are told by a mask, we need none."""
    model = wild(SHAPES[shape])
    theirs = their_model(model)
    tokens = some_tokens(4, 13)
    mask = torch.arange(13) < torch.tensor([13, 8, 5, 2])[:, None]
    for pad in (0, 7):
        model.zero_grad()
        theirs.zero_grad()
        padded = torch.where(mask, tokens, pad)
        logits = model(padded)
        expected = theirs(padded, attention_mask=mask.long()).logits
        same(logits[mask], expected[mask])
        mean_loss(logits, padded, mask).backward()
        mean_loss(expected, padded, mask).backward()
        same_gradients(model, theirs)


@pytest.mark.parametrize("first", [1, 6])
@pytest.mark.parametrize("shape", ["keys shared by two", "another base", "two of four experts"])
@torch.no_grad()
def test_reading_and_then_a_token_at_a_time(shape, first):
    model = wild(SHAPES[shape])
    theirs = their_model(model)
    tokens = some_tokens(3, 12)
    cache = KVCache(model.config, torch.zeros(3, dtype=torch.long), torch.float32)
    their_cache = DynamicCache(config=theirs.config)
    for begin, end in [(0, first)] + [(i, i + 1) for i in range(first, 12)]:
        same(
            model(tokens[:, begin:end], cache),
            theirs(tokens[:, begin:end], cache=their_cache, use_cache=True).logits,
        )
    assert cache.length == their_cache.get_seq_length() == 12


@pytest.mark.parametrize("shape", ["keys shared by two", "two of four experts"])
@torch.no_grad()
def test_rows_padded_on_the_left_with_a_cache(shape):
    """As the sampler reads prompts of several lengths."""
    model = wild(SHAPES[shape])
    theirs = their_model(model)
    prompts, start = pad_left([[1, 2, 3, 4, 5, 6], [7, 8], [9]], pad=0)
    more = some_tokens(3, 4)
    cache = KVCache(model.config, start, torch.float32)
    their_cache = DynamicCache(config=theirs.config)
    read = torch.cat([prompts, more], dim=1)
    mask = torch.arange(10) >= start[:, None]
    positions = (mask.long().cumsum(1) - 1).clamp(min=0)
    for begin, end in [(0, 6)] + [(i, i + 1) for i in range(6, 10)]:
        expected = theirs(
            read[:, begin:end],
            attention_mask=mask[:, :end].long(),
            position_ids=positions[:, begin:end],
            cache=their_cache,
            use_cache=True,
        ).logits
        kept = mask[:, begin:end]
        same(model(read[:, begin:end], cache)[kept], expected[kept])


@pytest.mark.parametrize("shape", MIXED)
def test_the_load_balancing_loss_and_its_gradient(shape):
    model = wild(MIXED[shape])
    theirs = their_model(model)
    tokens = some_tokens(4, 11)
    mask = torch.arange(11) < torch.tensor([11, 7, 4, 2])[:, None]
    routes: list[Tensor] = []
    logits = model(tokens, routes=routes)
    assert [route.shape for route in routes] == [(44, model.config.experts)] * 2
    balance = balance_loss(routes, model.config.experts_per_token, mask)
    labels = torch.where(mask, tokens, -100)
    expected = theirs(tokens, attention_mask=mask.long(), labels=labels, output_router_logits=True)
    same(balance, expected.aux_loss)
    everywhere = balance_loss(routes, model.config.experts_per_token, torch.ones_like(mask))
    same(everywhere, theirs(tokens, output_router_logits=True).aux_loss)
    loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()) + 0.3 * balance
    same(loss, expected.loss)
    loss.backward()
    expected.loss.backward()
    same_gradients(model, theirs)
