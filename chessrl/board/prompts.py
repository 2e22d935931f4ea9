"""What the model is shown: prompts of puzzles and pretraining documents of games."""

from collections.abc import Container, Sequence

import chess

from chessrl.board import tokens
from chessrl.board.puzzles import Puzzle
from chessrl.board.splits import Position, position_key, unit_hash

Document = tuple[list[int], list[bool]]
"""Tokens, and for each whether it is to be predicted."""


def puzzle_prompt(puzzle: Puzzle, form: str) -> list[int]:
    """Tokens of a puzzle up to the solver's first move, `<bos>` first.

    `board` renders the position the solver sees; `history` writes every move of the source game and
    the opponent's last.

    Raises:
        ValueError: the form is `history` and the puzzle's source game is unknown.
    """
    if form == "board":
        return [tokens.BOS, *tokens.encode_board(puzzle.board())]
    if puzzle.history is None:
        raise ValueError(f"puzzle {puzzle.id} does not come with the moves of its game")
    moves = [chess.Move.from_uci(uci) for uci in (*puzzle.history, puzzle.moves[0])]
    return [tokens.BOS, *tokens.encode_line(chess.Board(), moves)]


def answer_tokens(puzzle: Puzzle) -> tuple[list[int], list[bool]]:
    """The solver's moves, each closed by `<call_env>`, with the recorded replies between them.

    Returns:
        Tokens, and for each whether the model has to write it: replies are the environment's.
    """
    board = puzzle.board()
    ids: list[int] = []
    ours: list[bool] = []
    for number, uci in enumerate(puzzle.moves[1:]):
        solver = number % 2 == 0
        written = tokens.push_encoded(board, chess.Move.from_uci(uci))
        if solver:
            written.append(tokens.CALL_ENV)
        ids += written
        ours += [solver] * len(written)
    return ids, ours


def game_documents(
    moves: Sequence[str],
    form: str,
    plies: int = 0,
    held_out: Container[Position] = frozenset(),
) -> list[Document] | None:
    """Pretraining documents of one game, in one replay; None where it reaches a held-out position.

    `history`: the whole game. `board`: the game is cut every `plies` plies, from a first cut that
    depends on its moves alone, and each piece opens with its position; 0 makes one document that
    runs from a ply of the game to its end. The document that reaches the end closes with `<eos>`.
    """
    starts = document_starts(moves, form, plies)
    board = chess.Board()
    documents: list[Document] = []
    ids: list[int] = []
    targets: list[bool] = []
    for ply, uci in enumerate(moves):
        if position_key(board) in held_out:
            return None
        if ply in starts:
            ids = [tokens.BOS] if form == "history" else [tokens.BOS, *tokens.encode_board(board)]
            targets = [False] * len(ids)
            documents.append((ids, targets))
        written = tokens.push_encoded(board, chess.Move.from_uci(uci))
        ids += written
        targets += [True] * len(written)
    if position_key(board) in held_out:
        return None
    ids.append(tokens.EOS)
    targets.append(True)
    return documents


def document_starts(moves: Sequence[str], form: str, plies: int) -> range:
    """Plies at which the documents of a game start."""
    first = unit_hash(" ".join(moves), "cut")
    if form == "history":
        return range(1)
    if not plies:
        return range(int(first * len(moves)), len(moves), len(moves))
    return range(int(first * min(plies, len(moves))), len(moves), plies)
