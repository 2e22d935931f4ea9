"""Which puzzles of a file are used: by what is known of them, once per position, balanced."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heapreplace

from chessrl.board.placements import solver_position
from chessrl.board.puzzles import Puzzle
from chessrl.board.skips import Skip, SkipReport
from chessrl.board.splits import unit_hash
from chessrl.config import PuzzleSelection

NOT_MOTIFS = frozenset((
    "oneMove", "short", "long", "veryLong", "crushing", "advantage", "equality", "opening",
    "middlegame", "endgame", "master", "masterVsMaster", "superGM",
))  # fmt: skip
"""Themes that say nothing of how a puzzle is solved; see `motifs`."""

_MATE_IN = re.compile("mateIn[0-9]+")

Cell = tuple[str, int]
"""A motif and a number of solver moves."""


def select_puzzles(
    puzzles: Iterable[Puzzle], selection: PuzzleSelection, report: SkipReport, file: str
) -> list[Puzzle]:
    """The puzzles to use, in the order given; who is among them does not depend on that order.

    First what is known of each: `rating` outside the range, `popularity` too low,
    `long_solution`, `no_theme` of those wanted, `unwanted_theme`. Of several that show the solver
    the same pieces with the same side to move, the one with the lowest id is left, the others are
    `duplicate_position`. Then `balanced`, where the selection asks for it: `not_balanced`.

    Args:
        puzzles: sound, with distinct ids.
        selection: what is asked for.
        report: each puzzle left out is counted here, its id as the token; its line is not known.
        file: path to report.
    """

    def leave_out(puzzle: Puzzle, reason: str) -> None:
        report.add(Skip(file, 0, 0, reason, puzzle.id))

    fit = []
    for puzzle in puzzles:
        if reason := _unfit(puzzle, selection):
            leave_out(puzzle, reason)
        else:
            fit.append(puzzle)
    shown = [solver_position(puzzle) for puzzle in fit]
    lowest: dict[str, str] = {}
    for puzzle, position in zip(fit, shown, strict=True):
        lowest[position] = min(puzzle.id, lowest.get(position, puzzle.id))
    single = []
    for puzzle, position in zip(fit, shown, strict=True):
        if puzzle.id == lowest[position]:
            single.append(puzzle)
        else:
            leave_out(puzzle, "duplicate_position")
    if not selection.balance:
        return single
    chosen = balanced(single, selection.balance)
    ids = {puzzle.id for puzzle in chosen}
    for puzzle in single:
        if puzzle.id not in ids:
            leave_out(puzzle, "not_balanced")
    return chosen


def _unfit(puzzle: Puzzle, selection: PuzzleSelection) -> str | None:
    """Reason why a puzzle is not what the selection asks for, by itself."""
    highest = selection.max_rating or puzzle.rating
    if not selection.min_rating <= puzzle.rating <= highest:
        return "rating"
    if puzzle.popularity is not None and puzzle.popularity < selection.min_popularity:
        return "popularity"
    if selection.max_plies and len(puzzle.moves) - 1 > selection.max_plies:
        return "long_solution"
    if selection.themes and not set(puzzle.themes).intersection(selection.themes):
        return "no_theme"
    if set(puzzle.themes).intersection(selection.without):
        return "unwanted_theme"
    return None


def motifs(puzzle: Puzzle) -> set[str]:
    """Themes that tell how a puzzle is solved, for balancing.

    Not among them: the length (`oneMove`, `short`, `long`, `veryLong`), which is the other side
    of a cell; how much is won (`crushing`, `advantage`, `equality`) and who played (`master`,
    `masterVsMaster`, `superGM`), which the solver does not look for; the phase (`opening`,
    `middlegame`, `endgame`), which every puzzle of Lichess has, while endings with a name of
    their own, such as `rookEndgame`, do count. A mate in N moves is a mate whose length is
    known: `mateIn2` counts as `mate`, once.
    """
    return {
        "mate" if _MATE_IN.fullmatch(theme) else theme
        for theme in puzzle.themes
        if theme not in NOT_MOTIFS
    }


def cells(puzzle: Puzzle) -> list[Cell]:
    """What a puzzle counts for: each of its motifs, or none at all (``), at its length."""
    length = len(puzzle.solver_moves)
    return [(motif, length) for motif in sorted(motifs(puzzle)) or [""]]


def balanced(puzzles: Sequence[Puzzle], count: int) -> list[Puzzle]:
    """Choose `count` puzzles so that motifs and lengths come out even, in the order given.

    Again and again the cell with the fewest puzzles chosen so far, of those that have one left,
    gives its next by hash; the puzzle then counts in all of its cells. Cells that are equal come
    in the order of their names. Who is chosen does not depend on the order given, and the first
    of more are the same: `count` only says where to stop.

    Args:
        puzzles: with distinct ids.
        count: how many to choose; all where there are not so many.
    """
    order = sorted(puzzles, key=lambda puzzle: (unit_hash(puzzle.id, "balance"), puzzle.id))
    member = [cells(puzzle) for puzzle in order]
    waiting: dict[Cell, list[int]] = {}
    for place in range(len(order) - 1, -1, -1):  # the last of a list is the next to go
        for cell in member[place]:
            waiting.setdefault(cell, []).append(place)
    have: Counter[Cell] = Counter()
    heap = [(0, cell) for cell in waiting]
    heapify(heap)
    chosen: set[str] = set()
    taken = [False] * len(order)
    while heap and len(chosen) < count:
        counted, cell = heap[0]
        queue = waiting[cell]
        while queue and taken[queue[-1]]:
            queue.pop()
        if not queue:
            heappop(heap)
        elif counted < have[cell]:
            heapreplace(heap, (have[cell], cell))
        else:
            place = queue.pop()
            taken[place] = True
            chosen.add(order[place].id)
            have.update(member[place])
    return [puzzle for puzzle in puzzles if puzzle.id in chosen]
