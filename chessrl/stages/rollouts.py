"""Episodes played by a model: sampled by the policy, judged by the board, as one batch."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from chessrl.board import tokens
from chessrl.board.episodes import Outcome, Turn, group, play_turn, split_thought
from chessrl.board.prompts import puzzle_prompt
from chessrl.board.puzzles import Puzzle
from chessrl.board.traces import read_trace
from chessrl.policy.sampling import Sample, Sampling, Turns, mixed
from chessrl.policy.transformer import Transformer

NO_MOVE = frozenset(
    tokens.ID[name]
    for name in ("<bos>", "<eos>", "<pad>", "<T>", "</T>", "<sep>", "<call_env>", "<board>")
)


@dataclass(frozen=True)
class Rollout:
    """One episode: what was written and what it earned."""

    puzzle: Puzzle
    prompt: list[int]
    sample: Sample
    outcome: Outcome
    thought: list[int] | None
    """Tokens of the first turn's thought, without its marks; None where there was none."""
    group: int = 0
    """Number of the group that it belongs to, counted over the whole run."""
    version: int = 0
    """Updates that the policy had seen when the episode began."""
    reward: float = 0.0
    """What it earned, in the choice of `rl.reward`."""

    @property
    def well_formed(self) -> bool:
        """Whether the first turn opens with a thought of legal lines and closes it."""
        if self.thought is None:
            return False
        try:
            read_trace(self.puzzle.board(), self.thought)
        except (tokens.Unreadable, tokens.Illegal):
            return False
        return True

    @property
    def read(self) -> int:
        """Tokens of prompt and response."""
        return len(self.prompt) + len(self.sample.tokens)

    def plain(self) -> dict[str, Any]:
        """As dictionaries, lists and numbers; the puzzle by its id."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        outcome = dataclasses.asdict(self.outcome)
        return fields | {
            "puzzle": self.puzzle.id,
            "sample": dataclasses.asdict(self.sample),
            "outcome": outcome | {"turns": [list(turn.values()) for turn in outcome["turns"]]},
        }

    @staticmethod
    def from_plain(fields: Mapping[str, Any], puzzles: Mapping[str, Puzzle]) -> "Rollout":
        """The rollout that `plain` told of, given its puzzle by its id."""
        outcome = fields["outcome"]
        turns = tuple(Turn(*turn) for turn in outcome["turns"])
        return Rollout(
            **fields
            | {
                "puzzle": puzzles[fields["puzzle"]],
                "sample": Sample(**fields["sample"]),
                "outcome": Outcome(**outcome | {"turns": turns}),
            }
        )


@dataclass(frozen=True)
class Group:
    """A puzzle to be played a number of times."""

    number: int
    """Counted over the whole run; it decides the dice."""
    puzzle: Puzzle


@dataclass(frozen=True, kw_only=True)
class Rules:
    """How episodes are played."""

    form: str
    """Prompt form, `board` or `history`."""
    copies: int
    """Episodes of each puzzle, G."""
    budget: int
    """Tokens that the model may write in one episode."""
    temperature: float
    thinks: bool = True
    """True where the model ends its turns with `<call_env>`, as SFT teaches; False for a pretrained
    model, whose turn is one move and is over when the next would begin."""
    thought: tuple[int, int] | None = None
    """Tokens at which a thought is closed by force, drawn evenly between these for each episode."""


class Play:
    """A batch of episodes on their way; those of group i are i * copies onward.

    The dice of an episode depend on the seed, the number of its group and its place therein, not on
    what else is in the batch: the same groups in other batches give the same episodes.
    """

    def __init__(
        self,
        model: Transformer,
        groups: Sequence[Group],
        rules: Rules,
        seed: int,
        version: int = 0,
    ) -> None:
        """Read the prompts; `advance` does the rest."""
        self.groups, self.rules, self.version = groups, rules, version
        self._prompts = [puzzle_prompt(one.puzzle, rules.form) for one in groups]
        seeds = [mixed(seed, one.number) for one in groups]
        limits = None
        if rules.thought is not None:
            limits = [limit for one in seeds for limit in _limits(rules, one)]
        self._begin(limits)
        model.eval()
        self._sampling = Sampling(
            model,
            self._prompts,
            [rules.copies] * len(groups),
            self._turns_of(limits),
            budgets=[rules.budget] * len(self._episodes),
            temperature=rules.temperature,
            pad=tokens.PAD,
            seeds=seeds,
        )

    def _begin(self, limits: list[int] | None) -> None:
        self._limits = limits
        copies = self.rules.copies
        self._episodes = [episode for one in self.groups for episode in group(one.puzzle, copies)]
        self._turns: list[list[list[int]]] = [[] for _ in self._episodes]

    def _turns_of(self, limits: list[int] | None) -> Turns:
        thinks = self.rules.thinks
        return Turns(
            (lambda *_: True) if thinks else _ends_by_next_move,
            self._reply,
            keep_end=thinks,
            stops=[tokens.CALL_ENV] if thinks else NO_MOVE | tokens.OPENERS,
            interrupt_at=limits,
            interrupt=None if limits is None else _close_thought,
        )

    def _reply(self, row: int, turn: list[int]) -> list[int] | None:
        self._turns[row].append(turn)
        return play_turn(self._episodes[row], turn)

    def advance(self, model: Transformer, steps: int | None = None) -> None:
        """Go on by so many tokens, or to the end."""
        model.eval()
        self._sampling.advance(model, steps)

    @property
    def done(self) -> bool:
        """Whether all episodes have ended."""
        return self._sampling.done

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds so far: reading prompts, decoding, judging."""
        sampling = self._sampling
        return {
            "prefill": sampling.prefill_seconds,
            "decode": sampling.decode_seconds,
            "judging": sampling.callback_seconds,
        }

    def rollouts(self) -> list[Rollout]:
        """The episodes, all of which have ended."""
        rollouts = []
        for row, (episode, one) in enumerate(
            zip(self._episodes, self._sampling.samples, strict=True)
        ):
            if one.truncated and not episode.over:
                episode.truncate()
            first = self._turns[row][0] if self._turns[row] else []
            place = row // self.rules.copies
            rollouts.append(
                Rollout(
                    episode.puzzle,
                    self._prompts[place],
                    one,
                    episode.outcome,
                    _thought(first),
                    self.groups[place].number,
                    self.version,
                )
            )
        return rollouts

    def state(self) -> dict[str, Any]:
        """All that is needed to go on, as plain data and tensors."""
        return {
            "groups": [(one.number, one.puzzle.id) for one in self.groups],
            "version": self.version,
            "limits": self._limits,
            "turns": self._turns,
            "sampling": self._sampling.state(),
        }

    @classmethod
    def restored(
        cls, state: Mapping[str, Any], rules: Rules, puzzles: Mapping[str, Puzzle]
    ) -> "Play":
        """The batch that `state` told of, to go on exactly."""
        play = cls.__new__(cls)
        play.groups = [Group(number, puzzles[name]) for number, name in state["groups"]]
        play.rules, play.version = rules, state["version"]
        play._prompts = [puzzle_prompt(one.puzzle, rules.form) for one in play.groups]
        play._begin(state["limits"])
        for row, turns in enumerate(state["turns"]):
            for turn in turns:
                play._reply(row, turn)
        play._sampling = Sampling.restored(state["sampling"], play._turns_of(state["limits"]))
        return play


def play(
    model: Transformer, puzzles: Sequence[Puzzle], rules: Rules, seed: int, first: int = 0
) -> list[Rollout]:
    """Play some puzzles to the end, numbered from `first`; those of puzzle i are together."""
    groups = [Group(first + i, puzzle) for i, puzzle in enumerate(puzzles)]
    batch = Play(model, groups, rules, seed)
    batch.advance(model)
    return batch.rollouts()


def _limits(rules: Rules, seed: int) -> list[int]:
    low, high = rules.thought
    generator = torch.Generator().manual_seed(mixed(seed, 0, 0))
    return torch.randint(low, high + 1, (rules.copies,), generator=generator).tolist()


def _close_thought(_: int, turn: list[int]) -> list[int] | None:
    if turn[0] == tokens.THINK and tokens.END_THINK not in turn:
        return [tokens.END_THINK]
    return None


def _ends_by_next_move(turn: Sequence[int], token: int) -> bool:
    return token in NO_MOVE or (bool(turn) and tokens.begins_move(turn, token))


def _thought(turn: list[int]) -> list[int] | None:
    try:
        return split_thought(turn)[0]
    except tokens.Unreadable:
        return None
