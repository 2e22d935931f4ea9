"""What the model is shown of a puzzle; `documents.py` writes games in the same form."""

import chess

from chessrl.board import tokens
from chessrl.board.puzzles import Puzzle


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
