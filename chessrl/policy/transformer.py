"""The model: a decoder in the form of Qwen3 (arXiv 2505.09388).

RMSNorm before each block, rotary positions, grouped-query attention with normalised queries and
keys, SwiGLU or a mixture of such experts, no biases, untied embeddings. Shapes: B rows, T tokens,
D width, H heads, E head dim.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from chessrl.config import ModelConfig
from chessrl.policy.experts import Experts

INITIAL_SPREAD = 0.02
"""Standard deviation of untrained weights."""


class RMSNorm(nn.RMSNorm):
    """Root-mean-square norm over the last dimension; the weight follows the input's precision."""

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.normalized_shape, self.weight.to(x.dtype), self.eps)


def rotary_angles(positions: Tensor, head_dim: int, base: float) -> tuple[Tensor, Tensor]:
    """Cosines and sines, (..., T, E) each, for integer positions (..., T)."""
    inverse = base ** (-torch.arange(0, head_dim, 2, device=positions.device) / head_dim)
    angles = positions[..., None].float() * inverse
    angles = torch.cat([angles, angles], dim=-1)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn (..., T, E) queries or keys by their positions, halves paired as in Qwen3."""
    left, right = x.chunk(2, dim=-1)
    return x * cos.to(x.dtype) + torch.cat([-right, left], dim=-1) * sin.to(x.dtype)


def attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
    """Causal attention of (B, H, S, E) queries, the last of (B, G, T, E) keys and values.

    H is a multiple of G. `bias`, (B, 1, S, T), is added to the scores: 0, or minus infinity where a
    query may not look; None stands for the causal mask of S = T. On a CPU plain products, by chunks
    of queries that leave out the keys after them, are several times faster than the library's
    kernel, whose backward pass is slow.
    """
    if q.device.type != "cpu":
        return F.scaled_dot_product_attention(
            q, k, v, attn_mask=bias, is_causal=bias is None, enable_gqa=True
        )
    queries, keys, chunk = q.shape[2], k.shape[2], query_chunk(q.shape[-1])
    if bias is None:
        bias = torch.full((queries, keys), float("-inf"), dtype=q.dtype).triu(1)
    shared = q.shape[1] // k.shape[1]
    rows = q.unflatten(1, (-1, shared)) * q.shape[-1] ** -0.5
    parts = []
    for first in range(0, queries, chunk):
        last = min(first + chunk, queries)
        seen = keys - queries + last
        scores = rows[:, :, :, first:last].flatten(2, 3) @ k[:, :, :seen].transpose(-1, -2)
        scores = scores.unflatten(2, (shared, -1)) + bias[..., None, first:last, :seen]
        part = scores.softmax(-1).flatten(2, 3) @ v[:, :, :seen]
        parts.append(part.unflatten(2, (shared, -1)))
    return torch.cat(parts, dim=3).view(q.shape)


def query_chunk(head_dim: int) -> int:
    """Queries that look at their keys together: the fastest, as measured in docs/performance.md."""
    return 64 if head_dim <= 64 else 128


def places_within(documents: Tensor) -> Tensor:
    """Position of each token in its document, for the numbers of the documents (B, T) in rows."""
    columns = torch.arange(documents.shape[1], device=documents.device).expand(documents.shape)
    begins = torch.ones_like(documents, dtype=torch.bool)
    begins[:, 1:] = documents[:, 1:] != documents[:, :-1]
    return columns - torch.where(begins, columns, 0).cummax(dim=1).values


def places_along(branches: Tensor) -> Tensor:
    """Position of each token in a stem, branch 0, or in a branch that goes on from its end."""
    stem = (branches == 0).sum(dim=1, keepdim=True)
    return places_within(branches) + torch.where(branches == 0, 0, stem)


class KVCache:
    """Keys and values of the tokens read so far, for rows that end at the same column.

    Rows are padded on the left: row b holds its tokens in columns `start[b]` to `length`.
    """

    GROWTH = 32
    """Columns that are added at a time."""

    def __init__(self, config: ModelConfig, start: Tensor, dtype: torch.dtype) -> None:
        shape = (config.layers, start.shape[0], config.kv_heads, 0, config.head_dim)
        self.keys = torch.empty(shape, dtype=dtype, device=start.device)
        self.values = torch.empty_like(self.keys)
        self.start = start
        self.length = 0

    def reserve(self, columns: int) -> None:
        """Make room for so many columns in all."""
        missing = columns - self.keys.shape[3]
        if missing > 0:
            room = (0, 0, 0, missing + self.GROWTH)
            self.keys, self.values = F.pad(self.keys, room), F.pad(self.values, room)

    def select(self, rows: Tensor) -> None:
        """Keep these rows, in this order; a row may be named more than once."""
        self.keys = self.keys[:, :, :, : self.length].index_select(1, rows)
        self.values = self.values[:, :, :, : self.length].index_select(1, rows)
        self.start = self.start[rows]


class Attention(nn.Module):
    """Grouped-query attention with normalised queries and keys."""

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        self.layer, self.head_dim = layer, config.head_dim
        self.q_proj = nn.Linear(config.width, config.heads * config.head_dim, bias=False)
        self.k_proj = nn.Linear(config.width, config.kv_heads * config.head_dim, bias=False)
        self.v_proj = nn.Linear(config.width, config.kv_heads * config.head_dim, bias=False)
        self.o_proj = nn.Linear(config.heads * config.head_dim, config.width, bias=False)
        self.q_norm = RMSNorm(config.head_dim, config.norm_eps)
        self.k_norm = RMSNorm(config.head_dim, config.norm_eps)

    def forward(
        self, x: Tensor, cos: Tensor, sin: Tensor, cache: KVCache | None, bias: Tensor | None
    ) -> Tensor:
        # one product for all three: a tenth of a training step on a CPU
        layers = (self.q_proj, self.k_proj, self.v_proj)
        together = F.linear(x, torch.cat([layer.weight for layer in layers]))
        q, k, v = (
            part.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
            for part in together.split([layer.out_features for layer in layers], dim=-1)
        )
        q, k = rotate(self.q_norm(q), cos, sin), rotate(self.k_norm(k), cos, sin)
        if cache is not None:
            end = cache.length + x.shape[1]
            cache.keys[self.layer, :, :, cache.length : end] = k
            cache.values[self.layer, :, :, cache.length : end] = v
            k, v = cache.keys[self.layer, :, :, :end], cache.values[self.layer, :, :, :end]
        return self.o_proj(attend(q, k, v, bias).transpose(1, 2).flatten(2))


class Block(nn.Module):
    """Attention, then a SwiGLU or experts, each on the normalised stream."""

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        self.input_norm = RMSNorm(config.width, config.norm_eps)
        self.attention = Attention(config, layer)
        self.ffn_norm = RMSNorm(config.width, config.norm_eps)
        self.experts = Experts(config) if config.experts else None
        if self.experts is None:
            self.gate_proj = nn.Linear(config.width, config.ffn, bias=False)
            self.up_proj = nn.Linear(config.width, config.ffn, bias=False)
            self.down_proj = nn.Linear(config.ffn, config.width, bias=False)

    def forward(
        self,
        x: Tensor,
        cos: Tensor,
        sin: Tensor,
        cache: KVCache | None,
        bias: Tensor | None,
        routes: list[Tensor] | None,
    ) -> Tensor:
        x = x + self.attention(self.input_norm(x), cos, sin, cache, bias)
        h = self.ffn_norm(x)
        if self.experts is not None:
            return x + self.experts(h, routes)
        return x + self.down_proj(F.silu(self.gate_proj(h)) * self.up_proj(h))

    def outputs(self) -> list[nn.Linear]:
        """The projections whose outcome is added to the stream."""
        if self.experts is None:
            return [self.attention.o_proj, self.down_proj]
        return [self.attention.o_proj, *(member.down_proj for member in self.experts.members)]


class Transformer(nn.Module):
    """Tokens (B, T) in, logits over the vocabulary (B, T, V) out."""

    fp32_head: bool = False
    """Whether logits are float32 products, under autocast too (arXiv 2510.13786)."""

    def __init__(self, config: ModelConfig, vocabulary_size: int) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(vocabulary_size, config.width)
        self.blocks = nn.ModuleList(Block(config, i) for i in range(config.layers))
        self.final_norm = RMSNorm(config.width, config.norm_eps)
        self.head = nn.Linear(config.width, vocabulary_size, bias=False)
        self.apply(self._initialise)

    def _initialise(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=INITIAL_SPREAD)
        if isinstance(module, Block):
            spread = INITIAL_SPREAD / math.sqrt(2 * self.config.layers)
            for projection in module.outputs():
                nn.init.normal_(projection.weight, std=spread)

    def forward(
        self,
        tokens: Tensor,
        cache: KVCache | None = None,
        routes: list[Tensor] | None = None,
        documents: Tensor | None = None,
    ) -> Tensor:
        """Logits of the next token at each place.

        Without a cache, rows start at column 0 and padding on the right changes nothing before it.
        With one, `tokens` continue its rows and are added to it.

        Args:
            routes: takes up the router's logits of each block with experts (B x T, experts).
            documents: (B, T) numbers of the documents that share a row, where several do: a token
                sees those of its own document only, and counts its places from the first of it.
        """
        return self.logits(self.features(tokens, cache, routes, documents))

    def last_logits(self, tokens: Tensor, cache: KVCache) -> Tensor:
        """Logits (B, V) after the last token only."""
        return self.logits(self.features(tokens, cache)[:, -1])

    def logits(self, features: Tensor) -> Tensor:
        """What the head makes of features (..., D): (..., V)."""
        if not self.fp32_head:
            return self.head(features)
        with torch.autocast(features.device.type, enabled=False):
            return F.linear(features.float(), self.head.weight.float())

    def features(
        self,
        tokens: Tensor,
        cache: KVCache | None = None,
        routes: list[Tensor] | None = None,
        documents: Tensor | None = None,
        branches: Tensor | None = None,
    ) -> Tensor:
        """The normalised last hidden states (B, T, D), which the head reads.

        Args:
            branches: (B, T) for rows of a stem, numbered 0, and sequences that all go on from its
                end, numbered from 1: a token sees the stem and its own branch only.
        """
        x = self.embedding(tokens)
        columns = torch.arange(tokens.shape[1], device=tokens.device)
        bias = None
        if documents is not None:
            earlier = columns[:, None] >= columns
            bias = self._bias((documents[:, :, None] == documents[:, None, :]) & earlier)
            columns = places_within(documents)[:, None]
        if branches is not None:
            seen = (branches[:, :, None] == branches[:, None, :]) | (branches[:, None, :] == 0)
            bias = self._bias(seen & (columns[:, None] >= columns))
            columns = places_along(branches)[:, None]
        if cache is not None:
            cache.reserve(cache.length + tokens.shape[1])
            columns = columns + cache.length
            seen = torch.arange(cache.length + tokens.shape[1], device=tokens.device)
            visible = (seen <= columns[:, None]) & (seen >= cache.start[:, None, None])
            # padding sees itself, or its softmax were NaN
            bias = self._bias(visible | (seen == columns[:, None]))
            columns = (columns - cache.start[:, None]).clamp(min=0)[:, None]
        cos, sin = rotary_angles(columns, self.config.head_dim, self.config.rope_base)
        for block in self.blocks:
            x = block(x, cos, sin, cache, bias, routes)
        if cache is not None:
            cache.length += tokens.shape[1]
        return self.final_norm(x)

    def _bias(self, visible: Tensor) -> Tensor:
        """(B, S, T), True where a query may look, to what `attend` adds, (B, 1, S, T)."""
        device = visible.device.type
        precision = self.embedding.weight.dtype
        if torch.is_autocast_enabled(device):
            precision = torch.get_autocast_dtype(device)
        bias = torch.zeros(visible.shape, dtype=precision, device=visible.device)
        return bias.masked_fill_(~visible, float("-inf"))[:, None]
