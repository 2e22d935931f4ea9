"""Files of the net in a cache folder: fetched once, whole, and on from where a cut left off.

    NAME            the file, there only when it is whole and checked
    NAME.part       what has arrived of it so far
    NAME.json       `Note`: where it came from, its sha256, what tells its version
    .NAME.lock      held by the process that downloads it

Under the lock, the note of a version is written before its first byte and after the last byte of
any other, so a part never mixes two versions.
"""

import contextlib
import dataclasses
import errno
import fcntl
import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

import requests

from chessrl.artifacts import read_json, write_json
from chessrl.artifacts import sha256 as hash_of
from chessrl.config import InputError
from chessrl.downloads.transfer import (
    AGAIN,
    PATIENCE,
    Again,
    Patience,
    address,
    answer,
    length,
    patiently,
    read,
)
from chessrl.progress import Meter, say

SIDE_FILES = (".part", ".json")
"""Endings of what lies beside a file in the cache and is never a source."""
_MB = 1_000_000
_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+)")
_UNSAFE = re.compile(r"[^\w.,=+@()\[\] -]", re.ASCII)


@dataclass(kw_only=True)
class Note:
    """What is known of a file in the cache, or of the part of it that is there."""

    url: str
    bytes: int | None = None
    """Length of the whole file, once the server has told it."""
    sha256: str = ""
    """Hash of the whole file; empty while it is on its way."""
    mtime_ns: int = 0
    """Time of the last change of the file that the hash was taken of."""
    etag: str = ""
    last_modified: str = ""

    @property
    def validator(self) -> str:
        """What asks a server for the rest of the same version only; empty if it told nothing."""
        return self.last_modified if self.etag.startswith("W/") else self.etag or self.last_modified


def places(url: str, folder: Path) -> list[Path]:
    """Where a file may lie in the cache: under its own name, or marked where that is taken."""
    parts = urlsplit(url)
    last = re.split(r"[/\\]", unquote(parts.path))[-1]
    name = _UNSAFE.sub("_", last)[-120:].lstrip(". ") or "download"
    marked = folder / f"{hashlib.sha256(url.encode()).hexdigest()[:12]}-{name}"
    if parts.query or name.endswith(SIDE_FILES):
        return [marked]
    return [folder / name, marked]


def read_note(path: Path) -> Note | None:
    """The note of a file, None where there is none that can be read."""
    try:
        return Note(**read_json(_beside(path, ".json")))
    except (OSError, ValueError, TypeError):
        return None


def finished(url: str, folder: Path) -> Path | None:
    """The file of an address if it has been downloaded; the network is not asked.

    Raises:
        InputError: the address is not one of http or https.
    """
    url = address(url)
    for path in places(url, folder):
        note = read_note(path)
        if note is not None and note.url == url and note.sha256:
            return path if path.is_file() and _size(path) == note.bytes else None
    return None


