"""Sampling: many rows at once, over several turns with an environment, in parts if need be.

Every step gives each row one token: a sampled one, or the next that the environment put in. Rows
that are done leave the batch. What a row draws is decided by the seed of its prompt, its place
among the copies and the step, whatever else is in the batch.
"""

import hashlib
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from chessrl.policy.decoding import Decoder, SharedCache, read_prompts
from chessrl.policy.transformer import Transformer

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
    stops: Collection[int] | None = None
    """Tokens at which `ends` is asked, since no other ends a turn; None asks at every token, which
    is slow."""
    interrupt_at: Sequence[int] | None = None
    """For each row, the length of a turn at which `interrupt` is asked; 0: never."""
    interrupt: Callable[[int, list[int]], list[int] | None] | None = None
    """Given the row and the tokens of its turn so far: tokens to put into the turn, such as the end
    of a thought that is too long, after which the turn goes on; None for none."""


class Sampling:
    """Rows being sampled: prompts read once, advanced token by token, kept between calls.

    Attributes:
        done: whether every row is.
        prefill_seconds: spent in reading prompts.
        decode_seconds: spent in sampling, without
        callback_seconds: those spent in `ends`, `reply` and `interrupt` of the turns.
    """

    @torch.inference_mode()
    def __init__(
        self,
        model: Transformer,
        prompts: Sequence[Sequence[int]],
        copies: Sequence[int],
        turns: Turns,
        *,
        budgets: Sequence[int],
        temperature: float,
        pad: int,
        seeds: Sequence[int],
    ) -> None:
        """Read the prompts; `copies[i]` rows continue prompt i, in the order of the prompts.

        Args:
            budgets: tokens that each row may sample, all its turns together, at least 1.
            pad: token that fills up the prompts.
            seeds: one for each prompt, in [0, 2**63): of what its rows draw.

        Raises:
            ValueError: there is not a budget or a limit for each row, or a seed for each prompt.
        """
        rows = sum(copies)
        if len(budgets) != rows or not len(prompts) == len(copies) == len(seeds):
            raise ValueError(f"{rows} rows, {len(prompts)} prompts, {len(seeds)} seeds, {budgets}")
        if min(budgets) < 1:
            raise ValueError(f"budgets {budgets}: each must be positive")
        began = time.perf_counter()
        owner = torch.arange(len(prompts)).repeat_interleave(torch.tensor(copies))
        used, owner = owner.unique(return_inverse=True)
        read = [prompts[i] for i in used.tolist()]
        cache, logits = read_prompts(model, read, owner, pad)
        self._first: Tensor | None = logits.float().cpu()[owner]
        self._cache = cache
        self._temperature, self._dice = temperature, Dice(seeds, copies)
        self._step = 0
        self._tokens = torch.zeros(0, rows, dtype=torch.long)
        self._logprobs = torch.zeros(0, rows)
        self._forced = torch.zeros(0, rows, dtype=torch.bool)
        self._live = torch.arange(rows)
        self._left = torch.tensor(budgets)
        self._turn = torch.zeros(rows, dtype=torch.long)
        self._length = torch.full((rows,), -1)
        self._truncated = torch.zeros(rows, dtype=torch.bool)
        self.decode_seconds = self.callback_seconds = 0.0
        self._begin(turns)
        self.prefill_seconds = time.perf_counter() - began

    def _begin(self, turns: Turns) -> None:
        """Take in what the environment is, which is no part of the state."""
        self._turns, rows = turns, len(self._left)
        self._limits = None
        if turns.interrupt is not None and turns.interrupt_at is not None:
            limits = torch.tensor(turns.interrupt_at)
            if len(limits) != rows:
                raise ValueError(f"{len(limits)} limits for {rows} rows")
            self._limits = limits.masked_fill_(limits < 1, torch.iinfo(limits.dtype).max)
        stops = turns.stops
        self._stops = None if stops is None else torch.tensor(list(stops), dtype=torch.long)

    @property
    def done(self) -> bool:
        """Whether every row is."""
        return bool((self._length >= 0).all())

    @property
    def samples(self) -> list[Sample]:
        """What was sampled so far, made anew at each call, in the order of prompts x copies."""
        tokens, logprobs, sampled = (
            kept[: self._step].t().tolist()
            for kept in (self._tokens, self._logprobs, ~self._forced)
        )
        lengths = torch.where(self._length < 0, self._step, self._length).tolist()
        return [
            Sample(*(part[row][:length] for part in (tokens, logprobs, sampled)), truncated)
            for row, (length, truncated) in enumerate(
                zip(lengths, self._truncated.tolist(), strict=True)
            )
        ]

    @torch.inference_mode()
    def advance(self, model: Transformer, steps: int | None = None) -> None:
        """Take `steps` steps, or as many as there are.

        The weights may be others than before: rows go on with the keys and values that they have.
        The first token of a row is that of the weights that read its prompt.
        """
        began, called = time.perf_counter(), self.callback_seconds
        decoder = None
        while steps != 0 and not self.done:
            if self._first is not None:
                logits, self._first = self._first, None
            else:
                if decoder is None:
                    decoder = Decoder(model)
                fed = self._tokens[self._step - 1, self._live].to(decoder.device)
                logits = decoder.step(fed, self._cache).float().cpu()
            self._take(logits)
            steps = None if steps is None else steps - 1
        called = self.callback_seconds - called
        self.decode_seconds += time.perf_counter() - began - called

    def _take(self, logits: Tensor) -> None:
        """Give each row of the batch its next token, by logits (R, V)."""
        self._reserve(self._step + 1)
        step, live = self._step, self._live
        logprobs = torch.log_softmax(logits / self._temperature, dim=-1)
        picks = pick(logprobs, self._dice.of(step)[live])
        forced = self._forced[step, live]
        tokens = torch.where(forced, self._tokens[step, live], picks)
        chosen = logprobs.gather(1, picks[:, None])[:, 0].masked_fill_(forced, 0.0)
        self._tokens[step, live], self._logprobs[step, live] = tokens, chosen
        self._step += 1
        sampled = (self._length[live] < 0) & ~forced
        self._left[live] -= sampled.long()
        asked = sampled if self._stops is None else sampled & torch.isin(tokens, self._stops)
        self._callback(self._end, asked)
        if self._limits is not None:
            reached = self._step - self._turn[live] == self._limits[live]
            spent = (self._left[live] == 0) | (self._length[live] >= 0)
            self._callback(self._interrupt, reached & sampled & ~spent)
        spent = live[sampled & (self._left[live] == 0) & (self._length[live] < 0)]
        self._truncated[spent] = True
        self._length[spent] = self._step
        stay = (self._length[live] < 0).nonzero().flatten()
        if len(stay) and len(stay) <= KEEP_SHARE * len(live):
            self._live = live[stay]
            self._cache.select(stay)

    def _callback(self, work: Callable[[int], None], asked: Tensor) -> None:
        """Ask the environment for each row that the mask over the batch (R,) keeps."""
        if rows := self._live[asked].tolist():
            began = time.perf_counter()
            for row in rows:
                work(row)
            self.callback_seconds += time.perf_counter() - began

    def _end(self, row: int) -> None:
        """If the turn is over with the newest token, answer it."""
        turns, last = self._turns, self._step - 1
        turn = self._tokens[self._turn[row] : last, row].tolist()
        if not turns.ends(turn, int(self._tokens[last, row])):
            return
        place = self._step if turns.keep_end else last
        self._left[row] += not turns.keep_end
        answer = turns.reply(row, turn)
        if answer is None:
            self._length[row] = place
        elif not answer:
            raise ValueError(f"row {row}: a reply without tokens")
        else:
            self._put_in(row, place, answer)
            self._turn[row] = place + len(answer)

    def _interrupt(self, row: int) -> None:
        """Ask for tokens to put into the turn."""
        turn = self._tokens[self._turn[row] : self._step, row].tolist()
        if answer := self._turns.interrupt(row, turn):
            self._put_in(row, self._step, answer)

    def _put_in(self, row: int, place: int, tokens: Sequence[int]) -> None:
        end = place + len(tokens)
        self._reserve(end)
        self._tokens[place:end, row] = torch.tensor(tokens)
        self._forced[place:end, row] = True
        self._logprobs[place:end, row] = 0.0

    def _reserve(self, columns: int) -> None:
        """Make room for so many steps; kept at the end, where rows are not forced."""
        missing = columns - len(self._tokens)
        if missing > 0:
            room = (0, 0, 0, max(missing, 64, len(self._tokens) // 2))
            pad = torch.nn.functional.pad
            self._tokens, self._logprobs = pad(self._tokens, room), pad(self._logprobs, room)
            self._forced = pad(self._forced, room)

    _PLAIN = ("_temperature", "_step", "prefill_seconds", "decode_seconds", "callback_seconds")
    _TENSORS = (
        "_tokens", "_logprobs", "_forced", "_live", "_left", "_turn", "_length", "_truncated",
    )  # fmt: skip

    def state(self) -> dict[str, Any]:
        """All that is needed to go on, as plain numbers, lists and tensors of their own."""
        return {
            **{name: getattr(self, name) for name in self._PLAIN},
            **{name: getattr(self, name).clone() for name in self._TENSORS},
            "first": None if self._first is None else self._first.clone(),
            "seeds": list(self._dice.seeds),
            "copies": list(self._dice.copies),
            "cache": self._cache.state(),
            "device": str(self._cache.keys[0].device),
        }

    @classmethod
    def restored(cls, state: dict[str, Any], turns: Turns) -> "Sampling":
        """Go on, bit for bit, where a state was taken."""
        made = cls.__new__(cls)
        for name in cls._PLAIN:
            setattr(made, name, state[name])
        for name in cls._TENSORS:
            setattr(made, name, state[name].clone())
        made._first = state["first"]
        made._dice = Dice(state["seeds"], state["copies"])
        made._cache = SharedCache.restored(state["cache"], torch.device(state["device"]))
        made._begin(turns)
        return made


class Dice:
    """Uniform numbers in [0, 1) for rows and steps, which can be had again at any time."""

    CHUNK = 64
    """Steps that are drawn together."""

    def __init__(self, seeds: Sequence[int], copies: Sequence[int]) -> None:
        """`copies[i]` rows draw from `seeds[i]`."""
        self.seeds, self.copies = list(seeds), list(copies)
        self._chunk, self._drawn = -1, torch.zeros(0)

    def of(self, step: int) -> Tensor:
        """Numbers of a step, one for each row (rows,), in float64."""
        chunk, column = divmod(step, self.CHUNK)
        if chunk != self._chunk:
            self._chunk = chunk
            self._drawn = torch.cat(
                [
                    torch.rand(
                        (count, self.CHUNK),
                        dtype=torch.float64,
                        generator=torch.Generator().manual_seed(mixed(seed, chunk)),
                    )
                    for seed, count in zip(self.seeds, self.copies, strict=True)
                ]
            )
        return self._drawn[:, column]


def mixed(*numbers: int) -> int:
    """A seed in [0, 2**63) that depends on these numbers and their order alone."""
    text = ",".join(map(str, numbers)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") >> 1


def pick(logprobs: Tensor, draws: Tensor) -> Tensor:
    """Tokens (R,) where uniform draws (R,) fall among log-probabilities (R, V)."""
    edges = logprobs.double().exp().cumsum(-1)
    places = torch.searchsorted(edges, draws[:, None] * edges[:, -1:], right=True)
    return places[:, 0].clamp_(max=logprobs.shape[1] - 1)


def sample(
    model: Transformer,
    prompts: Sequence[Sequence[int]],
    copies: Sequence[int],
    turns: Turns,
    *,
    budgets: Sequence[int],
    temperature: float,
    pad: int,
    seeds: Sequence[int],
) -> list[Sample]:
    """Sample all rows to their ends at once: arguments and errors are those of `Sampling`."""
    sampling = Sampling(
        model, prompts, copies, turns, budgets=budgets, temperature=temperature, pad=pad,
        seeds=seeds,
    )  # fmt: skip
    sampling.advance(model)
    return sampling.samples
