"""Token datasets on disk and the order in which they are read.

A split is a folder of shards: `00000.tokens.npy` (ids), `00000.targets.npy` (True where a token is
to be predicted), `00000.offsets.npy` (where each document starts, and the end) and, for documents
of games, `00000.games.npy` (rows of `records.GAME`). They are mapped into memory, not read. The
batches of a run are a function of its seed and the step, so that it resumes exactly.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from chessrl.artifacts import atomic_path
from chessrl.config import InputError
from chessrl.stages.packing import Rows, pack

SHARD_TOKENS = 1 << 26


class DatasetWriter:
    """Writes documents to the shards of one split."""

    def __init__(self, folder: Path, shards: int = 0) -> None:
        """Goes on after `shards` finished shards; later ones are removed."""
        self.folder = folder
        self.shards = shards
        self.documents = self.tokens = self.targets = 0
        self._clear()
        for old in folder.glob("*.npy"):
            if int(old.name.split(".")[0]) >= shards:
                old.unlink()

    def _clear(self) -> None:
        self._ids: list[np.ndarray] = []
        self._flags: list[np.ndarray] = []
        self._lengths: list[np.ndarray] = []
        self._games: list[np.ndarray] = []
        self._waiting = 0

    @property
    def full(self) -> bool:
        """Whether there is enough for a shard."""
        return self._waiting >= SHARD_TOKENS

    def add(self, ids: Sequence[int], targets: Sequence[bool]) -> None:
        """Append one document: its tokens, and True where one is to be predicted."""
        self.extend(np.asarray(ids, np.uint8), np.asarray(targets, bool), np.array([len(ids)]))
        if self.full:
            self.close()

    def extend(
        self,
        ids: np.ndarray,
        targets: np.ndarray,
        lengths: np.ndarray,
        games: np.ndarray | None = None,
    ) -> None:
        """Append documents; `close` writes them.

        Args:
            ids: uint8 tokens of all in a row.
            targets: bool for each token: it is to be predicted.
            lengths: tokens of each document.
            games: rows of `records.GAME` for the games they are of.
        """
        self._ids.append(ids)
        self._flags.append(targets)
        self._lengths.append(lengths)
        if games is not None:
            self._games.append(games)
        self._waiting += len(ids)
        self.documents += len(lengths)
        self.tokens += len(ids)
        self.targets += int(targets.sum())

    def close(self) -> None:
        """Write what is still in memory as one shard."""
        if not sum(map(len, self._lengths)):
            return
        stem = f"{self.shards:05d}"
        offsets = np.concatenate([[0], np.cumsum(np.concatenate(self._lengths))])
        if self._games:
            self._save(f"{stem}.games.npy", np.concatenate(self._games))
        self._save(f"{stem}.tokens.npy", np.concatenate(self._ids))
        self._save(f"{stem}.targets.npy", np.concatenate(self._flags))
        self._save(f"{stem}.offsets.npy", offsets.astype(np.int64))
        self.shards += 1
        self._clear()

    def _save(self, name: str, array: np.ndarray) -> None:
        with atomic_path(self.folder / name) as temporary, open(temporary, "wb") as file:
            np.save(file, array, allow_pickle=False)


class Dataset:
    """Documents of one split, mapped into memory."""

    def __init__(self, folder: Path) -> None:
        """Raises InputError where the folder holds no documents, or damaged ones."""
        stems = sorted(path.name.split(".")[0] for path in folder.glob("*.offsets.npy"))
        if not stems:
            raise InputError(f"no documents in {folder}: too little data to fill this split")
        try:
            self._tokens, self._targets, self._offsets = (
                [np.load(folder / f"{stem}.{what}.npy", mmap_mode="r") for stem in stems]
                for what in ("tokens", "targets", "offsets")
            )
        except (ValueError, OSError, EOFError) as error:
            raise InputError(f"a shard in {folder} is damaged ({error}): remove the run") from error
        self._first = np.cumsum([0] + [len(offsets) - 1 for offsets in self._offsets])
        self.lengths = np.concatenate([np.diff(offsets) for offsets in self._offsets])

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Tokens and targets of a document."""
        shard = int(np.searchsorted(self._first, index, side="right")) - 1
        place = index - self._first[shard]
        start, end = self._offsets[shard][place : place + 2]
        return self._tokens[shard][start:end], self._targets[shard][start:end]


