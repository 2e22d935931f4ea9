"""Sampling against an oracle that reads every row by itself, with the plain forward pass."""

import copy
import dataclasses
import io
import math
from collections import deque

import pytest
import torch

from chessrl.config import ModelConfig
from chessrl.policy import decoding, sampling
from chessrl.policy.losses import token_logprobs
from chessrl.policy.sampling import Dice, Sample, Sampling, Turns, pick, sample
from chessrl.policy.transformer import KVCache, Transformer
from chessrl.policy.weights import new_model

SHAPES = {
    "keys shared by two": {},
    "keys shared by four": {"kv_heads": 1},
    "keys of its own": {"kv_heads": 4},
    "one head": {"heads": 1, "kv_heads": 1, "head_dim": 16},
    "experts": {"ffn": 0, "experts": 5, "experts_per_token": 2, "expert_ffn": 12},
}
VOCABULARY = 13
PROMPTS = [[1, 2, 3, 4, 5], [6], [7, 8, 9], [12] * 9]
COPIES = [3, 1, 4, 2]
BUDGETS = [40, 25, 1, 60, 7, 33, 90, 12, 18, 70]
STOPS = {3, 12}


def wild(shape: str, seed: int = 1) -> Transformer:
    """Weights of random scale: at initialisation all logits are near 0 and hide mistakes."""
    config = ModelConfig(name="t", width=24, layers=2, heads=4, kv_heads=2, head_dim=6, ffn=40)
    model = new_model(dataclasses.replace(config, **SHAPES[shape]), VOCABULARY, seed)
    generator = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(0.3 * noise + (parameter.ndim == 1))
    return model.eval()


class Environment:
    """Ends turns at some tokens, replies to the first four of a row, interrupts odd rows."""

    def __init__(self, keep_end: bool = True, interrupts: bool = True) -> None:
        self.turns = [0] * len(BUDGETS)
        self.keep_end, self.interrupts = keep_end, interrupts
        self.asked: list[tuple[int, list[int]]] = []

    def ends(self, turn, token) -> bool:
        return token == 12 or (token == 3 and len(turn) > 2)

    def reply(self, row: int, turn: list[int]) -> list[int] | None:
        self.asked.append((row, turn))
        self.turns[row] += 1
        return [row % 5, 12, 3][: 1 + len(turn) % 3] if self.turns[row] < 5 else None

    def interrupt(self, row: int, turn: list[int]) -> list[int] | None:
        self.asked.append((row, turn))
        return [3, 12, row][: 1 + len(turn) % 3] if row % 2 else None

    def as_turns(self) -> Turns:
        turns = Turns(self.ends, self.reply, self.keep_end, STOPS)
        if self.interrupts:
            turns.interrupt_at = [4, 5, 6, 2, 1, 3, 0, 9, 4, 7]
            turns.interrupt = self.interrupt
        return turns


class Row:
    """A row, and what happens to it in one step."""

    def __init__(self, model: Transformer, index: int, prompt: list[int], budget: int) -> None:
        self.cache = KVCache(model.config, torch.zeros(1, dtype=torch.long), torch.float32)
        self.unread, self.index, self.left = list(prompt), index, budget
        self.done, self.sample = False, Sample()
        self.turn: list[int] = []
        self.pending: deque[int] = deque()

    def step(self, model: Transformer, draw: float, turns: Turns, temperature: float) -> None:
        logits = model(torch.tensor([self.unread]), self.cache)[0, -1] / temperature
        if self.pending:
            return self.add(self.pending.popleft(), 0.0, False)
        logprobs, below = logits.log_softmax(0).tolist(), 0.0
        token = -1
        while below <= draw:
            token += 1
            below += math.exp(logprobs[token])
        over = turns.ends(self.turn, token)
        if turns.keep_end or not over:
            self.add(token, logprobs[token], True)
            self.left -= 1
        if over:
            answer, self.turn = turns.reply(self.index, self.turn), []
            if answer is None:
                self.done = True
                return None
            self.pending.extend(answer)
            if not turns.keep_end:
                return self.add(self.pending.popleft(), 0.0, False)
        else:
            self.turn = [*self.turn, token]
        if self.left == 0:
            self.done = self.sample.truncated = True
        elif turns.interrupt and not over and len(self.turn) == turns.interrupt_at[self.index]:
            put_in = turns.interrupt(self.index, self.turn) or []
            self.pending.extend(put_in)
            self.turn = self.turn + put_in
        return None

    def add(self, token: int, logprob: float, sampled: bool) -> None:
        self.unread = [token]
        self.sample.tokens.append(token)
        self.sample.logprobs.append(logprob)
        self.sample.sampled.append(sampled)


