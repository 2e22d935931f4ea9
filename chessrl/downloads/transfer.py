"""Asking a web server, again where a failure may pass; nothing of the disk is known here."""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import urldefrag, urlsplit

import requests
from urllib3.exceptions import HTTPError

from chessrl.config import InputError
from chessrl.progress import say

T = TypeVar("T")
AGAIN = "run the same command again, it goes on where it stopped"
_MEND = "mend data.paths, data.months, data.puzzles or data.lichess"
_CHUNK = 1 << 18
_LIST_LIMIT = 4 << 20  # bytes of a list of checksums; that of Lichess has some kB
_CHECKSUM = re.compile(r"([0-9a-fA-F]{64}) [ *](\S+)")
_BUSY = (408, 425, 429)  # these and 5xx may pass


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long a server is waited for, and how often it is asked again. Times in seconds."""

    tries: int = 6
    """Failures in a row, without a new byte, after which it is given up."""
    connect: float = 20.0
    read: float = 60.0
    """Longest silence within an answer."""
    first: float = 1.0
    """Pause after the first failure; each further one doubles it."""
    longest: float = 60.0
    """Longest pause, where the server does not ask for more."""
    asked: float = 600.0
    """Longest pause granted to a server that asks for one."""
    sleep: Callable[[float], None] = time.sleep

    def pause(self, failures: int, asked: float) -> float:
        """Seconds to wait after so many failures in a row, where the server asks for some."""
        own = min(self.first * 2.0 ** max(failures - 1, 0), self.longest)
        return max(own, min(asked, self.asked))


PATIENCE = Patience()


class Again(Exception):
    """A failure that may pass; `asked` is the pause that the server wants, in seconds."""

    def __init__(self, reason: str, asked: float = 0.0) -> None:
        super().__init__(reason)
        self.asked = asked


class Missing(InputError):
    """The server has no such file."""


def address(url: str) -> str:
    """The address as it is asked for, without a fragment.

    Raises:
        InputError: it is not one of http or https.
    """
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        known = False
    if not known:
        raise InputError(f"{url}: only http:// and https:// can be downloaded; {_MEND}")
    return urldefrag(url).url


def patiently(
    attempt: Callable[[], T], reached: Callable[[], int], url: str, patience: Patience
) -> T:
    """What an attempt returns at last, made again as long as it raises `Again`.

    Args:
        attempt: what is tried.
        reached: bytes there are by now; progress is what goes past the furthest so far, so a
            server that begins anew each time is given up too.
        url: named in messages.
        patience: tries and pauses.

    Raises:
        InputError: too many failures in a row.
    """
    furthest, failures = reached(), 0
    while True:
        try:
            return attempt()
        except Again as error:
            failures = 1 if reached() > furthest else failures + 1
            furthest = max(furthest, reached())
            if failures >= patience.tries:
                raise InputError(f"{url}: {error}, {failures} times in a row; {AGAIN}") from error
            pause = patience.pause(failures, error.asked)
            say(f"{url}: {error}; asking again in {pause:.0f} s")
            patience.sleep(pause)


def answer(url: str, headers: dict[str, str], patience: Patience) -> requests.Response:
    """The answer to a request, with its body still to be read: 2xx or 416.

    Raises:
        Again: no answer, or one that may be another later.
        Missing: the server has no such file.
        InputError: any other refusal, or an address that cannot be asked.
    """
    try:
        response = requests.get(
            url,
            headers={"Accept-Encoding": "identity"} | headers,
            stream=True,
            timeout=(patience.connect, patience.read),
        )
    except (ValueError, requests.TooManyRedirects) as error:  # InvalidURL is a ValueError too
        raise InputError(
            f"{url} is no address, or leads in circles or away from http and https; {_MEND}"
        ) from error
    except requests.RequestException as error:
        raise Again(f"no answer ({type(error).__name__})") from error
    status = response.status_code
    if 200 <= status < 300 or status == 416:
        return response
    response.close()
    said = f"the server answers {status} {response.reason}".rstrip()
    if status in _BUSY or status >= 500:
        wanted = response.headers.get("Retry-After", "")
        raise Again(said, float(wanted) if wanted.isdecimal() else 0.0)
    raise (Missing if status in (404, 410) else InputError)(f"{url}: {said}; {_MEND}")


def read(response: requests.Response) -> bytes:
    """The next bytes of a body, none at its end.

    Raises:
        Again: the connection broke.
    """
    # As sent, since a server that calls .gz an encoding would have it unpacked; and what has
    # arrived at once, since a cut loses what a longer read has gathered.
    try:
        return response.raw.read1(_CHUNK, decode_content=False) or b""
    except HTTPError as error:
        raise Again(f"the connection broke ({type(error).__name__})") from error


def length(response: requests.Response) -> int | None:
    """Bytes that an answer says its body has."""
    told = response.headers.get("Content-Length", "")
    return int(told) if told.isdecimal() else None


def checksums(base: str, patience: Patience = PATIENCE) -> dict[str, str] | None:
    """Published sha256 of the months of Lichess by file name; None where there is no list.

    Args:
        base: where Lichess or a mirror keeps its files, without the `/standard`.
        patience: timeouts and pauses.

    Raises:
        InputError: the address cannot be used, or the server goes on failing.
    """
    url = address(f"{base.rstrip('/')}/standard/sha256sums.txt")

    def attempt() -> str:
        with answer(url, {}, patience) as response:
            if response.status_code != 200:
                raise Again(f"the server answers {response.status_code}")
            text = b""
            while len(text) < _LIST_LIMIT and (chunk := read(response)):
                text += chunk
            return text.decode("utf-8", "replace")

    try:
        text = patiently(attempt, lambda: 0, url, patience)
    except Missing:
        text = ""
    found = [_CHECKSUM.fullmatch(line.strip()) for line in text.splitlines()]
    known = {match[2]: match[1].lower() for match in found if match is not None}
    if not known:
        say(f"{url}: no list of checksums there; the files are used unchecked")
    return known or None
