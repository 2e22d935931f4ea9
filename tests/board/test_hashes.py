"""Sets of hashes answer as Python's sets do."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from chessrl.board.hashes import HashSet, Seen

LARGEST = 2**64 - 1
# few different ones, so that they meet; some that agree in their low bits
NUMBERS = st.lists(
    st.integers(0, 12)
    | st.sampled_from((LARGEST, LARGEST - 1, 2**63, 2**32, 2**32 + 1, 5 << 40))
    | st.integers(0, LARGEST),
    max_size=40,
)


def array(numbers: list[int]) -> np.ndarray:
    return np.array(numbers, np.uint64)


@given(members=NUMBERS, asked=NUMBERS)
def test_a_hash_set_knows_its_members(members, asked):
    known = HashSet(array(members))
    assert len(known) == len(set(members))
    asked = asked + members
    assert known.contains(array(asked)).tolist() == [number in set(members) for number in asked]
    places = known.find(array(asked))
    for number, place in zip(asked, places.tolist(), strict=True):
        assert known.sorted[place] == number if number in set(members) else place == -1


@given(batches=st.lists(NUMBERS, max_size=8), stop=st.integers(0, 8))
def test_what_has_been_seen_is_told_once_it_has_been_saved_too(batches, stop):
    seen, met = Seen(), set()
    for number, batch in enumerate(batches):
        if number == stop:
            seen = Seen(seen.hashes)
        expected = []
        for value in batch:
            expected.append(value in met)
            met.add(value)
        assert seen.add(array(batch)).tolist() == expected
        assert sorted(seen.hashes.tolist()) == sorted(met)


def test_many_hashes_in_many_batches():
    rng = np.random.default_rng(0)
    pool = rng.integers(0, 2**64, 5000, np.uint64)
    seen, met = Seen(), set()
    for size in rng.integers(1, 400, 60).tolist():
        batch = rng.choice(pool, size)
        fresh = [value not in met and not met.add(value) for value in batch.tolist()]
        assert (~seen.add(batch)).tolist() == fresh
    assert len(seen.hashes) == len(met) > 3000
    known = HashSet(seen.hashes)
    assert known.contains(pool).tolist() == [value in met for value in pool.tolist()]
    assert not known.contains(pool + np.uint64(1)).any()
