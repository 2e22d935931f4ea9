"""Traces: lines become a tree, a tree becomes tokens, and the tokens are replayed."""

import math
import random
import statistics

import chess
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chessrl.board import tokens
from chessrl.board.traces import (
    encode_trace,
    legal_prefix,
    merge,
    paths,
    read_trace,
    truncated_log_normal,
    with_solution,
)


def line(text: str) -> list[chess.Move]:
    return [chess.Move.from_uci(uci) for uci in text.split()]


FIVE = [
    line("e2e4 e7e5 g1f3"),
    line("d2d4 d7d5"),
    line("e2e4 c7c5"),
    line("d2d4"),  # a beginning of the second: leaves no leaf
    line("e2e4 e7e5 f1c4 b8c6"),
]


def test_five_lines_make_a_tree_in_the_order_of_their_first_sight():
    tree = merge(FIVE)
    e4, e5, c5, nf3, bc4, nc6, d4, d5 = line("e2e4 e7e5 c7c5 g1f3 f1c4 b8c6 d2d4 d7d5")
    assert tree == {e4: {e5: {nf3: {}, bc4: {nc6: {}}}, c5: {}}, d4: {d5: {}}}
    assert list(tree) == [e4, d4]
    assert list(tree[e4]) == [e5, c5]
    # depth-first: the fifth line comes before the third, since it shares e2e4 e7e5 with the first
    assert list(paths(tree)) == [FIVE[0], FIVE[4], FIVE[2], FIVE[1]]


def test_a_trace_spells_its_paths():
    text = "".join(tokens.TOKENS[i] + " " for i in encode_trace(chess.Board(), merge(FIVE)))
    assert text == (
        "<T> P e2 e4 P e7 e5 N g1 f3 <sep> P e2 e4 P e7 e5 B f1 c4 N b8 c6 "
        "<sep> P e2 e4 P c7 c5 <sep> P d2 d4 P d7 d5 </T> "
    )


def test_empty_lines_leave_no_mark():
    assert merge([[], line("e2e4"), []]) == {line("e2e4")[0]: {}}
    assert merge([]) == {}
    assert list(paths({})) == []


def random_lines(board: chess.Board, rng: random.Random, count: int) -> list[list[chess.Move]]:
    lines = []
    for _ in range(count):
        played, made = board.copy(stack=False), []
        for _ in range(rng.randrange(1, 6)):
            moves = list(played.legal_moves)
            if not moves:
                break
            made.append(rng.choice(moves[:4]))  # few, so that they share beginnings
            played.push(made[-1])
        lines.append(made)
    return lines


def test_what_is_encoded_is_read_back(positions):
    rng = random.Random(0)
    for board in positions[::4]:
        tree = merge(random_lines(board, rng, 6))
        if not tree:
            continue  # mate or stalemate
        ids = encode_trace(board, tree)
        assert (ids[0], ids[-1]) == (tokens.THINK, tokens.END_THINK)
        assert read_trace(board, ids[1:-1]) == list(paths(tree))
        assert merge(read_trace(board, ids[1:-1])) == tree


def test_an_illegal_line_is_refused():
    with pytest.raises(tokens.Illegal, match="e7e6 is not legal"):
        encode_trace(chess.Board(), merge([line("e2e4 e7e5"), line("e2e4 c7c5 e7e6")]))


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("P e2 e4 P e2 e4", tokens.Illegal),
        ("P e2 e4 <sep> P e7 e5", tokens.Illegal),  # each line starts from the same position
        ("P e2 e4 <sep>", tokens.Unreadable),
        ("<sep> P e2 e4", tokens.Unreadable),
        ("", tokens.Unreadable),
        ("P e2 e4 Q e7 e5", tokens.Unreadable),
        ("e4 P e2 e4", tokens.Unreadable),
    ],
)
def test_a_trace_that_cannot_be_replayed_is_refused(text, error):
    with pytest.raises(error):
        read_trace(chess.Board(), [tokens.ID[token] for token in text.split()])


