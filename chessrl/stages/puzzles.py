"""The puzzles of prepare: read, find their games where prompts need them, choose, split."""

from collections import defaultdict
from collections.abc import Iterable

from chessrl.board.hashes import HashSet
from chessrl.board.histories import Candidate, source_game, with_history, without_source
from chessrl.board.matching import FindGames, Key, fen_keys
from chessrl.board.placements import position_arrays, solver_position
from chessrl.board.positions import position_hashes
from chessrl.board.puzzles import Puzzle, read_puzzles
from chessrl.board.selection import select_puzzles
from chessrl.board.skips import Skip, SkipReport
from chessrl.board.splits import game_key, split_puzzles
from chessrl.config import InputError, Run
from chessrl.progress import say
from chessrl.stages.passes import over_blocks


def prepare_puzzles(run: Run, report: SkipReport) -> dict[str, list[Puzzle]]:
    """The puzzles of `sft`, `rl` and `test`; all others are counted in `report`.

    Raises:
        InputError: the file is no puzzle file, or no puzzle is left.
    """
    file, selection = run.data.puzzles, run.data.selection
    try:
        puzzles = read_puzzles(file, report, run.data.workers)
    except ValueError as error:
        raise InputError(str(error)) from error
    if run.prompt.form == "history":
        puzzles = with_games(run, puzzles, report)
    puzzles = select_puzzles(puzzles, selection, report, file)
    if not puzzles:
        reasons = ", ".join(f"{n} {reason}" for reason, n in report.counts.items()) or "no rows"
        raise InputError(f"{file}: no usable puzzle ({reasons})")
    splits = split_puzzles(
        puzzles,
        sft=selection.sft,
        test_per_bin=selection.test_per_bin,
        rl_easy=selection.rl_easy,
    )
    for puzzle in splits.pop("unused", []):
        report.add(Skip(file, 0, 0, "beyond_rl_easy", puzzle.id))
    return splits


def with_games(run: Run, puzzles: list[Puzzle], report: SkipReport) -> list[Puzzle]:
    """The puzzles whose source game is known, or found among the games of the sources.

    A game that is found this way is left out of training like any that reaches a puzzle.
    """
    lacking = [puzzle for puzzle in puzzles if puzzle.history is None]
    if not lacking:
        return puzzles
    candidates = _candidates(run, lacking)
    known = {}
    for puzzle in lacking:
        games = candidates.get(puzzle.id, [])
        history = source_game(puzzle, games)
        if history is not None:
            known[puzzle.id] = with_history(puzzle, history)
        else:
            reason = without_source(puzzle, (address for _, address in games))
            report.add(Skip(run.data.puzzles, 0, 0, reason, puzzle.id))
    say(f"prepare: {len(known):,} of {len(lacking):,} puzzles found their game in the sources")
    found = (known.get(puzzle.id, puzzle) for puzzle in puzzles)
    return [puzzle for puzzle in found if puzzle.history is not None]


def _candidates(run: Run, puzzles: list[Puzzle]) -> dict[str, list[Candidate]]:
    """Games that may be the source, by the puzzle's id: the stated ones, and a few others."""
    by_key: dict[Key, list[Puzzle]] = defaultdict(list)
    by_game: dict[str, list[Puzzle]] = defaultdict(list)
    for key, puzzle in zip(fen_keys(puzzles), puzzles, strict=True):
        by_key[key].append(puzzle)
        if puzzle.game:
            by_game[game_key(puzzle.game)].append(puzzle)
    candidates: dict[str, list[Candidate]] = defaultdict(list)
    for met in over_blocks(run, "games of puzzles", FindGames(by_key, by_game)):
        for game in met:
            stated = game.key is None
            for puzzle in by_game[game_key(game.site)] if stated else by_key[game.key]:
                known = candidates[puzzle.id]
                if stated or len(known) < ENOUGH:
                    known.append((game.moves, game.site))
    return candidates


ENOUGH = 8
"""Games kept of each puzzle that are not its stated source: one with its castling rights is."""


def solver_positions(puzzles: Iterable[Puzzle]) -> HashSet:
    """Hashes of the positions that the solvers see: placement and side to move."""
    return HashSet(position_hashes(*position_arrays(map(solver_position, puzzles))))
