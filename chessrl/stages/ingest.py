"""The games of prepare: every source in order, block by block, to the shards of a dataset.

Whenever a split has enough for a shard, both are written and the state with them, so that a run
that was stopped goes on from there to the same bytes.
"""

import dataclasses
import json
import os
import zipfile
from collections import Counter
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np

from chessrl.artifacts import RunFolder, atomic_path
from chessrl.board.blocks import read_blocks
from chessrl.board.documents import Form
from chessrl.board.hashes import HashSet, Seen
from chessrl.board.ingest import CountElo, Draw, Ingest, Ingested
from chessrl.board.records import SPLITS
from chessrl.board.skips import Skip, SkipReport
from chessrl.config import GameFilter, InputError, Run
from chessrl.progress import Meter, say
from chessrl.stages.batches import DatasetWriter
from chessrl.stages.passes import over_blocks
from chessrl.workers import map_in_order

STATE = "state.npz"
"""File in the folder of an unfinished run, removed at its end."""


@dataclass
class State:
    """How far the sources have been read."""

    source: int = 0
    """Place in `data.paths`."""
    blocks: int = 0
    """Blocks of that source that are done."""
    games: int = 0
    """Games in them."""
    shards: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SPLITS, 0))
    counts: dict[str, int] = field(
        default_factory=lambda: {
            f"{what}_{split}": 0
            for what in ("games", "plies", "documents", "tokens", "targets")
            for split in SPLITS
        }
    )
    skipped: dict[str, int] = field(default_factory=dict)


def ingest_games(run: Run, out: RunFolder, report: SkipReport, held_out: HashSet) -> dict[str, int]:
    """Write `train/` and `validation/`; goes on where a stopped run was.

    Args:
        run: the configuration; its sources are local files.
        out: the folder of the run.
        report: takes what is left out.
        held_out: `line_hashes` of the positions that no game kept may reach.

    Returns:
        Games, plies, documents, tokens and targets of each split, as `games_train`. What
        `STATE` holds is of use until the run is finished.
    """
    saved = out.path / STATE
    state, seen = _restored(saved, report)
    writers = {name: DatasetWriter(out.path / name, state.shards[name]) for name in SPLITS}
    work = Ingest(
        Draw(run.data.filter, _rates(run)),
        Form(run.prompt.form, run.prompt.plies),
        run.data.validation,
        held_out,
    )
    sizes = [os.path.getsize(path) for path in run.data.paths]
    with Meter("prepare", round(sum(sizes) / 1e6, 1), "MB") as meter:
        while state.source < len(run.data.paths):
            path = run.data.paths[state.source]
            before = sum(sizes[: state.source])
            blocks = islice(read_blocks(path), state.blocks, None)
            for done in map_in_order(work, blocks, run.data.workers):
                _take(done, path, state, seen, writers, report, run.data.filter)
                meter.advance(
                    round((before + done.position) / 1e6, 1),
                    games=f"{sum(state.counts[f'games_{name}'] for name in SPLITS):,}",
                )
                if any(writer.full for writer in writers.values()):
                    _save(saved, state, seen, writers, report)
            state = dataclasses.replace(state, source=state.source + 1, blocks=0, games=0)
    _save(saved, state, seen, writers, report)
    return state.counts


def _take(
    done: Ingested,
    path: str,
    state: State,
    seen: Seen,
    writers: dict[str, DatasetWriter],
    report: SkipReport,
    rules: GameFilter,
) -> None:
    skips = list(done.skips)
    for name, documents in done.documents.items():
        if rules.duplicates == "skip":
            repeated = seen.add(documents.games["key"])
            if repeated.any():
                skips += [
                    Skip(path, int(index), int(line), "duplicate")
                    for index, line in documents.places[repeated]
                ]
                documents = documents.without(repeated)
        writers[name].extend(documents.ids, documents.targets, documents.lengths, documents.games)
        facts = {"games": len(documents.games), "plies": int(documents.games["plies"].sum())}
        facts |= {"documents": len(documents.lengths), "tokens": len(documents.ids)}
        facts |= {"targets": int(documents.targets.sum())}
        for what, number in facts.items():
            state.counts[f"{what}_{name}"] += number
    for skip in sorted(skips, key=lambda skip: skip.index):
        report.add(dataclasses.replace(skip, index=skip.index + state.games))
    state.blocks += 1
    state.games += done.games


def _rates(run: Run) -> dict[int, float]:
    """Share of the games to keep of each class of mean Elo, so that `balance` are left."""
    rules = run.data.filter
    if not rules.balance:
        return {}
    counts: Counter[int] = Counter()
    for part in over_blocks(run, "counting Elo", CountElo(rules)):
        counts += part
    return {place: min(rules.balance / count, 1.0) for place, count in sorted(counts.items())}


def _save(
    path: Path,
    state: State,
    seen: Seen,
    writers: dict[str, DatasetWriter],
    report: SkipReport,
) -> None:
    """Close the shards and write down, in one file, how to go on after them."""
    for name, writer in writers.items():
        writer.close()
        state.shards[name] = writer.shards
    state.skipped = dict(report.counts)
    told = {
        "state": dataclasses.asdict(state),
        "skips": [dataclasses.astuple(skip) for skip in report.records],
    }
    text = np.frombuffer(json.dumps(told).encode(), np.uint8)
    with atomic_path(path) as temporary, open(temporary, "wb") as file:
        np.savez(file, seen=seen.hashes, text=text)


def _restored(path: Path, report: SkipReport) -> tuple[State, Seen]:
    """What `_save` wrote last, or a beginning."""
    if not path.exists():
        return State(), Seen()
    try:
        with np.load(path, allow_pickle=False) as saved:
            told, seen = json.loads(saved["text"].tobytes()), Seen(saved["seen"])
        state, skips = State(**told["state"]), [Skip(*skip) for skip in told["skips"]]
    except (ValueError, TypeError, KeyError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"{path} is damaged ({error}): remove it to start over") from error
    report.counts.update(state.skipped)
    report.records += skips
    say(f"prepare: goes on in {path.parent} after {sum(state.shards.values())} shards")
    return state, seen
