"""Packing: each document once, no row too full, little room left."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chessrl.stages.packing import Rows, best_fit, pack


def one_by_one(lengths: list[int], width: int) -> list[tuple[int, ...]]:
    """Best fit by decreasing length as textbooks have it, a document at a time."""
    rows: list[list[int]] = []
    for length in sorted(lengths, reverse=True):
        fitting = [row for row in rows if width - sum(row) >= length]
        if fitting:
            min(fitting, key=lambda row: width - sum(row)).append(length)
        else:
            rows.append([length])
    return sorted(map(tuple, rows))


def test_by_hand():
    # 7 leaves 3, which one 3 fills; 4 and 4 leave 2, which the 2 fills; the other 3 stands alone
    assert sorted(best_fit({7: 1, 4: 2, 3: 2, 2: 1}, 10)) == [
        ((3,), 1),
        ((4, 4, 2), 1),
        ((7, 3), 1),
    ]
    # two rows of 4 + 4, one of 4 alone, all at once
    assert sorted(best_fit({4: 5}, 9)) == [((4,), 1), ((4, 4), 2)]
    assert best_fit({}, 9) == []


@given(st.lists(st.integers(1, 12), max_size=40), st.integers(12, 30))
def test_lengths_together_are_packed_as_documents_one_by_one(lengths, width):
    counts = {length: lengths.count(length) for length in set(lengths)}
    rows = [row for row, number in best_fit(counts, width) for _ in range(number)]
    assert sorted(map(sum, rows)) == sorted(map(sum, one_by_one(lengths, width)))
    assert sorted(length for row in rows for length in row) == sorted(lengths)


@given(st.lists(st.integers(1, 20), min_size=1, max_size=200), st.integers(20, 50))
def test_each_document_once_and_no_row_too_full(lengths, width):
    lengths = np.array(lengths)
    rows = pack(lengths, width, np.random.default_rng(0))
    assert sorted(rows.members.tolist()) == list(range(len(lengths)))
    sums = rows.sums(lengths)
    assert sums.tolist() == [lengths[rows[i]].sum() for i in range(len(rows))]
    assert sums.max() <= width and min(len(rows[i]) for i in range(len(rows))) > 0


def test_little_room_is_left():
    # as documents of the starter are: some 100 tokens of at most 132
    lengths = np.random.default_rng(0).normal(98, 22, 50000).clip(13, 132).astype(int)
    rows = pack(lengths, 1024, np.random.default_rng(0))
    assert 1 - lengths.sum() / (1024 * len(rows)) < 0.01


def test_who_is_together_and_when_is_chance():
    lengths = np.random.default_rng(0).integers(5, 60, 4000)
    rows, again, other = (pack(lengths, 128, np.random.default_rng(seed)) for seed in (0, 0, 1))
    assert np.array_equal(rows.members, again.members)
    assert np.array_equal(rows.offsets, again.offsets)
    together = [{frozenset(plan[i].tolist()) for i in range(len(plan))} for plan in (rows, other)]
    assert len(together[0] & together[1]) < 0.05 * len(together[0])
    # a row tells nothing of the next: the bound is 5 / sqrt(1000)
    most = [lengths[rows[i]].max() for i in range(len(rows))]
    assert len(most) > 1000
    assert abs(np.corrcoef(most[:-1], most[1:])[0, 1]) < 0.16
    # and documents of one length come in no order of their own
    same = [i for i in rows.members.tolist() if lengths[i] == 30]
    assert same != sorted(same)


def test_a_document_that_fits_no_row_is_an_error():
    with pytest.raises(ZeroDivisionError):
        best_fit({11: 1}, 10)


def test_rows_by_hand():
    rows = Rows(np.array([4, 2, 7]), np.array([0, 2, 3]))
    assert (len(rows), rows[0].tolist(), rows[1].tolist()) == (2, [4, 2], [7])
    assert rows.sums(np.arange(10) * 10).tolist() == [60, 70]
