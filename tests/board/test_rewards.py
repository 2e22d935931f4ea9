"""What an episode earns: hand-computed, from recorded moves, and never 0 for an engine's fault."""

import random

import chess
import pytest
from judging import CASTLING, CASTLING_LINE, ids, puzzle, solver_texts

from chessrl.board.engine import Engine, win_probability
from chessrl.board.episodes import Episode, Outcome, play_turn, replay
from chessrl.board.rewards import REWARDS, choose, engine, last_position, legality
from chessrl.board.tokens import decode, encode_move
from chessrl.config import InputError

PAWN = puzzle("4k3/8/8/8/8/8/4P3/4K3 b - - 0 1", "e8d8 e2e4")
TWO_MATES = puzzle("7k/8/6K1/8/8/8/8/QR6 b - - 0 1", "h8g8 a1a2")
STALEMATES = puzzle("6k1/8/6K1/8/8/8/8/5Q2 b - - 0 1", "g8h8 f1f8")
TWO_MOVES = puzzle(CASTLING, CASTLING_LINE)


def cut(turns: list[str]) -> Outcome:
    """Played until the budget ran out."""
    episode = Episode(TWO_MOVES)
    for turn in turns:
        play_turn(episode, ids(turn))
    episode.truncate()
    return episode.outcome


@pytest.mark.parametrize(
    ("outcome", "binary", "share", "legal"),
    [
        (replay(TWO_MOVES, ["O-O", "Rf8a8"]), 1.0, 1.0, 1.0),
        (replay(TWO_MOVES, ["O-O", "Rf8e8"]), 0.0, 0.5, 0.1),
        (replay(TWO_MOVES, ["O-O", "Rh8a8"]), 0.0, 0.5, 0.05),
        (replay(TWO_MOVES, ["Ke8d8"]), 0.0, 0.0, 0.05),
        (replay(TWO_MOVES, ["O-O-O"]), 0.0, 0.0, 0.0),
        (replay(TWO_MOVES, ["Ne8g8"]), 0.0, 0.0, 0.0),
        (cut(["O-O"]), 0.0, 0.5, 0.05),
        (cut([]), 0.0, 0.0, 0.0),
    ],
)
def test_rewards_by_hand(outcome, binary, share, legal):
    assert choose("binary")(TWO_MOVES, outcome) == binary
    assert choose("share")(TWO_MOVES, outcome) == share
    assert choose("legality")(TWO_MOVES, outcome) == pytest.approx(legal)
    assert legality(TWO_MOVES, outcome, legal_share=0.0) == binary


def test_a_reward_lies_between_0_and_1_and_is_1_where_solved(starter):
    rng = random.Random(4)
    shares = set()
    for taken in starter[:100]:
        texts = solver_texts(taken)
        place = rng.randrange(len(texts))
        board = taken.board()
        for uci in taken.moves[1 : 1 + 2 * place]:
            board.push_uci(uci)
        other = decode(encode_move(board, rng.choice(list(board.legal_moves))))
        for answer in (texts[place], other, "Ke1e8", "nonsense"):
            outcome = replay(taken, [*texts[:place], answer, *texts[place + 1 :]])
            for name in ("binary", "share", "legality"):
                reward = choose(name)(taken, outcome)
                assert 0 <= reward <= 1
                assert (reward == 1) == (outcome.ended_by == "solved")
            shares.add(choose("share")(taken, outcome))
    assert len(shares) > 3


def test_the_engine_is_asked_about_the_position_after_the_last_move():
    asked = []

    def value(board: chess.Board) -> float:
        asked.append(board.fen())
        return 0.25

    assert engine(TWO_MOVES, replay(TWO_MOVES, ["O-O", "Rf8e8"]), value) == 0.75
    assert engine(TWO_MOVES, replay(TWO_MOVES, ["Ke8d8"]), value) == 0.75
    assert asked == ["4r1k1/8/8/8/8/8/6K1/R7 w - - 4 3", "3k3r/R7/8/8/8/8/6K1/8 w - - 2 2"]


