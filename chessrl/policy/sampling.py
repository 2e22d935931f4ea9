"""Sampling: batched, with a key-value cache, over several turns.

A prompt is read once and shared by its copies. Each step feeds one token per row: a sampled one, or
the next of a reply that the environment put in. Rows that are done leave the batch.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from chessrl.policy.transformer import KVCache, Transformer

KEEP_SHARE = 0.75
"""Rows that are done leave once so few are left: each leaving copies the cache."""


@dataclass(slots=True)
class Sample:
    """One sampled continuation of a prompt; the three lists run together."""

    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    """Log-probability in nats at the sampling temperature; 0 for the environment's tokens."""
    sampled: list[bool] = field(default_factory=list)
    """True where the model chose the token, False where the environment put it in."""
    truncated: bool = False
    """The budget ran out before the row was done."""

    def add(self, token: int, logprob: float, sampled: bool) -> None:
        """Append one token."""
        self.tokens.append(token)
        self.logprobs.append(logprob)
        self.sampled.append(sampled)


@dataclass(slots=True)
class Turns:
    """How a conversation with the environment goes."""

    ends: Callable[[Sequence[int], int], bool]
    """Given the tokens of the turn so far and the next sampled one: is the turn over with it?"""
    reply: Callable[[int, list[int]], list[int] | None]
    """Given the row and the tokens of its turn: one or more tokens to put in, None at its end."""
    keep_end: bool
    """Whether the token that ends a turn is written, as a stop token is, or only showed that the
    turn was over and is thrown away."""


def pad_left(rows: Sequence[Sequence[int]], pad: int) -> tuple[Tensor, Tensor]:
    """Rows as one matrix (B, T), all ending at the last column, and their first columns (B,)."""
    width = max(map(len, rows))
    start = torch.tensor([width - len(row) for row in rows])
    return torch.tensor([[pad] * (width - len(row)) + list(row) for row in rows]), start


@torch.inference_mode()
def sample(
    model: Transformer,
    prompts: Sequence[Sequence[int]],
    copies: Sequence[int],
    turns: Turns,
    *,
    budgets: Sequence[int],
    temperature: float,
    pad: int,
    generator: torch.Generator,
) -> list[Sample]:
    """Sample `copies[i]` continuations of prompt i; rows follow the order of the prompts.

    Args:
        budgets: tokens that each row may sample, all its turns together, at least 1.
        pad: token that fills up the prompts.
        generator: on the CPU; the same state gives the same samples.
    """
    weight = model.head.weight
    tokens, start = pad_left(prompts, pad)
    cache = KVCache(model.config, start.to(weight.device), weight.dtype)
    logits = model.last_logits(tokens.to(weight.device), cache)
    shared = torch.arange(len(prompts)).repeat_interleave(torch.tensor(copies)).to(weight.device)
    cache.select(shared)
    logits = logits[shared]
    rows = [_Row(i, budget) for i, budget in enumerate(budgets)]
    batch = rows
    while True:
        logprobs = torch.log_softmax(logits.float() / temperature, dim=-1).cpu()
        picks = torch.multinomial(logprobs.exp(), 1, generator=generator)
        chosen = logprobs.gather(1, picks).flatten().tolist()
        fed = [
            pad if row.done else row.step(pick, logprob, turns)
            for row, pick, logprob in zip(batch, picks.flatten().tolist(), chosen, strict=True)
        ]
        stay = [place for place, row in enumerate(batch) if not row.done]
        if not stay:
            return [row.sample for row in rows]
        if len(stay) <= KEEP_SHARE * len(batch):
            batch, fed = [batch[place] for place in stay], [fed[place] for place in stay]
            cache.select(torch.tensor(stay, device=weight.device))
        column = torch.tensor(fed, device=weight.device)
        logits = model.last_logits(column[:, None], cache)


class _Row:
    """One row being sampled."""

    def __init__(self, index: int, budget: int) -> None:
        self.index, self.left = index, budget
        self.done = False
        self.sample = Sample()
        self.turn: list[int] = []
        self.pending: deque[int] = deque()

    def step(self, pick: int, logprob: float, turns: Turns) -> int:
        """Take in what was sampled; returns the token to feed next."""
        if self.pending:
            return self._put_in()
        over = turns.ends(self.turn, pick)
        if turns.keep_end or not over:
            self.sample.add(pick, logprob, sampled=True)
            self.left -= 1
        if over:
            answer = turns.reply(self.index, self.turn)
            self.turn = []
            if answer is None:
                self.done = True
                return pick
            self.pending.extend(answer)
            if not turns.keep_end:
                return self._put_in()
        else:
            self.turn.append(pick)
        if self.left == 0:
            self.sample.truncated = self.done = True
        return pick

    def _put_in(self) -> int:
        token = self.pending.popleft()
        self.sample.add(token, 0.0, sampled=False)
        return token
