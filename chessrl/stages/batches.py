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
from chessrl.stages.mixing import Mixture, Passes

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
    """Documents of one split, mapped into memory, or of several one after the other."""

    def __init__(self, *folders: Path) -> None:
        """Raises InputError where a folder holds no documents, or damaged ones."""
        self._tokens, self._targets, self._offsets = [], [], []
        self.starts: list[int] = []
        """Number of the first document of each folder."""
        for folder in folders:
            self.starts.append(sum(len(offsets) - 1 for offsets in self._offsets))
            self._add(folder)
        self._first = np.cumsum([0] + [len(offsets) - 1 for offsets in self._offsets])
        self.lengths = np.concatenate([np.diff(offsets) for offsets in self._offsets])

    def _add(self, folder: Path) -> None:
        stems = sorted(path.name.split(".")[0] for path in folder.glob("*.offsets.npy"))
        if not stems:
            raise InputError(f"no documents in {folder}: too little data to fill this split")
        kinds = {"tokens": self._tokens, "targets": self._targets, "offsets": self._offsets}
        try:
            for kind, shards in kinds.items():
                shards += [np.load(folder / f"{stem}.{kind}.npy", mmap_mode="r") for stem in stems]
        except (ValueError, OSError, EOFError) as error:
            raise InputError(f"a shard in {folder} is damaged ({error}): remove the run") from error

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
        share: float | None = None,
    ) -> None:
        """Plans until `tokens` tokens are read, or `epochs` passes are made.

        A longer run begins with the batches of a shorter one.

        Args:
            batch_tokens: places in a batch, a multiple of `context`, which is the width of a row.
            context: documents longer than this are cut, or left out where they must be `whole`.
            share: of the tokens that come from the dataset's last folder, whose documents stay
                whole, to a row; None takes all folders as one. Passes are those of the others.

        Raises:
            InputError: there is no document of at least two tokens, or every one is too long.
        """
        self.dataset, self.context, self.pad = dataset, context, pad
        self.rows = batch_tokens // context
        if share is None:
            passes = [self._passes(0, len(dataset), whole, seed)]
            self._source: Passes | Mixture = passes[0]
        else:
            border = dataset.starts[-1]
            passes = [
                self._passes(0, border, whole, seed),
                self._passes(border, len(dataset), True, seed, 1),
            ]
            self._source = Mixture(*passes, share)
        self.left_out = len(dataset) - sum(len(one.numbers) for one in passes)
        goal = tokens if tokens is not None else epochs * passes[0].pass_tokens
        self.cumulative = np.empty(0, np.int64)
        """Tokens read after each step."""
        while not len(self.cumulative) or self.cumulative[-1] < goal:
            self._source.grow(goal)
            self.cumulative = self._after_steps(self._source.tokens)
        steps = int(np.searchsorted(self.cumulative, goal)) + 1
        self.cumulative = self.cumulative[:steps]
        self.tokens = int(self.cumulative[-1])
        self.mixed_in = np.zeros(steps, np.int64)
        """Of those the tokens that come from the last folder at its share."""
        if share is not None:
            self.mixed_in = self._after_steps(self._source.of_second)[:steps]
        mixed_in = int(self.mixed_in[-1])
        self.epochs = (self.tokens - mixed_in) / passes[0].pass_tokens
        self.mixed_epochs = mixed_in / passes[-1].pass_tokens

    def _passes(self, first: int, end: int, whole: bool, *seeds: int) -> Passes:
        """Passes over the documents from `first` to before `end` that can be read."""
        lengths = self.dataset.lengths[first:end]
        kept = (lengths > 1) & ((lengths <= self.context) | (not whole))
        if not kept.any():
            raise InputError(f"all {len(kept)} documents are longer than context={self.context}")
        used = np.flatnonzero(kept)
        lengths = np.minimum(lengths[used], self.context)
        return Passes(first + used, lengths, self.context, *seeds)

    def _after_steps(self, tokens: np.ndarray) -> np.ndarray:
        """Sums up to the end of each step of one value per row."""
        return np.cumsum(tokens)[self.rows - 1 :: self.rows]

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
        return [self._source[row] for row in range(step * self.rows, (step + 1) * self.rows)]

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
