"""What an episode earns in RL: a number in [0, 1], 1 where the puzzle is solved.

All of it follows from the moves that the judge recorded, never from text read once more. `binary`
is what the study pays and what evaluation reports; the others pay for part of the way.
"""

from collections.abc import Callable
from functools import lru_cache, partial

import chess

from chessrl.board.engine import Engine
from chessrl.board.episodes import SOLVED, WRONG, Outcome
from chessrl.board.puzzles import Puzzle
from chessrl.config import InputError

LEGAL_SHARE = 0.1
"""What `legality` pays at most for a puzzle that is not solved."""
REMEMBERED = 1 << 14
"""Positions whose value `engine` keeps, so that a group asks once for a move it made often."""

Reward = Callable[[Puzzle, Outcome], float]


def binary(puzzle: Puzzle, outcome: Outcome) -> float:
    """1 where every solver move was right, otherwise 0."""
    return outcome.reward


def share(puzzle: Puzzle, outcome: Outcome) -> float:
    """Share of the solver's moves that were found before the episode ended."""
    return sum(turn.right for turn in outcome.turns) / len(puzzle.solver_moves)


def legality(puzzle: Puzzle, outcome: Outcome, legal_share: float = LEGAL_SHARE) -> float:
    """1 where solved, otherwise `legal_share` times the legal answers over the solver's moves.

    A right move never earns less than another: the wrong move that ends an episode counts as one
    legal answer, and so does each right one before it.
    """
    if outcome.ended_by == SOLVED:
        return 1.0
    legal = sum(turn.move is not None for turn in outcome.turns)
    return legal_share * legal / len(puzzle.solver_moves)


def engine(puzzle: Puzzle, outcome: Outcome, value: Callable[[chess.Board], float]) -> float:
    """1 where solved, the solver's win probability after its wrong move, otherwise 0.

    An episode that an illegal or malformed answer ended, or its budget, earns 0 whatever came
    before. A wrong move that wins as well earns nearly 1, which `binary` denies.

    Args:
        value: win probability of the side to move, such as `Engine.value`; what it raises passes.
    """
    if outcome.ended_by == SOLVED:
        return 1.0
    if outcome.ended_by != WRONG:
        return 0.0
    return 1.0 - value(last_position(puzzle, outcome))


def last_position(puzzle: Puzzle, outcome: Outcome) -> chess.Board:
    """The board after the last legal answer, before any reply to it."""
    board = puzzle.board()
    legal = [turn.move for turn in outcome.turns if turn.move is not None]
    for number, move in enumerate(legal):
        if number:
            board.push_uci(puzzle.replies[number - 1])
        board.push_uci(move)
    return board


REWARDS: dict[str, Callable[..., float]] = {
    "binary": binary,
    "share": share,
    "legality": legality,
    "engine": engine,
}


def choose(name: str, judge: Engine | None = None) -> Reward:
    """The reward of that name; the same episode always earns the same.

    Args:
        name: one of `REWARDS`.
        judge: a running engine, for `engine` alone; a fault of it raises, and never earns 0.

    Raises:
        InputError: there is no such reward, or it needs an engine and has none.
    """
    if name not in REWARDS:
        raise InputError(f"reward {name} is not known; choose one of {', '.join(REWARDS)}")
    if name != "engine":
        return REWARDS[name]
    if judge is None:
        raise InputError("reward engine needs an engine: give engine=stockfish, or another reward")
    by_fen = lru_cache(REMEMBERED)(lambda fen: judge.value(chess.Board(fen)))
    return partial(engine, value=lambda board: by_fen(board.fen()))
