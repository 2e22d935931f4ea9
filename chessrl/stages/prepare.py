"""First stage: games become token shards, puzzles are split, and every skip is counted."""

import dataclasses
import json
import os
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from hashlib import blake2b
from itertools import chain, islice
from pathlib import Path

import numpy as np

from chessrl.artifacts import Result, RunFolder, sha256, write_text
from chessrl.board import tokens
from chessrl.board.games import Game, parse_game, read_raw
from chessrl.board.pgn import RawGame
from chessrl.board.prompts import game_documents
from chessrl.board.puzzles import Puzzle, read_puzzles, write_puzzles
from chessrl.board.skips import Skip, SkipReport
from chessrl.board.splits import Position, game_split, position_key, split_puzzles
from chessrl.config import InputError, Run
from chessrl.progress import Meter, say
from chessrl.stages.batches import DatasetWriter
from chessrl.stages.runs import folder, inherited, working

CHUNK = 64
"""Games that a worker takes at a time."""


@dataclasses.dataclass(frozen=True)
class PreparedGame:
    """A game that was read, with what becomes of it."""

    game: Game
    split: str
    """`train`, `validation`, or the reason it is left out."""
    documents: list[tuple[np.ndarray, np.ndarray]]
    """Tokens and targets of each."""


@dataclasses.dataclass(frozen=True)
class GameWork:
    """What is done to each raw game, by whichever process."""

    min_plies: int
    validation: float
    form: str
    plies: int
    held_out: frozenset[Position]
    """Positions that no game kept may reach."""

    def __call__(self, raw: RawGame) -> PreparedGame | Skip:
        """Read, split and encode one game."""
        game = parse_game(raw)
        if isinstance(game, Skip):
            return game
        if len(game.moves) < self.min_plies:
            return PreparedGame(game, "too_short", [])
        documents = game_documents(game.moves, self.form, self.plies, self.held_out)
        if documents is None:
            return PreparedGame(game, "reaches_puzzle", [])
        arrays = [(np.array(ids, np.uint8), np.array(targets)) for ids, targets in documents]
        return PreparedGame(game, game_split(game.moves, self.validation, "validation"), arrays)


def prepare(run: Run) -> Result:
    """Write the dataset that all later stages read.

    `train/` and `validation/` hold documents of games, `puzzles/` one CSV for each of sft, rl and
    test, `skipped.jsonl` a line per skip; the manifest counts what was kept and skipped.
    """
    out = folder(run, "prepare")
    if (done := out.finished) is not None:
        return done
    result = inherited(run, "prepare")
    began = time.monotonic()
    with working(run, out, "prepare"):
        report, refused = SkipReport(), SkipReport()
        splits = _puzzles(run, refused)
        for name, puzzles in splits.items():
            write_puzzles(out.path / "puzzles" / f"{name}.csv", puzzles)
            if not puzzles:
                say(f"prepare: no puzzle is left for {name}; the stage that needs it will stop")
        solver_positions = frozenset(
            position_key(puzzle.board()) for puzzle in chain.from_iterable(splits.values())
        )
        counts = _games(run, out, report, solver_positions)
        skips = [*refused.records, *report.records]
        write_text(
            out.path / "skipped.jsonl",
            "".join(json.dumps(dataclasses.asdict(skip)) + "\n" for skip in skips),
        )
        out.describe(
            {
                "prompt": dataclasses.asdict(run.prompt),
                "vocabulary": tokens.VOCABULARY_HASH,
                "sources": {
                    path: {"sha256": sha256(Path(path)), "bytes": os.path.getsize(path)}
                    for path in (*run.data.paths, run.data.puzzles)
                },
                "split_rule": "games by hash of their moves; puzzles by hash, test equal per bin",
                "kept": counts["games_train"] + counts["games_validation"],
                "counts": counts | {f"puzzles_{name}": len(rows) for name, rows in splits.items()},
                "skipped": dict(sorted(report.counts.items())),
                "skipped_puzzles": dict(sorted(refused.counts.items())),
            }
        )
        for what, counted in (("games", report.counts), ("puzzles", refused.counts)):
            for reason, count in sorted(counted.items()):
                say(f"prepare: skipped {count:,} {what} as {reason}")
        if not counts["games_train"] + counts["games_validation"]:
            first = f"; the first: {_place(report.records[0])}" if report.records else ""
            raise InputError(f"{', '.join(run.data.paths)}: no usable game{first}")
        result.measures = {name: float(count) for name, count in counts.items()}
        result.seconds = time.monotonic() - began
        out.write(result)
    return result


