"""Episodes played by a model: sampled by the policy, judged by the board, as one batch."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from chessrl.board import tokens
from chessrl.board.episodes import Outcome, group, play_turn, split_thought
from chessrl.board.prompts import puzzle_prompt
from chessrl.board.puzzles import Puzzle
from chessrl.board.traces import read_trace
from chessrl.policy.sampling import Sample, Turns, sample
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


def seeded(*numbers: int) -> torch.Generator:
    """A generator that depends on these numbers alone, each below 2**32."""
    state = 0
    for number in numbers:
        state = (state * 6364136223846793005 + number + 1442695040888963407) % 2**63
    return torch.Generator().manual_seed(state)


def play(
    model: Transformer,
    puzzles: Sequence[Puzzle],
    copies: int,
    *,
    form: str,
    thinks: bool,
    budget: int,
    temperature: float,
    generator: torch.Generator,
) -> list[Rollout]:
    """Play `copies` episodes of each puzzle; those of puzzle i are i * copies onward.

    Args:
        form: prompt form, `board` or `history`.
        thinks: True where the model ends its turns with `<call_env>`, as SFT teaches; False for a
            pretrained model, whose turn is one move and is over when the next would begin.
        budget: tokens that the model may write in one episode.
        temperature: of sampling.
    """
    prompts = [puzzle_prompt(puzzle, form) for puzzle in puzzles]
    episodes = [episode for puzzle in puzzles for episode in group(puzzle, copies)]
    turns: list[list[list[int]]] = [[] for _ in episodes]

    def reply(row: int, turn: list[int]) -> list[int] | None:
        turns[row].append(turn)
        return play_turn(episodes[row], turn)

    model.eval()
    samples = sample(
        model,
        prompts,
        [copies] * len(prompts),
        Turns(_ends_by_call if thinks else _ends_by_next_move, reply, keep_end=thinks),
        budgets=[budget] * len(episodes),
        temperature=temperature,
        pad=tokens.PAD,
        generator=generator,
    )
    rollouts = []
    for row, (episode, one) in enumerate(zip(episodes, samples, strict=True)):
        if one.truncated:
            episode.truncate()
        first = turns[row][0] if turns[row] else []
        rollouts.append(
            Rollout(episode.puzzle, prompts[row // copies], one, episode.outcome, _thought(first))
        )
    return rollouts


def _ends_by_call(_: Sequence[int], token: int) -> bool:
    return token == tokens.CALL_ENV


def _ends_by_next_move(turn: Sequence[int], token: int) -> bool:
    return token in NO_MOVE or (bool(turn) and tokens.begins_move(turn, token))


def _thought(turn: list[int]) -> list[int] | None:
    try:
        return split_thought(turn)[0]
    except tokens.Unreadable:
        return None