@pytest.mark.parametrize(
    ("text", "moves"),
    [
        ("P e2 e4 P e7 e5 N g1 f3", "e2e4 e7e5 g1f3"),
        ("P e2 e4 P e7 e5 N g1", "e2e4 e7e5"),  # cut within a move
        ("P e2 e4 P e7 e4 N g1 f3", "e2e4"),  # all after the illegal one is dropped
        ("P e2 e4 Q e7 e5", "e2e4"),
        ("e4", ""),
        ("", ""),
    ],
)
def test_sampled_tokens_count_up_to_the_first_that_cannot_be_played(text, moves):
    board = chess.Board()
    assert legal_prefix(board, [tokens.ID[token] for token in text.split()]) == line(moves)
    assert board == chess.Board()


def test_a_promotion_cut_before_its_piece_is_no_move():
    board = chess.Board("1k6/4P3/8/8/8/8/8/6K1 w - - 0 1")
    ids = tokens.encode_move(board, chess.Move.from_uci("e7e8q"))
    assert legal_prefix(board, ids) == line("e7e8q")
    assert legal_prefix(board, ids[:-1]) == line("e7e8q")  # without the check sign
    assert legal_prefix(board, ids[:-2]) == legal_prefix(board, ids[:-3]) == []


@given(seed=st.integers(0, 2**32), count=st.integers(0, 5), plies=st.integers(1, 5))
def test_the_solution_is_always_in_the_tree(seed, count, plies):
    rng = random.Random(seed)
    lines = random_lines(chess.Board(), rng, count)
    solution = line("g1f3 g8f6 f3g1")
    mixed = with_solution(lines, solution, plies, rng)
    assert len(mixed) == count + 1
    node = merge(mixed)
    for move in solution[:plies]:
        node = node[move]
    put_in = [i for i, made in enumerate(mixed) if made == solution[:plies]]
    assert any(mixed[:i] + mixed[i + 1 :] == lines for i in put_in)


def test_the_solution_stands_at_every_place_equally_often():
    lines, solution = [line("e2e4"), line("d2d4"), line("c2c4")], line("g1f3")
    rng = random.Random(0)
    places = [with_solution(lines, solution, 9, rng).index(solution) for _ in range(4000)]
    # 1000 each, standard deviation sqrt(4000 x 1/4 x 3/4) = 27
    assert all(abs(places.count(place) - 1000) < 5 * 27 for place in range(4))


def test_a_spread_of_zero_gives_the_mean_within_its_bounds():
    rng = random.Random(0)
    assert truncated_log_normal(rng, 7.6, 0, 1, 20) == 8
    assert truncated_log_normal(rng, 7.6, 0, 1, 5) == 5
    assert truncated_log_normal(rng, 7.6, 0, 10, 20) == 10


@given(
    seed=st.integers(0, 2**32),
    mean=st.floats(2, 20),
    sigma=st.floats(0, 1),
    low=st.integers(1, 2),
    width=st.integers(20, 30),
)
def test_draws_are_whole_and_within_the_bounds(seed, mean, sigma, low, width):
    value = truncated_log_normal(random.Random(seed), mean, sigma, low, low + width)
    assert isinstance(value, int)
    assert low <= value <= low + width


def test_the_mean_is_that_of_the_log_normal_where_nothing_is_cut():
    rng = random.Random(0)
    draws = [truncated_log_normal(rng, 50.0, 0.3, 1, 10**6) for _ in range(20_000)]
    # sd of the log-normal: 50 sqrt(exp(0.09) - 1) = 15.3, so the mean is within 5 x 15.3 / 141
    assert statistics.fmean(draws) == pytest.approx(50, abs=5 * 15.35 / math.sqrt(20_000))
    # log-sd: its own error is 0.3 / sqrt(2 x 20000) = 0.0015
    assert statistics.stdev(map(math.log, draws)) == pytest.approx(0.3, abs=0.0075)


def test_truncation_draws_again_and_does_not_pile_up_at_the_bound():
    rng = random.Random(0)
    draws = [truncated_log_normal(rng, 5.0, 1.0, 1, 6) for _ in range(6000)]
    # clipping would put the third of the mass beyond 6 on the 6; drawn again, it is the rarest
    assert draws.count(6) < draws.count(5) < draws.count(4)


def test_bounds_that_cannot_be_met_are_an_error():
    with pytest.raises(ValueError, match=r"misses \[500, 501\]"):
        truncated_log_normal(random.Random(0), 2.0, 0.1, 500, 501)
