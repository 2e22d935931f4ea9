"""PGN files cut into blocks of whole games, and the games in a block told plain from odd.

A plain game is written as nearly all are: tag pairs, a blank line, moves with numbers, comments and
marks, a result. What it says is known without a machine that goes from line to line. All others are
odd and go through `pgn.Splitter` and python-chess, which find out what is wrong with them.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path

from chessrl.board.games import split_lines
from chessrl.board.headers import TAGS, Header
from chessrl.board.pgn import MAX_GAME, RESULTS, SURE_START, RawGame, Splitter, codec_of
from chessrl.board.streams import BrokenStream, Chunks, lines_of, open_chunks

SIZE = 1 << 19
"""Bytes of text in a block, about."""
REACH = 16 << 20
"""Bytes without a sure start of a game after which a file is read line by line."""

_TAG_NAME = 1 << 10  # bytes in which a tag line shows what it is
_CUT = b"\n\n["
_NAMES = {name.encode(): name for name in TAGS}
_SPACE = b" \t\n\r\x0b\x0c"
_TAGS = re.compile(rb'^\[([A-Za-z0-9_]+) "([^"\\\n]*)"\]\n', re.MULTILINE)
_TAG_IN_COMMENT = re.compile(rb'\n[ \t\r\x0b\x0c]*\[\s*[A-Za-z0-9_]+\s+"')
_COMMENT = re.compile(rb"\{[^{}]*\}")
_PLAIN = re.compile(
    rb"""(?:
        (?: [0-9]{1,4}\.+ [ \n]* )?+
        (?: [a-h][1-8] | [KQRBN] (?: x?[a-h][1-8] | [a-h1-8]x?[a-h][1-8] | [a-h][1-8]x?[a-h][1-8] )
          | [a-h]x[a-h][1-8] (?: =[QRBN] )? | [a-h][18]=[QRBN] | O-O (?: -O )? )
        [+\#]? (?: [?!]{1,2} )? [ \n]+
        (?: \$[0-9]+ [ \n]+ )*+
    )*+ (1-0|0-1|1/2-1/2|\*) \s*""",
    re.VERBOSE,
)
_BLANK_LINE = re.compile(rb"\n *\n")


@dataclass(frozen=True, slots=True)
class Block:
    """A part of a file that holds whole games and can be read apart from the rest."""

    file: str
    line: int
    """Lines of the file before it."""
    text: bytes = b""
    """Its lines, each closed by a line feed but perhaps the last."""
    raws: tuple[RawGame, ...] = ()
    """Its games instead of its text, where no sure start was found; numbered in the block."""
    fault: str = ""
    """What broke the stream right after the text."""
    position: int = 0
    """Bytes of the file on disk that have been read by then."""


@dataclass(frozen=True, slots=True)
class PlainGame:
    """A game whose text holds nothing but tags, moves and a result; the moves may be illegal."""

    index: int
    """Place in its block, from 0."""
    line: int
    """Line of the file where it starts, from 1."""
    header: Header
    movetext: str
    """Moves, numbers, marks and result."""
    result: str
    """The result at its end."""
    text: bytes
    """All of it, as it stands in the file."""

    @property
    def body(self) -> bytes:
        """The text after the tags, as it stands in the file."""
        return self.text.partition(b"\n\n")[2]

    def raw(self, file: str) -> RawGame:
        """The same game for the slow reader, which names its faults."""
        (raw,) = split_lines(Splitter(file, self.index, self.line - 1), _lines(self.text))
        return raw


def read_blocks(path: str | Path) -> Iterator[Block]:
    """Cut a PGN file, plain or compressed, into blocks; where depends on its text alone.

    Raises:
        FileNotFoundError: at once, where `path` is not a file.
    """
    return _blocks(str(path), open_chunks(path))


def _blocks(file: str, chunks: Chunks) -> Iterator[Block]:
    line, text, fault = 0, b"", ""
    pieces = _pieces(chunks)
    try:
        for piece in pieces:
            text += piece
            while 0 < (start := _sure_start(text, SIZE)) <= REACH:
                yield Block(file, line, text[:start], position=chunks.position)
                line += text.count(b"\n", 0, start)
                text = text[start:]
            if start or len(text) > REACH + _TAG_NAME:
                raws = split_lines(Splitter(file, line=line), lines_of(chain([text], pieces)))
                while some := tuple(islice(raws, 64)):
                    some = tuple(replace(raw, index=index) for index, raw in enumerate(some))
                    yield Block(file, line, raws=some, position=chunks.position)
                return
    except BrokenStream as broken:
        fault = broken.reason
    if fault:
        text = text[: text.rfind(b"\n") + 1]
        last = _last_sure_start(text)
        yield Block(file, line, text[:last], position=chunks.position)
        line += text.count(b"\n", 0, last)
        text = text[last:]
    yield Block(file, line, text, fault=fault, position=chunks.position)


def _pieces(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """At least `SIZE` bytes at a time, every line end a line feed, without byte order mark."""
    gathered, size, first = [], 0, True
    broken = None
    while broken is None:
        try:
            chunk = next(chunks, b"")
        except BrokenStream as error:
            chunk, broken = b"", error
        gathered.append(chunk)
        size += len(chunk)
        if chunk and size < SIZE:
            continue
        piece = b"".join(gathered)
        if first:
            piece, first = piece.removeprefix(b"\xef\xbb\xbf"), False
        held = b"\r" if chunk and piece.endswith(b"\r") else b""
        gathered, size = [held], len(held)
        yield piece.removesuffix(b"\r").replace(b"\r\n", b"\n")
        if not chunk and broken is None:
            return
    raise broken


def _sure_start(text: bytes, begin: int) -> int:
    """Where the first game begins that surely begins after `begin`; 0 where none does."""
    at = begin
    while (at := text.find(_CUT, at)) >= 0:
        if SURE_START.match(text, at + 2) and _ends_in_result(text, at):
            return at + 2
        at += 1
    return 0


def _last_sure_start(text: bytes) -> int:
    """Where the last game begins that surely begins, 0 where only the first may."""
    last = 0
    while further := _sure_start(text, last):
        last = further
    return last


def _ends_in_result(text: bytes, end: int) -> bool:
    while end and text[end - 1] in _SPACE:
        end -= 1
    return text.endswith(RESULTS, max(end - 7, 0), end)


def games_of(block: Block) -> Iterator[PlainGame | RawGame]:
    """The games of a block in their order, each with its place in the block."""
    if block.raws:
        yield from block.raws
        return
    index, line = 0, block.line
    texts = [block.text] if block.fault else _texts(block.text)
    for text in texts:
        plain = None if block.fault else _plain(text, index, line)
        if plain is not None:
            yield plain
            index += 1
        else:
            lines = _lines(text)
            if block.fault:
                lines = _breaking(lines, block.fault)
            for raw in split_lines(Splitter(block.file, index, line), lines):
                yield raw
                index += 1
        line += text.count(b"\n")


def _texts(text: bytes) -> Iterator[bytes]:
    """The text between sure starts."""
    begin = 0
    while end := _sure_start(text, begin):
        yield text[begin:end]
        begin = end
    if begin < len(text):
        yield text[begin:]


def _lines(text: bytes) -> Iterator[bytes]:
    return iter(text.removesuffix(b"\n").split(b"\n"))


def _breaking(lines: Iterator[bytes], reason: str) -> Iterator[bytes]:
    yield from lines
    raise BrokenStream(reason)


def _plain(text: bytes, index: int, line: int) -> PlainGame | None:
    """The game that a text is, None where it is odd."""
    tags, _, movetext = text.partition(b"\n\n")
    pairs = _TAGS.findall(tags + b"\n")
    if len(pairs) != tags.count(b"\n") + 1 or len(text) > MAX_GAME or b"\0" in text:
        return None
    if tags.count(b'[Event "') > 1:
        return None
    if b"{" in movetext:
        if _TAG_IN_COMMENT.search(movetext) or movetext.rstrip().endswith(b"}"):
            return None
        movetext = _COMMENT.sub(b" ", movetext)
    if not (match := _PLAIN.fullmatch(movetext)) or _BLANK_LINE.search(movetext, 0, match.start(1)):
        return None
    codec = codec_of(tags)
    known = {_NAMES[name]: value.decode(codec) for name, value in pairs if name in _NAMES}
    return PlainGame(index, line + 1, Header.of(known), movetext.decode(), match[1].decode(), text)
