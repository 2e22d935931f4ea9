"""Puzzles from games: positions with exactly one winning answer.

Mates in one and two are searched exactly; other wins need a judge, which is an engine. What makes
a win unique and new follows the published rules of the Lichess puzzle generator; none of its code
is used.
"""

from collections.abc import Callable, Sequence
from hashlib import blake2b

import chess

from chessrl.board import difficulty
from chessrl.board.engine import Judged
from chessrl.board.mates import hardest_reply, mates_in_one, mates_in_two
from chessrl.board.puzzles import Puzzle
from chessrl.config import MineConfig

__all__ = ["Judge", "looked_at", "mates_in_one", "mates_in_two", "mine_game"]

Judge = Callable[[chess.Board], list[Judged]]
"""Best two moves of a position, best first; one where only one is legal."""
CRUSHING = 600
"""Centipawns from which an advantage is crushing; a mate not played out is crushing too."""
OPENING_MOVES = 10
"""Last move number that counts as the opening."""
ENDGAME_OFFICERS = 6
"""Pieces of both sides, without kings and pawns, up to which it is an endgame."""
LENGTHS = {1: "oneMove", 2: "short", 3: "long"}
"""Themes of Lichess for the number of solver moves; more is `veryLong`."""

_Line = list[chess.Move]


def mine_game(
    moves: Sequence[str],
    settings: MineConfig,
    judge: Judge | None = None,
    game: str | None = None,
) -> list[Puzzle]:
    """Puzzles of one game, the latest first.

    Where there is a mate of `settings.mates` moves or fewer, it is a puzzle if exactly one move
    forces the shortest. Where there is none, the judge decides: exactly one move wins, the solver
    was not winning before the opponent's move and has gained `settings.margin` by it, and the
    line goes on as long as the judge's answers are the only ones. A position with one legal move
    is no puzzle.

    Args:
        moves: a legal game from the usual start, in UCI.
        settings: positions looked at, and what counts as a win.
        judge: None finds exact mates only.
        game: what the puzzles call the game; `splits.game_key` has to tell games apart by it.

    Raises:
        InputError: the judge fails.
    """
    plies = _window(len(moves), settings)
    board = chess.Board()
    before: dict[int, chess.Board] = {}
    for ply, uci in enumerate(moves, 1):
        if ply in plies:
            before[ply] = board.copy(stack=False)
        board.push(chess.Move.from_uci(uci))
    judge = _remembered(judge) if judge else None
    puzzles: list[Puzzle] = []
    for ply in plies:
        solver = before[ply].copy(stack=False)
        solver.push_uci(moves[ply - 1])
        found = _solution(before[ply], solver, settings, judge)
        if found is not None:
            puzzles.append(_puzzle(before[ply], moves[:ply], *found, game))
        if len(puzzles) == settings.per_game:
            break
    return puzzles


def looked_at(plies: int, settings: MineConfig, puzzles: Sequence[Puzzle]) -> int:
    """Positions that `mine_game` looked at in a game of so many plies to find these puzzles."""
    window = _window(plies, settings)
    if len(puzzles) < settings.per_game:
        return len(window)
    return plies - len(puzzles[-1].history)


def _window(plies: int, settings: MineConfig) -> range:
    """Plies after which the solver is to move, latest first; before the first, there is no game."""
    first = plies - settings.last_plies + 1 if settings.last_plies else 0
    return range(plies, max(2, first) - 1, -1)


def _remembered(judge: Judge) -> Judge:
    """The judge, asked once for each position: the one before a move is looked at in its turn."""
    known: dict[str, list[Judged]] = {}

    def ask(board: chess.Board) -> list[Judged]:
        fen = board.fen()
        if fen not in known:
            known[fen] = judge(board)
        return known[fen]

    return ask


def _solution(
    before: chess.Board, solver: chess.Board, settings: MineConfig, judge: Judge | None
) -> tuple[_Line, str] | None:
    """Line from the solver's first move on, and the theme of a win that is no mate."""
    if solver.legal_moves.count() < 2:
        return None
    if mates := mates_in_one(solver, 2) if settings.mates else []:
        return (mates, "") if len(mates) == 1 else None
    if firsts := mates_in_two(solver, 2) if settings.mates == 2 else []:
        if len(firsts) > 1:
            return None
        board = solver.copy(stack=False)
        board.push(firsts[0])
        return [firsts[0], *hardest_reply(board)], ""
    if judge is None:
        return None
    answers = judge(solver)
    if not _only(answers, settings):
        return None
    had = 1 - judge(before)[0].win
    if had >= settings.winning or answers[0].win - had < settings.margin:
        return None
    worth = answers[0].centipawns
    theme = "crushing" if worth is None or worth >= CRUSHING else "advantage"
    return _extended(solver, answers[0].move, settings, judge), theme


def _only(answers: list[Judged], settings: MineConfig) -> bool:
    """Whether the best move wins and no other does; it may be the only legal one."""
    best = answers[0].win
    if best < settings.winning:
        return False
    return len(answers) == 1 or best - answers[1].win >= settings.margin


def _extended(solver: chess.Board, first: chess.Move, settings: MineConfig, judge: Judge) -> _Line:
    """The first move, and what follows while the solver has exactly one answer.

    A mate in one ends the line, however many there are. A forced move goes along within the line,
    but does not end it.
    """
    board = solver.copy(stack=False)
    board.push(first)
    line, kept = [first], 1
    while len(line) // 2 + 1 < settings.max_solver_moves and any(board.legal_moves):
        reply = judge(board)[0].move
        board.push(reply)
        if not any(board.legal_moves):
            break
        if mates := mates_in_one(board):
            return [*line, reply, mates[0]]
        answers = judge(board)
        if not _only(answers, settings):
            break
        board.push(answers[0].move)
        line += [reply, answers[0].move]
        if len(answers) == 2:
            kept = len(line)
    return line[:kept]


def _puzzle(
    before: chess.Board, played: Sequence[str], line: _Line, theme: str, game: str | None
) -> Puzzle:
    """Puzzle of a position; `played` are the moves of the game, the opponent's the last."""
    moves = (played[-1], *(move.uci() for move in line))
    fen = before.fen()
    digest = blake2b(" ".join((fen, *moves)).encode(), digest_size=5).hexdigest()
    return Puzzle(
        id=f"m{digest}",
        fen=fen,
        moves=moves,
        rating=difficulty.estimate(before, moves),
        themes=_themes(before, moves, theme),
        game=game,
        history=tuple(played[:-1]),
    )


def _themes(before: chess.Board, moves: Sequence[str], theme: str) -> tuple[str, ...]:
    """Themes in the words of Lichess, sorted; the phase is that of the solver's position."""
    board = before.copy(stack=False)
    board.push_uci(moves[0])
    officers = chess.popcount(board.occupied & ~board.pawns & ~board.kings)
    if officers <= ENDGAME_OFFICERS:
        phase = "endgame"
    else:
        phase = "opening" if board.fullmove_number <= OPENING_MOVES else "middlegame"
    for uci in moves[1:]:
        board.push_uci(uci)
    solver_moves = len(moves) // 2
    won = ["mate", f"mateIn{solver_moves}"] if board.is_checkmate() else [theme]
    return tuple(sorted([*won, phase, LENGTHS.get(solver_moves, "veryLong")]))
