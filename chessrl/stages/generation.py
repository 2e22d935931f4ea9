"""Where the episodes of an update come from, and how far ahead of it they are sampled.

ScaleRL's schemes (arXiv 2510.13786): on-policy, a batch from the weights that it will change;
PPO-k, k batches from the same weights, each for an update; PipelineRL-k, batches in flight while
the weights change, at most k updates behind. The last is played here by turns, so that a seed
decides the run; `asynchronous.py` does it with a process that samples on its own.

All take the groups from the curriculum in the same order, with the dice of each group fixed.
"""

import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from chessrl.board.puzzles import Puzzle
from chessrl.board.rewards import Reward
from chessrl.config import InputError, RlConfig
from chessrl.policy.transformer import Transformer
from chessrl.stages.curriculum import Curriculum
from chessrl.stages.group import gathered, group
from chessrl.stages.rollouts import Play, Rollout, Rules


class Generation(Protocol):
    """Gives each update its batch."""

    seconds: Counter[str]
    """Spent on the last batch: prefill, decode, judging."""
    sampled: int
    """Tokens read and written so far."""
    sampled_episodes: int

    def batch(self, model: Transformer, step: int) -> list[Rollout]:
        """The episodes for update `step`, counted from 0, in the order of their groups."""

    def state(self) -> dict[str, Any]:
        """All that is needed to go on, as plain data and tensors."""

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""

    def close(self) -> None:
        """Let go of what the scheme holds."""


def rules_of(config: RlConfig, form: str) -> Rules:
    """How the episodes of RL are played."""
    length = config.length
    return Rules(
        form=form,
        copies=config.group_size,
        budget=config.max_new_tokens,
        temperature=config.temperature,
        thought=(length.thought_min, length.thought_max) if length.thought_max else None,
    )


