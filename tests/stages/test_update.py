"""The update of RL: independent of microbatches, silent on dead groups, blind to what is masked."""

import dataclasses

import pytest
import torch
from handmade import MODEL, episode

from chessrl.board import tokens
from chessrl.board.episodes import Outcome
from chessrl.policy.weights import new_model
from chessrl.stages import update
from chessrl.stages.rollouts import Rollout
from chessrl.stages.update import (
    as_rows,
    credit_of,
    episode_divergence,
    microbatches,
    objective,
    parts_of,
    rows_of,
)

LENGTHS = (4, 9, 6, 4)


def batch(rewards=(1.0, 0.0, 1.0, 0.0), groups=(0, 0, 1, 1)) -> list[Rollout]:
    return [
        episode(length, seed, group, reward)
        for seed, (length, group, reward) in enumerate(zip(LENGTHS, groups, rewards, strict=True))
    ]


def gradients(config, rollouts, limit=10**6, divergence=None):
    """Gradients of one update, as the module takes it, part by part."""
    model = new_model(MODEL, len(tokens.TOKENS), 0)
    in_loss = config.kl.weight and config.kl.place == "loss"
    reference = new_model(MODEL, len(tokens.TOKENS), 1).eval() if in_loss else None
    credit = credit_of(rollouts, config, divergence)
    live = credit.live.nonzero().flatten().tolist()
    for part in parts_of(rollouts, live, limit):
        rows = as_rows(rollouts, part, credit.advantage, credit.weight)
        (-objective(model, reference, rows, config, []).value).backward()
    return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


def close(ours, theirs, scale=1.0):
    assert ours.keys() == theirs.keys() and ours
    for name, gradient in theirs.items():
        torch.testing.assert_close(ours[name] * scale, gradient, atol=3e-8, rtol=1e-4)


LOSSES = {
    "reinforce": (0, 0), "grpo": (0.2, 0.2), "dapo": (0.2, 0.26), "cispo": (0, 5),
    "gspo": (3e-3, 4e-3),
}  # fmt: skip
NO_KL = ("rl.kl.estimator=none", "rl.kl.weight=0")


@pytest.fixture
def rl(tiny, tmp_path):
    """RL settings from overrides."""
    return lambda *overrides: tiny(tmp_path, *NO_KL, *overrides).rl


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("aggregation", ["sample", "prompt", "token"])
@pytest.mark.parametrize("more", [(), ("rl.kl.estimator=k3", "rl.kl.weight=0.5"),
                                  ("rl.loss.entropy=0.1",)])  # fmt: skip
def test_microbatches_do_not_change_the_update(name, aggregation, more, rl):
    low, high = LOSSES[name]
    config = rl(
        f"rl.loss.name={name}", f"rl.loss.low={low}", f"rl.loss.high={high}",
        f"rl.loss.aggregation={aggregation}", *more,
    )  # fmt: skip
    whole = gradients(config, batch())
    for limit in (1, 30):  # two microbatches of a group each, and one
        close(gradients(config, batch(), limit), whole)


def test_the_aggregations_differ(rl):
    found = [
        gradients(rl(f"rl.loss.aggregation={kind}"), batch())["head.weight"]
        for kind in ("sample", "prompt", "token")
    ]
    assert not torch.allclose(found[0], found[1], atol=0) and not torch.allclose(
        found[1], found[2], atol=0
    )


@pytest.mark.parametrize("zero_variance", ["keep", "drop"])
def test_dead_groups_give_exactly_nothing(zero_variance, rl):
    rollouts = batch((1.0, 1.0, 0.0, 0.0))
    assert gradients(rl(f"rl.zero_variance={zero_variance}"), rollouts) == {}


