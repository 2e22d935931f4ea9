"""Results of long work as they come, so that work broken off goes on where it stopped."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class Journal:
    """A file of JSON lines, one per result, in order; used as a context manager.

    Args:
        path: the file; whole lines in it are kept, a line cut short is dropped.
        made_with: what the results depend on; a file made with anything else starts anew.
    """

    def __init__(self, path: Path, made_with: dict[str, Any]) -> None:
        self.path = path
        self._head = (json.dumps(made_with, sort_keys=True) + "\n").encode()

    def __enter__(self) -> "Journal":
        self.path.touch()
        self._file = open(self.path, "r+b")
        if self._file.readline() != self._head:
            self._file.seek(0)
            self._file.truncate()
            self._file.write(self._head)
        return self

    def known(self) -> Iterator[Any]:
        """Results that were written before; has to be read to its end before `add`."""
        while True:
            start = self._file.tell()
            line = self._file.readline()
            if not line.endswith(b"\n"):
                self._file.truncate(start)
                self._file.seek(start)
                return
            yield json.loads(line)

    def add(self, result: Any) -> None:
        """Write one result down."""
        self._file.write(json.dumps(result).encode() + b"\n")
        self._file.flush()

    def __exit__(self, *_: object) -> None:
        self._file.close()
