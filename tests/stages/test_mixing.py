"""Two streams as one: the share is exact to a row, and a longer plan begins like a shorter one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chessrl.config import InputError
from chessrl.stages.batches import Dataset, DatasetWriter, Schedule
from chessrl.stages.mixing import Mixture, Passes, interleave

rows = st.lists(st.integers(2, 60), min_size=1, max_size=80).map(np.array)
shares = st.floats(0.01, 0.99)


def one_by_one(first: np.ndarray, second: np.ndarray, share: float) -> list[bool]:
    """The rule as it is told, a row at a time."""
    order, taken, read = [], [0, 0], [0, 0]
    while True:
        which = int(read[1] * ((1 - share) / share) < read[0])
        stream = (first, second)[which]
        if taken[which] == len(stream):
            return order
        order.append(bool(which))
        read[which] += int(stream[taken[which]])
        taken[which] += 1


def test_by_hand():
    # a quarter: 10 | then 0 < 10 / 3, so 4 | 4 < 20 / 3, but not before the second 10 | 8 < 30 / 3
    order = interleave(np.array([10, 10, 10]), np.array([4, 4, 4, 4]), 0.25)
    assert order.tolist() == [False, True, False, True, False, True]
    # the second is spent: its next row would come after the third, which is the last that is known
    assert interleave(np.full(9, 10), np.array([8]), 0.25).tolist() == [False, True, False, False]


@given(rows, rows, shares)
def test_the_merged_order_is_that_of_the_rule(first, second, share):
    assert interleave(first, second, share).tolist() == one_by_one(first, second, share)


@given(rows, rows, shares)
def test_after_any_number_of_rows_the_share_is_right_to_a_row(first, second, share):
    order = interleave(first, second, share)
    tokens = np.empty(len(order))
    tokens[order], tokens[~order] = second[: order.sum()], first[: (~order).sum()]
    off = np.cumsum(np.where(order, tokens, 0)) - share * np.cumsum(tokens)
    assert np.abs(off).max() <= 60


@given(rows, rows, rows, shares)
def test_longer_streams_go_on_from_where_shorter_ones_ended(first, second, more, share):
    short = interleave(first, second, share).tolist()
    long = interleave(np.concatenate([first, more]), np.concatenate([second, more]), share)
    assert long[: len(short)].tolist() == short


def test_a_mixture_gives_the_rows_of_both_in_their_order():
    lengths = np.random.default_rng(0).integers(2, 30, 60)
    first = Passes(np.arange(40), lengths[:40], 50, 0)
    second = Passes(np.arange(40, 60), lengths[40:], 50, 0, 1)
    mixed = Mixture(first, second, 0.3)
    mixed.grow(2000)
    while mixed.tokens.sum() < 4000:
        mixed.grow()
    found = [mixed[row] for row in range(len(mixed.tokens))]
    assert [int(lengths[row].sum()) for row in found] == mixed.tokens.tolist()
    for stream, of_second in ((first, False), (second, True)):
        theirs = [row.tolist() for row in found if (row[0] >= 40) == of_second]
        assert theirs == [stream[row].tolist() for row in range(len(theirs))]
    assert mixed.of_second.sum() == sum(lengths[row].sum() for row in found if row[0] >= 40)


def test_streams_of_one_seed_differ():
    lengths = np.full(100, 5)
    plans = [Passes(np.arange(100), lengths, 20, *seeds) for seeds in ((0,), (0, 1), (0, 2), (1,))]
    for plan in plans:
        plan.grow()
    assert len({tuple(plan[0].tolist()) for plan in plans}) == 4


def write(folder, lengths, first) -> None:
    writer = DatasetWriter(folder)
    for number, length in enumerate(lengths):
        writer.add([first + number] * length, [False] + [True] * (length - 1))
    writer.close()


@pytest.fixture
def both(tmp_path) -> Dataset:
    """60 documents, and 20 others of which 5 are too long for rows of 50 places."""
    draw = np.random.default_rng(0)
    write(tmp_path / "games", draw.integers(2, 40, 60), 0)
    write(tmp_path / "others", [*draw.integers(2, 40, 15), *[51] * 5], 100)
    return Dataset(tmp_path / "games", tmp_path / "others")


def plan(dataset: Dataset, **changes) -> Schedule:
    settings = {"batch_tokens": 200, "context": 50, "seed": 0, "pad": 255} | changes
    return Schedule(dataset, **settings)


def test_folders_follow_one_another(both, tmp_path):
    assert both.starts == [0, 60] and len(both) == 80
    others = Dataset(tmp_path / "others")
    for number in (0, 7, 19):
        for ours, theirs in zip(both[60 + number], others[number], strict=True):
            assert np.array_equal(ours, theirs)
    assert both[59][0][0] == 59 and both[60][0][0] == 100


def test_the_share_of_a_run_counted_by_its_documents(both):
    schedule = plan(both, tokens=20_000, share=0.1)
    games = others = 0
    reads = np.zeros(80, int)
    for step in range(len(schedule)):
        batch = schedule.batch(step)
        for number in np.concatenate(schedule.of(step)):
            reads[number] += 1
            if number < 60:
                games += len(both[number][0])
            else:
                others += len(both[number][0])
        assert games + others == schedule.cumulative[step]
        assert others == schedule.mixed_in[step]
        assert abs(others - 0.1 * (games + others)) <= 50
        # a row holds documents of one kind, and the tokens in it are theirs
        opening = batch.inputs[:, 0]
        for row, number in zip(batch.inputs, opening, strict=True):
            kinds = {bool(token >= 100) for token in row.tolist() if token != 255}
            assert kinds == {bool(number >= 100)}
    assert schedule.epochs == pytest.approx(games / both.lengths[:60].sum())
    assert schedule.mixed_epochs == pytest.approx(others / both.lengths[60:75].sum())
    assert schedule.mixed_epochs > 2  # the few documents are read again and again, each alike
    assert reads[75:].sum() == 0 and schedule.left_out == 5
    assert reads[60:75].max() - reads[60:75].min() <= 1
    assert reads[:60].max() - reads[:60].min() <= 1


def test_games_come_as_they_would_alone(both, tmp_path):
    mixed = plan(both, tokens=9000, share=0.25)
    alone = plan(Dataset(tmp_path / "games"), tokens=9000)
    ours = [row.tolist() for step in range(len(mixed)) for row in mixed.of(step)]
    games = [row for row in ours if row[0] < 60]
    theirs = [row.tolist() for step in range(len(alone)) for row in alone.of(step)]
    assert 0 < len(games) < len(ours) and games == theirs[: len(games)]


def test_a_longer_mixed_run_begins_like_a_shorter_one(both):
    short, long = (plan(both, tokens=goal, share=0.2) for goal in (3000, 30_000))
    assert long.mixed_epochs > 5
    for step in range(len(short)):
        for ours, theirs in zip(short.of(step), long.of(step), strict=True):
            assert np.array_equal(ours, theirs)


def test_nothing_that_fits_is_refused(tmp_path):
    write(tmp_path / "games", [5] * 9, 0)
    write(tmp_path / "others", [51] * 3, 100)
    with pytest.raises(InputError, match="all 3 documents are longer than context=50"):
        plan(Dataset(tmp_path / "games", tmp_path / "others"), tokens=100, share=0.5)
