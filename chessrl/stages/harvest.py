"""What RL has solved becomes documents: the rollouts of a run are data for the next.

Solved and well-formed episodes are judged once more, cleared of what the test knows, and written in
the form of SFT documents. Pretraining and SFT take the folder as `harvest=`.
"""

import glob
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from chessrl.artifacts import Result, read_json, sha256
from chessrl.board import tokens
from chessrl.board.episodes import SOLVED
from chessrl.board.hashes import HashSet
from chessrl.board.placements import position_arrays, solver_positions_of
from chessrl.board.positions import position_hashes
from chessrl.board.puzzles import Puzzle, read_puzzles
from chessrl.board.skips import SkipReport
from chessrl.config import InputError, Run
from chessrl.progress import Meter
from chessrl.stages.batches import DatasetWriter
from chessrl.stages.contents import rollout_files, rollouts_content
from chessrl.stages.puzzles import solver_positions
from chessrl.stages.replays import check
from chessrl.stages.rollout_files import FOLDER, Recorded, episodes_of, read_table
from chessrl.stages.runs import folder, inherited, parent, working

RULE = (
    "solved and well-formed episodes of puzzles none of whose solver positions is one of the test; "
    "equal token sequences once, by the last; of each puzzle the latest"
)
Document = tuple[list[int], list[bool]]
"""Tokens, and for each whether it is to be predicted."""


def harvest(run: Run) -> Result:
    """Write a document for each episode of RL that is worth learning from.

    Raises:
        InputError: there is none, or an episode is not what its file says.
    """
    out = folder(run, "harvest")
    if (done := out.finished) is not None:
        return done
    prepared = parent(run, "prepare").path
    source = None if run.harvest.rollouts else parent(run, "rl")
    pattern = run.harvest.rollouts or glob.escape(str(source.path / FOLDER))
    files = rollout_files(pattern)
    test = prepared / "puzzles" / "test.csv"
    known = Contaminated(read_puzzles(test, SkipReport()))
    result = inherited(run, "harvest")
    result.model = source.finished.model if source is not None else ""
    began = time.monotonic()
    with working(run, out, "harvest"), Meter("harvest", len(files), "files") as meter:
        skipped: Counter[str] = Counter()
        latest, episodes = Latest(run.harvest.per_puzzle), 0
        for number, (path, _) in enumerate(files, 1):
            for one in episodes_of(read_table(path)):
                episodes += 1
                if one.ended_by != SOLVED:
                    skipped[one.ended_by] += 1
                elif not one.well_formed:
                    skipped["ill_formed"] += 1
                else:
                    check(one, run.prompt.form, path)
                    if known.has(one.puzzle):
                        skipped["contaminated"] += 1
                        continue
                    latest.add(one.puzzle.id, document(one))
            meter.advance(number)
        skipped.update(latest.skipped)
        reasons = dict(sorted((+skipped).items()))
        if not latest.kept:
            raise InputError(
                f"none of {episodes} episodes in {pattern} can be harvested: "
                + ", ".join(f"{count} {reason}" for reason, count in reasons.items())
            )
        writer = DatasetWriter(out.path / "train")
        for ids, targets in latest.documents():
            writer.add(ids, targets)
        writer.close()
        out.describe(
            {
                "vocabulary": tokens.VOCABULARY_HASH,
                "prompt": run.prompt.form,
                "test": sha256(test),
                "rollouts": {"content": rollouts_content(pattern), "files": len(files)},
                "rule": RULE,
                "episodes": episodes,
                "kept": writer.documents,
                "skipped": reasons,
            }
        )
        result.measures = {
            "episodes": float(episodes),
            "documents": float(writer.documents),
            "puzzles": float(len(latest.kept)),
            "tokens": float(writer.tokens),
            "targets": float(writer.targets),
            **{f"skipped_{reason}": float(count) for reason, count in reasons.items()},
        }
        result.seconds = time.monotonic() - began
        out.write(result)
    return result


def documents_of(run: Run, given: str) -> Path:
    """The documents of a harvest, as this run may use them.

    Raises:
        InputError: the folder is no finished harvest, or one of another vocabulary, prompt form or
            test split, so that it may hold what this run is tested on.
    """
    place = Path(given)
    try:
        manifest = read_json(place / "manifest.json")
        finished = manifest["stage"] == "harvest" and (
            Result.read(place / "result.json").status == "done"
        )
    except (OSError, ValueError, KeyError):
        finished = False
    if not finished:
        raise InputError(f"harvest={given}: no finished harvest; name the folder that one left")
    test = sha256(parent(run, "prepare").path / "puzzles" / "test.csv")
    for what, theirs, ours in (
        ("vocabulary", manifest["vocabulary"], tokens.VOCABULARY_HASH),
        ("prompt form", manifest["prompt"], run.prompt.form),
        ("test split", manifest["test"], test),
    ):
        if theirs != ours:
            raise InputError(
                f"harvest={given} was made for {what} {theirs[:16]}, this run has {ours[:16]}: "
                "harvest again with the settings of this run"
            )
    return place / "train"


class Contaminated:
    """Tells puzzles by what the test knows of them."""

    def __init__(self, test: Sequence[Puzzle]) -> None:
        """`test`: the puzzles of the test split."""
        self._test: HashSet = solver_positions(test)
        self._asked: dict[tuple[str, tuple[str, ...]], bool] = {}

    def has(self, puzzle: Puzzle) -> bool:
        """Whether a solver of the test sees what the solver sees at any turn of this puzzle."""
        key = puzzle.fen, puzzle.moves
        if key not in self._asked:
            seen = position_hashes(*position_arrays(solver_positions_of(puzzle)))
            self._asked[key] = bool(self._test.contains(seen).any())
        return self._asked[key]


class Latest:
    """The latest documents of each puzzle, equal ones once, by the last of them."""

    def __init__(self, per_puzzle: int) -> None:
        """`per_puzzle`: documents of each at most."""
        self.per_puzzle = per_puzzle
        self.kept: dict[str, dict[bytes, list[bool]]] = {}
        """Tokens and targets by the puzzle's id, the oldest first."""
        self._offered = 0
        self._different: set[tuple[str, bytes]] = set()

    def add(self, puzzle: str, new: Document) -> None:
        """Offer a document, later ones later."""
        ids, targets = bytes(new[0]), new[1]
        self._offered += 1
        self._different.add((puzzle, ids))
        mine = self.kept.setdefault(puzzle, {})
        mine.pop(ids, None)
        mine[ids] = targets
        if len(mine) > self.per_puzzle:
            del mine[next(iter(mine))]

    @property
    def skipped(self) -> Counter[str]:
        """How many of those offered are not kept, and why."""
        kept = sum(map(len, self.kept.values()))
        different = len(self._different)
        return Counter(duplicate=self._offered - different, beyond_per_puzzle=different - kept)

    def documents(self) -> Iterator[Document]:
        """Those kept, by puzzle in the order in which they were first met."""
        for mine in self.kept.values():
            for ids, targets in mine.items():
                yield list(ids), targets


def document(one: Recorded) -> Document:
    """An episode as an SFT document: what the model wrote is to be predicted, nothing else."""
    return one.prompt + one.tokens, [False] * len(one.prompt) + one.sampled
