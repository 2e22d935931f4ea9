"""Recorded episodes played again: what is on disk is what the judge says, or the stage stops."""

from collections.abc import Sequence
from pathlib import Path

import chess

from chessrl.board import tokens
from chessrl.board.episodes import Episode, Outcome, play_turn, split_thought
from chessrl.board.prompts import puzzle_prompt
from chessrl.board.puzzles import Puzzle
from chessrl.board.traces import legal_prefix
from chessrl.config import InputError
from chessrl.policy.sampling import Sample
from chessrl.stages.rollout_files import Recorded
from chessrl.stages.rollouts import Rollout


def check(one: Recorded, form: str, path: Path) -> None:
    """Judge an episode that was recorded as solved and well formed once more.

    Raises:
        InputError: it is not, or its prompt does not show the puzzle.
    """
    try:
        fault = _fault(one, form)
    except (ValueError, IndexError) as error:  # the puzzle itself, or no token at all
        fault = str(error)
    if fault is not None:
        raise InputError(
            f"{path}: an episode of puzzle {one.puzzle.id} in step {one.step} is recorded as "
            f"({one.ended_by}, {one.solver_turns}, {one.well_formed}), but {fault}: the file is "
            "damaged or of another version"
        )


def _fault(one: Recorded, form: str) -> str | None:
    if not shows(one.prompt, one.puzzle, form):
        return f"its prompt is not that of prompt.form={form}"
    outcome, thought, agreed = replayed(one.puzzle, one.tokens, one.sampled)
    if not agreed:
        return "replies or length are not what the judge leaves"
    fine = Rollout(one.puzzle, one.prompt, Sample(), outcome, thought).well_formed
    found = outcome.ended_by, outcome.solver_turns, fine
    if found != (one.ended_by, one.solver_turns, one.well_formed):
        return f"the judge finds {found}"
    return None


def replayed(
    puzzle: Puzzle, ids: Sequence[int], sampled: Sequence[bool]
) -> tuple[Outcome, list[int] | None, bool]:
    """Play what the model wrote against the judge.

    Args:
        ids: tokens after the prompt.
        sampled: which of them the model wrote; the others are replies, and the ends of thoughts
            that were closed by force.

    Returns:
        The outcome, the thought of the first turn without its marks, and whether `ids` and
        `sampled` are what such an episode leaves.
    """
    episode = Episode(puzzle)
    turns: list[list[int]] = [[]]
    left: list[tuple[int, bool]] = []
    for token, ours in zip(ids, sampled, strict=True):
        if episode.over:
            break
        if not ours and not _closed_by_force(turns[-1], token):
            continue  # of a reply, which the judge gives
        left.append((token, ours))
        if token == tokens.CALL_ENV:
            left += [(reply, False) for reply in play_turn(episode, turns[-1]) or ()]
            turns.append([])
        else:
            turns[-1].append(token)
    try:
        thought = split_thought(turns[0])[0]
    except tokens.Unreadable:
        thought = None
    return episode.outcome, thought, left == list(zip(ids, sampled, strict=True))


def _closed_by_force(turn: Sequence[int], token: int) -> bool:
    opened = bool(turn) and turn[0] == tokens.THINK and tokens.END_THINK not in turn
    return opened and token == tokens.END_THINK


def shows(prompt: Sequence[int], puzzle: Puzzle, form: str) -> bool:
    """Whether a prompt of this form shows what the solver of the puzzle sees."""
    if form == "board":
        return list(prompt) == puzzle_prompt(puzzle, form)
    board, moves = chess.Board(), legal_prefix(chess.Board(), prompt[1:])
    written = [tokens.BOS, *tokens.encode_line(board, moves)]
    for move in moves:
        board.push(move)
    return list(prompt) == written and board.epd() == puzzle.board().epd()
