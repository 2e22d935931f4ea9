"""Which game a puzzle comes from: the one that is in its position at its move number."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import chess

from chessrl.board.puzzles import Puzzle, leads_to
from chessrl.board.splits import game_key

Candidate = tuple[Sequence[str], str | None]
"""Moves of a game from the usual start, in UCI, and its address where known."""


def ply_of(fen: str) -> int:
    """Moves of both sides that were made before a FEN, as its move number and side tell.

    Raises:
        ValueError: the move number is none.
    """
    fields = fen.split()
    number = int(fields[5]) if len(fields) > 5 else 1
    return 2 * (max(number, 1) - 1) + (fields[1:2] == ["b"])


def source_game(puzzle: Puzzle, candidates: Iterable[Candidate]) -> tuple[str, ...] | None:
    """Moves of the source game up to the puzzle's FEN, None where no candidate is that game.

    A candidate leads there where its position at the ply of the FEN has the same placement, side
    to move, castling rights and legal en passant captures; the halfmove clock need not agree. The
    game that the puzzle states as its source counts before all others: where it is among the
    candidates, no other will do. Otherwise the first that leads there is taken.
    """
    board = chess.Board(puzzle.fen)
    ply = board.ply()
    stated = False
    found: tuple[str, ...] | None = None
    for moves, address in candidates:
        own = _is_stated(puzzle, address)
        stated = stated or own
        if not own and found is not None:
            continue
        history = tuple(moves[:ply])
        if leads_to(history, board):
            if own:
                return history
            found = history
    return None if stated else found


def without_source(puzzle: Puzzle, addresses: Iterable[str | None]) -> str:
    """Why `source_game` found nothing among candidates of these addresses.

    `history_mismatch`: the stated source game is there, but does not lead to the FEN;
    `no_source_game`: no game does.
    """
    stated = any(_is_stated(puzzle, address) for address in addresses)
    return "history_mismatch" if stated else "no_source_game"


def _is_stated(puzzle: Puzzle, address: str | None) -> bool:
    return bool(puzzle.game and address) and game_key(puzzle.game) == game_key(address)


def with_history(puzzle: Puzzle, history: Iterable[str]) -> Puzzle:
    """The same puzzle with the moves of its game up to the FEN, which are not checked here."""
    return replace(puzzle, history=tuple(history))
