"""The joint law: pretraining sets level and slope, RL moves along them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike


@dataclass(frozen=True)
class LossSurface:
    """Pretraining loss `E + A / N^alpha + B / T^beta`, in nats per token."""

    e: float
    a: float
    alpha: float
    b: float
    beta: float

    def predict(self, n_params: ArrayLike, tokens: ArrayLike) -> np.ndarray:
        """Loss after so many tokens; the arguments broadcast. No token at all is infinite loss."""
        n_params, tokens = np.asarray(n_params, float), np.asarray(tokens, float)
        with np.errstate(divide="ignore"):
            return self.e + self.a * n_params**-self.alpha + self.b * tokens**-self.beta

    def optimal_tokens(self, n_params: ArrayLike) -> np.ndarray:
        """Tokens of the budget `6 N T` of which N is the best size for the loss alone."""
        n_params = np.asarray(n_params, float)
        worth = self.beta * self.b / (self.alpha * self.a)
        return (worth * n_params**self.alpha) ** (1 / self.beta)


@dataclass(frozen=True)
class Exponential:
    """`offset + scale exp(-rate x)`."""

    offset: float
    scale: float
    rate: float

    def predict(self, x: ArrayLike) -> np.ndarray:
        """Its value at each x."""
        return self.offset + self.scale * np.exp(-self.rate * np.asarray(x, float))


@dataclass(frozen=True)
class Slope:
    """Reward per factor of ten of RL compute: `constant + tokens log10 T + params log10 N`."""

    constant: float
    tokens: float
    params: float

    def predict(self, n_params: ArrayLike, tokens: ArrayLike) -> np.ndarray:
        """The slope of a model of that size after so many tokens."""
        return self.constant + self.tokens * np.log10(tokens) + self.params * np.log10(n_params)


@dataclass(frozen=True)
class JointLaw:
    """`R = f(L) + g(N, T) (log10 C_RL - log10 anchor)`, never below the reward without RL."""

    loss: LossSurface
    anchor: float
    """FLOPs of RL at which the reward is f(L)."""
    reward: Exponential
    """f: reward at the anchor against the loss."""
    slope: Slope
    """g."""
    floor: Exponential
    """R0: reward without RL against the loss."""
    max_loss: float = np.inf
    """Losses from here on are outside the law."""

    def holds(self, n_params: ArrayLike, tokens: ArrayLike) -> np.ndarray:
        """Whether the law speaks of such models: loss below `max_loss`, RL that does not harm.

        Where the line of slopes falls below 0 a budget short of the anchor would seem to gain
        from less pretraining.
        """
        slope = self.slope.predict(n_params, tokens)
        return (self.loss.predict(n_params, tokens) < self.max_loss) & (slope >= 0)

    def attainable(self, n_params: ArrayLike, tokens: ArrayLike, rl_flops: ArrayLike) -> np.ndarray:
        """What `predict` says where the law holds; -inf elsewhere, and without any token."""
        tokens = np.asarray(tokens, float)
        some = np.where(tokens > 0, tokens, 1.0)
        held = (tokens > 0) & self.holds(n_params, some)
        return np.where(held, self.predict(n_params, some, rl_flops), -np.inf)

    def predict(
        self,
        n_params: ArrayLike,
        tokens: ArrayLike,
        rl_flops: ArrayLike,
        loss: ArrayLike | None = None,
    ) -> np.ndarray:
        """Reward in [0, 1] of models after pretraining and RL; the arguments broadcast.

        Args:
            tokens: of pretraining, more than none.
            rl_flops: FLOPs of RL; at 0 the reward is the floor.
            loss: measured after pretraining, in place of what the law says.
        """
        if loss is None:
            loss = self.loss.predict(n_params, tokens)
        with np.errstate(divide="ignore"):
            decades = np.log10(np.asarray(rl_flops, float)) - np.log10(self.anchor)
        slope = self.slope.predict(n_params, tokens)
        with np.errstate(invalid="ignore"):
            risen = self.reward.predict(loss) + slope * decades
        risen = np.where(np.isneginf(decades), -np.inf, risen)
        return np.clip(np.maximum(risen, self.floor.predict(loss)), 0.0, 1.0)
