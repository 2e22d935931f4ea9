"""Settings of scaling laws, of the frontier read off them, and of advice."""

from dataclasses import dataclass

from chessrl.config.base import require


@dataclass(kw_only=True)
class LossLawConfig:
    """Pretraining loss in nats per token: E + A / N^alpha + B / T^beta."""

    e: float
    a: float
    alpha: float
    b: float
    beta: float

    def __post_init__(self) -> None:
        require(self.e >= 0, f"law.loss.e={self.e} must not be negative")
        for name in ("a", "alpha", "b", "beta"):
            value = getattr(self, name)
            require(value > 0, f"law.loss.{name}={value} must be positive")


@dataclass(kw_only=True)
class ExponentialConfig:
    """A reward that falls with the loss: offset + scale exp(-rate L)."""

    offset: float
    scale: float
    rate: float


@dataclass(kw_only=True)
class SlopeConfig:
    """Reward per factor of ten of RL compute: constant + tokens log10 T + params log10 N."""

    constant: float
    tokens: float
    params: float


@dataclass(kw_only=True)
class LawConfig:
    """A joint law of pretraining and RL, published or fitted."""

    loss: LossLawConfig
    anchor: float
    """FLOPs of RL at which `reward` holds."""
    reward: ExponentialConfig
    slope: SlopeConfig
    floor: ExponentialConfig
    """Reward without RL; no prediction lies below it."""
    max_loss: float
    """Pretraining that ends at this loss, in nats per token, or above is outside the law."""
    error: float
    """RMSE of its predictions for runs that it was not fitted to."""

    def __post_init__(self) -> None:
        require(self.anchor > 0, f"law.anchor={self.anchor} must be positive")
        require(
            self.max_loss > self.loss.e,
            f"law.max_loss={self.max_loss} must lie above law.loss.e={self.loss.e}",
        )
        require(self.error >= 0, f"law.error={self.error} must not be negative")


@dataclass(kw_only=True)
class BudgetsConfig:
    """Total FLOPs, spaced evenly in their logarithm."""

    low: float
    high: float
    count: int

    def __post_init__(self) -> None:
        require(
            0 < self.low < self.high,
            f"frontier.budgets: low={self.low} and high={self.high}: 0 < low < high",
        )
        require(self.count >= 2, f"frontier.budgets.count={self.count} must be at least 2")


@dataclass(kw_only=True)
class FrontierConfig:
    """Where to look for the best split of compute."""

    sizes: list[float]
    """Models to choose from, in parameters."""
    budgets: BudgetsConfig
    sft_flops: float
    """FLOPs of SFT, a part of every budget."""
    epsilon: float
    """Splits that lose at most so much reward count as equally good."""
    points: str | None
    """Table of measured points, instead of the law."""

    def __post_init__(self) -> None:
        require(
            len(self.sizes) > 0 and all(size > 0 for size in self.sizes),
            f"frontier.sizes={self.sizes}: at least one, all positive",
        )
        require(self.sft_flops >= 0, f"frontier.sft_flops={self.sft_flops} must not be negative")
        require(self.epsilon >= 0, f"frontier.epsilon={self.epsilon} must not be negative")


@dataclass(kw_only=True)
class AdviseConfig:
    """The state of a model whose remaining budget is to be divided."""

    n_params: float | None
    tokens: float
    """Pretraining so far."""
    loss: float | None
    """Measured after it, in nats per token; what the law says where it is left out."""
    flops: float | None
    """What is left to spend on pretraining, SFT and RL."""

    def __post_init__(self) -> None:
        for name in ("n_params", "loss", "flops"):
            value = getattr(self, name)
            require(value is None or value > 0, f"advise.{name}={value} must be positive")
        require(self.tokens >= 0, f"advise.tokens={self.tokens} must not be negative")
        require(
            self.loss is None or self.tokens > 0,
            "advise.loss= is the loss after advise.tokens= of pretraining: give both",
        )