def test_dead_groups_stay_in_the_mean_or_leave_it(rl):
    """One of two groups is dead: kept, the gradient is half of the live one's; dropped, all."""
    rollouts = batch((1.0, 0.0, 0.0, 0.0))
    alone = gradients(rl(), rollouts[:2])
    close(gradients(rl("rl.zero_variance=keep"), rollouts), alone, scale=2)
    close(gradients(rl("rl.zero_variance=drop"), rollouts), alone)


def test_dead_groups_feel_the_divergence_where_they_are_kept(rl):
    kl = ("rl.kl.estimator=k3", "rl.kl.weight=0.5")
    rollouts = batch((1.0, 1.0, 0.0, 0.0))
    assert gradients(rl("rl.zero_variance=keep", *kl), rollouts)
    assert gradients(rl("rl.zero_variance=drop", *kl), rollouts) == {}


def test_truncated_episodes_leave_the_loss_and_its_denominators(rl):
    """Without its third episode the batch has the gradient of the other three."""
    rollouts = batch()
    rollouts[2] = dataclasses.replace(rollouts[2], outcome=Outcome(1.0, 0, "truncated", ()))
    for aggregation in ("sample", "prompt", "token"):
        settings = (f"rl.loss.aggregation={aggregation}", "rl.advantage=none")
        config = rl(*settings, "rl.length.drop_truncated=true")
        credit = credit_of(rollouts, config, None)
        assert credit.counted.tolist() == [True, True, False, True]
        assert credit.advantage.tolist() == [0.5, -0.5, 0.5, -0.5]  # it stays in the baseline
        three = [rollouts[i] for i in (0, 1, 3)]
        weights = credit_of(three, rl(*settings), None).weight
        assert credit.weight[[0, 1, 3]].tolist() == weights.tolist() and credit.weight[2] == 0


def test_the_length_penalty_is_for_solved_episodes(rl):
    """Budget 10, margin 4, tokens chosen 3, 8, 5, 3: 8 loses (10 - 8) / 4 - 1 = -1/2."""
    config = rl(
        "rl.max_new_tokens=10", "rl.length.control=penalty", "rl.length.margin=4",
    )  # fmt: skip
    assert credit_of(batch((1, 1, 0, 1)), config, None).reward.tolist() == [1, 0.5, 0, 1]
    assert credit_of(batch((0, 0, 1, 1)), config, None).reward.tolist() == [0, 0, 1, 1]


def test_groups_agree_by_what_the_judge_paid(rl):
    """A penalty sets two solved episodes apart: kept, they teach; dropped, they do not."""
    penalty = ("rl.max_new_tokens=10", "rl.length.control=penalty", "rl.length.margin=4")
    rollouts = batch((1.0, 1.0, 0.0, 0.0))
    kept = credit_of(rollouts, rl(*penalty), None)
    assert kept.live.tolist() == [True, True, False, False]
    dropped = credit_of(rollouts, rl(*penalty, "rl.zero_variance=drop"), None)
    assert not dropped.counted.any() and not dropped.live.any()


def test_the_divergence_in_the_reward(rl):
    config = rl("rl.kl.estimator=k1", "rl.kl.weight=0.5", "rl.kl.place=reward")
    nats = torch.tensor([0.2, 0.4, -0.2, 0.0])
    found = credit_of(batch(), config, nats).reward
    assert found.tolist() == pytest.approx([0.9, -0.2, 1.1, 0.0])
    reference = new_model(MODEL, len(tokens.TOKENS), 1).eval()
    rollouts = batch()
    sums = episode_divergence(reference, rollouts, config, torch.device("cpu"))
    for rollout, found in zip(rollouts, sums.tolist(), strict=True):
        ids = torch.tensor([rollout.prompt + rollout.sample.tokens])
        logp = torch.log_softmax(reference(ids), -1)[0, len(rollout.prompt) - 1 : -1]
        anchor = logp.gather(-1, ids[0, len(rollout.prompt) :, None])[:, 0].tolist()
        sample = rollout.sample
        terms = zip(sample.logprobs, anchor, sample.sampled, strict=True)
        assert found == pytest.approx(sum(ours - ref for ours, ref, chosen in terms if chosen))


