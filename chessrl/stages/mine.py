"""Mining: puzzles from the games at hand, as a file that prepare takes in place of Lichess'."""

import contextlib
import dataclasses
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from multiprocessing import parent_process
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

from chessrl.artifacts import Result, RunFolder
from chessrl.board.engine import Engine
from chessrl.board.games import parse_game, read_raw
from chessrl.board.mining import Judge, looked_at, mine_game
from chessrl.board.pgn import RawGame
from chessrl.board.puzzles import Puzzle, write_puzzles
from chessrl.board.skips import Skip, SkipReport, write_skips
from chessrl.board.splits import Position, position_key
from chessrl.config import EngineConfig, InputError, MineConfig, Run
from chessrl.progress import Meter, say, say_table
from chessrl.sources import content_hash
from chessrl.stages.journal import Journal
from chessrl.stages.runs import folder, inherited, working
from chessrl.workers import map_in_order

CHUNK = 16
"""Games that a worker takes at a time; with an engine, one."""
JOURNAL = "journal.jsonl"
"""What each game gave, while the work lasts."""
_WINS = ("crushing", "advantage")


@dataclasses.dataclass(frozen=True)
class Mined:
    """What one game gave."""

    positions: int
    """Positions looked at."""
    puzzles: tuple[Puzzle, ...]


Item = Mined | Skip


class Miner:
    """What is done to each game, by whichever process; the engine is started when first needed.

    Args:
        settings: what is looked for.
        engine: none for exact mates alone.
        min_plies: shorter games are skipped.
        names: what the puzzles call each file.
    """

    def __init__(
        self,
        settings: MineConfig,
        engine: EngineConfig,
        min_plies: int,
        names: dict[str, str],
    ) -> None:
        self.settings, self.engine, self.min_plies, self.names = settings, engine, min_plies, names
        self._running: Engine | None = None

    def __call__(self, raws: list[RawGame]) -> list[Item]:
        """Mine some games."""
        return [self._mined(raw) for raw in raws]

    def _mined(self, raw: RawGame) -> Item:
        game = parse_game(raw)
        if isinstance(game, Skip):
            return game
        if len(game.moves) < self.min_plies:
            return Skip(raw.file, raw.index, raw.line, "too_short")
        name = f"{self.names[raw.file]}/{raw.index}"
        puzzles = mine_game(game.moves, self.settings, self._judge(), name)
        return Mined(looked_at(len(game.moves), self.settings, puzzles), tuple(puzzles))

    def _judge(self) -> Judge | None:
        if self.engine.name == "none":
            return None
        if self._running is None:
            self._running = Engine(self.engine)
            if parent_process() is not None:  # a worker ends without telling its work
                Finalize(self, self.close, exitpriority=10)
        return self._running.judge

    def close(self) -> None:
        """End the engine of this process."""
        if self._running is not None:
            self._running.close()


def mine(run: Run) -> Result:
    """Write `puzzles.csv`, the puzzles found in the games of `data.paths`.

    `skipped.jsonl` has a line per game that was left out, as in prepare; the manifest counts
    games, positions and puzzles by kind. Work that was broken off goes on after the last game.

    Raises:
        InputError: there is nothing to search with, no engine, no file, or no puzzle.
    """
    if run.engine.name == "none" and not run.mine.mates:
        raise InputError(
            "mine.mates=0 leaves all to an engine, but engine=none: give engine=stockfish, or "
            "mine.mates=2 for exact mates"
        )
    out = folder(run, "mine")
    if (done := out.finished) is not None:
        return done
    result = inherited(run, "mine")
    began = time.monotonic()
    with working(run, out, "mine"):
        engine = _engine_name(run.engine)
        sources = {
            path: {"sha256": content_hash(path), "bytes": os.path.getsize(path)}
            for path in run.data.paths
        }
        out.describe({"engine": engine, "nodes": run.engine.nodes, "sources": sources})
        names = {
            path: f"{Path(path).name.replace('#', '_')}/{facts['sha256'][:8]}"
            for path, facts in sources.items()
        }
        miner = Miner(run.mine, run.engine, run.data.filter.min_plies, names)
        report = SkipReport()
        puzzles, counts = _search(run, out, miner, report, engine)
        write_skips(out.path / "skipped.jsonl", report.records)
        out.describe({"counts": counts, "skipped": dict(sorted(report.counts.items()))})
        _summarise(report, counts)
        if not puzzles:
            raise InputError(
                f"{', '.join(run.data.paths)}: no puzzle in {counts['games']:,} games "
                f"({counts['positions']:,} positions): give more games, a larger "
                "mine.last_plies (0 = all), or engine=stockfish"
            )
        write_puzzles(out.path / "puzzles.csv", puzzles)
        say(f"mine: {len(puzzles):,} puzzles; use them with data.puzzles={out.path}/puzzles.csv")
        result.measures = {name: float(count) for name, count in counts.items()}
        result.seconds = time.monotonic() - began
        out.write(result)
        (out.path / JOURNAL).unlink(missing_ok=True)
    return result


