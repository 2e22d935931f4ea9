"""Sampling: what it says it sampled is what the model would have said, turn by turn."""

import itertools

import pytest
import torch

from chessrl.policy.losses import token_logprobs
from chessrl.policy.sampling import Dice, Sample, Turns, mixed, sample
from chessrl.policy.transformer import Transformer

STOP, PAD = 12, 0
PROMPTS = [[1, 2, 3, 4, 5], [6], [7, 8, 9]]


def never(turn, token) -> bool:
    return False


def at_stop(turn, token) -> bool:
    return token == STOP


def no_reply(row, turn) -> None:
    return None


def run(model: Transformer, prompts=PROMPTS, copies=None, turns=None, **changes) -> list[Sample]:
    copies = copies or [1] * len(prompts)
    settings = {
        "budgets": [8] * sum(copies),
        "temperature": 1.0,
        "pad": PAD,
        "seeds": range(len(prompts)),
    }
    return sample(model, prompts, copies, turns or Turns(never, no_reply, True),
                  **(settings | changes))  # fmt: skip


@torch.no_grad()
def recomputed(model: Transformer, prompt, one: Sample, temperature: float) -> torch.Tensor:
    ids = torch.tensor([[*prompt, *one.tokens]])
    logits = model(ids[:, :-1])[:, len(prompt) - 1 :]
    return token_logprobs(logits, ids[:, len(prompt) :], temperature)[0]


