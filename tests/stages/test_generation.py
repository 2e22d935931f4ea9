"""How far sampling runs ahead: which weights wrote what, and that nothing else differs."""

import copy
import dataclasses
import time

import pytest
import torch
from handmade import MATE, MODEL

from chessrl.board import tokens
from chessrl.board.puzzles import Puzzle
from chessrl.board.rewards import choose
from chessrl.policy.weights import new_model
from chessrl.stages.asynchronous import Asynchronous
from chessrl.stages.curriculum import Curriculum
from chessrl.stages.generation import Alternating, Pipeline, by_group, disagrees, shared_out
from chessrl.stages.rollouts import Rollout

PUZZLES = [dataclasses.replace(MATE, id=f"p{i}") for i in range(6)]
STEPS = 9


@pytest.fixture
def settings(tiny, tmp_path):
    def made(*overrides: str):
        return tiny(
            tmp_path, f"rl.steps={STEPS}", "rl.prompts=3", "rl.group_size=2",
            "rl.max_new_tokens=12", *overrides,
        ).rl  # fmt: skip

    return made


def generation(config, reward=None):
    kind = Pipeline if config.ahead.scheme == "pipeline" else Alternating
    curriculum = Curriculum(PUZZLES, 0, config.curriculum)
    return kind(curriculum, reward or choose("binary"), config, "board", 0)


def models(count=STEPS):
    """Weights of each update: they move far enough for other tokens to be drawn."""
    model = new_model(MODEL, len(tokens.TOKENS), 0)
    found = [model]
    for version in range(1, count):
        model = copy.deepcopy(model)
        torch.manual_seed(version)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 0.1 * torch.randn_like(parameter)
        found.append(model)
    return found


def written(rollouts: list[Rollout]):
    return [(r.group, r.puzzle.id, r.sample.tokens) for r in rollouts]


def run(config, first=0, source=None):
    source = source or generation(config)
    return [source.batch(model, step) for step, model in enumerate(models())][first:]


def test_on_policy_every_batch_is_of_the_newest_weights(settings):
    batches = run(settings())
    assert [{r.version for r in batch} for batch in batches] == [{s} for s in range(STEPS)]
    numbers = [r.group for batch in batches for r in batch]
    assert numbers == [i for i in range(3 * STEPS) for _ in range(2)]


def test_ppo_k_samples_k_batches_from_one_policy(settings):
    batches = run(settings("rl.ahead.scheme=ppo", "rl.ahead.k=4"))
    assert [{r.version for r in batch} for batch in batches] == [
        {0}, {0}, {0}, {0}, {4}, {4}, {4}, {4}, {8},
    ]  # fmt: skip
    assert all(len(batch) == 6 for batch in batches)
    groups = [r.group for batch in batches for r in batch]
    assert groups == sorted(groups) and len(set(groups)) == 3 * STEPS


def test_a_pipeline_is_at_most_k_updates_behind(settings):
    batches = run(settings("rl.ahead.scheme=pipeline", "rl.ahead.k=2"))
    assert [{r.version for r in batch} for batch in batches] == [
        {max(0, step - 2)} for step in range(STEPS)
    ]


@pytest.mark.parametrize("scheme", [("ppo", 1), ("pipeline", 0)])
def test_without_a_lead_all_schemes_are_on_policy(scheme, settings):
    """ppo with k = 1, a pipeline with k = 0: the same episodes to the bit."""
    name, k = scheme
    ahead = run(settings(f"rl.ahead.scheme={name}", f"rl.ahead.k={k}"))
    plain = run(settings())
    for ours, theirs in zip(ahead, plain, strict=True):
        assert written(ours) == written(theirs)
        assert [r.sample.logprobs for r in ours] == [r.sample.logprobs for r in theirs]


def test_weights_change_within_a_sequence(settings):
    """k = 2 of 12 tokens: four by each of three versions, their log-probabilities by that one."""
    config = settings("rl.ahead.scheme=pipeline", "rl.ahead.k=2", "rl.temperature=1.0")
    step = 5
    batch = run(config)[step]
    versions = models()
    long = [r for r in batch if sum(r.sample.sampled) == 12 and all(r.sample.sampled)]
    assert long
    for rollout in long:
        ids = torch.tensor([rollout.prompt + rollout.sample.tokens])
        start = len(rollout.prompt)
        for part, version in enumerate((3, 4, 5)):
            logp = torch.log_softmax(versions[version](ids), -1)[0].detach()
            fresh = [float(logp[start + place - 1, ids[0, start + place]]) for place in range(12)]
            own = slice(4 * part, 4 * part + 4)
            if part == 0:  # later versions read keys and values of earlier ones
                assert rollout.sample.logprobs[own] == pytest.approx(fresh[own], abs=1e-4)
            else:
                other = torch.log_softmax(versions[3](ids), -1)[0].detach()
                stale = [
                    float(other[start + place - 1, ids[0, start + place]]) for place in range(12)
                ]
                assert rollout.sample.logprobs[own] != pytest.approx(stale[own], abs=1e-3)


