"""Signs that an RL run is broken, told while it runs.

Each was met by others: a scorer that failed ended as reward 0, a policy collapsed to one answer,
answers grew until they were cut off, sampler and trainer disagreed.
"""

from collections import deque
from collections.abc import Mapping
from typing import Any

WINDOW = 5
"""Updates over which a measure is averaged."""
HORIZON = 20
"""Updates within which a reward that halves is a sign."""
FORMAT = 0.95
"""Share of closed thoughts that counts as a steady format."""
SOLVED = 50
"""Episodes that the best window must have solved, or its halving may be chance."""
ENTROPY_LEFT = 0.25
"""Share of the first window's entropy below which the policy has collapsed."""
TRUNCATED = 0.10
"""Share of truncated episodes from which runs become unstable (ScaleRL)."""
RATIO_OFF = {"32-true": 1e-3, "bf16-mixed": 0.2}
"""How far the mean ratio may lie from 1 in the first update, by precision."""


class Alarms:
    """Looks at the measures of each update; its memory is its state."""

    def __init__(self, precision: str) -> None:
        self.precision = precision
        self.rows: deque[dict[str, float]] = deque(maxlen=WINDOW + HORIZON)
        self.first_entropy: list[float] = []
        self.ringing: set[str] = set()

    def look(self, step: int, measures: Mapping[str, float]) -> list[str]:
        """What to say after an update: each sign once, when it begins.

        Args:
            step: of the update, from 0.
            measures: reward, solved (episodes), thought_closed, ended_truncated, entropy,
                ratio_mean where tokens were trained on.
        """
        names = ("reward", "solved", "thought_closed", "ended_truncated", "entropy")
        self.rows.append({name: float(measures[name]) for name in names})
        if len(self.first_entropy) < WINDOW:
            self.first_entropy.append(float(measures["entropy"]))
        signs = self._signs()
        off = abs(float(measures.get("ratio_mean", 1.0)) - 1)
        if step == 0 and off > RATIO_OFF[self.precision]:
            signs["ratio"] = (
                f"the first update is of the sampling policy, but its mean ratio lies {off:.4f} "
                "off 1: sampling and training disagree (precision, dropout, temperature)"
            )
        new = [text for name, text in signs.items() if name not in self.ringing]
        self.ringing = set(signs)
        return new

    def _signs(self) -> dict[str, str]:
        if len(self.rows) < WINDOW:
            return {}
        now = self._mean(len(self.rows) - WINDOW)
        windows = [self._mean(first) for first in range(len(self.rows) - WINDOW + 1)]
        best = max(windows, key=lambda row: row["reward"])
        signs = {}
        if (
            now["thought_closed"] >= FORMAT
            and best["solved"] * WINDOW >= SOLVED
            and now["reward"] <= best["reward"] / 2
        ):
            signs["reward"] = (
                f"reward fell from {best['reward']:.3f} to {now['reward']:.3f} while the format "
                "stayed good: look at the judge, or lower the learning rate"
            )
        start = sum(self.first_entropy) / len(self.first_entropy)
        if now["entropy"] < ENTROPY_LEFT * start:
            signs["entropy"] = (
                f"entropy fell from {start:.3f} to {now['entropy']:.3f} nats per token: the policy "
                "collapses; lower the learning rate or raise rl.loss.high"
            )
        if now["ended_truncated"] > TRUNCATED:
            signs["truncated"] = (
                f"{now['ended_truncated']:.0%} of the episodes run out of tokens: raise "
                "rl.max_new_tokens, or set rl.length.control"
            )
        return signs

    def _mean(self, first: int) -> dict[str, float]:
        rows = list(self.rows)[first : first + WINDOW]
        return {name: sum(row[name] for row in rows) / WINDOW for name in rows[0]}

    def state(self) -> dict[str, Any]:
        """All that it remembers, as plain data."""
        return {
            "rows": list(self.rows),
            "first_entropy": list(self.first_entropy),
            "ringing": sorted(self.ringing),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Remember that."""
        self.rows = deque(state["rows"], maxlen=WINDOW + HORIZON)
        self.first_entropy = list(state["first_entropy"])
        self.ringing = set(state["ringing"])