@torch.no_grad()
def oracle(model, turns, *, prompts=PROMPTS, later=None, switch=0, temperature=0.8) -> list[Sample]:
    """Row by row; from step `switch` on with the weights of `later`."""
    dice = Dice(range(len(prompts)), COPIES)
    whose = [prompt for prompt, n in zip(prompts, COPIES, strict=True) for _ in range(n)]
    rows = [Row(model, i, *both) for i, both in enumerate(zip(whose, BUDGETS, strict=True))]
    step = 0
    while not all(row.done for row in rows):
        for row, draw in zip(rows, dice.of(step).tolist(), strict=True):
            if not row.done:
                row.step(later if later and step >= switch else model, draw, turns, temperature)
        step += 1
    return [row.sample for row in rows]


def begun(model: Transformer, turns: Turns, prompts=PROMPTS, copies=COPIES) -> Sampling:
    return Sampling(
        model, prompts, copies, turns, budgets=BUDGETS, temperature=0.8, pad=0,
        seeds=range(len(prompts)),
    )  # fmt: skip


def finished(model: Transformer, turns: Turns, **changes) -> list[Sample]:
    rows = begun(model, turns, **changes)
    rows.advance(model)
    assert rows.done
    return rows.samples


def same(ours: list[Sample], expected: list[Sample]) -> None:
    for mine, theirs in zip(ours, expected, strict=True):
        assert mine.tokens == theirs.tokens
        assert (mine.sampled, mine.truncated) == (theirs.sampled, theirs.truncated)
        assert mine.logprobs == pytest.approx(theirs.logprobs, abs=1e-5)


@pytest.mark.parametrize("keep_end", [True, False])
@pytest.mark.parametrize("interrupts", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_row_is_as_if_read_by_itself(shape, interrupts, keep_end):
    model = wild(shape)
    ours, theirs = Environment(keep_end, interrupts), Environment(keep_end, interrupts)
    got, expected = finished(model, ours.as_turns()), oracle(model, theirs.as_turns())
    same(got, expected)
    assert sorted(ours.asked) == sorted(theirs.asked)
    assert len({len(one.tokens) for one in got}) > 5  # rows leave at different times
    assert any(one.truncated for one in got) and not all(one.truncated for one in got)
    assert sum(not all(one.sampled) for one in got) > 5


def test_long_prompts_beside_short_ones():
    model = wild("keys shared by two")
    generator = torch.Generator().manual_seed(3)
    lengths = (300, 1, 40, 299)
    prompts = [torch.randint(13, (n,), generator=generator).tolist() for n in lengths]
    same(
        finished(model, Environment().as_turns(), prompts=prompts),
        oracle(model, Environment().as_turns(), prompts=prompts),
    )


@pytest.mark.parametrize("switch", [1, 2, 17])
def test_other_weights_go_on_with_the_keys_and_values_there_are(switch):
    model, later = wild("keys shared by two"), wild("keys shared by two", seed=7)
    rows = begun(model, Environment().as_turns())
    rows.advance(model, switch)
    rows.advance(later)
    expected = oracle(model, Environment().as_turns(), later=later, switch=switch)
    same(rows.samples, expected)
    assert rows.samples != finished(model, Environment().as_turns())


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_what_a_row_draws_does_not_depend_on_who_is_left(monkeypatch, share):
    model = wild("keys shared by two")
    expected = finished(model, Environment().as_turns())
    monkeypatch.setattr(sampling, "KEEP_SHARE", share)
    monkeypatch.setattr(decoding, "KEEP_SHARE", share)
    same(finished(model, Environment().as_turns()), expected)


def test_prompts_may_be_read_in_parts_and_caches_grow_in_small_steps(monkeypatch):
    model = wild("keys shared by two")
    expected = finished(model, Environment().as_turns())
    monkeypatch.setattr(decoding, "READ_AT_ONCE", 10)
    monkeypatch.setattr(decoding.SharedCache, "GROWTH", 1)
    same(finished(model, Environment().as_turns()), expected)


def test_a_shared_prompt_is_as_good_as_one_for_each_row(monkeypatch):
    model = wild("keys shared by two")
    monkeypatch.setattr(sampling, "Dice", lambda *_: Dice(range(len(PROMPTS)), COPIES))
    apart = [prompt for prompt, n in zip(PROMPTS, COPIES, strict=True) for _ in range(n)]
    same(
        finished(model, Environment().as_turns(), prompts=apart, copies=[1] * len(apart)),
        finished(model, Environment().as_turns()),
    )
    unused = [*PROMPTS[:2], [5, 5], *PROMPTS[2:]]
    same(
        finished(model, Environment().as_turns(), prompts=unused, copies=[3, 1, 0, 4, 2]),
        finished(model, Environment().as_turns()),
    )


def through_a_file(state: dict) -> dict:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.parametrize("keep_end", [True, False])
@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("steps", [0, 1, 9, 30])
def test_a_state_goes_on_bit_for_bit(steps, precision, keep_end):
    model = wild("keys shared by two")
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == torch.bfloat16):
        whole = finished(model, Environment(keep_end).as_turns())
        environment = Environment(keep_end)
        rows = begun(model, environment.as_turns())
        rows.advance(model, steps)
        partial = copy.deepcopy(rows.samples)
        state, remembered = rows.state(), copy.deepcopy(environment)
        rows.advance(model, 3)  # what goes on does not change what was kept
        again = Sampling.restored(through_a_file(state), remembered.as_turns())
        assert again.samples == partial
        assert (again.done, again.prefill_seconds) == (False, rows.prefill_seconds)
        again.advance(model)
        for _ in range(500):
            rows.advance(model, 1)
    assert again.done and rows.done
    assert again.samples == rows.samples == whole
    assert all(len(one.tokens) <= steps for one in partial)


