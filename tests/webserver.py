"""A real server on the loopback that cuts, stalls, lies and changes its mind as it is told."""

import contextlib
import gzip
import hashlib
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from chessrl.config import InputError
from chessrl.downloads import Patience, download

BODY = os.urandom(300_000)
OTHER = os.urandom(310_000)
HASH = hashlib.sha256(BODY).hexdigest()
FOREVER = 40
"""Answers planned for a server that never gets better; no download may use all of them."""


@dataclass
class Answer:
    """What one request gets; the defaults are those of an honest server."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    cut: int | None = None
    """Bytes of body after which the connection ends, though more were promised."""
    stall: float = 0.0
    """Seconds of silence before the rest of the body (after `cut` bytes)."""
    ranges: bool = True
    piece: int = 1 << 30
    """Bytes of a range that are sent at most."""
    if_range: bool = True
    content_range: str | None = None
    extra: bytes = b""
    """Sent, and promised, after the body."""
    chunked: bool = False
    zips: bool = False
    """Whether the body is packed for those who accept that."""
    told: bool = True
    """Whether the length of the body is told."""


@dataclass
class Site:
    """Files, the answers planned for the next requests, and what was asked."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    other: bytes | None = None
    """What any further path has; none is a 404."""
    validators: dict[str, str] = field(default_factory=lambda: {"ETag": '"one"'})
    plan: list[Answer] = field(default_factory=list)
    asked: list[tuple[str, str, str]] = field(default_factory=list)
    """Path, Range and If-Range of each request."""

    @property
    def starts(self) -> list[int]:
        """First byte asked for by each request."""
        return [int(span[6:-1]) if span else 0 for _, span, _ in self.asked]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        site: Site = self.server.site
        span, condition = self.headers.get("Range", ""), self.headers.get("If-Range", "")
        site.asked.append((self.path, span, condition))
        answer = site.plan.pop(0) if site.plan else Answer()
        body = site.files.get(self.path.partition("?")[0], site.other)
        status = answer.status or (404 if body is None else 200)
        body = body or b""
        headers = dict(site.validators) | answer.headers
        same = not (answer.if_range and condition) or condition in site.validators.values()
        if status == 200 and span and answer.ranges and same:
            start = int(span.removeprefix("bytes=").removesuffix("-"))
            status = 206 if start < len(body) else 416
            end = min(len(body), start + answer.piece)
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(body)}"
            if answer.content_range is not None:
                headers["Content-Range"] = answer.content_range
            body = body[start:end] if status == 206 else b""
        if answer.zips and "gzip" in self.headers.get("Accept-Encoding", ""):
            body, headers["Content-Encoding"] = gzip.compress(body), "gzip"
        body += answer.extra
        headers["Connection"] = "close"
        self.close_connection = True
        self.send_response(status)
        if answer.chunked:
            headers["Transfer-Encoding"] = "chunked"
        elif answer.told:
            headers["Content-Length"] = str(len(body))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        first = len(body) if answer.cut is None else answer.cut
        try:
            self.send(body[:first], answer.chunked)
            if answer.stall:
                self.wfile.flush()
                time.sleep(answer.stall)
                self.send(body[first:], answer.chunked)
            if answer.chunked and (answer.cut is None or answer.stall):
                self.wfile.write(b"0\r\n\r\n")
        except OSError:
            pass  # the client has gone

    def send(self, body: bytes, chunked: bool) -> None:
        if chunked and body:
            body = b"%x\r\n%s\r\n" % (len(body), body)
        self.wfile.write(body)


@contextlib.contextmanager
def serving() -> Iterator[Site]:
    """A running server with `/games.pgn`."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.site = Site(f"http://127.0.0.1:{server.server_port}", {"/games.pgn": BODY})
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server.site
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def names(folder: Path) -> list[str]:
    """What lies in a cache, but for the locks."""
    return sorted(path.name for path in folder.iterdir() if not path.name.endswith(".lock"))


def interrupted(site: Site, folder: Path, have: int) -> str:
    """Leave the part of a download that ended after so many bytes; returns its address."""
    url = f"{site.url}/games.pgn"
    site.plan = [Answer(cut=have)]
    with pytest.raises(InputError, match=r"cut|broke"):
        download(url, folder, patience=Patience(tries=1))
    assert (folder / "games.pgn.part").stat().st_size == have
    site.asked.clear()
    return url


def refused(url: str, folder: Path, *arguments) -> str:
    """The one line that a download ends with."""
    with pytest.raises(InputError) as error:
        download(url, folder, *arguments)
    assert "\n" not in str(error.value)
    assert url in str(error.value)
    return str(error.value)
