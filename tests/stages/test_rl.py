"""The update of RL: independent of microbatches, silent on dead groups, blind to what is masked."""

import dataclasses

import pytest
import torch

from chessrl.board import tokens
from chessrl.board.episodes import replay
from chessrl.board.puzzles import Puzzle
from chessrl.config import ModelConfig
from chessrl.policy.losses import group_advantage
from chessrl.policy.sampling import Sample
from chessrl.policy.weights import new_model
from chessrl.stages.rl import PuzzleRL, as_rows, microbatches, prompts_of
from chessrl.stages.rollouts import Rollout, seeded

MODEL = ModelConfig(name="t", width=16, layers=1, heads=2, kv_heads=1, head_dim=8, ffn=32)
MATE = Puzzle(id="mate", fen="7k/8/6K1/8/8/8/8/QR6 b - - 0 1", moves=("h8g8", "a1a8"), rating=600)


def episode(length: int, seed: int) -> Rollout:
    """An episode of so many sampled tokens, one of them put in by the environment."""
    draw = torch.Generator().manual_seed(seed)
    ids = torch.randint(3, 80, (length,), generator=draw).tolist()
    logprobs = (-torch.rand(length, generator=draw)).tolist()
    sampled = [True] * length
    sampled[length // 2] = False
    logprobs[length // 2] = 0.0
    return Rollout(
        puzzle=MATE,
        prompt=[tokens.BOS, 5, 6],
        sample=Sample(ids, logprobs, sampled),
        outcome=replay(MATE, []),
        thought=None,
    )


def gradients(configure, advantage, limit=10**6, kl=0.0, change=None):
    """Gradients of one update, caught before the step is taken."""
    run = configure(f"rl.microbatch_tokens={limit}", f"rl.kl={kl}", "rl.optim.clip=1e9")
    model = new_model(MODEL, len(tokens.TOKENS), 0)
    reference = new_model(MODEL, len(tokens.TOKENS), 1).eval() if kl else None
    module = PuzzleRL(model, reference, run.rl, "board", 0)
    rollouts = [episode(length, seed) for seed, length in enumerate((4, 9, 6, 7))]
    if change is not None:
        change(rollouts)
    group = {"params": list(model.parameters()), "name": "all"}
    module.optimizers = lambda: torch.optim.SGD([group], lr=0.0)
    module.lr_schedulers = lambda: type("Still", (), {"step": lambda self: None})()
    module.manual_backward = lambda loss: loss.backward()
    caught = {}
    zero = torch.optim.SGD.zero_grad
    try:
        torch.optim.SGD.zero_grad = lambda self: caught.update(
            {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
        )
        module._update(rollouts, torch.tensor(advantage))
    finally:
        torch.optim.SGD.zero_grad = zero
    return caught


ADVANTAGE = [1.0, -1.0, 0.5, -0.5]


@pytest.mark.parametrize("kl", [0.0, 0.5])
def test_microbatches_do_not_change_the_update(kl, configure):
    whole = gradients(configure, ADVANTAGE, kl=kl)
    for limit in (1, 20, 26):
        parts = gradients(configure, ADVANTAGE, limit, kl=kl)
        for name, gradient in whole.items():
            torch.testing.assert_close(parts[name], gradient, atol=1e-7, rtol=1e-5)


def test_a_dead_group_gives_exactly_nothing(configure):
    dead = group_advantage(torch.tensor([[1.0, 1.0], [0.0, 0.0]])).flatten().tolist()
    assert gradients(configure, dead) == {}


def test_dead_episodes_stay_in_the_denominator(configure):
    """Two of four episodes are dead: the gradient is that of the live two, over four."""
    both = gradients(configure, [1.0, -1.0, 0.0, 0.0])
    alone = gradients(
        configure, [1.0, -1.0], change=lambda rollouts: rollouts.__delitem__(slice(2, None))
    )
    for name, gradient in alone.items():
        torch.testing.assert_close(both[name] * 2, gradient, atol=1e-7, rtol=1e-5)


def test_log_probabilities_of_the_environment_do_not_matter(configure):
    def change(rollouts):
        for rollout in rollouts:
            for place, ours in enumerate(rollout.sample.sampled):
                if not ours:
                    rollout.sample.logprobs[place] = -7.0

    before, after = gradients(configure, ADVANTAGE), gradients(configure, ADVANTAGE, change=change)
    assert before and all(torch.equal(after[name], before[name]) for name in before)


def test_stop_tokens_get_gradient(configure):
    def stop(rollouts):
        for rollout in rollouts:
            rollout.sample.tokens[:] = [tokens.CALL_ENV] * len(rollout.sample.tokens)

    assert gradients(configure, ADVANTAGE, change=stop)["head.weight"][tokens.CALL_ENV].any()


def test_rows_are_shifted_by_one():
    """Prompt of 3, answer of 4: places 2 to 5 predict it, the third of them the environment's."""
    rows = as_rows([episode(4, 0)], torch.tensor([1.0]))
    assert rows.mask.tolist() == [[False, False, True, True, False, True]]
    assert rows.targets[0, 2:].tolist() == episode(4, 0).sample.tokens
    assert rows.inputs[0, :3].tolist() == [tokens.BOS, 5, 6]
    assert rows.behaviour[0, 2:].tolist() == pytest.approx(episode(4, 0).sample.logprobs)


def test_microbatches_hold_each_episode_once():
    lengths = [5, 1, 9, 9, 2, 30]
    parts = microbatches(lengths, 12)
    assert sorted(i for part in parts for i in part) == list(range(6))
    assert all(len(part) * max(lengths[i] for i in part) <= 12 or len(part) == 1 for part in parts)


def test_each_pass_takes_every_puzzle_once():
    puzzles = [dataclasses.replace(MATE, id=str(i)) for i in range(10)]
    taken = [p.id for step in range(5) for p in prompts_of(puzzles, 4, 0, step)]
    assert sorted(taken[:10]) == sorted(taken[10:]) == [str(i) for i in range(10)]
    assert taken[:10] != taken[10:]


def test_generators_differ_by_every_number():
    draws = {
        tuple(torch.rand(2, generator=seeded(*numbers)).tolist())
        for numbers in ((0, 0), (0, 1), (1, 0), (1, 1), (0, 2))
    }
    assert len(draws) == 5
