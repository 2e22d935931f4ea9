"""Games per second from PGN text to shards on disk, against plain python-chess, in one run.

    python benchmarks/ingest.py FILE [--peer-games 2000] [--workers 0] [--prompt history]

The peer is what one writes first: `chess.pgn.read_game`, then `tokens.push_encoded` for every move,
in one process. It reads blocks taken evenly from the file, since all of it would take half an
hour; the project reads all of it. The tokens of every game that both accept must be equal.
"""

import argparse
import io
import os
import tempfile
import threading
import time
from pathlib import Path

import chess.pgn
import numpy as np
from hydra import compose, initialize_config_dir

from chessrl.artifacts import RunFolder
from chessrl.board import tokens
from chessrl.board.blocks import Block, read_blocks
from chessrl.board.documents import Form
from chessrl.board.hashes import HashSet
from chessrl.board.ingest import Draw, Ingest
from chessrl.board.skips import SkipReport
from chessrl.config import GameFilter, Run, parse
from chessrl.stages.batches import DatasetWriter
from chessrl.stages.ingest import ingest_games

CONF = Path(__file__).resolve().parent.parent / "conf"
EVERYTHING = GameFilter(min_plies=1, duplicates="keep", bots="keep")


def peer(blocks: list[Block], folder: Path) -> tuple[int, float, list[bytes]]:
    """Games, seconds and the document of each, by python-chess alone."""
    writer = DatasetWriter(folder)
    documents = []
    began = time.perf_counter()
    for block in blocks:
        text = io.StringIO(block.text.decode("utf-8", "replace"))
        while (game := chess.pgn.read_game(text)) is not None:
            board = game.board()
            ids = [tokens.BOS]
            for move in game.mainline_moves():
                ids += tokens.push_encoded(board, move)
            ids.append(tokens.EOS)
            writer.add(ids, [False] + [True] * (len(ids) - 1))
            documents.append(b"" if game.errors or len(ids) == 2 else bytes(ids))
    writer.close()
    return len(documents), time.perf_counter() - began, documents


def differences(blocks: list[Block], documents: list[bytes]) -> tuple[int, int]:
    """Games that both accept, and those of them whose tokens are not the same bytes."""
    work = Ingest(Draw(EVERYTHING), Form("history"), 0.0, HashSet(np.zeros(0, np.uint64)))
    both = unequal = first = 0
    for block in blocks:
        done = work(block)
        train = done.documents["train"]
        for (index, _), text in zip(
            train.places, np.split(train.ids, np.cumsum(train.lengths)[:-1]), strict=True
        ):
            theirs = documents[first + index]
            both += bool(theirs)
            unequal += bool(theirs) and theirs != text.tobytes()
        first += done.games
    return both, unequal


class PeakMemory:
    """Largest proportional share of memory of this process and its children, in bytes."""

    def __enter__(self) -> "PeakMemory":
        self.bytes = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.2):
            self.bytes = max(self.bytes, sum(map(_share, _family(os.getpid()))))


def _family(process: int) -> list[int]:
    found = [process]
    for task in Path(f"/proc/{process}/task").glob("*"):
        try:
            children = (task / "children").read_text().split()
        except OSError:
            continue  # it has ended
        for child in children:
            found += _family(int(child))
    return found


def _share(process: int) -> int:
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def configured(arguments: argparse.Namespace) -> Run:
    """The configuration of stage=prepare that is timed."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return parse(
            compose(
                "config",
                [
                    "stage=prepare",
                    "data=pgn",
                    f'data.paths=["{arguments.file}"]',
                    f"data.workers={arguments.workers}",
                    f"prompt={arguments.prompt}",
                ],
            )
        )


def main() -> None:
    """Print both rates, their ratio, the memory, and how many games differ."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file")
    parser.add_argument("--peer-games", type=int, default=2000)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--prompt", default="history", choices=("history", "board"))
    arguments = parser.parse_args()
    run = configured(arguments)
    blocks = list(read_blocks(arguments.file))
    per_block = max(blocks[0].text.count(b"[Result "), 1)
    wanted = min(max(-(-arguments.peer_games // per_block), 1), len(blocks))
    sample = [blocks[len(blocks) * i // wanted] for i in range(wanted)]
    del blocks
    with tempfile.TemporaryDirectory() as scratch:
        theirs, seconds, documents = peer(sample, Path(scratch) / "peer")
        rate = theirs / seconds
        print(f"python-chess: {theirs:,} games in {seconds:.1f} s, {rate:.0f} games/s")
        both, unequal = differences(sample, documents)
        report = SkipReport()
        out = RunFolder(Path(scratch) / "ours", "benchmark")
        began = time.perf_counter()
        with PeakMemory() as memory:
            counts = ingest_games(run, out, report, HashSet(np.zeros(0, np.uint64)))
        seconds = time.perf_counter() - began
        games = counts["games_train"] + counts["games_validation"] + report.counts.total()
        ours = games / seconds
        size = sum(file.stat().st_size for file in out.path.rglob("*.npy"))
    print(f"chessrl:      {games:,} games in {seconds:.1f} s, {ours:,.0f} games/s")
    print(f"              {size / 1e6:,.0f} MB of shards, {dict(report.counts)} skipped")
    print(f"              peak memory {memory.bytes / 2**20:,.0f} MiB, all processes")
    print(f"ratio:        {ours / rate:.1f}")
    print(f"tokens:       {both:,} games accepted by both, {unequal} not equal to the byte")


if __name__ == "__main__":
    main()
