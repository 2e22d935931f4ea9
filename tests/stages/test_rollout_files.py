"""Episodes on disk: what is written is read, nothing is there by half, and there is a bound."""

import dataclasses
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from chessrl.board import tokens
from chessrl.board.episodes import replay
from chessrl.board.puzzles import Puzzle
from chessrl.config import InputError
from chessrl.policy.sampling import Sample
from chessrl.stages.rollout_files import RolloutFiles, episodes_of, read_table
from chessrl.stages.rollouts import Rollout

ROOT = Path(__file__).parents[2]
MATE = Puzzle(id="mate", fen="7k/8/6K1/8/8/8/8/QR6 b - - 0 1", moves=("h8g8", "a1a8"), rating=801)
OTHER = dataclasses.replace(MATE, id="other", rating=2500)


def rollout(puzzle: Puzzle, number: int) -> Rollout:
    """An episode that opens with its number; its thought, where it has one, is legal."""
    ids = [tokens.THINK, *tokens.encode_move(puzzle.board(), puzzle.board().parse_uci("a1a8"))]
    thought = ids[1:] if number % 2 else None
    return Rollout(
        puzzle=puzzle,
        prompt=[tokens.BOS, number],
        sample=Sample([number, 94, 7], [-0.1, 0.0, -1 / 3], [True, False, True]),
        outcome=replay(puzzle, ["Qa1a8#"] if number % 3 else ["Ke1e2"]),
        thought=thought,
    )


def step_of(count: int, first: int = 0) -> list[Rollout]:
    """Groups of two, the puzzles in turn."""
    return [rollout((MATE, OTHER)[i // 2 % 2], first + i) for i in range(count)]


def written(folder: Path, keep: int, steps: range, count: int = 4) -> RolloutFiles:
    files = RolloutFiles(folder, keep)
    for step in steps:
        files.write(step, step_of(count, step), [0.5, -0.5] * (count // 2))
    return files


def steps(files: RolloutFiles) -> list[int]:
    """Steps read back, each file of one step."""
    return [table["step"][0].as_py() for table in files.read()]


def test_what_is_written_is_read(tmp_path):
    rollouts = [
        dataclasses.replace(one, group=20 + place // 2, reward=reward, version=7)
        for place, (one, reward) in enumerate(zip(step_of(4), (1, 0, 0.25, 0), strict=True))
    ]
    files = RolloutFiles(tmp_path / "rollouts", keep=100)
    files.write(3, rollouts, [1.0, -1.0, 0.5, -0.5])
    (table,) = files.read()
    assert table.schema.metadata == {b"chessrl.vocabulary": tokens.VOCABULARY_HASH.encode()}
    assert table["bin"].to_pylist() == ["B1", "B1", "B5", "B5"]
    found = list(episodes_of(table))
    assert [one.puzzle for one in found] == [MATE, MATE, OTHER, OTHER]
    assert [one.group for one in found] == [20, 20, 21, 21]
    assert [one.reward for one in found] == [1.0, 0.0, 0.25, 0.0]
    assert [one.advantage for one in found] == [1.0, -1.0, 0.5, -0.5]
    assert [one.ended_by for one in found] == ["illegal", "solved", "solved", "illegal"]
    assert [one.well_formed for one in found] == [False, True, False, True]
    for one, rollout in zip(found, rollouts, strict=True):
        assert (one.step, one.version, one.solver_turns) == (3, 7, 1)
        assert one.prompt == rollout.prompt and one.tokens == rollout.sample.tokens
        assert one.sampled == [True, False, True]
        assert one.logprobs == np.float32([-0.1, 0.0, -1 / 3]).tolist()


def test_numbers_that_do_not_go_with_the_episodes_are_an_error(tmp_path):
    files = RolloutFiles(tmp_path, 100)
    with pytest.raises(ValueError, match="4 episodes"):
        files.write(0, step_of(4), [0.0] * 3)
    assert not list(tmp_path.iterdir())


def test_nothing_is_written_where_none_are_to_be_kept(tmp_path):
    assert steps(written(tmp_path / "rollouts", 0, range(3))) == []
    assert not (tmp_path / "rollouts").exists()


@pytest.mark.parametrize(
    ("keep", "left"), [(20, [0, 1, 2, 3, 4]), (19, [1, 2, 3, 4]), (8, [3, 4]), (7, [4]), (1, [4])]
)
def test_the_oldest_go_where_there_are_more_than_are_kept(tmp_path, keep, left):
    assert steps(written(tmp_path, keep, range(5))) == left
    assert len(list(tmp_path.iterdir())) == len(left)


def test_what_is_on_disk_counts_after_a_resume(tmp_path):
    written(tmp_path, 12, range(3))
    assert steps(written(tmp_path, 12, range(3, 4))) == [1, 2, 3]


def test_a_step_done_again_replaces_itself_and_removes_what_came_after(tmp_path):
    written(tmp_path, 100, range(6))
    files = RolloutFiles(tmp_path, 100)
    files.write(3, step_of(2, first=50), [0.0] * 2)
    assert steps(files) == [0, 1, 2, 3]
    assert list(files.read())[-1]["prompt"].to_pylist() == [[0, 50], [0, 51]]


DYING = """
import os, signal, sys
import numpy as np
import pyarrow.parquet as pq
from pathlib import Path
from test_rollout_files import step_of, written

whole = pq.write_table
def half(table, path, **settings):
    whole(table, path, **settings)
    if "00000003" in str(path):
        content = Path(path).read_bytes()
        Path(path).write_bytes(content[: len(content) // 2])
        os.kill(os.getpid(), signal.SIGKILL)

pq.write_table = half
written(Path(sys.argv[1]), 8, range(9))
"""


def test_killed_while_a_file_is_written(tmp_path):
    path = os.pathsep.join([str(ROOT), str(Path(__file__).parent)])
    died = subprocess.run(
        [sys.executable, "-c", DYING, tmp_path], env={**os.environ, "PYTHONPATH": path}
    )
    assert died.returncode == -signal.SIGKILL
    assert [name for name in os.listdir(tmp_path) if name.endswith(".tmp")]
    assert steps(RolloutFiles(tmp_path, 8)) == [1, 2]
    again = written(tmp_path, 8, range(2, 5))  # from the checkpoint of step 2
    whole = written(tmp_path / "unbroken", 8, range(5))
    assert steps(again) == steps(whole) == [3, 4]
    for ours, theirs in zip(again.read(), whole.read(), strict=True):
        assert ours.equals(theirs)


def test_what_cannot_be_trusted_is_refused_by_name(tmp_path):
    written(tmp_path, 100, range(1))
    path = tmp_path / "step-00000000.parquet"
    table = pq.read_table(path)
    pq.write_table(table.replace_schema_metadata({"chessrl.vocabulary": "0123456789abcdef"}), path)
    with pytest.raises(InputError, match="speaks vocabulary 0123456789abcdef"):
        read_table(path)
    pq.write_table(table.replace_schema_metadata({}), path)
    with pytest.raises(InputError, match="speaks vocabulary none"):
        read_table(path)
    pq.write_table(table.drop_columns(["fen"]), path)
    with pytest.raises(InputError, match="other columns"):
        read_table(path)
    pq.write_table(pa.table({"a": [1]}), path)
    with pytest.raises(InputError, match="vocabulary none"):
        read_table(path)
    path.write_bytes(path.read_bytes()[:100])
    for use in (read_table, lambda path: RolloutFiles(path.parent, 1)):
        with pytest.raises(InputError, match=r"step-00000000.parquet is no file of episodes"):
            use(path)
