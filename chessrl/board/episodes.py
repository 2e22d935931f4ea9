"""The one judge: plays a puzzle against answers and says what they earn.

RL, evaluation and analysis all come here. The solver moves, the environment answers with the
recorded reply. A wrong, illegal or unreadable answer ends the episode with reward 0; reward 1 needs
every solver move. Where the solution mates, any mate is right, as on Lichess.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

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


class _Position:
    """What the solver is asked at one turn; the episodes of a puzzle share it and its verdicts."""

    def __init__(self, puzzle: Puzzle, number: int, board: chess.Board) -> None:
        self.board = board
        self._puzzle = puzzle
        self._number = number
        self._verdicts: dict[str, tuple[Turn, str | None]] = {}
        self._following: tuple[list[int], _Position] | None = None

    def judge(self, text: str) -> tuple[Turn, str | None]:
        """The turn that an answer makes, and how it ends the episode; None where it goes on."""
        if text not in self._verdicts:
            self._verdicts[text] = self._judge(text)
        return self._verdicts[text]

    def following(self) -> tuple[list[int], "_Position"]:
        """Tokens of the recorded reply to the right move, and the position after it."""
        if self._following is None:
            board = self.board.copy(stack=False)
            board.push(self._solution)
            reply = self._recorded(board, self._puzzle.replies[self._number])
            ids = tokens.push_encoded(board, reply)
            self._following = ids, _Position(self._puzzle, self._number + 1, board)
        return self._following

    def _judge(self, text: str) -> tuple[Turn, str | None]:
        try:
            move = tokens.read_move(self.board, text)
        except tokens.Unreadable:
            return Turn(text, None, False), MALFORMED
        except tokens.Illegal:
            return Turn(text, None, False), ILLEGAL
        if move != self._solution and not (self._solution_mates and _mates(self.board, move)):
            return Turn(text, move.uci(), False), WRONG
        last = self._number + 1 == len(self._puzzle.solver_moves)
        return Turn(text, move.uci(), True), SOLVED if last else None

    @cached_property
    def _solution(self) -> chess.Move:
        return self._recorded(self.board, self._puzzle.solver_moves[self._number])

    @cached_property
    def _solution_mates(self) -> bool:
        return _mates(self.board, self._solution)

    def _recorded(self, board: chess.Board, uci: str) -> chess.Move:
        move = chess.Move.from_uci(uci)
        if not board.is_legal(move):
            raise ValueError(f"puzzle {self._puzzle.id}: recorded move {uci} is not legal")
        return move


class Episode:
    """A puzzle being played; `answer` until it is over. `group` makes many of one puzzle."""

    def __init__(self, puzzle: Puzzle, start: _Position | None = None) -> None:
        self.puzzle = puzzle
        self._position = start or _Position(puzzle, 0, puzzle.board())
        self._turns: list[Turn] = []
        self._ended_by: str | None = None

    @property
    def board(self) -> chess.Board:
        """A new board at the position that was last asked."""
        return self._position.board.copy()

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
        self._expect_going()
        turn, self._ended_by = self._position.judge(text)
        self._turns.append(turn)
        if self.over:
            return None
        reply, self._position = self._position.following()
        return list(reply)

    def malformed(self, text: str) -> None:
        """End the episode on an answer that cannot even be told from its thought.

        Raises:
            ValueError: the episode was over before.
        """
        self._expect_going()
        self._turns.append(Turn(text, None, False))
        self._ended_by = MALFORMED

    def truncate(self) -> None:
        """End the episode because the token budget ran out within an answer.

        Raises:
            ValueError: the episode was over before.
        """
        self._expect_going()
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

    def _expect_going(self) -> None:
        if self.over:
            raise ValueError(f"puzzle {self.puzzle.id} is over: {self._ended_by}")


def group(puzzle: Puzzle, copies: int) -> list[Episode]:
    """Episodes of one puzzle that share its positions, so that no answer is judged twice.

    Each goes its own way; what they share lives as long as they do.
    """
    start = _Position(puzzle, 0, puzzle.board())
    return [Episode(puzzle, start) for _ in range(copies)]


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
    try:
        close = ids.index(tokens.END_THINK)
    except ValueError:
        raise tokens.Unreadable("the thought is never closed") from None
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
