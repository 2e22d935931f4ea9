"""From what a configuration names to files on this disk: folders, globs, months and addresses."""

import dataclasses
import glob
import os
import re
from collections.abc import Iterable
from pathlib import Path

from chessrl.artifacts import sha256
from chessrl.config import DataConfig, InputError
from chessrl.downloads import (
    PATIENCE,
    SIDE_FILES,
    Patience,
    checksums,
    download,
    finished,
    read_note,
)
from chessrl.progress import say

REMEMBERED = 64 << 20
"""Files over this many bytes are not hashed again where the cache knows their hash."""
GAMES = (".pgn", ".zst", ".bz2", ".gz")
"""Endings of the files that are taken from a folder, in either case."""
_NO_GAMES = (".csv", ".tar", ".json", ".jsonl")  # before the last ending: puzzles.csv.zst
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_GLOB = re.compile(r"[*?\[]")


def resolve(data: DataConfig, fetch: bool, patience: Patience = PATIENCE) -> DataConfig:
    """The same settings with local files alone: games in `paths`, no `months`, one puzzle file.

    What `paths` name comes first, each entry expanded where it stands, then `months` in their
    order. A file that is named twice, by whatever name, stays where it was named first.

    Args:
        data: settings as a user gave them.
        fetch: download what the cache lacks; otherwise the network is not asked.
        patience: timeouts and pauses of downloads.

    Raises:
        InputError: a file is missing, nothing is found, or a download fails.
    """
    # What is on this disk comes first: a wrong path ends the work before hours of download.
    local = {path: expand(path) for path in data.paths if not _ADDRESS.match(path)}
    puzzles = None if _ADDRESS.match(data.puzzles) else _puzzle_file(data.puzzles)
    cache = Path(os.path.expanduser(data.cache))
    months = [month_address(data.lichess, month) for month in data.months]
    lacking = [url for url in months if finished(url, cache) is None]
    known = _published(data.lichess, lacking, patience) if fetch and lacking else {}

    def fetched(url: str) -> Path:
        if fetch:
            return download(url, cache, known.get(url), patience)
        there = finished(url, cache)
        if there is None:
            raise InputError(
                f"{url} is not in {cache} yet: run `make data` with the same settings first"
            )
        return there

    if puzzles is None:
        puzzles = fetched(data.puzzles)
    files = [file for path in data.paths for file in local.get(path) or [fetched(path)]]
    files += [fetched(url) for url in months]
    paths = [str(file) for file in _distinct(files)]
    return dataclasses.replace(data, paths=paths, months=[], puzzles=str(puzzles))


def expand(path: str) -> list[Path]:
    """Files that one local entry of `data.paths` names: itself, those below a folder, or a glob's.

    A file or folder that has exactly this name wins over the reading as a glob. A folder gives
    the files that end like PGN, at any depth, without hidden ones; a glob gives all it matches
    but the notes and unfinished downloads of a cache. Both are sorted by their path.

    Raises:
        InputError: there is no such file, or nothing is found.
    """
    name = os.path.expanduser(path)
    if os.path.isfile(name):
        return [Path(name)]
    if os.path.isdir(name):
        found, lacks = _below(name), f"no file in it ends with {', '.join(GAMES)}"
    elif _GLOB.search(name):
        matches = [Path(match) for match in glob.glob(name, recursive=True)]
        matches = [match for match in matches if not os.path.isdir(match)]
        found, lacks = [m for m in matches if m.suffix not in SIDE_FILES], "matches no file"
    else:
        raise _no_such_file(path)
    if not found:
        raise InputError(f"{path}: {lacks}; mend data.paths")
    for file in found:
        if not os.path.isfile(file):  # a link to nowhere is not passed over in silence
            raise _no_such_file(str(file))
    return sorted(set(found))


def month_address(base: str, month: str) -> str:
    """Where Lichess, or a mirror at `base`, has the rated standard games of a month `yyyy-mm`."""
    return f"{base.rstrip('/')}/standard/lichess_db_standard_rated_{month}.pgn.zst"


def content_hash(path: str | Path) -> str:
    """Sha256 of a file in hex digits.

    That of a large file in the cache is taken from its note, as long as length and time of the
    last change are those of the download.

    Raises:
        InputError: there is no such file.
    """
    if not os.path.isfile(path):
        raise _no_such_file(str(path))
    file = Path(path).resolve()
    state = file.stat()
    if state.st_size > REMEMBERED:
        note = read_note(file)
        unchanged = (state.st_size, state.st_mtime_ns)
        if note is not None and note.sha256 and (note.bytes, note.mtime_ns) == unchanged:
            return note.sha256
    return sha256(file)


def _published(base: str, urls: list[str], patience: Patience) -> dict[str, str]:
    """Checksums of months by their address, as far as there are any."""
    listed = checksums(base, patience)
    if listed is None:
        return {}
    known = {url: listed[name] for url in urls if (name := url.rpartition("/")[2]) in listed}
    for url in urls:
        if url not in known:
            say(f"{url}: the list of checksums does not have it; it is used unchecked")
    return known


def _puzzle_file(path: str) -> Path:
    name = os.path.expanduser(path)
    if os.path.isdir(name):
        raise InputError(f"{path}: a folder; data.puzzles names one file or address")
    if not os.path.isfile(name):
        raise _no_such_file(path)
    return Path(name)


def _no_such_file(path: str) -> InputError:
    return InputError(f"{path}: no such file; mend data.paths, data.puzzles or checkpoint=")


def _below(folder: str) -> list[Path]:
    def refuse(error: OSError) -> None:
        raise InputError(f"{error.filename}: {error.strerror}; mend data.paths") from error

    seen: set[str] = set()
    found: list[Path] = []
    for here, folders, files in os.walk(folder, followlinks=True, onerror=refuse):
        if os.path.realpath(here) in seen:  # a link into its own folder has no end
            folders.clear()
            continue
        seen.add(os.path.realpath(here))
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        found += [Path(here, name) for name in files if _holds_games(name)]
    return found


def _holds_games(name: str) -> bool:
    stem, ending = os.path.splitext(name.lower())
    compressed = ending != ".pgn"
    return (
        ending in GAMES
        and not name.startswith(".")
        and not (compressed and stem.endswith(_NO_GAMES))
    )


def _distinct(files: Iterable[Path]) -> list[Path]:
    """The files without those that are one already named, by a link too."""
    known = {}
    for file in files:
        state = file.stat()
        known.setdefault((state.st_dev, state.st_ino), file)
    return list(known.values())
