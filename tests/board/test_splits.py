"""Splits: fixed by hashes, disjoint, stratified, and nothing linked is torn apart."""

import random
from collections import Counter, defaultdict
from hashlib import blake2b

import chess
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chessrl.board.puzzles import BINS, Puzzle
from chessrl.board.splits import (
    EASY,
    game_key,
    position_key,
    split_puzzles,
    unit_hash,
)


def make(number: int, rating: int, *, place: int | None = None, game: str | None = None) -> Puzzle:
    """Puzzle whose position is told by `place`: a lone white king and pawns by its bits."""
    place = number if place is None else place
    board = chess.Board("4k3/8/8/8/8/8/8/4K3 w - - 0 1")
    for bit, square in enumerate(chess.SquareSet(chess.BB_RANK_3 | chess.BB_RANK_4)):
        if place >> bit & 1:
            board.set_piece_at(square, chess.Piece(chess.PAWN, chess.WHITE))
    return Puzzle(
        id=f"{number:05}", fen=board.fen(), moves=("e1d1", "e8d8"), rating=rating, game=game
    )


RATINGS = {"B0": 700, "B1": 1000, "B2": 1500, "B3": 1900, "B4": 2300, "B5": 2500}
SIZES = {"B0": 30, "B1": 300, "B2": 300, "B3": 200, "B4": 100, "B5": 60}
PUZZLES = [
    make(number, RATINGS[name])
    for number, name in enumerate(name for name in BINS for _ in range(SIZES[name]))
]


def bins(puzzles: list[Puzzle]) -> Counter[str]:
    return Counter(puzzle.bin for puzzle in puzzles)


def sides(split: dict[str, list[Puzzle]]) -> dict[str, str]:
    """Split of each puzzle, by its id."""
    return {puzzle.id: name for name, puzzles in split.items() for puzzle in puzzles}


