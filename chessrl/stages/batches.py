"""Token datasets on disk and the order in which they are read.

A split is a folder of shards: `00000.tokens.npy` (ids), `00000.targets.npy` (True where a token is
to be predicted), `00000.offsets.npy` (where each document starts, and the end) and, for documents
of games, `00000.games.npy` (rows of `records.GAME`). They are mapped into memory, not read. The
batches of a run are a function of its seed alone, so that it resumes exactly.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from chessrl.artifacts import atomic_path
from chessrl.config import InputError

SHARD_TOKENS = 1 << 26
POOL_BATCHES = 32
"""Documents of so many batches are sorted by length together, to pad little."""
WIDTH_STEP = 16
"""Rows are padded to a multiple of this many columns."""


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
    """Rows of documents, one each, padded on the right."""

    inputs: Tensor
    """(B, T) tokens read."""
    targets: Tensor
    """(B, T) tokens to predict, each one later than in `inputs`."""
    mask: Tensor
    """(B, T) True where the target counts."""
    tokens: int
    """Tokens read, padding left out."""


def collate(documents: Sequence[tuple[np.ndarray, np.ndarray]], context: int, pad: int) -> Batch:
    """Rows from documents; those longer than `context` are cut."""
    longest = min(max(len(ids) for ids, _ in documents), context)
    width = -(-(longest - 1) // WIDTH_STEP) * WIDTH_STEP + 1
    rows = np.full((len(documents), width), pad, np.int64)
    mask = np.zeros((len(documents), width), bool)
    tokens = 0
    for row, (ids, targets) in enumerate(documents):
        length = min(len(ids), context)
        rows[row, :length] = ids[:length]
        mask[row, :length] = targets[:length]
        tokens += length
    ids = torch.from_numpy(rows)
    return Batch(ids[:, :-1], ids[:, 1:], torch.from_numpy(mask[:, 1:]), tokens)


def plan_epoch(lengths: np.ndarray, batch_tokens: int, seed: int, epoch: int) -> list[np.ndarray]:
    """Batches of one pass over all documents, each once: arrays of document numbers.

    Args:
        lengths: tokens of each document, at most `batch_tokens`.
        batch_tokens: no batch holds more, padding included (up to the rounding of its width).
    """
    rng = np.random.default_rng((seed, epoch))
    order = rng.permutation(len(lengths))
    pool = max(int(POOL_BATCHES * batch_tokens / lengths.mean()), 1)
    batches: list[np.ndarray] = []
    for start in range(0, len(order), pool):
        part = order[start : start + pool]
        part = part[np.argsort(lengths[part], kind="stable")]
        first = 0
        for i in range(1, len(part) + 1):
            if i == len(part) or (i + 1 - first) * lengths[part[i]] > batch_tokens:
                batches.append(part[first:i])
                first = i
    return [batches[i] for i in rng.permutation(len(batches))]


class Schedule:
    """The batches of a whole run, step by step."""

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

        Documents longer than `context` are cut, or left out where they must be `whole`.

        Raises:
            InputError: every document is too long.
        """
        self.dataset, self.context, self.pad = dataset, context, pad
        used = np.arange(len(dataset))
        if whole:
            used = np.flatnonzero(dataset.lengths <= context)
        if not len(used):
            raise InputError(f"all {len(dataset)} documents are longer than context={context}")
        self.left_out = len(dataset) - len(used)
        lengths = np.minimum(dataset.lengths[used], context)
        goal = tokens if tokens is not None else epochs * float(lengths.sum())
        self.steps: list[np.ndarray] = []
        self.cumulative: list[int] = []
        read = epoch = 0
        while read < goal:
            for batch in plan_epoch(lengths, batch_tokens, seed, epoch):
                read += int(lengths[batch].sum())
                self.steps.append(used[batch])
                self.cumulative.append(read)
                if read >= goal:
                    break
            epoch += 1
        self.tokens, self.epochs = read, read / float(lengths.sum())

    def __len__(self) -> int:
        return len(self.steps)

    def batch(self, step: int) -> Batch:
        """The batch of a step from 0."""
        documents = [self.dataset[i] for i in self.steps[step]]
        return collate(documents, self.context, self.pad)


def in_order(dataset: Dataset, batch_tokens: int, context: int, pad: int) -> Iterator[Batch]:
    """All documents once, in their order."""
    rows = max(batch_tokens // context, 1)
    for start in range(0, len(dataset), rows):
        stop = min(start + rows, len(dataset))
        yield collate([dataset[i] for i in range(start, stop)], context, pad)
