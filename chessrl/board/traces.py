"""Reasoning traces: lines of play merged into a prefix tree and written depth-first.

`<T> line <sep> line ... </T>`: each line is a path from the root to a leaf, moves as tokens.
Children keep the order in which they were first sampled.
"""

import math
import random
from collections.abc import Iterable, Iterator, Sequence

import chess

from chessrl.board import tokens

Tree = dict[chess.Move, "Tree"]
"""Moves from a position, each with the moves that follow it."""
Line = Sequence[chess.Move]


def truncated_log_normal(rng: random.Random, mean: float, sigma: float, low: int, high: int) -> int:
    """Whole number in [low, high] from a rounded log-normal, drawn again while it falls outside.

    Args:
        mean: of the log-normal itself, before rounding and truncation.
        sigma: standard deviation of its logarithm; 0 gives the mean.
    """
    if sigma == 0:
        return min(max(round(mean), low), high)
    mu = math.log(mean) - sigma**2 / 2
    for _ in range(1000):
        value = round(rng.lognormvariate(mu, sigma))
        if low <= value <= high:
            return value
    raise ValueError(f"log-normal of mean {mean}, sigma {sigma} misses [{low}, {high}]")


def legal_prefix(board: chess.Board, ids: Sequence[int]) -> list[chess.Move]:
    """The moves that tokens spell from a position, up to the first that cannot be played.

    A last move that the tokens may have cut short counts only if it reads as a legal move.
    """
    board = board.copy(stack=False)
    moves = []
    for piece in tokens.split_moves(ids):
        try:
            move = tokens.read_move(board, tokens.decode(piece))
        except (tokens.Unreadable, tokens.Illegal):
            break
        board.push(move)
        moves.append(move)
    return moves


def merge(lines: Iterable[Line]) -> Tree:
    """The prefix tree of some lines; empty ones leave no mark."""
    root: Tree = {}
    for line in lines:
        node = root
        for move in line:
            node = node.setdefault(move, {})
    return root


def paths(tree: Tree) -> Iterator[list[chess.Move]]:
    """Root-to-leaf paths, depth-first."""
    for move, children in tree.items():
        if children:
            yield from ([move, *rest] for rest in paths(children))
        else:
            yield [move]


def with_solution(
    lines: Sequence[Line], solution: Line, plies: int, rng: random.Random
) -> list[Line]:
    """The lines with the beginning of the solution put in at a place that betrays nothing."""
    place = rng.randrange(len(lines) + 1)
    return [*lines[:place], solution[:plies], *lines[place:]]


def encode_trace(board: chess.Board, tree: Tree) -> list[int]:
    """Tokens of a thought over a position.

    Raises:
        tokens.Illegal: a line of the tree cannot be played.
    """
    ids = [tokens.THINK]
    for number, path in enumerate(paths(tree)):
        if number:
            ids.append(tokens.SEP)
        ids += tokens.encode_line(board, path)
    return [*ids, tokens.END_THINK]


def read_trace(board: chess.Board, ids: Sequence[int]) -> list[list[chess.Move]]:
    """The lines of a thought, given without its marks, every move replayed.

    Raises:
        tokens.Unreadable: a line is empty, or a move in it unreadable.
        tokens.Illegal: a move cannot be played where it stands.
    """
    lines = []
    for part in _split(ids, tokens.SEP):
        replayed, line = board.copy(stack=False), []
        if not part:
            raise tokens.Unreadable("a line of the thought is empty")
        for piece in tokens.split_moves(part):
            move = tokens.read_move(replayed, tokens.decode(piece))
            replayed.push(move)
            line.append(move)
        lines.append(line)
    return lines


def _split(ids: Sequence[int], mark: int) -> Iterator[list[int]]:
    part: list[int] = []
    for token in ids:
        if token == mark:
            yield part
            part = []
        else:
            part.append(token)
    yield part
