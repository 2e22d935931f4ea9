"""Who goes into which split, decided by hashes: the same on every machine and in every order."""

from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from hashlib import blake2b
from itertools import chain

import chess

from chessrl.board.placements import solver_position
from chessrl.board.puzzles import BINS, Puzzle

EASY = BINS[:3]
"""Bins that count as easy in RL."""
Position = tuple[int | bool, ...]
"""Placement and side to move, nothing else."""


def unit_hash(key: str, salt: str = "") -> float:
    """Number in [0, 1) that depends on `key` and `salt` only, spread evenly over keys."""
    digest = blake2b(key.encode(), key=_salt_key(salt)).digest()
    return (int.from_bytes(digest[:8], "big") >> 11) / 2**53


@lru_cache(64)
def _salt_key(salt: str) -> bytes:
    return blake2b(salt.encode(), digest_size=16).digest()


def split_puzzles(
    puzzles: Iterable[Puzzle],
    *,
    sft: float,
    test_per_bin: int,
    rl_easy: float = 0.0,
    salt: str = "",
) -> dict[str, list[Puzzle]]:
    """Share puzzles out to `sft`, `rl` and `test`, each rating bin by itself.

    Puzzles with the same solver position or the same source game always land on one side.
    Of each bin `test_per_bin` puzzles go to the test, at most half of those it has; of the
    others the share `sft` to SFT, the first by another hash, and the rest to RL. The counts are
    met to a puzzle, but where linked puzzles do not fit. Within a split the order is that of the
    hashes, so any beginning of it is a fair sample.

    Args:
        puzzles: with distinct ids, in any order.
        sft: share of what the test leaves, 0 to 1.
        test_per_bin: puzzles of each bin in the test; fewer where linked puzzles do not fit.
        rl_easy: share of B0 to B2 in RL, 0 to below 1; 0 takes them as they come. The puzzles
            that are too many for it, the last by hash, make a fourth list, `unused`.
        salt: another salt gives another split.
    """
    if not 0 <= sft <= 1 or test_per_bin < 0 or not 0 <= rl_easy < 1:
        raise ValueError(
            f"shares do not fit: sft={sft}, test_per_bin={test_per_bin}, rl_easy={rl_easy}"
        )
    groups = _by_hash(_linked(puzzles), salt)
    room = {name: min(test_per_bin, have // 2) for name, have in _bins(groups).items()}
    test, others = _filled(groups, room)
    room = {name: round(sft * have) for name, have in _bins(others).items()}
    learned, _ = _filled(_by_hash(others, f"{salt}/sft"), room)
    first = {group[0].id for group in learned}
    split = {
        "sft": list(chain.from_iterable(group for group in others if group[0].id in first)),
        "rl": list(chain.from_iterable(group for group in others if group[0].id not in first)),
        "test": list(chain.from_iterable(test)),
    }
    if rl_easy:
        split["rl"], split["unused"] = _eased(split["rl"], rl_easy)
    return split


def _by_hash(groups: list[list[Puzzle]], salt: str) -> list[list[Puzzle]]:
    return sorted(groups, key=lambda group: (unit_hash(group[0].id, salt), group[0].id))


def _bins(groups: list[list[Puzzle]]) -> Counter[str]:
    return Counter(puzzle.bin for group in groups for puzzle in group)


def _filled(
    groups: list[list[Puzzle]], room: dict[str, int]
) -> tuple[list[list[Puzzle]], list[list[Puzzle]]]:
    """Groups, as they come, that fit into the room each bin has left, and the others."""
    fit: list[list[Puzzle]] = []
    others: list[list[Puzzle]] = []
    for group in groups:
        need = _bins([group])
        if all(room[name] >= count for name, count in need.items()):
            fit.append(group)
            for name, count in need.items():
                room[name] -= count
        else:
            others.append(group)
    return fit, others


def _eased(puzzles: list[Puzzle], share: float) -> tuple[list[Puzzle], list[Puzzle]]:
    """The most puzzles of which `share` are easy, to a puzzle, and those that are too many.

    Where there are only easy ones, or none, no choice brings the share nearer: all are kept.
    """
    easy = sum(puzzle.bin in EASY for puzzle in puzzles)
    hard = len(puzzles) - easy
    if not easy or not hard:
        return puzzles, []
    room = {
        True: min(easy, round(hard * share / (1 - share))),
        False: min(hard, round(easy * (1 - share) / share)),
    }
    kept: list[Puzzle] = []
    unused: list[Puzzle] = []
    for puzzle in puzzles:
        side = puzzle.bin in EASY
        (kept if room[side] else unused).append(puzzle)
        room[side] -= bool(room[side])
    return kept, unused


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
        leader[find(solver_position(puzzle))] = node
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
