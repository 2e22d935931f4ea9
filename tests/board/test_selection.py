"""Selection: every puzzle taken or counted, whatever the order, and motifs come out even."""

import math
import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chessrl.board.placements import solver_position
from chessrl.board.puzzles import Puzzle
from chessrl.board.selection import NOT_MOTIFS, balanced, cells, motifs, select_puzzles
from chessrl.board.skips import SkipReport
from chessrl.board.splits import unit_hash
from chessrl.config import PuzzleSelection

LINE = ("e1d1", "e8d8", "d1e1", "d8e8", "e1d1", "e8d8")
RANKED = sorted("abcdef", key=lambda name: unit_hash(name, "balance"))
"""Ids in the order in which balancing takes them."""


def make(name: str, themes: str = "", length: int = 1, *, place: int | None = None, **known):
    """Puzzle of `length` solver moves; `place` tells positions apart, by itself the id does."""
    number = int.from_bytes(name.encode(), "big") if place is None else place
    pawns = "".join("P" if number >> bit & 1 else "1" for bit in range(16))
    fen = f"4k3/8/8/8/{pawns[:8]}/{pawns[8:]}/8/4K3 w - - 0 1"
    for run in range(8, 1, -1):
        fen = fen.replace("1" * run, str(run))
    values = {"rating": 1500} | known
    return Puzzle(name, fen, LINE[: 2 * length], themes=tuple(themes.split()), **values)


def ids(puzzles: list[Puzzle]) -> list[str]:
    return [puzzle.id for puzzle in puzzles]


def select(puzzles: list[Puzzle], **settings) -> tuple[list[str], dict[str, list[str]]]:
    """Ids taken, and ids left out by reason."""
    report = SkipReport()
    taken = select_puzzles(puzzles, PuzzleSelection(**settings), report, "file.csv")
    left: dict[str, list[str]] = {}
    for skip in report.records:
        assert skip.file == "file.csv"
        left.setdefault(skip.reason, []).append(skip.token)
    assert report.counts == {reason: len(names) for reason, names in left.items()}
    assert len(taken) + report.counts.total() == len(puzzles)
    return ids(taken), left


def test_nothing_asked_nothing_left_out():
    puzzles = [make("b"), make("a", popularity=-100, rating=0), make("c", "fork", rating=3200)]
    assert select(puzzles) == (["b", "a", "c"], {})


@pytest.mark.parametrize(
    ("settings", "reason", "left"),
    [
        ({"min_rating": 1500}, "rating", ["low"]),
        ({"max_rating": 1500}, "rating", ["high"]),
        ({"min_rating": 1500, "max_rating": 1500}, "rating", ["low", "high"]),
        ({"min_popularity": 80}, "popularity", ["high"]),
        ({"max_plies": 3}, "long_solution", ["high"]),
        ({"max_plies": 2}, "long_solution", ["mid", "high"]),
        ({"themes": ["pin", "fork"]}, "no_theme", ["low"]),
        ({"without": ["pin"]}, "unwanted_theme", ["mid", "high"]),
    ],
)
def test_what_is_known_of_a_puzzle_decides(settings, reason, left):
    puzzles = [
        make("low", "mate", 1, rating=1499, popularity=80),
        make("mid", "fork pin", 2, rating=1500),  # popularity unknown: passes
        make("high", "pin", 3, rating=1501, popularity=79),
    ]
    taken, skipped = select(puzzles, **settings)
    assert skipped == {reason: left}
    assert taken == [name for name in ("low", "mid", "high") if name not in left]


def test_the_first_reason_counts():
    puzzle = make("x", "pin", 3, rating=900, popularity=0)
    settings = {"min_rating": 1000, "min_popularity": 1, "max_plies": 1, "themes": ["fork"]}
    for reason in ("rating", "popularity", "long_solution", "no_theme"):
        assert select([puzzle], **settings) == ([], {reason: ["x"]})
        del settings[next(iter(settings))]


def test_of_one_position_the_lowest_id_is_left():
    puzzles = [make("c", place=1), make("b", place=2), make("a", place=1), make("d", place=1)]
    assert select(puzzles) == (["b", "a"], {"duplicate_position": ["c", "d"]})
    assert select(puzzles[::-1]) == (["a", "b"], {"duplicate_position": ["d", "c"]})
    # the same pieces before the opponent's move are not yet the same position
    other = Puzzle("e", puzzles[0].fen, ("e1f1", "e8d8"), 1500)
    assert select([puzzles[0], other]) == (["c", "e"], {})


def test_a_twin_that_does_not_fit_costs_no_position():
    puzzles = [make("a", place=1, rating=700), make("b", place=1)]
    assert select(puzzles, min_rating=801) == (["b"], {"rating": ["a"]})


