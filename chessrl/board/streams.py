"""Lines of plain or compressed files, in bounded memory, with a cut stream told apart."""

import bz2
import gzip
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import zstandard

MAX_LINE = 1 << 20
"""Longest line held in memory, in bytes; a longer one arrives in pieces."""
WINDOW = 1 << 27
"""Largest zstandard window accepted, in bytes (`zstd --long=27`)."""
_CHUNK = 1 << 16
_ZSTD_CHUNK = 1 << 10  # 4 bytes of zstandard can hold 128 kB, so 1 kB gives at most 32 MB at once


class BrokenStream(Exception):
    """Compressed data that ends early or cannot be read; `reason` says which."""

    def __init__(self, reason: str):
        super().__init__(reason)
        self.reason = reason


def open_lines(path: str | Path) -> Iterator[bytes]:
    """Yield the lines of a file without line ends or byte order mark.

    Zstandard (several frames, skippable ones too), gzip and bzip2 are known by their first
    bytes, not by name. The file is opened at once, the lines are read as they are asked for.

    Raises:
        FileNotFoundError: at once, where `path` is not a file.
        BrokenStream: while reading, `truncated_stream` or `broken_stream`; all whole lines
            before the break have been yielded by then, but for those of its last buffer.
    """
    return lines_of(open_chunks(path))


class Chunks:
    """The decompressed bytes of a file, piece by piece, and how far it has been read."""

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw
        self._pieces = _chunks(raw)
        self.size = os.fstat(raw.fileno()).st_size
        """Bytes of the file as it lies on disk."""

    def __iter__(self) -> "Chunks":
        return self

    def __next__(self) -> bytes:
        return next(self._pieces)

    @property
    def position(self) -> int:
        """Bytes of the file read so far."""
        return self.size if self._raw.closed else self._raw.tell()


def open_chunks(path: str | Path) -> Chunks:
    """Open a file as `open_lines` does, to be read in pieces of any size."""
    if not Path(path).is_file():
        raise FileNotFoundError(f"no such file: {path} (check the path, or make the data first)")
    return Chunks(open(path, "rb"))


def _chunks(raw: BinaryIO) -> Iterator[bytes]:
    with raw:
        magic = raw.read(4)
        raw.seek(0)
        try:
            if magic == b"\x28\xb5\x2f\xfd" or magic[1:] == b"\x2a\x4d\x18":
                yield from _zstd_chunks(raw)
                return
            stream = raw
            if magic[:2] == b"\x1f\x8b":
                stream = gzip.GzipFile(fileobj=raw)
            elif magic[:3] == b"BZh":
                stream = bz2.BZ2File(raw)
            while chunk := stream.read1(_CHUNK):  # read() would drop what precedes a break
                yield chunk
        except EOFError as error:
            raise BrokenStream("truncated_stream") from error
        except (gzip.BadGzipFile, zlib.error, zstandard.ZstdError) as error:
            raise BrokenStream("broken_stream") from error
        except OSError as error:
            if error.errno is not None:  # the disk failed; bz2 reports bad data without errno
                raise
            raise BrokenStream("broken_stream") from error


def _zstd_chunks(raw: BinaryIO) -> Iterator[bytes]:
    decompressor = zstandard.ZstdDecompressor(max_window_size=WINDOW)
    frame = None
    while chunk := raw.read(_ZSTD_CHUNK):
        while chunk:
            frame = frame or decompressor.decompressobj()
            if data := frame.decompress(chunk):
                yield data
            chunk = frame.unused_data if frame.eof else b""
            frame = None if frame.eof else frame
    if frame is not None:
        raise EOFError("the last zstandard frame has no end")


def lines_of(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Lines of a stream of bytes, without line ends or byte order mark."""
    tail = b""
    first = True
    for chunk in chunks:
        lines = (tail + chunk).split(b"\n")
        tail = lines.pop()
        for line in lines:
            yield (line.removeprefix(b"\xef\xbb\xbf") if first else line).removesuffix(b"\r")
            first = False
        if len(tail) > MAX_LINE:
            yield tail
            tail = b""
    if tail:
        yield (tail.removeprefix(b"\xef\xbb\xbf") if first else tail).removesuffix(b"\r")
