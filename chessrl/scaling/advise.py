"""How to divide what is left: pretrain on, and when to switch to RL."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from chessrl.compute import TRAIN
from chessrl.config import InputError
from chessrl.scaling.joint import JointLaw

SHARES = 2001
"""Parts of the budget that are tried for pretraining, evenly spaced over 0 to 1."""


@dataclass(frozen=True)
class Advice:
    """The best use of a remaining budget by a law."""

    more_tokens: float
    """To pretrain on before RL."""
    tokens_low: float
    tokens_high: float
    """Least and most that lose at most epsilon, and where there are other laws, that they want."""
    loss: float
    """Expected when RL begins, in nats per token."""
    rl_flops: float
    reward: float
    reward_now: float
    """Reward if RL began at once and had the whole budget; NaN outside the law."""
    spread: float
    """Standard deviation of the reward over the other laws; 0 without any."""


def advise(
    law: JointLaw,
    n_params: float,
    tokens: float,
    flops: float,
    loss: float | None = None,
    sft_flops: float = 0.0,
    epsilon: float = 0.005,
    others: Sequence[JointLaw] = (),
) -> Advice:
    """Divide a remaining budget between more pretraining and RL.

    Where a loss was measured the part of the loss law above E is scaled to go through it.

    Args:
        tokens: pretraining so far.
        flops: what is left, SFT included.
        loss: measured after `tokens`, in nats per token.
        epsilon: reward that may be lost within the band of tokens.
        others: refits of the law to resampled runs, for the uncertainty.

    Raises:
        InputError: the budget does not pay for SFT, the loss cannot be one of the law, or the law
            does not hold of anything within reach.
    """
    left = flops - sft_flops
    if left <= 0:
        raise InputError(
            f"{flops:.3g} FLOPs do not pay for SFT at {sft_flops:.3g}: nothing is left"
        )
    shares = np.linspace(0, 1, SHARES)
    rewards, losses, reachable = _rewards(law, n_params, tokens, left, loss, shares)
    if not np.isfinite(rewards).any():
        raise InputError(
            f"the law does not hold of {n_params:.3g} parameters after up to "
            f"{reachable[-1]:.3g} tokens: give a larger budget or a smaller model"
        )
    best = int(rewards.argmax())
    near = np.flatnonzero(rewards >= rewards[best] - epsilon)
    low, high = shares[near[0]], shares[near[-1]]
    found = []
    for other in others:
        theirs, _, _ = _rewards(other, n_params, tokens, left, loss, shares)
        if np.isfinite(theirs).any():
            low = min(low, shares[theirs.argmax()])
            high = max(high, shares[theirs.argmax()])
            found.append(theirs[best])
    found = [reward for reward in found if np.isfinite(reward)]
    per_share = left / (TRAIN * n_params)
    return Advice(
        more_tokens=float(shares[best] * per_share),
        tokens_low=float(low * per_share),
        tokens_high=float(high * per_share),
        loss=float(losses[best]),
        rl_flops=float(left * (1 - shares[best])),
        reward=float(rewards[best]),
        reward_now=float(rewards[0]) if np.isfinite(rewards[0]) else float("nan"),
        spread=float(np.std(found, ddof=1)) if len(found) > 1 else 0.0,
    )


def through(law: JointLaw, n_params: float, tokens: float, loss: float | None) -> JointLaw:
    """The law with the part of its loss above E scaled to what was measured.

    Raises:
        InputError: the loss does not lie above E.
    """
    if loss is None:
        return law
    surface = law.loss
    if loss <= surface.e:
        raise InputError(
            f"advise.loss={loss:g} is not above the law's least, {surface.e:g} nats per token: "
            "losses of another tokeniser or data need a law of their own"
        )
    factor = (loss - surface.e) / float(surface.predict(n_params, tokens) - surface.e)
    return replace(law, loss=replace(surface, a=surface.a * factor, b=surface.b * factor))


def _rewards(
    law: JointLaw, n_params: float, tokens: float, left: float, loss: float | None, shares
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Reward (-inf outside the law), loss and tokens when each share of what is left pretrains."""
    law = through(law, n_params, tokens, loss)
    reached = tokens + shares * left / (TRAIN * n_params)
    rewards = law.attainable(n_params, reached, left * (1 - shares))
    return rewards, law.loss.predict(n_params, reached), reached
