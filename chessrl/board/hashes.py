"""Sets of 64-bit hashes that answer for whole arrays."""

import numpy as np


class HashSet:
    """A set of hashes that answers for whole arrays; most strangers cost one look-up."""

    def __init__(self, hashes: np.ndarray) -> None:
        self.sorted = np.unique(hashes.astype(np.uint64))
        bits = max(len(self.sorted).bit_length() + 5, 10)
        self._mask = np.uint64((1 << bits) - 1)
        self._seen = np.zeros(1 << bits, bool)
        self._seen[self.sorted & self._mask] = True

    def __len__(self) -> int:
        return len(self.sorted)

    def contains(self, hashes: np.ndarray) -> np.ndarray:
        """Which of the hashes are in the set, as bool."""
        found = self._seen[hashes & self._mask]
        (maybe,) = np.nonzero(found)
        found[maybe] = self.find(hashes[maybe]) >= 0
        return found

    def find(self, hashes: np.ndarray) -> np.ndarray:
        """Place of each hash in `sorted`, -1 where it is not in the set."""
        if not len(self.sorted):
            return np.full(len(hashes), -1)
        places = np.searchsorted(self.sorted, hashes)
        places[places == len(self.sorted)] = 0
        return np.where(self.sorted[places] == hashes, places, -1)


class Seen:
    """The hashes met so far, 8 bytes each, in sorted arrays that are merged as they grow."""

    def __init__(self, hashes: np.ndarray | None = None) -> None:
        """Starts from hashes met before, without repetitions."""
        self._levels = [] if hashes is None or not len(hashes) else [np.sort(hashes)]

    def add(self, hashes: np.ndarray) -> np.ndarray:
        """Remember hashes; returns for each, as bool, whether it has been met before.

        Of equal ones in the array the first counts as new.
        """
        fresh, first = np.unique(hashes, return_index=True)
        repeated = np.ones(len(hashes), bool)
        repeated[first] = False
        for level in self._levels:
            places = np.minimum(np.searchsorted(level, fresh), len(level) - 1)
            repeated[first[level[places] == fresh]] = True
        new = fresh[~repeated[first]]
        while self._levels and len(self._levels[-1]) <= 2 * len(new):
            new = np.concatenate([self._levels.pop(), new])
        if len(new):
            self._levels.append(np.sort(new))
        return repeated

    @property
    def hashes(self) -> np.ndarray:
        """All of them, in no order."""
        return np.concatenate([np.zeros(0, np.uint64), *self._levels])