def _place(skip: Skip) -> str:
    token = f" at {skip.token!r}" if skip.token else ""
    return f"{skip.reason}{token} in {skip.file}, line {skip.line}"


def _puzzles(run: Run, report: SkipReport) -> dict[str, list[Puzzle]]:
    try:
        puzzles = read_puzzles(run.data.puzzles, report)
    except ValueError as error:
        raise InputError(str(error)) from error
    if run.prompt.form == "history":
        known = [puzzle for puzzle in puzzles if puzzle.history is not None]
        for puzzle in puzzles:
            if puzzle.history is None:
                report.add(Skip(run.data.puzzles, 0, 0, "no_source_game", puzzle.id))
        puzzles = known
    if not puzzles:
        reasons = ", ".join(f"{n} {reason}" for reason, n in report.counts.items()) or "no rows"
        raise InputError(f"{run.data.puzzles}: no usable puzzle ({reasons})")
    return split_puzzles(
        puzzles, sft=run.data.selection.sft, test_per_bin=run.data.selection.test_per_bin
    )


def _games(
    run: Run, out: RunFolder, report: SkipReport, held_out: frozenset[Position]
) -> dict[str, int]:
    work = GameWork(
        run.data.filter.min_plies, run.data.validation, run.prompt.form, run.prompt.plies, held_out
    )
    writers = {name: DatasetWriter(out.path / name) for name in ("train", "validation")}
    counts: Counter[str] = Counter(
        {f"{what}_{name}": 0 for what in ("games", "plies") for name in writers}
    )
    seen: set[bytes] = set()
    workers = run.data.workers or os.cpu_count() or 1
    with Meter("prepare", None, "games") as meter:
        for path in run.data.paths:
            for item in map_in_order(work, read_raw(path), workers):
                meter.advance(meter.done + 1)
                if isinstance(item, Skip):
                    report.add(item)
                    continue
                reason = item.split if item.split not in writers else ""
                digest = blake2b(" ".join(item.game.moves).encode(), digest_size=16).digest()
                if not reason and digest in seen:
                    reason = "duplicate"
                if reason:
                    report.add(Skip(path, item.game.index, item.game.line, reason))
                    continue
                seen.add(digest)
                counts[f"games_{item.split}"] += 1
                counts[f"plies_{item.split}"] += len(item.game.moves)
                for ids, targets in item.documents:
                    writers[item.split].add(ids, targets)
    for name, writer in writers.items():
        writer.close()
        counts[f"documents_{name}"] = writer.documents
        counts[f"tokens_{name}"] = writer.tokens
        counts[f"targets_{name}"] = writer.targets
    return dict(counts)


def map_in_order(
    work: GameWork, raws: Iterable[RawGame], workers: int
) -> Iterator[PreparedGame | Skip]:
    """Do the work in processes; results come in the order of the games, read ahead but little."""
    if workers == 1:
        yield from map(work, raws)
        return
    raws = iter(raws)
    waiting: deque[Future] = deque()
    with ProcessPoolExecutor(workers, initializer=_remember, initargs=(work,)) as pool:
        while chunk := list(islice(raws, CHUNK)):
            waiting.append(pool.submit(_do, chunk))
            if len(waiting) >= 4 * workers:
                yield from waiting.popleft().result()
        while waiting:
            yield from waiting.popleft().result()


def _remember(work: GameWork) -> None:
    global _work
    _work = work


def _do(chunk: list[RawGame]) -> list[PreparedGame | Skip]:
    return [_work(raw) for raw in chunk]
