"""Which games of a file reach the positions that puzzles begin with, for prompts of whole games."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import chess
import numpy as np

from chessrl.board.blocks import Block
from chessrl.board.games import ANY
from chessrl.board.hashes import HashSet
from chessrl.board.histories import ply_of
from chessrl.board.ingest import Draw, play
from chessrl.board.placements import fen_position, position_arrays
from chessrl.board.positions import Lines, line_hashes, position_hashes
from chessrl.board.puzzles import Puzzle
from chessrl.board.splits import game_key

Key = tuple[int, int]
"""Hash of placement and side to move, and ply from the usual start."""


@dataclass(frozen=True)
class FoundGame:
    """A game that may be the source of a puzzle."""

    moves: tuple[str, ...]
    """In UCI: up to the position of `key`, or all of them."""
    site: str
    """Tag `Site` of the game."""
    key: Key | None = None
    """Where it leads, as far as a hash can tell; None for a game that is wanted by its address."""


def fen_keys(puzzles: Sequence[Puzzle]) -> list[Key]:
    """Key of the FEN of each puzzle."""
    boards, white = position_arrays(fen_position(puzzle.fen) for puzzle in puzzles)
    hashes = position_hashes(boards, white).tolist()
    return [(key, ply_of(puzzle.fen)) for key, puzzle in zip(hashes, puzzles, strict=True)]


class FindGames:
    """What is done to each block: find games by their address, and by where they lead."""

    def __init__(self, keys: Iterable[Key], games: Iterable[str]) -> None:
        """Takes keys of positions and `splits.game_key` of games."""
        self.games = frozenset(games)
        self.plies: dict[int, set[int]] = defaultdict(set)
        for position, ply in keys:
            self.plies[position].add(ply)
        self.positions = HashSet(np.fromiter(self.plies, np.uint64, len(self.plies)))

    def __call__(self, block: Block) -> list[FoundGame]:
        """Those found among the legal games of a block, in their order."""
        _, played = play(block, Draw(ANY), [])
        if played is None:
            return []
        lines = played.lines
        hashes = line_hashes(lines)
        game = np.repeat(np.arange(len(lines)), lines.lengths + 1)
        found = [
            (played.index[g], FoundGame(uci(lines, g, lines.lengths[g]), header.site))
            for g, header in enumerate(played.headers)
            if played.sound[g] and header.site and game_key(header.site) in self.games
        ]
        for place in np.flatnonzero(self.positions.contains(hashes)):
            g = game[place]
            ply = int(place - lines.first_position[g])
            position = int(hashes[place])
            if played.sound[g] and ply in self.plies[position]:
                moves, site = uci(lines, g, ply), played.headers[g].site
                found.append((played.index[g], FoundGame(moves, site, (position, ply))))
        return [game for _, game in sorted(found, key=lambda pair: pair[0])]


def uci(lines: Lines, game: int, plies: int) -> tuple[str, ...]:
    """The first moves of a game in UCI."""
    part = slice(lines.offsets[game], lines.offsets[game] + plies)
    columns = (lines.origin[part], lines.target[part], lines.promotion[part])
    return tuple(
        chess.Move(origin, target, promotion or None).uci()
        for origin, target, promotion in zip(*(column.tolist() for column in columns), strict=True)
    )
