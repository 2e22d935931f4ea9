"""Rollouts planted where RL would have left them, and what is to become of them."""

import random
from pathlib import Path

import chess

from chessrl.board import tokens
from chessrl.board.episodes import replay
from chessrl.board.prompts import puzzle_prompt
from chessrl.board.puzzles import Puzzle, read_puzzles
from chessrl.board.skips import SkipReport
from chessrl.policy.sampling import Sample
from chessrl.stages.batches import Dataset
from chessrl.stages.rollout_files import RolloutFiles
from chessrl.stages.rollouts import Rollout
from chessrl.stages.runs import folder
from chessrl.stages.traces import document


def solved(puzzle: Puzzle, first: int, run) -> Rollout:
    """What SFT teaches for a puzzle, as if RL had sampled it; `first` tells the thoughts apart."""
    board = puzzle.board()
    lines = [[move] for move in list(board.legal_moves)[:first]]
    ids, targets, thought = document(puzzle, lines, run.prompt.form, run.traces, random.Random(0))
    prompt = puzzle_prompt(puzzle, run.prompt.form)
    assert ids[: len(prompt)] == prompt
    ids, sampled = ids[len(prompt) :], targets[len(prompt) :]
    answers = []
    for uci in puzzle.moves[1:]:
        answers.append(tokens.decode(tokens.push_encoded(board, chess.Move.from_uci(uci))))
    outcome = replay(puzzle, answers[::2])
    assert outcome.reward == 1
    return Rollout(
        puzzle, prompt, Sample(ids, [-0.5] * len(ids), sampled), outcome, ids[1 : thought - 1]
    )


def write(place: Path, *steps: list[Rollout]) -> None:
    """Steps of RL, each of one group."""
    files = RolloutFiles(place, 10**6)
    for step, rollouts in enumerate(steps):
        files.write(step, rollouts, [0.0] * len(rollouts))


def puzzles_of(run, split: str) -> list[Puzzle]:
    return read_puzzles(folder(run, "prepare").path / "puzzles" / f"{split}.csv", SkipReport())


def documents(place: Path) -> list[tuple[list[int], list[bool]]]:
    dataset = Dataset(place)
    return [tuple(each.tolist() for each in dataset[i]) for i in range(len(dataset))]


def as_document(rollout: Rollout) -> tuple[list[int], list[bool]]:
    return (
        rollout.prompt + rollout.sample.tokens,
        [False] * len(rollout.prompt) + rollout.sample.sampled,
    )
