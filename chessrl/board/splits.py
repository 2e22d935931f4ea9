"""Who goes into which split, decided by hashes: the same on every machine and in every order."""

from collections import Counter
from collections.abc import Iterable, Sequence
from hashlib import blake2b

import chess

from chessrl.board.puzzles import BINS, Puzzle

Position = tuple[int | bool, ...]
"""Placement and side to move, nothing else."""


def unit_hash(key: str, salt: str = "") -> float:
    """Number in [0, 1) that depends on `key` and `salt` only, spread evenly over keys."""
    digest = blake2b(key.encode(), key=blake2b(salt.encode(), digest_size=16).digest())
    return (int.from_bytes(digest.digest()[:8], "big") >> 11) / 2**53


def game_split(moves: Sequence[str], validation: float, salt: str = "") -> str:
    """`validation` or `train`, by the move sequence alone, so that copies stay together.

    Args:
        moves: UCI moves of the game.
        validation: share of the games held out, 0 to 1.
        salt: another salt gives another split.
    """
    return "validation" if unit_hash(" ".join(moves), salt) < validation else "train"


def split_puzzles(
    puzzles: Iterable[Puzzle], *, sft: float, test_per_bin: int, salt: str = ""
) -> dict[str, list[Puzzle]]:
    """Share puzzles out to `sft`, `rl` and `test`.

    Puzzles with the same solver position or the same source game always land on one side.
    Of each rating bin `test_per_bin` puzzles go to the test, at most half of those it has; of
    the others, by hash, the share `sft` goes to SFT and the rest to RL. Within a split the
    order is that of the hashes, so any beginning of it is a fair sample.

    Args:
        puzzles: with distinct ids, in any order.
        sft: share of what the test leaves, 0 to 1.
        test_per_bin: puzzles of each bin in the test; fewer where linked puzzles do not fit.
        salt: another salt gives another split.
    """
    if not 0 <= sft <= 1 or test_per_bin < 0:
        raise ValueError(f"shares do not fit: sft={sft}, test_per_bin={test_per_bin}")
    groups = _linked(puzzles)
    groups.sort(key=lambda group: (unit_hash(group[0].id, salt), group[0].id))
    have = Counter(puzzle.bin for group in groups for puzzle in group)
    room = {name: min(test_per_bin, have[name] // 2) for name in BINS}
    split: dict[str, list[Puzzle]] = {"sft": [], "rl": [], "test": []}
    for group in groups:
        need = Counter(puzzle.bin for puzzle in group)
        if all(room[name] >= count for name, count in need.items()):
            side = "test"
            for name, count in need.items():
                room[name] -= count
        else:
            side = "sft" if unit_hash(group[0].id, f"{salt}/sft") < sft else "rl"
        split[side] += group
    return split


def _linked(puzzles: Iterable[Puzzle]) -> list[list[Puzzle]]:
    """Groups of puzzles tied by a solver position or a source game, sorted by id within."""
    leader: dict[object, object] = {}

    def find(node: object) -> object:
        while leader.setdefault(node, node) != node:
            leader[node] = node = leader[leader[node]]
        return node

    ordered = sorted(puzzles, key=lambda puzzle: puzzle.id)
    for puzzle in ordered:
        node = find(("id", puzzle.id))
        leader[find(position_key(puzzle.board()))] = node
        if puzzle.game:
            leader[find(("game", game_key(puzzle.game)))] = find(node)
    groups: dict[object, list[Puzzle]] = {}
    for puzzle in ordered:
        groups.setdefault(find(("id", puzzle.id)), []).append(puzzle)
    return list(groups.values())


def game_key(url: str) -> str:
    """Source game of an address: `https://lichess.org/F2VmroBm/black#30` without side and ply."""
    return url.split("#")[0].removesuffix("/black").removesuffix("/white")


def position_key(board: chess.Board) -> Position:
    """Placement and side to move; clocks, castling and en passant do not count."""
    return (
        board.pawns, board.knights, board.bishops, board.rooks, board.queens, board.kings,
        board.occupied_co[chess.WHITE], board.turn,
    )  # fmt: skip


def reaches(moves: Iterable[str], keys: set[Position]) -> bool:
    """Whether a game (legal UCI moves from the usual start) has a position among `keys`."""
    board = chess.Board()
    if position_key(board) in keys:
        return True
    for move in moves:
        board.push(chess.Move.from_uci(move))
        if position_key(board) in keys:
            return True
    return False