@dataclass
class Batch:
    """Rows of documents, padded on the right. A document of n tokens takes n - 1 places."""

    inputs: Tensor
    """(B, T) tokens read."""
    targets: Tensor
    """(B, T) tokens to predict, each the one after that in `inputs`."""
    mask: Tensor
    """(B, T) True where the target counts."""
    documents: Tensor
    """(B, T) the document in the row, from 1; 0 is padding."""
    tokens: int
    """Tokens of the documents."""
    counted: int
    """Targets that count; of a part, those of the whole batch."""

    def part(self, number: int, parts: int) -> "Batch":
        """Every so many-th row from row `number`, and empty rows up to the size of all parts."""
        missing = -(-len(self.inputs) // parts) - len(self.inputs[number::parts])
        rows = (self.inputs, self.targets, self.mask, self.documents)
        cut = (F.pad(each[number::parts], (0, 0, 0, missing)) for each in rows)
        return Batch(*cut, self.tokens, self.counted)


def collate(
    rows: Sequence[Sequence[tuple[np.ndarray, np.ndarray]]], width: int, context: int, pad: int
) -> Batch:
    """Rows from the documents in each.

    Args:
        width: places of a row.
        context: documents longer than this are cut.
    """
    shape = (len(rows), width)
    inputs, targets = np.full(shape, pad, np.int64), np.full(shape, pad, np.int64)
    mask, numbers = np.zeros(shape, bool), np.zeros(shape, np.int64)
    tokens = 0
    for row, documents in enumerate(rows):
        first = 0
        for number, (ids, flags) in enumerate(documents, start=1):
            length = min(len(ids), context)
            last = first + length - 1
            inputs[row, first:last] = ids[: length - 1]
            targets[row, first:last] = ids[1:length]
            mask[row, first:last] = flags[1:length]
            numbers[row, first:last] = number
            tokens += length
            first = last
    parts = (torch.from_numpy(array) for array in (inputs, targets, mask, numbers))
    return Batch(*parts, tokens, int(mask.sum()))


class Schedule:
    """The batches of a whole run, step by step: as many full rows in each."""

    def __init__(
        self,
        dataset: Dataset,
        *,
        batch_tokens: int,
        context: int,
        seed: int,
        pad: int,
        tokens: float | None = None,
        epochs: float | None = None,
        whole: bool = False,
    ) -> None:
        """Plans until `tokens` tokens are read, or `epochs` passes are made.

        A longer run begins with the batches of a shorter one.

        Args:
            batch_tokens: places in a batch, a multiple of `context`, which is the width of a row.
            context: documents longer than this are cut, or left out where they must be `whole`.

        Raises:
            InputError: there is no document of at least two tokens, or every one is too long.
        """
        self.dataset, self.context, self.pad = dataset, context, pad
        self.rows = batch_tokens // context
        kept = dataset.lengths > 1
        if whole:
            kept &= dataset.lengths <= context
        used = np.flatnonzero(kept)
        if not len(used):
            raise InputError(f"all {len(dataset)} documents are longer than context={context}")
        self.left_out = len(dataset) - len(used)
        lengths = np.minimum(dataset.lengths[used], context)
        goal = tokens if tokens is not None else epochs * float(lengths.sum())
        self._passes: list[Rows] = []
        self.cumulative = np.empty(0, np.int64)
        """Tokens read after each step."""
        by_row = np.empty(0, np.int64)
        while not len(self.cumulative) or self.cumulative[-1] < goal:
            rows = pack(lengths - 1, context, np.random.default_rng((seed, len(self._passes))))
            self._passes.append(Rows(used[rows.members], rows.offsets))
            by_row = np.concatenate([by_row, rows.sums(lengths)])
            self.cumulative = np.cumsum(by_row)[self.rows - 1 :: self.rows]
        steps = int(np.searchsorted(self.cumulative, goal)) + 1
        self.cumulative = self.cumulative[:steps]
        self.tokens = int(self.cumulative[-1])
        self.epochs = self.tokens / float(lengths.sum())
        self._ends = np.cumsum([len(rows) for rows in self._passes])

    def __len__(self) -> int:
        return len(self.cumulative)

    @property
    def documents(self) -> int:
        """Documents read in all steps, each as often as it is."""
        return sum(len(row) for step in range(len(self)) for row in self.of(step))

    @property
    def padding(self) -> float:
        """Share of the places that hold no token to read."""
        places = len(self) * self.rows * self.context
        return 1 - (self.tokens - self.documents) / places

    def of(self, step: int) -> list[np.ndarray]:
        """Numbers of the documents in each row of a step from 0."""
        rows = []
        for row in range(step * self.rows, (step + 1) * self.rows):
            number = int(np.searchsorted(self._ends, row, side="right"))
            rows.append(
                self._passes[number][row - (self._ends[number] - len(self._passes[number]))]
            )
        return rows

    def batch(self, step: int) -> Batch:
        """The batch of a step from 0."""
        rows = [[self.dataset[i] for i in row] for row in self.of(step)]
        return collate(rows, self.context, self.context, self.pad)


def in_order(dataset: Dataset, batch_tokens: int, context: int, pad: int) -> Iterator[Batch]:
    """All documents once, in their order, one a row."""
    rows = max(batch_tokens // context, 1)
    for start in range(0, len(dataset), rows):
        documents = [dataset[i] for i in range(start, min(start + rows, len(dataset)))]
        width = min(max(len(ids) for ids, _ in documents), context) - 1
        yield collate([[document] for document in documents], width, context, pad)
