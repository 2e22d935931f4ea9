"""Which puzzle is practised next: passes over the puzzles, each in an order of its own."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from chessrl.board.puzzles import Puzzle
from chessrl.config import CurriculumConfig, InputError
from chessrl.stages.rollouts import Group, Rollout


class Curriculum:
    """A stream of groups; what it has given out and learned is its state."""

    def __init__(self, puzzles: Sequence[Puzzle], seed: int, config: CurriculumConfig) -> None:
        self.puzzles, self.seed = puzzles, seed
        self.threshold = (
            config.threshold if config.name == "no-positive-resampling" else float("inf")
        )
        self.given = 0
        """Groups given out so far."""
        self.passes = 0
        """Passes begun."""
        self.retired: set[str] = set()
        """Puzzles that later passes leave out, by id."""
        self._left: list[int] = []
        self._places = {puzzle.id: place for place, puzzle in enumerate(puzzles)}

    def take(self, count: int) -> list[Group]:
        """The next groups; a batch may reach into the next pass.

        Raises:
            InputError: every puzzle has been retired.
        """
        groups = []
        while len(groups) < count:
            if not self._left:
                self._left = self._next_pass()
            puzzle = self.puzzles[self._left.pop(0)]
            groups.append(Group(self.given, puzzle))
            self.given += 1
        return groups

    def _next_pass(self) -> list[int]:
        order = np.random.default_rng((self.seed, self.passes)).permutation(len(self.puzzles))
        self.passes += 1
        left = [int(i) for i in order if self.puzzles[i].id not in self.retired]
        if not left:
            raise InputError(
                f"rl: all {len(self.puzzles)} puzzles are solved in rl.curriculum.threshold="
                f"{self.threshold} of their episodes: give it harder ones (rl.max_rating), or "
                "fewer rl.steps. The last checkpoint is whole"
            )
        return left

    def learn(self, rollouts: Sequence[Rollout]) -> None:
        """Retire puzzles that enough of their group has solved; from the next pass on they miss."""
        solved: dict[str, list[float]] = {}
        for rollout in rollouts:
            solved.setdefault(rollout.puzzle.id, []).append(rollout.outcome.reward)
        for name, rewards in solved.items():
            if np.mean(rewards) >= self.threshold:
                self.retired.add(name)

    def state(self) -> dict[str, Any]:
        """What decides the rest of the stream, as plain data."""
        return {
            "given": self.given,
            "passes": self.passes,
            "left": list(self._left),
            "retired": sorted(self.retired, key=self._places.__getitem__),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self.given, self.passes = state["given"], state["passes"]
        self._left, self.retired = list(state["left"]), set(state["retired"])
