"""First stage: games become token shards, puzzles are split, and every skip is counted."""

import dataclasses
import os
import time
from itertools import chain
from pathlib import Path

from chessrl.artifacts import Result
from chessrl.board import tokens
from chessrl.board.puzzles import write_puzzles
from chessrl.board.skips import Skip, SkipReport, write_skips
from chessrl.config import InputError, Run
from chessrl.progress import say, say_table
from chessrl.sources import content_hash
from chessrl.stages.ingest import STATE, ingest_games
from chessrl.stages.puzzles import prepare_puzzles, solver_positions
from chessrl.stages.runs import folder, inherited, working


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
        splits = prepare_puzzles(run, refused)
        for name, puzzles in splits.items():
            write_puzzles(out.path / "puzzles" / f"{name}.csv", puzzles)
            if not puzzles:
                say(f"prepare: no puzzle is left for {name}; the stage that needs it will stop")
        counts = ingest_games(run, out, report, solver_positions(chain(*splits.values())))
        write_skips(out.path / "skipped.jsonl", [*refused.records, *report.records])
        out.describe(
            {
                "prompt": dataclasses.asdict(run.prompt),
                "vocabulary": tokens.VOCABULARY_HASH,
                "sources": {
                    path: {"sha256": content_hash(path), "bytes": os.path.getsize(path)}
                    for path in (*run.data.paths, run.data.puzzles)
                },
                "filter": dataclasses.asdict(run.data.filter),
                "selection": dataclasses.asdict(run.data.selection),
                "split_rule": (
                    "games by hash of their moves; puzzles by hash within each rating bin; no game "
                    "reaches what the solver of any puzzle sees"
                ),
                "kept": counts["games_train"] + counts["games_validation"],
                "counts": counts | {f"puzzles_{name}": len(rows) for name, rows in splits.items()},
                "skipped": dict(sorted(report.counts.items())),
                "skipped_puzzles": dict(sorted(refused.counts.items())),
            }
        )
        _summarise(report, refused)
        if not counts["games_train"] + counts["games_validation"]:
            first = f"; the first: {_place(report.records[0])}" if report.records else ""
            raise InputError(f"{', '.join(run.data.paths)}: no usable game{first}")
        if not counts["games_validation"]:
            say("prepare: no game is held out; there will be no held-out loss to measure")
        say(
            f"prepare: kept {counts['games_train']:,} games to train on and "
            f"{counts['games_validation']:,} held out; {counts['tokens_train']:,} tokens"
        )
        result.measures = {name: float(count) for name, count in counts.items()}
        result.seconds = time.monotonic() - began
        out.write(result)
        (out.path / STATE).unlink()
    return result


def _summarise(games: SkipReport, puzzles: SkipReport) -> None:
    """Show what was left out, by reason, most frequent first, with the first place of each."""
    for what, report in (("games", games), ("puzzles", puzzles)):
        if not report.counts:
            continue
        first: dict[str, str] = {}
        for skip in report.records:
            first.setdefault(skip.reason, _where(skip))
        say_table(
            f"prepare: {what} left out",
            ("reason", what, "first"),
            [(reason, f"{n:,}", first[reason]) for reason, n in report.counts.most_common()],
        )


def _place(skip: Skip) -> str:
    token = f" at {skip.token!r}" if skip.token else ""
    return f"{skip.reason}{token} in {skip.file}, line {skip.line}"


def _where(skip: Skip) -> str:
    place = f"{Path(skip.file).name}, line {skip.line:,}" if skip.line else Path(skip.file).name
    return f"{place}: {skip.token}" if skip.token else place
