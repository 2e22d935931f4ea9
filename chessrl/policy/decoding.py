"""Decoding: a token per row and step, over keys and values that the rows of a prompt share.

A prompt is read once; its keys and values are kept once and looked at by all of its rows in one
product, beside those of each row's own tokens, under one softmax. Shapes: P prompts of at most T
tokens, R rows that have S tokens of their own, D width, K heads of keys and values, N queries for
each of them, E head dim, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from chessrl.policy.experts import Experts
from chessrl.policy.transformer import Block, KVCache, Transformer, rotary_angles

READ_AT_ONCE = 16384
"""Places of prompts, padding included, in one pass."""
KEEP_SHARE = 0.75
"""Prompts without rows leave once so few have any: each leaving copies the others."""


def pad_left(rows: Sequence[Sequence[int]], pad: int) -> tuple[Tensor, Tensor]:
    """Rows as one matrix (B, T), all ending at the last column, and their first columns (B,)."""
    width = max(map(len, rows))
    start = torch.tensor([width - len(row) for row in rows])
    return torch.tensor([[pad] * (width - len(row)) + list(row) for row in rows]), start


def precision_of(model: Transformer) -> torch.dtype:
    """What the model computes in here: the weights' precision, or that of autocast."""
    weight = model.head.weight
    if torch.is_autocast_enabled(weight.device.type):
        return torch.get_autocast_dtype(weight.device.type)
    return weight.dtype


