"""Splits: fixed by hashes, disjoint, stratified, and nothing linked is torn apart."""

import random
from collections import Counter
from hashlib import blake2b

import chess
import pytest

from chessrl.board.puzzles import BINS, Puzzle
from chessrl.board.splits import (
    game_key,
    game_split,
    position_key,
    reaches,
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


def test_games_split_by_their_moves_alone():
    games = [(f"a{i}", "b") for i in range(4000)]
    held = sum(game_split(game, 0.1) == "validation" for game in games)
    assert abs(held - 400) < 100  # 5 standard deviations of 19
    assert all(game_split(game, 0.1) == game_split(list(game), 0.1) for game in games)
    assert {game_split(game, 0.0) for game in games} == {"train"}
    assert {game_split(game, 1.0) for game in games} == {"validation"}


def test_the_test_set_has_the_same_number_of_each_bin_where_possible():
    split = split_puzzles(PUZZLES, sft=0.25, test_per_bin=40)
    counts = Counter(puzzle.bin for puzzle in split["test"])
    assert counts == {"B0": 15, "B1": 40, "B2": 40, "B3": 40, "B4": 40, "B5": 30}  # half at most
    rest = len(PUZZLES) - 205
    assert abs(len(split["sft"]) - rest / 4) < 5 * (rest * 3 / 16) ** 0.5
    ids = [puzzle.id for side in split.values() for puzzle in side]
    assert sorted(ids) == [puzzle.id for puzzle in PUZZLES]


def test_the_split_depends_on_salt_not_on_order():
    shuffled = random.Random(0).sample(PUZZLES, len(PUZZLES))
    split = split_puzzles(PUZZLES, sft=0.5, test_per_bin=20)
    assert split_puzzles(shuffled, sft=0.5, test_per_bin=20) == split
    assert split_puzzles(PUZZLES, sft=0.5, test_per_bin=20, salt="x")["test"] != split["test"]


def test_more_puzzles_do_not_move_the_others_between_sft_and_rl():
    before = split_puzzles(PUZZLES[::2], sft=0.5, test_per_bin=0)
    after = split_puzzles(PUZZLES, sft=0.5, test_per_bin=0)
    assert set(before["sft"]) <= set(after["sft"])
    assert set(before["rl"]) <= set(after["rl"])


def test_linked_puzzles_stay_together():
    linked = [
        make(number, RATINGS[BINS[number % 6]], place=number // 3 * 2 + (number % 3 == 2),
             game=f"https://lichess.org/{number // 3}" + ("/black#7" if number % 3 else "#9"))
        for number in range(900)
    ]  # fmt: skip  # 0 and 1 share a position, 1 and 2 a game, of every three
    split = split_puzzles(linked, sft=0.5, test_per_bin=40)
    side = {puzzle.id: name for name, puzzles in split.items() for puzzle in puzzles}
    assert all(len({side[f"{i + k:05}"] for k in range(3)}) == 1 for i in range(0, 900, 3))
    assert set(side.values()) == {"sft", "rl", "test"}
    assert max(Counter(puzzle.bin for puzzle in split["test"]).values()) <= 40


@pytest.mark.parametrize(
    "shares", [{"sft": 1.5, "test_per_bin": 1}, {"sft": 0.5, "test_per_bin": -1}]
)
def test_shares_that_do_not_fit_are_refused(shares):
    with pytest.raises(ValueError, match="shares do not fit"):
        split_puzzles(PUZZLES, **shares)


def test_the_game_behind_an_address():
    addresses = ["https://l.org/abc", "https://l.org/abc#3", "https://l.org/abc/black#30"]
    assert {game_key(address) for address in addresses} == {"https://l.org/abc"}


def test_a_transposed_game_reaches_the_position_and_the_other_side_to_move_does_not():
    target = chess.Board()
    for move in ("d2d4", "d7d5", "c2c4", "e7e6"):
        target.push_uci(move)
    keys = {position_key(target)}
    assert reaches(("c2c4", "e7e6", "d2d4", "d7d5", "b1c3"), keys)  # moves in another order
    assert not reaches(("c2c4", "e7e6", "d2d4", "d7d6"), keys)
    # same placement after an odd number of plies: White has lost a move
    assert not reaches(("c2c4", "e7e6", "d2d3", "d7d5", "d3d4"), keys)
    assert reaches((), {position_key(chess.Board())})
