"""The episodes of RL on disk: a Parquet file per step, the newest kept, read back one by one.

A file appears whole or not at all. A step that is done again replaces its own file and removes
those after it, which a run that was broken off may have left.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from chessrl.artifacts import atomic_path
from chessrl.board import tokens
from chessrl.board.puzzles import Puzzle
from chessrl.config import InputError
from chessrl.stages.rollouts import Rollout

FOLDER = "rollouts"
"""Folder of the files within the folder of an RL run."""
_NAME = "step-*.parquet"
_VOCABULARY = b"chessrl.vocabulary"
COLUMNS = pa.schema(
    [
        ("step", pa.int32()),
        ("group", pa.int32()),  # counted over the run
        ("puzzle", pa.string()),
        ("fen", pa.string()),
        ("moves", pa.string()),  # UCI, as in the Lichess file
        ("rating", pa.int16()),
        ("bin", pa.string()),
        ("prompt", pa.list_(pa.uint8())),
        ("tokens", pa.list_(pa.uint8())),  # those after the prompt
        ("sampled", pa.list_(pa.bool_())),  # False where the environment put the token in
        ("logprobs", pa.list_(pa.float32())),  # nats, of the policy that sampled
        ("reward", pa.float32()),
        ("advantage", pa.float32()),
        ("ended_by", pa.string()),
        ("solver_turns", pa.int16()),
        ("well_formed", pa.bool_()),
        ("version", pa.int32()),  # updates that the policy had seen when the episode began
    ],
    metadata={_VOCABULARY: tokens.VOCABULARY_HASH},
)


@dataclass(frozen=True)
class Recorded:
    """One episode as a file has it; the fields are those of `COLUMNS`."""

    step: int
    group: int
    puzzle: Puzzle
    """What of it is written: id, FEN, moves and rating."""
    prompt: list[int]
    tokens: list[int]
    sampled: list[bool]
    logprobs: list[float]
    reward: float
    advantage: float
    ended_by: str
    solver_turns: int
    well_formed: bool
    version: int


class RolloutFiles:
    """The files of one run."""

    def __init__(self, folder: Path, keep: int) -> None:
        """`keep`: episodes on disk at most, but never less than a whole step; 0 writes none."""
        self.folder, self.keep = folder, keep
        self._episodes = {path: _read(pq.read_metadata, path).num_rows for path in files_in(folder)}

    def write(self, step: int, rollouts: Sequence[Rollout], advantage: Sequence[float]) -> None:
        """Keep the episodes of a step, instead of what there was of it and of later steps.

        Args:
            step: from 0.
            advantage: one for each episode.

        Raises:
            ValueError: the numbers do not go with the episodes.
        """
        if not self.keep:
            return
        if len(advantage) != len(rollouts):
            raise ValueError(f"{len(rollouts)} episodes, {len(advantage)} advantages")
        path = self.folder / f"step-{step:08d}.parquet"
        table = _table(step, rollouts, advantage)
        with atomic_path(path) as temporary:
            pq.write_table(table, temporary, compression="zstd")
        self._episodes[path] = len(rollouts)
        for other in sorted(self._episodes, key=_step_of, reverse=True):
            if _step_of(other) > step:
                self._remove(other)
        while len(self._episodes) > 1 and sum(self._episodes.values()) > self.keep:
            self._remove(min(self._episodes, key=_step_of))

    def _remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        del self._episodes[path]

    def read(self) -> Iterator[pa.Table]:
        """A table per file, the oldest step first."""
        return map(read_table, files_in(self.folder))


def files_in(folder: Path) -> list[Path]:
    """Files of episodes, the oldest step first."""
    return sorted(folder.glob(_NAME), key=_step_of)


def read_table(path: Path) -> pa.Table:
    """What a file holds, with the columns of `COLUMNS`.

    Raises:
        InputError: it is no file of episodes, damaged, or speaks another vocabulary.
    """
    table = _read(pq.read_table, path)
    theirs = (table.schema.metadata or {}).get(_VOCABULARY, b"none").decode()
    if theirs != tokens.VOCABULARY_HASH:
        raise InputError(
            f"{path} speaks vocabulary {theirs}, this version {tokens.VOCABULARY_HASH}"
        )
    if not table.schema.equals(COLUMNS):
        raise InputError(f"{path} has other columns than this version: make its RL run again")
    return table


def episodes_of(table: pa.Table) -> Iterator[Recorded]:
    """The rows of a table, in their order."""
    for batch in table.to_batches(max_chunksize=1024):
        for row in batch.to_pylist():
            fen, moves, rating = row.pop("fen"), row.pop("moves"), row.pop("rating")
            del row["bin"]  # follows from the rating
            puzzle = Puzzle(row.pop("puzzle"), fen, tuple(moves.split()), rating)
            yield Recorded(puzzle=puzzle, **row)


def _read(reader: Callable[[Path], Any], path: Path) -> Any:
    try:
        return reader(path)
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"{path} is no file of episodes, or a damaged one: {reason}") from error


def _step_of(path: Path) -> int:
    return int(path.stem.removeprefix("step-"))


def _table(step: int, rollouts: Sequence[Rollout], advantage: Sequence[float]) -> pa.Table:
    columns = {
        "step": [step] * len(rollouts),
        "group": [r.group for r in rollouts],
        "puzzle": [r.puzzle.id for r in rollouts],
        "fen": [r.puzzle.fen for r in rollouts],
        "moves": [" ".join(r.puzzle.moves) for r in rollouts],
        "rating": [r.puzzle.rating for r in rollouts],
        "bin": [r.puzzle.bin for r in rollouts],
        "prompt": [r.prompt for r in rollouts],
        "tokens": [r.sample.tokens for r in rollouts],
        "sampled": [r.sample.sampled for r in rollouts],
        "logprobs": [r.sample.logprobs for r in rollouts],
        "reward": [r.reward for r in rollouts],
        "advantage": list(advantage),
        "ended_by": [r.outcome.ended_by for r in rollouts],
        "solver_turns": [r.outcome.solver_turns for r in rollouts],
        "well_formed": [r.well_formed for r in rollouts],
        "version": [r.version for r in rollouts],
    }
    return pa.table(columns, schema=COLUMNS)
