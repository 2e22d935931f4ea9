"""What a dataset remembers of each game beside its tokens."""

import numpy as np

from chessrl.config import data

SPLITS = ("train", "validation")
"""Folders of a dataset: games to train on, and games held out."""
GAME = np.dtype(
    [
        ("key", "<u8"),  # hash of the moves
        ("white_elo", "<u2"),  # 0 where unknown
        ("black_elo", "<u2"),
        ("year", "<u2"),  # 0 where unknown
        ("result", "u1"),  # place in RESULTS
        ("speed", "u1"),  # place in config.data.SPEEDS
        ("plies", "<u2"),
        ("documents", "<u2"),  # how many of the split's documents, in its order, are of this game
        ("opening", "<u2", (4,)),  # the first four moves, as in `Lines.codes`; 0 where shorter
    ]
)
"""One row of `NNNNN.games.npy`, beside the shard of tokens that the game's documents are in."""

RESULTS = (*data.RESULTS, "*")
"""Results as PGN writes them; `*` where a game was not finished."""
