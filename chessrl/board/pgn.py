"""PGN text: where a game starts and ends, and what its tokens are. No chess rules here."""

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from chessrl.board import records

MAX_GAME = 4 << 20
"""Longest game held in memory, in bytes; a longer one is skipped as `too_long`."""
_LOOKAHEAD = 1 << 16  # bytes in which a comment that holds a tag line has to close

_TAG_LINE = re.compile(rb'\s*\[\s*([A-Za-z0-9_]+)\s+"')
_TAG = re.compile(r'\s*\[\s*([A-Za-z0-9_]+)\s+"(.*)"\s*\]\s*')
_NEXT_TAG = re.compile(r'(?<="\])\s*(?=\[\s*[A-Za-z0-9_]+\s+")')
RESULTS = tuple(result.encode() for result in records.RESULTS)
"""`records.RESULTS` as the bytes that a game ends in."""
SURE_START = re.compile(rb'\[[A-Za-z0-9_]+ "')
"""What begins a line that surely starts a game, after a result and a blank line."""


@dataclass(frozen=True, slots=True)
class RawGame:
    """One game as it stands in the file: undecoded, unchecked, cheap to make and to pickle."""

    file: str
    index: int
    """Place in the file, from 0."""
    line: int
    """Line of the first tag (of the movetext where there is none), from 1."""
    header: bytes
    movetext: bytes
    movetext_line: int
    """Line of the first line of `movetext`, from 1."""
    fault: str = ""
    """Reason found while splitting (`too_long`, a broken stream); the text is then not whole."""

    def tags(self) -> dict[str, str]:
        """Tag pairs; a filter on them need not touch the movetext.

        Raises:
            MalformedTag: a line of the header is no tag pair.
        """
        tags = {}
        for number, line in enumerate(decode(self.header).split("\n")):
            if not line.strip() or line.startswith("%"):
                continue
            for text in _NEXT_TAG.split(line):
                if not (match := _TAG.fullmatch(text)):
                    raise MalformedTag(self.line + number, text.strip())
                tags[match[1]] = match[2].replace('\\"', '"').replace("\\\\", "\\")
        return tags


class MalformedTag(ValueError):
    """A header line that is no tag pair; carries its line in the file and its text."""

    def __init__(self, line: int, text: str):
        super().__init__(f"line {line}: not a tag pair: {text}")
        self.line = line
        self.text = text


class Token(NamedTuple):
    """A piece of movetext: `kind` is san, number, result, null_move, ... or a skip reason."""

    kind: str
    text: str
    start: int
    """Offset in the movetext, in characters."""