def _summarise(report: SkipReport, counts: dict[str, int]) -> None:
    """Show what was left out, and what was found."""
    if report.counts:
        rows = [(reason, f"{n:,}") for reason, n in report.counts.most_common()]
        say_table("mine: games left out", ("reason", "games"), rows)
    rows = [(name, f"{n:,}") for name, n in counts.items()]
    say_table("mine: what was counted", ("what", "number"), rows)


def _engine_name(config: EngineConfig) -> str:
    """What the engine calls itself, `none` without one; that it works is known before it is used.

    Raises:
        InputError: it is not there or does not start.
    """
    if config.name == "none":
        return "none"
    with Engine(config) as engine:
        return engine.name


def _search(
    run: Run, out: RunFolder, miner: Miner, report: SkipReport, engine: str
) -> tuple[list[Puzzle], dict[str, int]]:
    """Puzzles in the order of the games, without repeated positions, and what was counted."""
    puzzles: list[Puzzle] = []
    seen: set[Position | str] = set()
    counts = Counter(games=0, positions=0, duplicates=0)
    made_with = {"engine": engine, "hash_mb": run.engine.hash_mb, "games": sorted(miner.names)}
    with (
        Journal(out.path / JOURNAL, made_with) as journal,
        Meter("mine", run.mine.games or None, "games") as meter,
        contextlib.closing(_items(run, miner, journal)) as items,
    ):
        for item in items:
            meter.advance(meter.done + 1, puzzles=str(len(puzzles)))
            if isinstance(item, Skip):
                report.add(item)
                continue
            counts["games"] += 1
            counts["positions"] += item.positions
            for puzzle in item.puzzles:
                key = position_key(puzzle.board())
                if key in seen or puzzle.id in seen:
                    counts["duplicates"] += 1
                    continue
                seen |= {key, puzzle.id}
                puzzles.append(puzzle)
    kinds = Counter(f"puzzles_{_kind(puzzle)}" for puzzle in puzzles)
    return puzzles, {**counts, "puzzles": len(puzzles), **dict(sorted(kinds.items()))}


def _items(run: Run, miner: Miner, journal: Journal) -> Iterator[Item]:
    """What each game gave: of those in the journal first, then of the others."""
    done = 0
    for entry in journal.known():
        done += 1
        yield _item(entry)
    if done:
        say(f"mine: goes on after {done:,} games")
    raws = chain.from_iterable(map(read_raw, run.data.paths))
    raws = islice(raws, done, run.mine.games or None)
    chunks = _chunks(raws, 1 if run.engine.name != "none" else CHUNK)
    try:
        with contextlib.closing(map_in_order(miner, chunks, run.data.workers)) as results:
            for item in chain.from_iterable(results):
                journal.add(dataclasses.asdict(item))
                yield item
    finally:
        miner.close()


def _chunks(raws: Iterable[RawGame], size: int) -> Iterator[list[RawGame]]:
    raws = iter(raws)
    while chunk := list(islice(raws, size)):
        yield chunk


def _item(entry: dict[str, Any]) -> Item:
    """The item whose fields stand in the journal."""
    if "reason" in entry:
        return Skip(**entry)
    puzzles = [
        Puzzle(**{name: tuple(v) if isinstance(v, list) else v for name, v in puzzle.items()})
        for puzzle in entry["puzzles"]
    ]
    return Mined(entry["positions"], tuple(puzzles))


def _kind(puzzle: Puzzle) -> str:
    """The theme that says how it wins."""
    return next(t for t in puzzle.themes if t.startswith("mateIn") or t in _WINS)