def test_motifs_are_what_tells_how_a_puzzle_is_solved():
    assert motifs(make("a", "short crushing endgame rookEndgame fork master")) == {
        "rookEndgame",
        "fork",
    }
    assert motifs(make("a", "mate mateIn2 smotheredMate")) == {"mate", "smotheredMate"}
    assert motifs(make("a", "mateIn12")) == {"mate"}
    assert motifs(make("a", " ".join(NOT_MOTIFS))) == set()
    assert cells(make("a", "pin fork", 2)) == [("fork", 2), ("pin", 2)]
    assert cells(make("a", "short", 3)) == [("", 3)]


def test_balance_by_hand():
    themes = ["fork pin", "fork", "fork", "pin", "pin", "fork"]
    lengths = [1, 1, 1, 1, 1, 2]
    a, b, c, d, e, f = RANKED
    puzzles = [make(*row) for row in zip(RANKED, themes, lengths, strict=True)]
    # (fork, 1), (fork, 2) and (pin, 1) have none: `fork` comes first by name, then by length
    # a: fork1 1, pin1 1, and fork2, with none, is next
    # f: fork2 1 and has no more; fork1 comes before pin1
    # b: fork1 2, pin1 1
    # d: fork1 2, pin1 2
    # c: fork1 3, pin1 2
    for count, chosen in enumerate(([], [a], [a, f], [a, f, b], [a, f, b, d], [a, f, b, d, c])):
        assert ids(balanced(puzzles, count)) == [name for name in RANKED if name in chosen]
    assert balanced(puzzles, 6) == balanced(puzzles, 7) == puzzles
    assert select(puzzles, balance=2) == ([a, f], {"not_balanced": [b, c, d, e]})


def test_a_rare_cell_is_used_up_and_the_others_share_the_rest():
    puzzles = [make(f"{i:02}", theme) for i, theme in enumerate(["fork"] * 20 + ["pin"] * 3)]
    counts = Counter(puzzle.themes for puzzle in balanced(puzzles, 9))
    assert counts == {("fork",): 6, ("pin",): 3}


def slowly_balanced(puzzles: list[Puzzle], count: int) -> list[str]:
    """The rule as it is written, without a heap."""
    left = sorted(puzzles, key=lambda puzzle: unit_hash(puzzle.id, "balance"))
    have, chosen = Counter(), []
    while left and len(chosen) < count:
        cell = min({cell for puzzle in left for cell in cells(puzzle)}, key=lambda c: (have[c], c))
        taken = next(puzzle for puzzle in left if cell in cells(puzzle))
        left.remove(taken)
        chosen.append(taken.id)
        have.update(cells(taken))
    return sorted(chosen)


@given(
    st.lists(
        st.tuples(st.sets(st.sampled_from(["fork", "pin", "mate", "short"])), st.integers(1, 3)),
        max_size=40,
    ),
    st.integers(0, 45),
    st.randoms(use_true_random=False),
)
@settings(max_examples=60, deadline=None)
def test_the_fast_way_chooses_what_the_rule_says(drawn, count, rng):
    puzzles = [make(f"{i:02}", " ".join(t), n) for i, (t, n) in enumerate(drawn)]
    chosen = balanced(puzzles, count)
    assert sorted(ids(chosen)) == slowly_balanced(puzzles, count)
    shuffled = rng.sample(puzzles, len(puzzles))
    assert set(ids(balanced(shuffled, count))) == set(ids(chosen))
    assert set(ids(chosen)) <= set(ids(balanced(puzzles, count + 1)))


def effective(counts: Counter) -> float:
    """Number of equally frequent kinds that would be as even: e to the entropy."""
    total = counts.total()
    return math.exp(-sum(n / total * math.log(n / total) for n in counts.values()))


def test_the_starter_puzzles_come_out_more_even(starter):
    shuffled = random.Random(0).sample(starter, len(starter))
    report = SkipReport()
    chosen = select_puzzles(starter, PuzzleSelection(balance=100), report, "f")
    assert len(chosen) == 100
    assert set(chosen) == set(
        select_puzzles(shuffled, PuzzleSelection(balance=100), SkipReport(), "f")
    )
    lengths = [Counter(len(p.solver_moves) for p in some) for some in (starter, chosen)]
    spread = [Counter(cell for p in some for cell in cells(p)) for some in (starter, chosen)]
    assert effective(lengths[1]) > 1.1 * effective(lengths[0])
    assert effective(spread[1]) > 1.1 * effective(spread[0])
    assert len({solver_position(puzzle) for puzzle in chosen}) == 100
