"""Packed rows of documents without end: pass after pass, or two such streams merged at a share."""

import numpy as np

from chessrl.stages.packing import Rows, pack


class Passes:
    """Each pass takes every document once, packed anew and in a new order."""

    def __init__(
        self, numbers: np.ndarray, lengths: np.ndarray, width: int, seed: int, *stream: int
    ) -> None:
        """A pass depends on its number, the seed and the stream alone.

        Args:
            numbers: of the documents, as the rows name them.
            lengths: tokens read of each, 2 to `width`; one of n tokens takes n - 1 places.
            width: places of a row.
            stream: a number that tells this stream from others of the same seed.
        """
        self.numbers, self.lengths, self.width = numbers, lengths, width
        self._seed, self._stream = seed, stream
        self.pass_tokens = int(lengths.sum())
        self.tokens = np.empty(0, np.int64)
        """Tokens of each row planned so far."""
        self._passes: list[Rows] = []
        self._ends = np.empty(0, np.int64)

    def grow(self, tokens: float = 0) -> None:
        """Plan one more pass, and more until all rows hold so many tokens."""
        planned, total = [self.tokens], int(self.tokens.sum())
        while len(planned) == 1 or total < tokens:
            rng = np.random.default_rng((self._seed, len(self._passes), *self._stream))
            rows = pack(self.lengths - 1, self.width, rng)
            self._passes.append(Rows(self.numbers[rows.members], rows.offsets))
            planned.append(rows.sums(self.lengths))
            total += self.pass_tokens
        self.tokens = np.concatenate(planned)
        self._ends = np.cumsum([len(rows) for rows in self._passes])

    def __getitem__(self, row: int) -> np.ndarray:
        """Numbers of the documents in a row."""
        number = int(np.searchsorted(self._ends, row, side="right"))
        return self._passes[number][row - (self._ends[number] - len(self._passes[number]))]


class Mixture:
    """Two streams as one; the second has a given share of the tokens, to a row."""

    def __init__(self, first: Passes, second: Passes, share: float) -> None:
        """`share` as in `interleave`."""
        self.first, self.second, self.share = first, second, share
        self.tokens = np.empty(0, np.int64)
        """Tokens of each row planned so far."""
        self._places = np.empty(0, np.int64)  # of the rows of the second stream

    def grow(self, tokens: float = 0) -> None:
        """Plan further, at first for about so many tokens."""
        first, second = self.first, self.second
        if not len(self.tokens):
            first.grow((1 - self.share) * tokens)
            second.grow(self.share * tokens)
        else:
            taken = len(self._places)
            for stream, rows in ((first, len(self.tokens) - taken), (second, taken)):
                if rows == len(stream.tokens):
                    stream.grow()
        order = interleave(first.tokens, second.tokens, self.share)
        self._places = np.flatnonzero(order)
        self.tokens = np.empty(len(order), np.int64)
        self.tokens[order] = second.tokens[: len(self._places)]
        self.tokens[~order] = first.tokens[: len(order) - len(self._places)]

    @property
    def of_second(self) -> np.ndarray:
        """Tokens of each row that is the second stream's, 0 for the others."""
        found = np.zeros_like(self.tokens)
        found[self._places] = self.tokens[self._places]
        return found

    def __getitem__(self, row: int) -> np.ndarray:
        """Numbers of the documents in a row."""
        before = int(np.searchsorted(self._places, row))
        if before < len(self._places) and self._places[before] == row:
            return self.second[before]
        return self.first[row - before]


def interleave(first: np.ndarray, second: np.ndarray, share: float) -> np.ndarray:
    """Which rows of a merged stream are those of the second: (R,) bool.

    A row of the second stream comes when it has fewer than `share` of the tokens so far, and
    otherwise one of the first, so that after any number of rows its tokens differ from that share
    of all by less than the longest row. The order ends where a stream has no row to give; with
    longer streams it goes on from there.

    Args:
        first, second: tokens of each row.
        share: of the tokens that come from the second stream, in (0, 1).
    """
    read = np.concatenate([[0], np.cumsum(second)])
    needed = read * ((1 - share) / share)  # tokens of the first that each row of the second awaits
    before = np.searchsorted(np.cumsum(first), needed, side="right") + 1
    places = before + np.arange(len(before))
    known = before <= len(first)
    end = len(first) + int(known[:-1].sum())
    if known[-1]:  # a row of the second that is not there
        end = int(places[-1])
    order = np.zeros(end, bool)
    order[places[:-1][known[:-1]]] = True
    return order