@pytest.mark.parametrize(
    ("outcome", "reward"),
    [
        (replay(TWO_MOVES, ["O-O", "Rf8a8"]), 1.0),
        (replay(TWO_MOVES, ["O-O", "Rh8a8"]), 0.0),
        (replay(TWO_MOVES, ["O-O", "f8a8"]), 0.0),
        (cut(["O-O"]), 0.0),
        (cut([]), 0.0),
    ],
)
def test_no_engine_is_asked_where_no_wrong_move_was_played(outcome, reward):
    assert engine(TWO_MOVES, outcome, lambda board: pytest.fail("asked")) == reward


def test_the_position_before_the_reply_is_the_last():
    board = last_position(TWO_MOVES, replay(TWO_MOVES, ["O-O", "Rh8a8"]))
    assert board.fen() == "5rk1/R7/8/8/8/8/6K1/8 w - - 2 2"
    assert last_position(TWO_MOVES, replay(TWO_MOVES, ["O-O-O"])) == TWO_MOVES.board()


def test_the_engines_reward_by_hand(fake):
    with Engine(fake()) as judge:
        reward = choose("engine", judge)
        # a pawn ahead, with the other side to move: 100 centipawns for the solver
        assert reward(PAWN, replay(PAWN, ["Pe2e3"])) == pytest.approx(win_probability(100))
        assert reward(PAWN, replay(PAWN, ["Pe2e3"])) == pytest.approx(0.5910, abs=1e-4)
        assert reward(PAWN, replay(PAWN, ["Pe2e4"])) == 1.0
        # a rook that can be taken leaves a bare king: the other side has 500 more
        lost = reward(TWO_MOVES, replay(TWO_MOVES, ["O-O", "Rf8f2"]))
        assert lost == pytest.approx(win_probability(-500))
        # what the rules decide: a mate that is not the solution, a stalemate
        assert reward(TWO_MATES, replay(TWO_MATES, ["Rb1b8#"])) == 1.0
        assert reward(STALEMATES, replay(STALEMATES, ["Qf1f7"])) == 0.5


def test_a_group_asks_once_for_each_move(fake, tmp_path):
    outcomes = [replay(PAWN, [text]) for text in ("Pe2e3", "Ke1d2") for _ in range(8)]
    with Engine(fake()) as judge:
        reward = choose("engine", judge)
        assert len({reward(PAWN, outcome) for outcome in outcomes}) == 1
    assert (tmp_path / "log").read_text().count("go nodes") == 2


@pytest.mark.parametrize("mode", ["crash", "hang", "mute"])
def test_a_fault_of_the_engine_is_no_reward(mode, fake):
    with Engine(fake(mode), patience=1) as judge:
        reward = choose("engine", judge)
        for _ in range(2):
            with pytest.raises(InputError, match=r"failed at .*try it by hand"):
                reward(PAWN, replay(PAWN, ["Pe2e3"]))


def test_a_reward_that_cannot_be_had_is_refused_in_a_line():
    with pytest.raises(InputError, match="choose one of binary, share, legality, engine"):
        choose("length")
    with pytest.raises(InputError, match="engine=stockfish"):
        choose("engine")
    assert all(choose(name) is REWARDS[name] for name in REWARDS if name != "engine")


def test_stockfish_tells_a_blunder_from_a_good_move(stockfish):
    with Engine(stockfish) as judge:
        reward = choose("engine", judge)
        mates = puzzle("7k/8/6K1/8/8/8/8/QR6 b - - 0 1", "h8g8 a1a8")
        assert reward(mates, replay(mates, ["Qa1a2+"])) > 0.99  # still winning
        hanging = puzzle("3qk3/8/8/8/8/8/8/3QK3 b - - 0 1", "e8e7 d1d8")
        blunder = reward(hanging, replay(hanging, ["Ke1f2"]))
        assert 0 <= blunder < 0.2
        assert reward(hanging, replay(hanging, ["Ke1f2"])) == blunder
