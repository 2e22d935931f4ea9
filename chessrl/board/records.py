"""What a dataset remembers of each game beside its tokens."""

import numpy as np

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
        ("opening", "<u2", (4,)),  # the first four moves, coded as in moves.py; 0 where shorter
    ]
)
"""One row of `NNNNN.games.npy`, beside the shard of tokens that the game's documents are in."""

RESULTS = ("1-0", "0-1", "1/2-1/2", "*")