@pytest.mark.parametrize(
    "ahead",
    [(), ("rl.ahead.scheme=ppo", "rl.ahead.k=4"), ("rl.ahead.scheme=pipeline", "rl.ahead.k=3"),
     ("rl.zero_variance=refill", "rl.refill_rounds=3")],
)  # fmt: skip
@pytest.mark.parametrize("stop", [1, 4, 6])
def test_it_goes_on_exactly_from_its_state(ahead, stop, settings, tmp_path):
    config = settings(*ahead)
    whole = run(config)
    first, versions = generation(config), models()
    for step in range(stop):
        first.batch(versions[step], step)
    torch.save(first.state(), tmp_path / "state.pt")
    second = generation(config)
    second.load(torch.load(tmp_path / "state.pt", weights_only=True))
    for step in range(stop, STEPS):
        batch = second.batch(versions[step], step)
        assert [r.plain() for r in batch] == [r.plain() for r in whole[step]]
    assert (second.sampled, second.sampled_episodes) == (
        sum(r.read for batch in whole for r in batch),
        sum(len(batch) for batch in whole),
    )


class Rewards:
    """Rewards by a rule on what was written, to make groups of every kind."""

    def __call__(self, puzzle: Puzzle, outcome) -> float:
        self.calls = getattr(self, "calls", 0) + 1
        return float(self.calls % 6 == 1)  # of three groups of two, the first disagrees


def test_refill_samples_until_enough_groups_disagree(settings):
    """A third of the groups disagree: 3, then 2, 2, 2 more, and after four rounds it goes on."""
    config = settings("rl.zero_variance=refill", "rl.refill_rounds=4")
    source = generation(config, Rewards())
    batch = source.batch(models(1)[0], 0)
    live = [disagrees(group) for group in by_group(batch)]
    assert live == [True, False, False, True, False, False, True]
    assert source.curriculum.given == 7


def test_refill_goes_on_with_fewer_after_its_rounds(settings):
    config = settings("rl.zero_variance=refill", "rl.refill_rounds=2")
    batch = generation(config, lambda *_: 0.0).batch(models(1)[0], 0)
    assert len(by_group(batch)) == 6 and not any(map(disagrees, by_group(batch)))


def test_groups_are_shared_out_evenly_by_those_that_count():
    groups = [[i] for i in range(7)]
    counts = [True, False, True, True, False, False, True]
    assert shared_out(groups, counts, 2) == [[[0], [1], [2]], [[3], [4], [5], [6]]]
    assert shared_out(groups, [False] * 7, 2) == [[[0], [1], [2], [3]], [[4], [5], [6]]]
    assert shared_out(groups, [False] * 6 + [True], 2)[1]


def test_a_rollout_survives_being_plain(settings):
    batch = run(settings())[0]
    puzzles = {puzzle.id: puzzle for puzzle in PUZZLES}
    assert [Rollout.from_plain(r.plain(), puzzles) for r in batch] == batch


class TestAsynchronous:
    """A process of its own samples."""

    @pytest.fixture
    def made(self, settings):
        opened = []

        def make(k: int, *overrides: str) -> Asynchronous:
            config = settings(
                "rl.ahead.scheme=pipeline", f"rl.ahead.k={k}", "rl.ahead.asynchronous=true",
                *overrides,
            )  # fmt: skip
            curriculum = Curriculum(PUZZLES, 0, config.curriculum)
            source = Asynchronous(
                curriculum, choose("binary"), config, "board", 0,
                accelerator="cpu", precision="32-true",
            )  # fmt: skip
            opened.append(source)
            return source

        yield make
        for source in opened:
            source.close()

    def test_without_a_lead_it_is_on_policy(self, made, settings):
        ahead, plain = run(None, source=made(0)), run(settings())
        for ours, theirs in zip(ahead, plain, strict=True):
            assert written(ours) == written(theirs)
            assert [r.version for r in ours] == [r.version for r in theirs]
            assert [r.sample.logprobs for r in ours] == [r.sample.logprobs for r in theirs]

    def test_it_is_at_most_k_updates_behind_and_keeps_the_order(self, made):
        batches = run(None, source=made(2))
        assert [sorted({r.group for r in batch}) for batch in batches] == [
            [3 * s, 3 * s + 1, 3 * s + 2] for s in range(STEPS)
        ]
        for step, batch in enumerate(batches):
            assert all(max(0, step - 2) <= r.version <= step for r in batch)

    def test_it_asks_again_for_what_was_on_its_way(self, made):
        versions, first = models(), made(2)
        for step in range(4):
            first.batch(versions[step], step)
        second = made(2)
        second.load(first.state())
        rest = [second.batch(versions[step], step) for step in range(4, STEPS)]
        assert [r.group for batch in rest for r in batch] == [
            i for i in range(12, 3 * STEPS) for _ in range(2)
        ]

    def test_a_fault_there_is_a_fault_here(self, made):
        broken = dataclasses.replace(PUZZLES[0], moves=("h8g8", "a1a2", "g8h8", "a2a9"))
        source = made(0)
        source.curriculum.puzzles = [broken] * 6
        source.rules = dataclasses.replace(source.rules, form="history")
        with pytest.raises(RuntimeError, match="the sampling process failed"):
            source.batch(models(1)[0], 0)

    def test_it_leaves_no_process(self, made):
        source = made(1)
        source.batch(models(1)[0], 0)
        process = source._process
        source.close()
        assert not process.is_alive() and source._process is None

    def test_a_killed_sampler_is_told_of(self, made):
        """Also where it dies with half an answer handed over."""
        source = made(2, "rl.group_size=64", "rl.max_new_tokens=80")
        source.batch(models(1)[0], 0)
        time.sleep(3)  # the next answers are on their way, and nobody reads them
        source._process.kill()
        with pytest.raises(RuntimeError, match=r"the sampling process ended \(-9\)"):
            for step in range(1, 4):
                source.batch(models(1)[0], step)
