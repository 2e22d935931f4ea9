"""Documents packed into rows of one width, so that hardly any place is left empty."""

from dataclasses import dataclass

import numpy as np


def best_fit(counts: dict[int, int], width: int) -> list[tuple[tuple[int, ...], int]]:
    """Which lengths share a row, and how many such rows there are.

    Best fit by decreasing length: each document in turn, the longest first, goes where it leaves
    the least room. Those of one length go together, so the work grows with the number of different
    lengths and not of documents.

    Args:
        counts: documents of each length, 1 to `width`.
    """
    rows: dict[int, list[tuple[tuple[int, ...], int]]] = {}  # begun rows by the room left in them
    for length in sorted(counts, reverse=True):
        left = counts[length]
        while left:
            room = min((room for room in rows if room >= length), default=width)
            row, number = rows[room].pop() if room in rows else ((), left)
            if room in rows and not rows[room]:
                del rows[room]
            most = room // length
            full, rest = divmod(min(left, number * most), most)
            for copies, amount in ((most, full), (rest, min(rest, 1))):
                if amount:
                    grown = (row + (length,) * copies, amount)
                    rows.setdefault(room - copies * length, []).append(grown)
            if row and (untouched := number - full - min(rest, 1)):
                rows.setdefault(room, []).append((row, untouched))
            left -= full * most + rest
    return [part for room in sorted(rows) for part in rows[room]]


@dataclass(frozen=True)
class Rows:
    """Rows of documents, in the order in which they are read."""

    members: np.ndarray
    """Numbers of the documents, those of a row side by side."""
    offsets: np.ndarray
    """Where each row starts in `members`, and the end."""

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> np.ndarray:
        """Numbers of the documents in a row."""
        return self.members[self.offsets[row] : self.offsets[row + 1]]

    def sums(self, values: np.ndarray) -> np.ndarray:
        """Sum over the documents of each row of one value per document."""
        return np.add.reduceat(values[self.members], self.offsets[:-1])


def pack(lengths: np.ndarray, width: int, rng: np.random.Generator) -> Rows:
    """One pass over all documents, each once: which are together and in what order is random.

    Args:
        lengths: places that each document takes, 1 to `width`.
    """
    shuffled = rng.permutation(len(lengths))
    by_length = shuffled[np.argsort(lengths[shuffled], kind="stable")]
    sizes, first, counts = np.unique(lengths[by_length], return_index=True, return_counts=True)
    waiting = dict(zip(sizes.tolist(), first.tolist(), strict=True))
    blocks = []
    for row, number in best_fit(dict(zip(sizes.tolist(), counts.tolist(), strict=True)), width):
        block = np.empty((number, len(row)), np.int64)
        for column, length in enumerate(row):
            block[:, column] = by_length[waiting[length] : waiting[length] + number]
            waiting[length] += number
        blocks.append(block)
    members = np.concatenate([block.ravel() for block in blocks])
    widths = np.concatenate([np.full(len(block), block.shape[1]) for block in blocks])
    starts = np.cumsum(widths) - widths
    order = rng.permutation(len(widths))
    offsets = np.concatenate([[0], np.cumsum(widths[order])])
    places = np.repeat(starts[order] - offsets[:-1], widths[order]) + np.arange(len(members))
    return Rows(members[places], offsets)
