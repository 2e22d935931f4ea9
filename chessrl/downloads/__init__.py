"""Files of the net, kept in a cache folder; see `cache.py`."""

from chessrl.downloads.cache import (
    SIDE_FILES,
    Note,
    download,
    finished,
    read_note,
)
from chessrl.downloads.transfer import PATIENCE, Patience, checksums

__all__ = [
    "PATIENCE",
    "SIDE_FILES",
    "Note",
    "Patience",
    "checksums",
    "download",
    "finished",
    "read_note",
]
