"""Cells of a sweep: what goes wrong in one becomes a record."""

import sys

import pytest

from chessrl.artifacts import Result
from chessrl.config import InputError
from chessrl.scaling.cells import as_result, attempt, begin, cells_in, told_apart
from chessrl.scaling.collect import collect
from chessrl.stages.runs import folder, working


@pytest.fixture
def cell(tiny, tmp_path, monkeypatch):
    """Attempts a cell: `cell(work, *overrides)`; the sweep has begun."""
    monkeypatch.setenv("CHESSRL_SWEEP", "")  # put back at the end
    begin()

    def made(work, *overrides: str):
        run = tiny(tmp_path, "stage=mine", *overrides)
        return attempt(tmp_path / run.run, overrides, lambda: run, work)

    return made


def failing(error: BaseException):
    def work(run) -> None:
        raise error

    return work


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (InputError("too few"), "InputError: too few"),
        (ZeroDivisionError("by\nzero"), "ZeroDivisionError: by"),
        (SystemExit(137), "ended with status 137"),
    ],
)
def test_whatever_goes_wrong_is_recorded(error, message, cell, tmp_path):
    found = cell(failing(error))
    assert found.status == "failed" and found.message.endswith(message) and not found.told_by
    assert cells_in(tmp_path) == [found]
    results, _ = collect(str(tmp_path))
    assert results == [as_result(found)] and results[0].stage == "cell"


def test_an_interruption_ends_the_sweep(cell, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        cell(failing(KeyboardInterrupt()))
    assert cells_in(tmp_path) == []


def test_a_failed_run_folder_tells_it_and_is_not_tried_twice(cell, tmp_path):
    """The second cell does the same stage: it fails at once, without working."""

    def work(run) -> None:
        with working(run, folder(run, "mine"), "mine"):
            raise InputError("no games")

    first = cell(work)
    second = cell(lambda run: sys.exit("worked"), "mine.per_game=1", "data.workers=2")
    assert first.told_by == second.told_by == first.identity
    assert second.message == "InputError: mine has failed in this sweep: InputError: no games"
    results, _ = collect(str(tmp_path))
    assert [(each.stage, each.message) for each in results] == [("mine", "InputError: no games")]
    begin()
    assert cell(lambda run: None).status == "done"  # another command tries again


def test_a_record_of_a_refusal_goes_when_it_is_mended(cell, tiny, tmp_path):
    def refuse():
        raise InputError("configuration: no")

    words = ["seed=1"]
    run = tiny(tmp_path, "stage=mine")
    refused = attempt(tmp_path / run.run, words, refuse, lambda run: None)
    assert refused.status == "failed"
    done = attempt(tmp_path / run.run, words, lambda: run, lambda run: None)
    assert cells_in(tmp_path) == [done] and done.status == "done"


def test_cells_are_told_apart_by_what_differs(cell):
    cells = [cell(lambda run: None, "rl.steps=3", f"seed={seed}") for seed in (1, 2)]
    assert told_apart(cells) == ["seed=1", "seed=2"]
    assert told_apart(cells[:1]) == ["rl.steps=3 seed=1"]


def test_a_failed_cell_is_a_result(cell):
    found = cell(failing(InputError("no")), "seed=3")
    expected = Result(
        stage="cell", identity=found.identity, status="failed", message="InputError: no",
        model="100k", seed=3,
    )  # fmt: skip
    assert as_result(found) == expected