class Conversation:
    """An environment that answers the first two turns of each row, then ends it."""

    replies = ([9, 0, 12, 3], [4])  # with the pad and the stop token in them

    def __init__(self) -> None:
        self.turns: dict[int, list[list[int]]] = {}

    def __call__(self, row: int, turn: list[int]) -> list[int] | None:
        seen = self.turns.setdefault(row, [])
        seen.append(list(turn))
        return list(self.replies[len(seen) - 1]) if len(seen) <= 2 else None


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("keep_end", [True, False])
def test_sampled_logprobs_are_those_of_a_full_pass(model, temperature, keep_end):
    talk = Conversation()
    samples = run(
        model, copies=[4, 4, 4], turns=Turns(at_stop, talk, keep_end), temperature=temperature,
        budgets=[60] * 12,
    )  # fmt: skip
    for row, one in enumerate(samples):
        expected = recomputed(model, PROMPTS[row // 4], one, temperature)
        chosen = torch.tensor(one.sampled)
        ours = torch.tensor(one.logprobs)
        torch.testing.assert_close(ours[chosen], expected[chosen], atol=2e-5, rtol=1e-4)
        assert (ours[~chosen] == 0).all()
    assert any(False in one.sampled for one in samples)
    assert len({len(one.tokens) for one in samples}) > 3  # rows left at different times


def test_samples_follow_the_distribution(model):
    (prompt,) = prompts = [[1, 2, 3]]
    samples = run(model, prompts, [4000], budgets=[1] * 4000)
    probabilities = model(torch.tensor([prompt]))[0, -1].softmax(0)
    counts = torch.bincount(torch.tensor([one.tokens[0] for one in samples]), minlength=13)
    for p, count in zip(probabilities.tolist(), counts.tolist(), strict=True):
        assert abs(count - 4000 * p) <= 5 * (4000 * p * (1 - p)) ** 0.5 + 1


def test_the_seeds_decide(model):
    def tokens(seed: int) -> list[list[int]]:
        seeds = [seed, seed + 10, seed + 20]
        return [one.tokens for one in run(model, copies=[3, 3, 3], seeds=seeds)]

    assert tokens(5) == tokens(5)
    assert tokens(5) != tokens(6)


def test_a_prompts_rows_do_not_depend_on_the_other_prompts(model):
    together = run(model, copies=[3, 3, 3], seeds=[5, 6, 7], budgets=[80] * 9)
    for place, prompt in enumerate(PROMPTS):
        alone = run(model, [prompt], [3], seeds=[5 + place], budgets=[80] * 3)
        assert [one.tokens for one in alone] == [
            one.tokens for one in together[3 * place : 3 * place + 3]
        ]


def test_dice_can_be_had_again():
    dice = Dice([3, 4], [2, 1])
    drawn = [dice.of(step).tolist() for step in range(200)]
    assert [Dice([3, 4], [2, 1]).of(step).tolist() for step in (199, 0, 64)] == [
        drawn[199], drawn[0], drawn[64],
    ]  # fmt: skip
    assert len({number for row in drawn for number in row}) == 600
    assert all(0 <= number < 1 for row in drawn for number in row)


def test_seeds_are_mixed_well():
    found = {mixed(a, b) for a in range(40) for b in range(40)} | {mixed(a) for a in range(40)}
    assert len(found) == 1640 and all(0 <= seed < 2**63 for seed in found)


def test_replies_are_put_in_as_they_are_and_marked(model):
    talk = Conversation()
    samples = run(model, copies=[3, 3, 3], turns=Turns(at_stop, talk, True), budgets=[200] * 9)
    for row, one in enumerate(samples):
        assert not one.truncated
        expected, flags = [], []
        for number, turn in enumerate(talk.turns[row]):
            assert STOP not in turn
            expected += [*turn, STOP]
            flags += [True] * (len(turn) + 1)
            if number < 2:
                expected += talk.replies[number]
                flags += [False] * len(talk.replies[number])
        assert (one.tokens, one.sampled) == (expected, flags)
        assert len(talk.turns[row]) == 3
        assert len(one.logprobs) == len(one.tokens)


def test_an_end_that_only_showed_the_turn_was_over_is_thrown_away(model):
    talk = Conversation()
    samples = run(model, copies=[3, 3, 3], turns=Turns(at_stop, talk, False), budgets=[200] * 9)
    for row, one in enumerate(samples):
        expected = list(itertools.chain.from_iterable(
            turn + list(reply)
            for turn, reply in zip(talk.turns[row], [*talk.replies, []], strict=True)
        ))  # fmt: skip
        assert one.tokens == expected
        assert not one.truncated


def test_the_environment_is_asked_with_the_turn_so_far(model):
    asked = []

    def third(turn, token) -> bool:
        asked.append(list(turn))
        return len(turn) == 2

    (one,) = run(model, [[1]], turns=Turns(third, no_reply, True))
    assert asked == [[], one.tokens[:1], one.tokens[:2]]
    assert len(one.tokens) == 3


def test_the_first_token_may_end_it(model):
    always = Turns(lambda turn, token: True, no_reply, False)
    (one,) = run(model, [[1]], turns=always)
    assert (one.tokens, one.truncated) == ([], False)
    always.keep_end = True
    (one,) = run(model, [[1]], turns=always)
    assert (len(one.tokens), one.sampled, one.truncated) == (1, [True], False)


def test_each_row_has_its_budget(model):
    samples = run(model, copies=[2, 1, 3], budgets=[1, 5, 2, 9, 3, 1])
    assert [len(one.tokens) for one in samples] == [1, 5, 2, 9, 3, 1]
    assert all(one.truncated and all(one.sampled) for one in samples)


@pytest.mark.parametrize("keep_end", [True, False])
def test_replies_cost_no_budget(model, keep_end):
    # every second token ends a turn; kept, the ends cost budget like any other
    turns = Turns(lambda turn, token: len(turn) == 1, lambda row, turn: [7, 7, 7], keep_end)
    (one,) = run(model, [[1, 2]], turns=turns, budgets=[5])
    assert sum(one.sampled) == 5
    assert one.truncated
    # kept: 2 + 2 + 1 sampled, two replies; thrown away: 1 a turn, four replies before the fifth
    assert one.sampled.count(False) == (6 if keep_end else 12)


def test_a_row_that_ends_with_its_last_token_is_not_truncated(model):
    turns = Turns(lambda turn, token: len(turn) == 3, no_reply, True)
    (one,) = run(model, [[1, 2]], turns=turns, budgets=[4])
    assert (len(one.tokens), one.truncated) == (4, False)
    (one,) = run(model, [[1, 2]], turns=turns, budgets=[3])
    assert (len(one.tokens), one.truncated) == (3, True)


def test_batch_mates_do_not_matter(model):
    cold = {"temperature": 1e-4}  # the most likely token, whatever is drawn
    together = run(model, copies=[2, 1, 3], budgets=[3, 9, 6, 2, 8, 5], **cold)
    for row, (prompt, budget) in enumerate(
        zip([0, 0, 1, 2, 2, 2], [3, 9, 6, 2, 8, 5], strict=True)
    ):
        (alone,) = run(model, [PROMPTS[prompt]], budgets=[budget], **cold)
        assert together[row].tokens == alone.tokens


@torch.no_grad()
def test_at_low_temperature_the_likeliest_token_is_taken(model):
    for prompt, one in zip(PROMPTS, run(model, temperature=1e-4), strict=True):
        ids = list(prompt)
        for token in one.tokens:
            assert token == int(model(torch.tensor([ids]))[0, -1].argmax())
            ids.append(token)


def test_copies_start_alike_and_then_differ(model):
    samples = run(model, [[1, 2], [3]], [16, 16])
    for group in (samples[:16], samples[16:]):
        assert len({tuple(one.tokens) for one in group}) > 8
        by_first: dict[int, set[float]] = {}
        for one in group:
            by_first.setdefault(one.tokens[0], set()).add(one.logprobs[0])
        assert all(len(values) == 1 for values in by_first.values())  # one shared prompt


def test_budgets_that_do_not_fit_the_rows_are_an_error(model):
    with pytest.raises(ValueError):
        run(model, copies=[1, 1, 1], budgets=[4, 4])
