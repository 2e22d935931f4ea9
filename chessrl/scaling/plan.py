"""What a sweep would do and what it would cost, from its configurations alone.

FLOPs of pretraining are known beforehand; those of the other stages depend on how long thoughts and
episodes get, and are estimated: by the run itself where it is finished, else by the budget's mean
tokens, else by finished runs of the same stage.
"""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from chessrl import compute
from chessrl.artifacts import Result
from chessrl.board import tokens
from chessrl.board.puzzles import BINS
from chessrl.config import Run
from chessrl.policy.optim import branching_step
from chessrl.scaling.speed import COUNTED, Speed
from chessrl.stages.pipeline import stages_of
from chessrl.stages.runs import folder, run_identity


@dataclass
class Planned:
    """A stage of a cell."""

    flops: float | None
    """By the study's accounting; None where nothing tells."""
    spent: float | None
    """Of these, what is still to be spent on it."""
    state: str
    """`finished`, `shared` with a cell before, or `to do`."""


@dataclass
class PlannedCell:
    """A cell: its stages that cost FLOPs, and the time it adds."""

    told: str
    """What it was told and others were not, or why it is refused."""
    stages: dict[str, Planned] = field(default_factory=dict)
    seconds: float = 0.0
    """Of what is to be done, evaluations included; stages without an estimate are left out."""
    refused: bool = False


class Plan:
    """Cells in their order; what one does is shared by those after it."""

    def __init__(self, results: Iterable[Result]) -> None:
        """Args:
        results: of the runs that there are.
        """
        self._results = [result for result in results if result.status == "done"]
        self.speed = Speed(self._results)
        self.cells: list[PlannedCell] = []
        self._seen: set[str] = set()
        self._trunks: dict[str, float] = {}
        """FLOPs up to which each trunk will have grown."""

    def refuse(self, told: str) -> None:
        """Add a cell whose configuration is refused."""
        self.cells.append(PlannedCell(told, refused=True))

    def add(self, told: str, run: Run) -> None:
        """Add a cell by its configuration."""
        cell = PlannedCell(told)
        for one in stages_of(run):
            self._add_stage(cell, one)
        self.cells.append(cell)

    def _add_stage(self, cell: PlannedCell, run: Run) -> None:
        stage, name = run.stage, run_identity(run, run.stage)
        finished = folder(run, stage).finished
        state = "shared" if name in self._seen else "to do" if finished is None else "finished"
        self._seen.add(name)
        if stage in COUNTED:
            flops = self._flops(run) if finished is None else finished.flops[stage]
            spent: float | None = 0.0
            if state == "to do":
                spent = self._beyond_trunk(run, flops) if stage == "pretrain" else flops
            cell.stages[stage] = Planned(flops, spent, state)
            if spent:
                cell.seconds += self.speed.seconds(stage, run.model, spent)
        elif state == "to do" and stage == "prepare":
            cell.seconds += self.speed.prepare()
        elif state == "to do" and stage == "evaluate":
            puzzles = run.evaluate.puzzles or run.data.selection.test_per_bin * len(BINS)
            episodes = float(puzzles * run.evaluate.samples)
            cell.seconds += self.speed.seconds(stage, run.model, episodes)

    def _flops(self, run: Run) -> float | None:
        """What a stage that is not finished is expected to cost."""
        active = compute.active_parameters(run.model, len(tokens.TOKENS))
        budget = run.budget
        if run.stage == "pretrain":
            return compute.training_flops(active, run.pretrain.tokens)
        if run.stage == "rl":
            episode = budget.prompt_tokens + budget.response_tokens or self._tokens("rl", True)
            return episode and compute.rl_step_flops(active, run.rl, episode) * run.rl.steps
        expected = {"traces": budget.traces_tokens, "sft": budget.sft_tokens}[run.stage]
        read = expected or self._tokens(run.stage)
        if read is None:
            return None
        per_token = compute.TRAIN if run.stage == "sft" else compute.FORWARD
        return per_token * active * read

    def _tokens(self, stage: str, by_episode: bool = False) -> float | None:
        """Median tokens of the finished runs of a stage, or of their episodes."""
        found = [
            result.tokens[stage] / (result.measures["episodes"] if by_episode else 1)
            for result in self._results
            if result.stage == stage
        ]
        return statistics.median(found) if found else None

    def _beyond_trunk(self, run: Run, flops: float) -> float:
        """What pretraining spends where it leaves a trunk that other cells have made grow."""
        optim = run.pretrain.optim
        if optim.schedule != "wsd":
            return flops
        steps = max(round(run.pretrain.tokens / run.pretrain.batch_tokens), 1)
        until = flops * branching_step(optim, steps) / steps
        name = run_identity(run, "trunk")
        if name not in self._trunks:
            trunk = folder(run, "trunk").result
            self._trunks[name] = trunk.measures.get("flops_spent", 0.0) if trunk else 0.0
        grows = max(until - self._trunks[name], 0.0)
        self._trunks[name] += grows
        return grows + flops - until


def totals(cells: Sequence[PlannedCell]) -> tuple[float, float, float]:
    """FLOPs of all cells, FLOPs still to be spent, and seconds for that."""
    stages = [stage for cell in cells for stage in cell.stages.values()]
    return (
        sum(stage.flops or 0.0 for stage in stages),
        sum(stage.spent or 0.0 for stage in stages),
        sum(cell.seconds for cell in cells),
    )
