"""The judge's self-test: before a run is trusted, what must earn 1 earns it, and nothing else does.

A judge at fault looks like a policy that fails to learn, or like one that learns too well. Answers
whose verdict is known go the way that rollouts go, from token ids to `play_turn`, in groups.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import chess

from chessrl.board import tokens
from chessrl.board.episodes import (
    ILLEGAL,
    MALFORMED,
    SOLVED,
    TRUNCATED,
    WRONG,
    Episode,
    group,
    play_turn,
)
from chessrl.board.hardcases import FAULTY, HARD
from chessrl.board.puzzles import Puzzle


class JudgeFault(Exception):
    """The judge does not judge as it must; one line: puzzle, answers, what was due, what came."""


@dataclass(frozen=True)
class Script:
    """Turns of one episode, and what has to come of them."""

    turns: tuple[list[int], ...]
    """Token ids, without the `<call_env>` that ends a turn."""
    ended_by: str
    moves: tuple[str | None, ...]
    """UCI of each answer that is judged, None where it is no legal move."""


def check_judge(puzzles: Sequence[Puzzle], sample: int = 100) -> None:
    """Play known answers to `HARD` and to puzzles of the run, and compare every verdict.

    Args:
        puzzles: those of the run.
        sample: how many of them are tried at most, spread evenly.

    Raises:
        JudgeFault: reward, ending, recorded moves or replies are not what they must be, or a puzzle
            at fault is judged as if it were sound.
    """
    for case in HARD:
        scripts = [_written(*answers) for answers in case.answers]
        _check(case.puzzle, scripts)
    for taken, text in FAULTY:
        _check_raises(taken, text)
    for taken in puzzles[:: max(1, -(-len(puzzles) // sample))]:
        _check(taken, list(scripts_of(taken)))


def scripts_of(puzzle: Puzzle) -> Iterator[Script]:
    """The right line, plain and with thoughts, and lines that fail in every way there is."""
    right = _encoded(puzzle)[::2]
    found = puzzle.solver_moves
    yield Script(tuple(right), SOLVED, found)
    thought = [tokens.THINK, *right[-1], tokens.SEP, *right[0], tokens.END_THINK]
    yield Script(tuple(thought + turn for turn in right), SOLVED, found)
    yield Script(tuple(right[:-1]), TRUNCATED, found[:-1])
    yield Script(([tokens.THINK, *right[0]],), MALFORMED, (None,))
    yield Script((_other_piece(right[0]),), MALFORMED, (None,))
    yield Script((_already_played(puzzle),), ILLEGAL, (None,))
    yield from _wrong(puzzle.board(), found[:1], ())
    if len(found) > 1:
        board = puzzle.board()
        for uci in puzzle.moves[1 : 2 * len(found) - 1]:
            board.push_uci(uci)
        yield from _wrong(board, found, right[:-1])
        yield Script((*right[:-1], []), MALFORMED, (*found[:-1], None))


def _wrong(
    board: chess.Board, found: Sequence[str], before: Sequence[list[int]]
) -> Iterator[Script]:
    """A legal move in place of the last of `found`; without a check, so it is no other mate."""
    for move in board.legal_moves:
        if move.uci() != found[-1] and not board.gives_check(move):
            turns = (*before, tokens.encode_move(board, move))
            yield Script(turns, WRONG, (*found[:-1], move.uci()))
            return


def _other_piece(turn: Sequence[int]) -> list[int]:
    """A move under the letter of another piece; castling becomes a bare letter."""
    other = "N" if turn[0] != tokens.ID["N"] else "B"
    return [tokens.ID[other], *turn[1:]]


def _already_played(puzzle: Puzzle) -> list[int]:
    """The move that led to what the solver sees: its piece has left, so it may not be played."""
    uci = puzzle.moves[0]
    return [tokens.ID[name] for name in ("Q", uci[:2], uci[2:4])]


def _written(text: str, ended_by: str, moves: str) -> Script:
    turns = tuple([tokens.ID[name] for name in turn.split()] for turn in text.split(";"))
    return Script(turns, ended_by, tuple(None if uci == "-" else uci for uci in moves.split()))


def _check(puzzle: Puzzle, scripts: Sequence[Script]) -> None:
    replies = _encoded(puzzle)[1::2]
    for script, episode in zip(scripts, group(puzzle, len(scripts)), strict=True):
        solved, cut = script.ended_by == SOLVED, script.ended_by == TRUNCATED
        answers = len(script.moves)
        right = answers if solved or cut else answers - 1
        answered = replies[: answers if cut else answers - 1]
        due = float(solved), script.ended_by, right, script.moves, answered
        try:
            came = _play(episode, script.turns)
        except Exception as error:
            raise _fault(puzzle, script.turns, _said(due), repr(error)) from error
        if came != due:
            raise _fault(puzzle, script.turns, _said(due), _said(came))


_Verdict = tuple[float, str, int, tuple[str | None, ...], list[list[int]]]
"""Reward, ending, answers called right, recorded moves, replies."""


def _play(episode: Episode, turns: Sequence[list[int]]) -> _Verdict:
    """As the rollouts do: until there is no reply, or nothing is left to write."""
    replies = []
    for turn in turns:
        reply = play_turn(episode, turn)
        if reply is None:
            break
        replies.append(reply)
    else:
        episode.truncate()
    outcome = episode.outcome
    right = sum(turn.right for turn in outcome.turns)
    moves = tuple(turn.move for turn in outcome.turns)
    return outcome.reward, outcome.ended_by, right, moves, replies


def _encoded(puzzle: Puzzle) -> list[list[int]]:
    """Tokens of each recorded move after the opponent's first."""
    board, line = puzzle.board(), []
    for uci in puzzle.moves[1:]:
        move = chess.Move.from_uci(uci)
        line.append(tokens.encode_move(board, move))
        board.push(move)
    return line


def _check_raises(puzzle: Puzzle, text: str) -> None:
    turn = [tokens.ID[name] for name in text.split()]
    (episode,) = group(puzzle, 1)
    try:
        play_turn(episode, turn)
    except ValueError:
        return
    came = f"ending {episode.outcome.ended_by}, reward {episode.outcome.reward:g}"
    raise _fault(puzzle, [turn], "an error, as its recorded line cannot be played", came)


def _said(verdict: _Verdict) -> str:
    reward, ended_by, right, moves, replies = verdict
    played = " ".join(map(str, moves)) or "none"
    written = " ".join(map(tokens.decode, replies)) or "none"
    return f"reward {reward:g}, {ended_by}, {right} right of moves {played}, replies {written}"


def _fault(puzzle: Puzzle, turns: Sequence[list[int]], due: str, came: str) -> JudgeFault:
    answers = "; ".join(map(tokens.decode, turns))
    return JudgeFault(
        f"the judge is at fault: puzzle {puzzle.id}, answers {answers!r}: expected {due}; "
        f"got {came}"
    )