class SharedCache:
    """Keys and values of prompts, once each, and of what their rows have had since.

    Prompts are padded on the left, the rows of one stand together, and all rows have the same
    number of tokens of their own. Per layer: `prompt_keys` and `prompt_values` (K, P, T, E), `keys`
    and `values` (K, R, capacity, E).
    """

    GROWTH = 64
    """Columns added at least; a half is added to many, so that copying stays a small part."""

    def __init__(
        self,
        prompt_keys: list[Tensor],
        prompt_values: list[Tensor],
        start: Tensor,
        owner: Tensor,
        precision: torch.dtype,
    ) -> None:
        """For prompts that begin at the columns `start` (P,) and rows of the prompts `owner` (R,).

        Both are on the CPU. On a CPU the products over a row's own tokens, a query or few each, are
        several times slower in bf16, so these are kept in `precision` elsewhere only.
        """
        self.prompt_keys, self.prompt_values = prompt_keys, prompt_values
        self.start, self.owner = start, owner
        first = prompt_keys[0]
        self.precision = torch.float32 if first.device.type == "cpu" else precision
        heads, _, _, dim = first.shape
        self.keys = [
            torch.empty(heads, len(owner), 0, dim, dtype=self.precision, device=first.device)
            for _ in prompt_keys
        ]
        self.values = [torch.empty_like(keys) for keys in self.keys]
        self.length = 0
        self._group()

    def _group(self) -> None:
        """Where the rows stand when those of each prompt are padded to the largest group."""
        device, prompts = self.keys[0].device, len(self.start)
        counts = torch.bincount(self.owner, minlength=prompts)
        self.group = int(counts.max())
        self.slots = None
        if bool((counts != self.group).any()):
            place = torch.arange(len(self.owner)) - (counts.cumsum(0) - counts)[self.owner]
            self.slots = (self.owner * self.group + place).to(device)
        width = self.prompt_keys[0].shape[2]
        self.lengths = (width - self.start)[self.owner].to(device)
        self.bias = None
        if bool(self.start.any()):
            hidden = (torch.arange(width) < self.start[:, None]).to(device)
            bias = torch.zeros(hidden.shape, dtype=self.precision, device=device)
            self.bias = bias.masked_fill_(hidden, float("-inf"))[:, None]

    def reserve(self, columns: int) -> None:
        """Make room for so many tokens of each row in all."""
        capacity = self.keys[0].shape[2]
        if columns > capacity:
            self._resize(max(columns, capacity + max(self.GROWTH, capacity // 2)))

    def _resize(self, capacity: int) -> None:
        for kept in (self.keys, self.values):
            for layer, old in enumerate(kept):
                new = old.new_empty(old.shape[0], old.shape[1], capacity, old.shape[3])
                new[:, :, : self.length] = old[:, :, : self.length]
                kept[layer] = new

    def select(self, rows: Tensor) -> None:
        """Keep these rows (on the CPU), in their order; prompts without any may leave."""
        places = rows.to(self.keys[0].device)
        for kept in (self.keys, self.values):
            for layer, old in enumerate(kept):
                new = old.new_empty(old.shape[0], len(rows), *old.shape[2:])
                new[:, :, : self.length] = old[:, :, : self.length].index_select(1, places)
                kept[layer] = new
        self.owner = self.owner[rows]
        used, renamed = self.owner.unique(return_inverse=True)
        if len(used) <= KEEP_SHARE * len(self.start):
            self.start, self.owner = self.start[used], renamed
            used = used.to(places.device)
            for kept in (self.prompt_keys, self.prompt_values):
                kept[:] = [one.index_select(1, used) for one in kept]
        self._group()

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Add a token's keys and values (K, R, E) to each row; queries (K, R, N, E) look at all.

        The queries are scaled.
        """
        end = self.length + 1
        keys, values = self.keys[layer], self.values[layer]
        keys[:, :, self.length], values[:, :, self.length] = k, v
        keys, values = keys[:, :, :end], values[:, :, :end]
        q = q.to(self.precision).contiguous()
        own = torch.matmul(q, keys.transpose(-1, -2))
        read = self._of_prompts(q, self.prompt_keys[layer].transpose(-1, -2), self.bias)
        weights = torch.cat([read, own], dim=-1).softmax(-1)
        width = read.shape[-1]
        out = torch.matmul(weights[..., width:], values)
        return out.add_(self._of_prompts(weights[..., :width], self.prompt_values[layer], None))

    def _of_prompts(self, left: Tensor, right: Tensor, bias: Tensor | None) -> Tensor:
        """Products of rows (K, R, N, ...) with what belongs to their prompts, (K, P, ..., ...)."""
        heads, _, queries, inner = left.shape
        if self.slots is not None:
            padded = left.new_zeros(heads, len(self.start) * self.group, queries, inner)
            left = padded.index_copy_(1, self.slots, left)
        grouped = left.reshape(heads, len(self.start), self.group * queries, inner)
        product = torch.matmul(grouped.to(right.dtype), right).to(self.precision)
        if bias is not None:
            product = product + bias
        product = product.view(heads, -1, queries, product.shape[-1])
        return product if self.slots is None else product.index_select(1, self.slots)

    def state(self) -> dict[str, Any]:
        """All of it as plain lists and tensors of their own."""
        return {
            "prompt_keys": [one.clone() for one in self.prompt_keys],
            "prompt_values": [one.clone() for one in self.prompt_values],
            "start": self.start.clone(),
            "owner": self.owner.clone(),
            "keys": [one[:, :, : self.length].clone() for one in self.keys],
            "values": [one[:, :, : self.length].clone() for one in self.values],
            "capacity": self.keys[0].shape[2],
            "precision": str(self.precision).removeprefix("torch."),
        }

    @classmethod
    def restored(cls, state: dict[str, Any], device: torch.device) -> "SharedCache":
        """The cache that a state was taken of, on a device."""
        cache = cls(
            [one.to(device) for one in state["prompt_keys"]],
            [one.to(device) for one in state["prompt_values"]],
            state["start"].cpu(),
            state["owner"].cpu(),
            getattr(torch, state["precision"]),
        )
        cache.keys = [one.to(device, cache.precision) for one in state["keys"]]
        cache.values = [one.to(device, cache.precision) for one in state["values"]]
        cache.length = cache.keys[0].shape[2]
        cache._resize(state["capacity"])
        return cache


def read_prompts(
    model: Transformer, prompts: Sequence[Sequence[int]], owner: Tensor, pad: int
) -> tuple[SharedCache, Tensor]:
    """A cache of the prompts for rows of the prompts `owner` (R,), and the next logits (P, V)."""
    device, precision, config = model.head.weight.device, precision_of(model), model.config
    tokens, start = pad_left(prompts, pad)
    shape = (config.kv_heads, len(prompts), tokens.shape[1], config.head_dim)
    keys, values = (
        [torch.zeros(shape, dtype=precision, device=device) for _ in range(config.layers)]
        for _ in range(2)
    )
    logits = []
    at_once = max(READ_AT_ONCE // tokens.shape[1], 1)
    for first in range(0, len(prompts), at_once):
        part = slice(first, first + at_once)
        skipped = int(start[part].min())
        cache = KVCache(config, (start[part] - skipped).to(device), precision)
        logits.append(model.last_logits(tokens[part, skipped:].to(device), cache))
        for layer in range(config.layers):
            for kept, read in ((keys, cache.keys), (values, cache.values)):
                kept[layer][:, part, skipped:] = read[layer, :, :, : cache.length].transpose(0, 1)
    return SharedCache(keys, values, start, owner, precision), torch.cat(logits)


@dataclass(frozen=True)
class _Layer:
    """Weights of one block, those of like products side by side."""

    input_norm: Tensor
    qkv: Tensor
    qk_norm: Tensor
    """(heads of queries, then of keys; E), those of queries with the scale of the scores."""
    out: Tensor
    ffn_norm: Tensor
    gate_up: Tensor | None
    down: Tensor | None
    experts: Experts | None

    @classmethod
    def of(cls, block: Block, heads: int, kv_heads: int, precision: torch.dtype) -> "_Layer":
        attention = block.attention
        projections = (attention.q_proj, attention.k_proj, attention.v_proj)
        dense = block.experts is None
        q_norm = attention.q_norm.weight * attention.head_dim**-0.5
        return cls(
            block.input_norm.weight,
            torch.cat([one.weight for one in projections]).to(precision),
            torch.stack([q_norm] * heads + [attention.k_norm.weight] * kv_heads),
            attention.o_proj.weight.to(precision),
            block.ffn_norm.weight,
            torch.cat([block.gate_proj.weight, block.up_proj.weight]).to(precision)
            if dense
            else None,
            block.down_proj.weight.to(precision) if dense else None,
            block.experts,
        )


def normalised(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMSNorm, which on a CPU is twice as fast for few rows as the library's many small steps."""
    if x.device.type != "cpu":
        return F.rms_norm(x, weight.shape[-1:], None, eps) * weight.to(x.dtype)
    dim = x.shape[-1]
    square = torch.linalg.vector_norm(x, dim=-1, keepdim=True).square_()
    return x * square.div_(dim).add_(eps).rsqrt_() * weight.to(x.dtype)


class Decoder:
    """The weights of a model as a step wants them, laid out once for many steps.

    The precision is that of the model where it was made: under autocast, that of autocast.
    """

    def __init__(self, model: Transformer) -> None:
        self.model, self.config = model, model.config
        self.device, self.precision = model.head.weight.device, precision_of(model)
        self.mixed = torch.is_autocast_enabled(self.device.type)
        heads = (model.config.heads, model.config.kv_heads)
        self.layers = [_Layer.of(block, *heads, self.precision) for block in model.blocks]

    def step(self, tokens: Tensor, cache: SharedCache) -> Tensor:
        """Logits (R, V) after the next tokens (R,) of the rows, which the cache takes up."""
        cache.reserve(cache.length + 1)
        config = self.config
        cos, sin = rotary_angles(cache.lengths + cache.length, config.head_dim, config.rope_base)
        half = config.head_dim // 2
        cos = cos[:, None]
        sin = torch.cat([-sin[:, :half], sin[:, half:]], dim=-1)[:, None]
        x = self.model.embedding(tokens)
        with self._autocast(False):
            for number, layer in enumerate(self.layers):
                x = x + self._attention(number, layer, x, cos, sin, cache)
                h = normalised(x, layer.ffn_norm, config.norm_eps)
                if layer.experts is not None:
                    with self._autocast(self.mixed):
                        x = x + layer.experts(h)
                else:
                    both = F.linear(h.to(self.precision), layer.gate_up)
                    gate, up = both.chunk(2, dim=-1)
                    x = x + F.linear(F.silu(gate) * up, layer.down)
        cache.length += 1
        with self._autocast(self.mixed):
            return self.model.logits(self.model.final_norm(x))

    def _attention(
        self, number: int, layer: _Layer, x: Tensor, cos: Tensor, sin: Tensor, cache: SharedCache
    ) -> Tensor:
        heads, kv_heads, dim = self.config.heads, self.config.kv_heads, self.config.head_dim
        h = normalised(x, layer.input_norm, self.config.norm_eps).to(self.precision)
        qkv = F.linear(h, layer.qkv).view(len(x), -1, dim)
        qk = normalised(qkv[:, : heads + kv_heads].float(), layer.qk_norm, self.config.norm_eps)
        qk = torch.addcmul(qk * cos, qk.roll(dim // 2, -1), sin).to(self.precision)
        q = qk[:, :heads].unflatten(1, (kv_heads, -1)).transpose(0, 1)
        k, v = qk[:, heads:].transpose(0, 1), qkv[:, heads + kv_heads :].transpose(0, 1)
        out = cache.attend(number, q, k, v).to(self.precision)
        return F.linear(out.transpose(0, 1).reshape(len(x), -1), layer.out)

    def _autocast(self, enabled: bool) -> torch.autocast:
        return torch.autocast(self.device.type, self.precision if enabled else None, enabled)