def test_the_hash_is_blake2b_in_the_unit_interval():
    # key = blake2b("") of 16 bytes; the top 53 bits of the first 8 bytes, as a fraction
    digest = blake2b(b"e2e4", key=blake2b(b"", digest_size=16).digest()).digest()
    assert unit_hash("e2e4") == (int.from_bytes(digest[:8], "big") // 2**11) / 2**53
    assert unit_hash("e2e4") == 0.3382115715216496
    assert unit_hash("e2e4", "other") != unit_hash("e2e4")
    values = [unit_hash(str(i)) for i in range(4000)]
    counts = Counter(int(value * 4) for value in values)
    assert set(counts) == {0, 1, 2, 3}
    assert all(abs(count - 1000) < 150 for count in counts.values())  # 5 standard deviations


def test_the_test_set_has_the_same_number_of_each_bin_where_possible():
    split = split_puzzles(PUZZLES, sft=0.25, test_per_bin=40)
    # at most half of each bin
    assert bins(split["test"]) == {"B0": 15, "B1": 40, "B2": 40, "B3": 40, "B4": 40, "B5": 30}
    ids = [puzzle.id for side in split.values() for puzzle in side]
    assert sorted(ids) == [puzzle.id for puzzle in PUZZLES]


def test_the_others_are_shared_out_bin_by_bin():
    split = split_puzzles(PUZZLES, sft=0.25, test_per_bin=40)
    # the test leaves 15, 260, 260, 160, 60 and 30; a quarter of 15 is 3.75, of 30 it is 7.5
    assert bins(split["sft"]) == {"B0": 4, "B1": 65, "B2": 65, "B3": 40, "B4": 15, "B5": 8}
    assert bins(split["rl"]) == {"B0": 11, "B1": 195, "B2": 195, "B3": 120, "B4": 45, "B5": 22}


def test_any_beginning_of_a_split_is_a_fair_sample():
    split = split_puzzles(PUZZLES, sft=0.5, test_per_bin=20)
    for side in split.values():
        hashes = [unit_hash(puzzle.id) for puzzle in side]
        assert hashes == sorted(hashes)
    # the order must not tell SFT from RL: both are spread over the whole of it
    for name in ("sft", "rl"):
        values = [unit_hash(puzzle.id) for puzzle in split[name]]
        assert abs(sum(values) / len(values) - 0.5) < 0.1


def test_the_split_depends_on_salt_not_on_order():
    shuffled = random.Random(0).sample(PUZZLES, len(PUZZLES))
    split = split_puzzles(PUZZLES, sft=0.5, test_per_bin=20)
    assert split_puzzles(shuffled, sft=0.5, test_per_bin=20) == split
    assert split_puzzles(PUZZLES, sft=0.5, test_per_bin=20, salt="x")["test"] != split["test"]


@pytest.mark.parametrize("gone", range(0, len(PUZZLES), 97))
def test_one_puzzle_more_moves_one_other_at_most(gone):
    before = sides(split_puzzles(PUZZLES[:gone] + PUZZLES[gone + 1 :], sft=0.5, test_per_bin=0))
    after = sides(split_puzzles(PUZZLES, sft=0.5, test_per_bin=0))
    moved = [name for name in before if before[name] != after[name]]
    assert len(moved) <= 1


@pytest.mark.parametrize(
    ("share", "easy", "hard"),
    # RL holds 15 + 150 + 150 easy ones and 100 + 50 + 30 hard ones
    [(0.7, 315, 135), (0.3, 77, 180), (315 / 495, 315, 180), (0.99, 315, 3)],
)
def test_rl_holds_the_share_of_easy_puzzles_that_is_asked_for(share, easy, hard):
    as_they_come = split_puzzles(PUZZLES, sft=0.5, test_per_bin=0)
    assert "unused" not in as_they_come
    split = split_puzzles(PUZZLES, sft=0.5, test_per_bin=0, rl_easy=share)
    assert split["sft"] == as_they_come["sft"]
    # of each side the first by hash are kept, and the order stays
    rl, unused = split["rl"], split["unused"]
    for side, kept in ((True, easy), (False, hard)):
        ranked = [puzzle for puzzle in as_they_come["rl"] if (puzzle.bin in EASY) == side]
        assert [puzzle for puzzle in rl if (puzzle.bin in EASY) == side] == ranked[:kept]
        assert [puzzle for puzzle in unused if (puzzle.bin in EASY) == side] == ranked[kept:]
    assert [puzzle for puzzle in as_they_come["rl"] if puzzle in rl] == rl


def test_a_share_that_no_choice_brings_nearer_drops_nothing():
    hard = [puzzle for puzzle in PUZZLES if puzzle.bin not in EASY]
    split = split_puzzles(hard, sft=0.5, test_per_bin=0, rl_easy=0.7)
    assert (len(split["rl"]), split["unused"]) == (180, [])
    assert split_puzzles([], sft=0.5, test_per_bin=1, rl_easy=0.7)["rl"] == []


def test_linked_puzzles_stay_together():
    linked = [
        make(number, RATINGS[BINS[number % 6]], place=number // 3 * 2 + (number % 3 == 2),
             game=f"https://lichess.org/{number // 3}" + ("/black#7" if number % 3 else "#9"))
        for number in range(900)
    ]  # fmt: skip  # 0 and 1 share a position, 1 and 2 a game, of every three
    split = split_puzzles(linked, sft=0.5, test_per_bin=40)
    side = sides(split)
    assert all(len({side[f"{i + k:05}"] for k in range(3)}) == 1 for i in range(0, 900, 3))
    # each group has one puzzle of B0, B1 and B2, or one of B3, B4 and B5: all counts can be met
    assert bins(split["test"]) == dict.fromkeys(BINS, 40)
    assert bins(split["sft"]) == dict.fromkeys(BINS, 55)
    assert bins(split["rl"]) == dict.fromkeys(BINS, 55)


@given(
    st.lists(st.tuples(st.sampled_from(BINS), st.integers(0, 30), st.integers(0, 30)), max_size=60),
    st.floats(0, 1),
    st.integers(0, 9),
    st.floats(0, 0.99),
    st.randoms(use_true_random=False),
)
@settings(max_examples=60, deadline=None)
def test_whatever_the_puzzles(drawn, sft, test_per_bin, rl_easy, random):
    """Nothing is lost or torn apart, no share is exceeded, and the order of the file is nothing."""
    puzzles = [
        make(number, RATINGS[name], place=place, game=f"https://l.org/{game}" if game else None)
        for number, (name, place, game) in enumerate(drawn)
    ]
    shares = {"sft": sft, "test_per_bin": test_per_bin, "rl_easy": rl_easy}
    split = split_puzzles(puzzles, **shares)
    assert split_puzzles(random.sample(puzzles, len(puzzles)), **shares) == split
    side = sides(split)
    assert sorted(side) == [puzzle.id for puzzle in puzzles]
    for key in (lambda puzzle: puzzle.fen, lambda puzzle: puzzle.game or puzzle.id):
        linked = defaultdict(set)
        for puzzle in puzzles:
            linked[key(puzzle)].add(side[puzzle.id].replace("unused", "rl"))
        assert all(len(where) == 1 for where in linked.values())
    have, test, learned = bins(puzzles), bins(split["test"]), bins(split["sft"])
    for name in BINS:
        assert test[name] <= min(test_per_bin, have[name] // 2)
        assert learned[name] <= round(sft * (have[name] - test[name]))
    easy = sum(puzzle.bin in EASY for puzzle in split["rl"])
    if easy and easy < len(split["rl"]) and split.get("unused"):
        assert abs(easy - rl_easy * len(split["rl"])) <= 1


@pytest.mark.parametrize(
    "shares",
    [
        {"sft": 1.5, "test_per_bin": 1},
        {"sft": 0.5, "test_per_bin": -1},
        {"sft": 0.5, "test_per_bin": 1, "rl_easy": 1.0},
    ],
)
def test_shares_that_do_not_fit_are_refused(shares):
    with pytest.raises(ValueError, match="shares do not fit"):
        split_puzzles(PUZZLES, **shares)


def test_the_game_behind_an_address():
    addresses = ["https://l.org/abc", "https://l.org/abc#3", "https://l.org/abc/black#30"]
    assert {game_key(address) for address in addresses} == {"https://l.org/abc"}


def test_a_transposition_is_the_same_position_and_the_other_side_to_move_is_not():
    def key(*moves):
        board = chess.Board()
        for move in moves:
            board.push_uci(move)
        return position_key(board)

    target = key("d2d4", "d7d5", "c2c4", "e7e6")
    assert key("c2c4", "e7e6", "d2d4", "d7d5") == target
    assert key("c2c4", "e7e6", "d2d4", "d7d6") != target
    # same placement after an odd number of plies: White has lost a move
    assert key("c2c4", "e7e6", "d2d3", "d7d5", "d3d4") != target
