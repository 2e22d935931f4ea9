"""The one judge: plays a puzzle against answers and says what they earn.

RL, evaluation and analysis all come here. The solver moves, the environment answers with the
recorded reply. A wrong, illegal or unreadable answer ends the episode with reward 0; reward 1 needs
every solver move. Where the solution mates, any mate is right, as on Lichess.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import chess

from chessrl.board import tokens
from chessrl.board.puzzles import Puzzle

SOLVED, WRONG, ILLEGAL, MALFORMED = "solved", "wrong", "illegal", "malformed"
TRUNCATED, UNANSWERED = "truncated", "unanswered"
ENDINGS = (SOLVED, WRONG, ILLEGAL, MALFORMED, TRUNCATED, UNANSWERED)
"""How an episode ends: `truncated` where the token budget ran out within an answer, `unanswered`
where no more answers came."""


@dataclass(frozen=True)
class Turn:
    """One answer and its verdict."""

    answer: str
    """Token notation without spaces, as it was given."""
    move: str | None
    """UCI of the move it names; None where it names no legal one."""
    right: bool


@dataclass(frozen=True)
class Outcome:
    """What an episode came to."""

    reward: float
    """1.0 where the whole line was found, 0.0 otherwise."""
    solver_turns: int
    """Answers judged, the last and perhaps wrong one included."""
    ended_by: str
    """One of `ENDINGS`."""
    turns: tuple[Turn, ...]

    @property
    def first_legal(self) -> bool:
        """Whether the first answer was a legal move."""
        return bool(self.turns) and self.turns[0].move is not None


class Episode:
    """A puzzle being played; `answer` until it is over."""

    def __init__(self, puzzle: Puzzle) -> None:
        self.puzzle = puzzle
        self.board = puzzle.board()
        self._turns: list[Turn] = []
        self._ended_by: str | None = None

    @property
    def over(self) -> bool:
        """Whether the episode has ended."""
        return self._ended_by is not None

    def answer(self, text: str) -> list[int] | None:
        """Judge one answer in token notation.

        Returns:
            Tokens of the recorded reply, which has been played; None where the episode is over.

        Raises:
            ValueError: the episode was over before, or the puzzle itself is at fault: the recorded
                move cannot be played.
        """
        if self.over:
            raise ValueError(f"puzzle {self.puzzle.id} is over: {self._ended_by}")
        try:
            move = tokens.read_move(self.board, text)
        except tokens.Unreadable:
            return self._end(Turn(text, None, False), MALFORMED)
        except tokens.Illegal:
            return self._end(Turn(text, None, False), ILLEGAL)
        turn = Turn(text, move.uci(), self._is_right(move))
        if not turn.right:
            return self._end(turn, WRONG)
        if len(self._turns) + 1 == len(self.puzzle.solver_moves):
            return self._end(turn, SOLVED)
        self._turns.append(turn)
        self.board.push(move)
        reply = self._recorded(self.puzzle.replies[len(self._turns) - 1])
        return tokens.push_encoded(self.board, reply)

    def malformed(self, text: str) -> None:
        """End the episode on an answer that cannot even be told from its thought."""
        self._end(Turn(text, None, False), MALFORMED)

    def truncate(self) -> None:
        """End the episode because the token budget ran out within an answer.

        Raises:
            ValueError: the episode was over before.
        """
        if self.over:
            raise ValueError(f"puzzle {self.puzzle.id} is over: {self._ended_by}")
        self._ended_by = TRUNCATED

    @property
    def outcome(self) -> Outcome:
        """What it has come to so far."""
        return Outcome(
            reward=1.0 if self._ended_by == SOLVED else 0.0,
            solver_turns=len(self._turns),
            ended_by=self._ended_by or UNANSWERED,
            turns=tuple(self._turns),
        )

    def _end(self, turn: Turn, ended_by: str) -> None:
        self._turns.append(turn)
        self._ended_by = ended_by

    def _is_right(self, move: chess.Move) -> bool:
        solution = self._recorded(self.puzzle.solver_moves[len(self._turns)])
        return move == solution or (_mates(self.board, solution) and _mates(self.board, move))

    def _recorded(self, uci: str) -> chess.Move:
        move = chess.Move.from_uci(uci)
        if not self.board.is_legal(move):
            raise ValueError(f"puzzle {self.puzzle.id}: recorded move {uci} is not legal")
        return move


def _mates(board: chess.Board, move: chess.Move) -> bool:
    board.push(move)
    mates = board.is_checkmate()
    board.pop()
    return mates


def split_thought(ids: Sequence[int]) -> tuple[list[int] | None, list[int]]:
    """Thought and answer of one turn, without their marks.

    A turn may open with `<T>`, and then the answer is all that follows the first `</T>`.

    Returns:
        Tokens of the thought, None where there was none, and tokens of the answer.

    Raises:
        tokens.Unreadable: the thought is never closed.
    """
    if not ids or ids[0] != tokens.THINK:
        return None, list(ids)
    if tokens.END_THINK not in ids:
        raise tokens.Unreadable("the thought is never closed")
    close = list(ids).index(tokens.END_THINK)
    return list(ids[1:close]), list(ids[close + 1 :])


def play_turn(episode: Episode, ids: Sequence[int]) -> list[int] | None:
    """Judge the tokens of one turn, its thought included; returns as `Episode.answer` does."""
    try:
        _, answer = split_thought(ids)
    except tokens.Unreadable:
        return episode.malformed(tokens.decode(ids))
    return episode.answer(tokens.decode(answer))


def replay(puzzle: Puzzle, answers: Iterable[str]) -> Outcome:
    """Judge a list of answers; those after the end of the episode are not looked at.

    Args:
        puzzle: in the convention of Lichess.
        answers: solver moves in token notation, such as `Ng1f3`, `Pe7e8=Q#` or `O-O`.
    """
    episode = Episode(puzzle)
    for text in answers:
        if episode.over:
            break
        episode.answer(text)
    return episode.outcome
