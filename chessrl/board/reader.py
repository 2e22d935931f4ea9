"""Moves of plain games to positions: the compiled reader, and python-chess where it will not do.

The compiled reader is the package `rust_pgn_reader_python_binding`. Without it everything goes
through python-chess, forty times slower, to the same bytes.
"""

from collections.abc import Sequence

import numpy as np

from chessrl.board.positions import Lines

try:
    import rust_pgn_reader_python_binding as compiled
except ImportError:  # no wheel for this machine
    compiled = None


def read_plain(movetexts: Sequence[str]) -> tuple[Lines, np.ndarray] | None:
    """Play games of standard chess from the usual start.

    Args:
        movetexts: moves in SAN with numbers and marks, without tags.

    Returns:
        The games, and (G,) bool which of them are legal to their end and have a move at all; of
        the others a beginning may be there. None where there is no compiled reader.
    """
    if compiled is None or not movetexts:
        return None
    (chunk,) = compiled.parse_games_from_strings(list(movetexts), num_threads=1).chunks
    offsets = chunk.move_offsets.astype(np.int64)
    lines = Lines(
        offsets=offsets,
        origin=chunk.from_squares,
        target=chunk.to_squares,
        promotion=np.maximum(chunk.promotions, 0).astype(np.uint8),
        boards=chunk.boards.reshape(-1, 64),
        castling=chunk.castling,
        ep_file=chunk.en_passant,
        mate=chunk.is_checkmate,
    )
    return lines, chunk.valid & (np.diff(offsets) > 0)