def download(
    url: str, folder: Path, sha256: str | None = None, patience: Patience = PATIENCE
) -> Path:
    """Fetch a file into a cache folder, and return where it lies; one that is there is used again.

    A part left by a stopped download is gone on with, if the server still has the same version.
    A file of that name that was put there by hand is taken for the file.

    Args:
        url: address, http or https.
        folder: the cache, made where there is none.
        sha256: hex digest that the file must have, where it is known.
        patience: timeouts and pauses.

    Raises:
        InputError: the address cannot be used, the server has no such file or goes on failing,
            the sha256 differs, or the disk is full.
    """
    url = address(url)
    sha256 = sha256 and sha256.lower()
    there = finished(url, folder)  # before the lock: a cache may be read-only
    if there is not None and sha256 in (None, read_note(there).sha256):
        return there
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path in places(url, folder):
            with _locked(path):
                note = read_note(path)
                if note is None or note.url == url:
                    return _brought(url, path, sha256, patience)
    except OSError as error:
        raise InputError(
            f"{error.filename or folder}: {error.strerror or error}; make room or choose another "
            f"data.cache=, then {AGAIN}"
        ) from error
    raise InputError(
        f"{folder} holds other files under the name of {url}: give another data.cache="
    )


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with open(path.with_name(f".{path.name}.lock"), "w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"{path.name}: another process is downloading it; waiting for that")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _brought(url: str, path: Path, sha256: str | None, patience: Patience) -> Path:
    """The file in its place: used again, taken as found, or downloaded; the lock is held."""
    note, part = read_note(path), _beside(path, ".part")
    if path.is_file() and (note is None or not note.sha256):
        part.unlink(missing_ok=True)
        return _kept(path, path, Note(url=url), sha256)
    if finished(url, path.parent) == path:
        if sha256 in (None, note.sha256):
            return path
        say(f"{path.name}: another version has been published; downloading that")
    path.unlink(missing_ok=True)
    patiently(lambda: _attempt(url, path, patience), lambda: _size(part), url, patience)
    return _kept(part, path, read_note(path) or Note(url=url), sha256)


def _kept(found: Path, path: Path, note: Note, sha256: str | None) -> Path:
    """Check a whole file, note what it is, and move it into its place."""
    if found.stat().st_size >= 100 * _MB:
        say(f"{path.name}: taking its sha256")
    actual = hash_of(found)
    if sha256 not in (None, actual):
        said = f"{note.url}: sha256 is {actual}, but should be {sha256}"
        if found == path:
            raise InputError(f"{said}; remove {path}, which was put there by hand")
        found.unlink()
        _beside(path, ".json").unlink(missing_ok=True)
        raise InputError(f"{said}; what came is removed, run the same command again")
    with open(found, "rb") as file:
        os.fsync(file.fileno())
    state = found.stat()
    note = dataclasses.replace(note, bytes=state.st_size, sha256=actual, mtime_ns=state.st_mtime_ns)
    write_json(_beside(path, ".json"), dataclasses.asdict(note))
    os.replace(found, path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return path


def _attempt(url: str, path: Path, patience: Patience) -> None:
    """One request for what is missing of a file; returns when its part is whole."""
    part, note = _beside(path, ".part"), read_note(path)
    have = _size(part)
    if have and note is not None and have == note.bytes:
        return
    if note is None or not note.validator or have > (note.bytes or have):
        have = 0  # nothing tells whether the rest would be of the same version
    headers = {"Range": f"bytes={have}-", "If-Range": note.validator} if have else {}
    with answer(url, headers, patience) as response:
        if response.status_code == 200:
            part.unlink(missing_ok=True)
            have, note = 0, _described(url, response)
            total = note.bytes
            write_json(_beside(path, ".json"), dataclasses.asdict(note))
        elif have and response.status_code == 206 and _continues(response, note, have):
            total = int(_RANGE.fullmatch(response.headers["Content-Range"])[2])
        else:
            part.unlink(missing_ok=True)
            raise Again("the server sent another part than the one asked for")
        have = _copied(response, part, have, total)
    if total is not None and have > total:
        part.unlink()
        raise Again("the server sent too much")
    if total is not None and have < total:
        raise Again(f"the connection was cut at {have:,} of {total:,} bytes")


def _described(url: str, response: requests.Response) -> Note:
    return Note(
        url=url,
        bytes=length(response),
        etag=response.headers.get("ETag", ""),
        last_modified=response.headers.get("Last-Modified", ""),
    )


def _continues(response: requests.Response, note: Note, have: int) -> bool:
    """Whether a 206 holds what follows the first `have` bytes of the version noted."""
    span = _RANGE.fullmatch(response.headers.get("Content-Range", ""))
    if span is None or int(span[1]) != have or int(span[2]) != (note.bytes or int(span[2])):
        return False
    name = "ETag" if note.etag else "Last-Modified"  # a server may not know If-Range
    return response.headers.get(name) in (None, note.etag or note.last_modified)


def _copied(response: requests.Response, part: Path, have: int, total: int | None) -> int:
    """Append an answer to a part of `have` bytes; returns its length."""
    if total is not None and shutil.disk_usage(part.parent).free < total - have:
        text = f"{(total - have) / _MB:,.0f} MB are to come, and the disk has no room for them"
        raise OSError(errno.ENOSPC, text, str(part))
    shown = None if total is None else total // _MB
    with (
        open(part, "ab") as file,
        Meter(part.stem, shown, "MB", have // _MB) as meter,
    ):
        while chunk := read(response):
            file.write(chunk)
            have += len(chunk)
            if have // _MB > meter.done:
                meter.advance(have // _MB)
    return have