class Source:
    """What the schemes share: groups, rules and dice; a process of several plays its part."""

    def __init__(
        self,
        curriculum: Curriculum,
        reward: Reward,
        config: RlConfig,
        form: str,
        seed: int,
    ) -> None:
        self.curriculum, self.reward, self.config, self.seed = curriculum, reward, config, seed
        self.rules = rules_of(config, form)
        self.seconds: Counter[str] = Counter()
        self.sampled = self.sampled_episodes = 0

    def start(self, model: Transformer, count: int, step: int) -> Play:
        """Begin the next groups, or this process's share of them."""
        place = group()
        groups = self.curriculum.take(count)
        return Play(model, groups[place.rank :: place.size], self.rules, self.seed, step)

    def finish(self, play: Play, model: Transformer) -> list[Rollout]:
        """Play to the end; the episodes of all processes, in the order of their groups."""
        play.advance(model)
        self.seconds.update(play.seconds)
        return self.taken(in_order(gathered(self.paid(play.rollouts()))))

    def paid(self, rollouts: Sequence[Rollout]) -> list[Rollout]:
        """With their rewards."""
        began = time.perf_counter()
        paid = [replace(one, reward=self.reward(one.puzzle, one.outcome)) for one in rollouts]
        self.seconds["judging"] += time.perf_counter() - began
        return paid

    def taken(self, rollouts: list[Rollout]) -> list[Rollout]:
        """The same, counted."""
        self.sampled += sum(rollout.read for rollout in rollouts)
        self.sampled_episodes += len(rollouts)
        return rollouts

    def close(self) -> None:
        """Let go of what the scheme holds."""

    def state(self) -> dict[str, Any]:
        return {
            "curriculum": self.curriculum.state(),
            "sampled": self.sampled,
            "sampled_episodes": self.sampled_episodes,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        self.curriculum.load(state["curriculum"])
        self.sampled, self.sampled_episodes = state["sampled"], state["sampled_episodes"]


def in_order(rollouts: Sequence[Rollout]) -> list[Rollout]:
    """By group; the order within a group is kept."""
    return sorted(rollouts, key=lambda rollout: rollout.group)


class Alternating(Source):
    """Sampling and training take turns: on-policy, or k batches from one policy (PPO-k)."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.pending: list[list[Rollout]] = []

    def batch(self, model: Transformer, step: int) -> list[Rollout]:
        """The next batch, sampled now where none is left."""
        self.seconds.clear()
        if not self.pending:
            batches = min(max(self.config.ahead.k, 1), self.config.steps - step)
            self.pending = self._sample(model, batches, step)
        rollouts = self.pending.pop(0)
        self.curriculum.learn(rollouts)
        return rollouts

    def _sample(self, model: Transformer, batches: int, step: int) -> list[list[Rollout]]:
        """So many batches; where they are to be refilled, of enough groups that disagree."""
        refill = self.config.zero_variance == "refill"
        wanted = batches * self.config.prompts
        groups: list[list[Rollout]] = []
        live = 0
        for _ in range(self.config.refill_rounds if refill else 1):
            play = self.start(model, wanted - live, step)
            groups += by_group(self.finish(play, model))
            live = sum(disagrees(one) for one in groups) if refill else len(groups)
            if live == wanted:
                break
        counts = [disagrees(one) or not refill for one in groups]
        return [[r for one in part for r in one] for part in shared_out(groups, counts, batches)]

    def state(self) -> dict[str, Any]:
        pending = [[rollout.plain() for rollout in batch] for batch in self.pending]
        return super().state() | {"pending": pending}

    def load(self, state: Mapping[str, Any]) -> None:
        super().load(state)
        puzzles = by_id(self.curriculum.puzzles)
        self.pending = [
            [Rollout.from_plain(fields, puzzles) for fields in batch] for batch in state["pending"]
        ]


class Pipeline(Source):
    """Batches in flight while the weights change, by turns (PipelineRL, arXiv 2509.19128).

    In each step the batch of k steps later begins, all in flight advance by an even share of the
    token budget, and the one that is due is finished: it has met k + 1 versions of the weights, and
    its first tokens are k updates old. Keys and values of older versions stay, as they do there.
    With k = 0 this is on-policy.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.flights: list[Play] = []
        self.started = 0
        """Batches begun so far."""

    def batch(self, model: Transformer, step: int) -> list[Rollout]:
        """The batch that is due, after all in flight have advanced."""
        config = self.config
        self.seconds.clear()
        while self.started < min(step + config.ahead.k + 1, config.steps):
            self.flights.append(self.start(model, config.prompts, step))
            self.started += 1
        due = self.flights.pop(0)
        pace = math.ceil(config.max_new_tokens / (config.ahead.k + 1))
        for play in self.flights:
            play.advance(model, pace)
        rollouts = self.finish(due, model)
        self.curriculum.learn(rollouts)
        return rollouts

    def state(self) -> dict[str, Any]:
        """Of all processes: each takes up its own flights again."""
        flights = gathered([[play.state() for play in self.flights]])
        return super().state() | {"started": self.started, "flights": flights}

    def load(self, state: Mapping[str, Any]) -> None:
        super().load(state)
        puzzles = by_id(self.curriculum.puzzles)
        self.started = state["started"]
        if len(state["flights"]) != group().size:
            raise InputError(
                f"rl: the checkpoint is of {len(state['flights'])} processes with batches in "
                f"flight, not of {group().size}: set trainer.devices as before"
            )
        flights = state["flights"][group().rank]
        self.flights = [Play.restored(one, self.rules, puzzles) for one in flights]


def by_group(rollouts: Sequence[Rollout]) -> list[list[Rollout]]:
    """Rollouts of each group, which stand together."""
    groups: dict[int, list[Rollout]] = {}
    for rollout in rollouts:
        groups.setdefault(rollout.group, []).append(rollout)
    return list(groups.values())


def by_id(puzzles: Sequence[Puzzle]) -> dict[str, Puzzle]:
    """Puzzles by their id."""
    return {puzzle.id: puzzle for puzzle in puzzles}


def disagrees(rollouts: Sequence[Rollout]) -> bool:
    """Whether the episodes of a group earned different rewards."""
    return len({rollout.reward for rollout in rollouts}) > 1


def shared_out(
    groups: Sequence[list[Rollout]], counts: Sequence[bool], batches: int
) -> list[list[list[Rollout]]]:
    """Groups in so many batches, in their order and as even as can be by those that count.

    No batch is empty: where fewer groups count than there are batches, all of them do.
    """
    total, met = sum(counts), 0
    if total < batches:
        counts, total = [True] * len(groups), len(groups)
    parts: list[list[list[Rollout]]] = [[] for _ in range(batches)]
    for one, counted in zip(groups, counts, strict=True):
        parts[min(met * batches // total, batches - 1)].append(one)
        met += counted
    return parts