def test_time_is_told_apart(model, monkeypatch):
    now = iter(range(1000))
    monkeypatch.setattr(sampling.time, "perf_counter", lambda: float(next(now)))
    turns = Turns(lambda *_: True, lambda *_: None, True, stops=range(13))
    rows = Sampling(
        model, [[1]], [1], turns, budgets=[3], temperature=1.0, pad=0,
        seeds=[0],
    )  # fmt: skip
    rows.advance(model)
    # readings: 0 and 1 around the prompt; 2, then 3 and 4 around the reply, 5
    assert (rows.prefill_seconds, rows.callback_seconds, rows.decode_seconds) == (1.0, 1.0, 2.0)


def test_picks_by_hand():
    logprobs = torch.tensor([[0.25, 0.0, 0.5, 0.25]]).log().expand(7, 4)
    draws = [0.0, 0.2499, 0.2501, 0.7499, 0.7501, 0.9999, 1 - 2.0**-53]
    assert pick(logprobs, torch.tensor(draws, dtype=torch.float64)).tolist() == [
        0,
        0,
        2,
        2,
        3,
        3,
        3,
    ]
    # a token that cannot come does not, at the edges either
    edges = torch.tensor([[0.0, 1.0, 0.0]]).log().expand(2, 3)
    assert pick(edges, torch.tensor([0.0, 1 - 2.0**-53], dtype=torch.float64)).tolist() == [1, 1]


def test_limits_that_do_not_fit_the_rows_are_an_error(model):
    turns = Environment().as_turns()
    with pytest.raises(ValueError, match="10 limits for 1 rows"):
        sample(model, [[1]], [1], turns, budgets=[3], temperature=1.0, pad=0,
               seeds=[0])  # fmt: skip


@torch.no_grad()
def test_under_autocast_an_fp32_head_brings_sampler_and_trainer_together():
    model = wild("keys shared by two")
    for block in model.blocks:  # differences of what the head reads are to be small
        for projection in block.outputs():
            projection.weight.mul_(0.05)
    turns = Turns(lambda *_: False, lambda *_: None, True, stops=())
    apart = []
    for model.fp32_head in (False, True):
        with torch.autocast("cpu", torch.bfloat16):
            samples = sample(
                model, [[1, 2, 3]], [64], turns, budgets=[20] * 64, temperature=1.0, pad=0,
                seeds=[0],
            )  # fmt: skip
            ids = torch.tensor([[1, 2, 3, *one.tokens] for one in samples])
            logits = model(ids[:, :-1])[:, 2:]
        trained = token_logprobs(logits, ids[:, 3:])
        difference = trained - torch.tensor([one.logprobs for one in samples])
        apart.append(difference.square().mean().sqrt().item())
    assert apart[1] < 0.85 * apart[0]