def test_the_same_position_twice_stays_two_groups(rl):
    """One puzzle, drawn twice: (1, 0) and (1, 1). As one group of four nothing would be dead."""
    credit = credit_of(batch((1.0, 0.0, 1.0, 1.0)), rl(), None)
    assert credit.advantage.tolist() == pytest.approx([1.0, -1.0, 0.0, 0.0])


def test_log_probabilities_of_the_environment_do_not_matter(rl):
    changed = batch()
    for rollout in changed:
        for place, ours in enumerate(rollout.sample.sampled):
            if not ours:
                rollout.sample.logprobs[place] = -7.0
    before, after = gradients(rl(), batch()), gradients(rl(), changed)
    assert before and all(torch.equal(after[name], before[name]) for name in before)


def test_stop_tokens_get_gradient(rl):
    rollouts = batch()
    for rollout in rollouts:
        rollout.sample.tokens[:] = [tokens.CALL_ENV] * len(rollout.sample.tokens)
    assert gradients(rl(), rollouts)["head.weight"][tokens.CALL_ENV].any()


def test_a_row_is_a_prompt_and_the_episodes_that_go_on_from_it():
    """Prompt of 3, answers of 4 and 2 tokens: the last of each is predicted, but not read."""
    rollouts = [episode(4, 0), episode(2, 1)]
    rows = as_rows(rollouts, [[0, 1]], torch.tensor([1.0, 2.0]), torch.tensor([0.5, 0.25]))
    first, second = (one.sample.tokens for one in rollouts)
    assert rows.inputs.tolist() == [[tokens.BOS, 5, 6, *first[:3], second[0]]]
    assert rows.branches.tolist() == [[0, 0, 0, 1, 1, 1, 2]]
    assert as_rows(rollouts, [[0], [1]], rows.advantage, rows.weight).branches is None
    assert rows.places[0].tolist() == [2, 3, 4, 5]
    assert rows.places[1, :2].tolist() == [2, 6]
    assert rows.targets[0].tolist() == first and rows.targets[1, :2].tolist() == second
    assert rows.mask.tolist() == [[True, True, False, True], [True, False, False, False]]
    assert rows.behaviour[0].tolist() == pytest.approx(rollouts[0].sample.logprobs)
    assert rows.advantage.tolist() == [1.0, 2.0] and rows.weight.tolist() == [0.5, 0.25]


def test_episodes_share_a_row_with_their_group_alone(monkeypatch):
    rollouts = batch()  # places of their own: 3, 8, 5 and 3, after a prompt of 3
    assert rows_of(rollouts, [0, 1, 2, 3]) == [[0, 1], [2, 3]]
    assert rows_of(rollouts, [0, 2]) == [[0], [2]]
    monkeypatch.setattr(update, "ROW", 12)
    assert rows_of(rollouts, [0, 1, 2, 3]) == [[0], [1], [2, 3]]


@pytest.mark.parametrize("kl", [(), ("rl.kl.estimator=k2", "rl.kl.weight=0.5")])
def test_a_shared_row_has_the_gradient_of_rows_apart(kl, rl, monkeypatch):
    rollouts = [
        episode(length, seed, seed // 5, float(seed % 3 == 0))
        for seed, length in enumerate((4, 9, 6, 4, 2, 8, 1, 12, 5, 7))
    ]
    shared = gradients(rl(*kl), rollouts)
    monkeypatch.setattr(update, "ROW", 1)
    close(gradients(rl(*kl), rollouts), shared)


def test_microbatches_hold_each_episode_once():
    lengths = [5, 1, 9, 9, 2, 30]
    parts = microbatches(lengths, 12)
    assert sorted(i for part in parts for i in part) == list(range(6))
    assert all(len(part) * max(lengths[i] for i in part) <= 12 or len(part) == 1 for part in parts)
    assert microbatches([], 12) == []
