"""Settings of the stage that makes documents of what RL has solved."""

from dataclasses import dataclass

from chessrl.config.base import operational, require


@dataclass(kw_only=True)
class HarvestConfig:
    """Which episodes of RL become documents to train on."""

    per_puzzle: int
    """Documents of each puzzle at most: the latest, equal ones counted once."""
    rollouts: str | None = operational(None)
    """Files of episodes, a glob of them or of run folders, instead of the RL run's of these
    settings; their content takes part in the identity."""

    def __post_init__(self) -> None:
        require(self.per_puzzle > 0, f"harvest.per_puzzle={self.per_puzzle} must be positive")