def codec_of(data: bytes) -> str:
    """How the bytes of one game are read: as UTF-8 where it fits, as Latin-1 otherwise."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return "latin-1"
    return "utf-8"


def decode(data: bytes) -> str:
    """Text of one game."""
    return data.decode(codec_of(data))


class Splitter:
    """Cuts a stream of lines into raw games.

    A tag line after a result and a blank line surely starts a game, whatever has been left open,
    so that a file can be cut there into parts read apart. Otherwise, outside comments, a tag line
    after movetext starts a game, and so does text without tags that follows a result and a blank
    line (it is cut off on its own, to be skipped as `no_headers`). A blank line in an unfinished
    game does not end it. A tag line inside a comment belongs to the comment, unless the comment
    never closes.
    """

    def __init__(self, file: str, games: int = 0, line: int = 0):
        """Goes on after `games` games and `line` lines of a file."""
        self.file = file
        self.games = games
        self.line = line  # of the line read last, from 1
        self._clear()

    def _clear(self) -> None:
        self._lines: list[bytes] = []
        self._size = 0
        self._start = 0
        self._body: int | None = None  # where the movetext starts in _lines
        self._seen: set[bytes] = set()  # tag names of the header so far
        self._blank = False  # the line before was blank
        self._over = False  # a result and a blank line have been read
        self._comment = False
        self._suspect: tuple[int, int] | None = None  # tag line in a comment: (in _lines, _size)
        self._last = b""

    def split(self, lines: Iterator[bytes]) -> Iterator[RawGame]:
        """Yield the games of `lines`; each is whole unless it carries a fault."""
        pending: deque[bytes] = deque()
        while True:
            line = pending.popleft() if pending else next(lines, None)
            if line is None or self._surely_starts(line) or self._comment_never_closed(line):
                if self._suspect is not None:  # go back to the tag line in the open comment
                    kept = self._suspect[0] if self._size <= MAX_GAME else len(self._lines)
                    rest = self._lines[kept:] + ([] if line is None else [line])
                    self.line -= len(rest) - (line is not None)
                    del self._lines[kept:]
                    pending.extendleft(reversed(rest))
                    yield self.finish()
                    continue
                if line is None:
                    break
            self.line += 1
            if self._starts_game(line) and self._size:
                yield self.finish()
            self._take(line)

    def finish(self, fault: str = "") -> RawGame:
        """Close the game in hand and give it out; `split` yields all but the last one."""
        body = len(self._lines) if self._body is None else self._body
        game = RawGame(
            file=self.file,
            index=self.games,
            line=self._start or self.line,
            header=b"\n".join(self._lines[:body]),
            movetext=b"\n".join(self._lines[body:]),
            movetext_line=(self._start or self.line) + body,
            fault=fault or ("too_long" if self._size > MAX_GAME else ""),
        )
        self.games += 1
        self._clear()
        return game

    @property
    def empty(self) -> bool:
        """Whether no line of a game is in hand."""
        return not self._size

    @property
    def complete(self) -> bool:
        """Whether the game in hand has its result and the blank line after it."""
        return self._over

    def _comment_never_closed(self, line: bytes) -> bool:
        """A second opening brace, or no closing one for long, after a tag line in a comment."""
        if self._suspect is None:
            return False
        opening, closing = line.find(b"{"), line.find(b"}")
        if closing >= 0 and (opening < 0 or closing < opening):
            return False
        return opening >= 0 or self._size - self._suspect[1] > _LOOKAHEAD

    def _surely_starts(self, line: bytes) -> bool:
        return self._blank and self._last.endswith(RESULTS) and SURE_START.match(line) is not None

    def _starts_game(self, line: bytes) -> bool:
        if self._surely_starts(line):
            return True
        if self._comment:
            return False
        if not (match := _TAG_LINE.match(line)):
            return self._over and bool(line.strip()) and not line.startswith(b"%")
        if self._body is not None:
            return True
        return match[1] in self._seen and (self._blank or match[1] == b"Event")

    def _take(self, line: bytes) -> None:
        blank = not line.strip()
        if not self._size:
            if blank:
                return
            self._start = self.line
        header = False
        if self._comment:
            if self._suspect is None and _TAG_LINE.match(line):
                self._suspect = (len(self._lines), self._size)
        elif self._body is None and not blank and not line.startswith(b"%"):
            match = _TAG_LINE.match(line)
            header = bool(match) or (line.lstrip()[:1] == b"[" and line.rstrip()[-1:] == b"]")
            if match and self._size <= MAX_GAME:
                self._seen.add(match[1])
            if not header:
                self._body = len(self._lines)
        if blank and not self._comment and self._body is not None:
            self._over = self._over or (self._last.endswith(RESULTS) and b";" not in self._last)
        self._blank = blank
        self._size += len(line) + 1
        if self._size <= MAX_GAME:
            self._lines.append(line)
        if not blank:
            self._last = line.rstrip()
        if not header:
            self._scan_braces(line)

    def _scan_braces(self, line: bytes) -> None:
        """Follow comments over the lines; braces in a `;` or `%` line do not count."""
        if b"{" not in line and b"}" not in line:
            return
        if not self._comment and line.startswith(b"%"):
            return
        at = 0
        while True:
            if self._comment:
                if (at := line.find(b"}", at)) < 0:
                    return
                self._comment, self._suspect = False, None
            else:
                opening, semicolon = line.find(b"{", at), line.find(b";", at)
                if opening < 0 or 0 <= semicolon < opening:
                    return
                self._comment, at = True, opening
            at += 1


_TOKEN = re.compile(
    r"""
      (?P<space>      \s+ | ^%[^\n]* | \{[^}]*\} | ;[^\n]* | \$[0-9]+ | [!?]{1,2}(?![!?]) | e\.p\. )
    | (?P<unclosed_comment> \{ )
    | (?P<open>       \( )
    | (?P<close>      \) )
    | (?P<null_move>  (?: -- | Z0 | 0000 | @@@@ ) (?![^\s(){};$]) )
    | (?P<result>     (?: 1-0 | 0-1 | 1/2-1/2 | \* ) (?![^\s(){};$]) )
    | (?P<castling>   (?: O-O-O | O-O | 0-0-0 | 0-0 ) [+\#]* (?![^\s(){};$!?]) )
    | (?P<san>        P?(?: [KQRBN]?[a-h]?[1-8]?[-x]?[a-h][1-8] (?: =?[QRBNqrbn] )? ) [+\#]*
                      (?![^\s(){};$!?]) )
    | (?P<number>     [0-9]{1,4} (?: \.+ | (?![^\s(){};$]) ) | \.\.+ )
    | (?P<malformed_token> [^\s(){};$]+ | . )
    """,
    re.VERBOSE | re.MULTILINE,
)


def tokenize(movetext: str) -> Iterator[Token]:
    """Yield the tokens of the main line; comments, NAGs, glyphs and variations are left out.

    Nothing is guessed: what is neither a token of PGN nor known noise comes out as
    `malformed_token`. An unclosed comment or variation ends the text with that kind; a stray
    closing bracket is malformed.
    """
    opened: list[int] = []
    for match in _TOKEN.finditer(movetext):
        kind = match.lastgroup
        if kind == "open":
            opened.append(match.start())
        elif kind == "close" and opened:
            opened.pop()
        elif kind == "unclosed_comment":
            yield Token(kind, _excerpt(movetext, match.start()), match.start())
            return
        elif kind != "space" and not opened:
            yield Token("malformed_token" if kind == "close" else kind, match[0], match.start())
    if opened:
        yield Token("unclosed_variation", _excerpt(movetext, opened[0]), opened[0])


def _excerpt(text: str, start: int) -> str:
    return text[start : start + 20].split("\n")[0]
