"""The published law, and RL curves that are made from it."""

import numpy as np
import pytest

from chessrl.scaling.joint import JointLaw
from chessrl.scaling.jointfit import Curves
from chessrl.scaling.lawfile import law_of


@pytest.fixture(scope="session")
def published(configure) -> JointLaw:
    """The law of the study as conf/law/pre2post.yaml holds it."""
    return law_of(configure("law=pre2post").law)


@pytest.fixture(scope="session")
def make_curves(published):
    """36 runs of the published law without its floor, 12 points of RL and one before."""

    def made(noise: float = 0.0, loss_noise: float = 0.0, seed: int = 0) -> Curves:
        dice = np.random.default_rng(seed)
        rows = []
        for size in (20.5e6, 47.3e6, 101.6e6, 203.1e6, 411.3e6, 678.6e6):
            for tokens in np.geomspace(5e9, 1e11, 6):
                loss = 0.414 + 95.4 * size**-0.404 + 1.62e5 * tokens**-0.677
                loss *= np.exp(dice.normal(0, loss_noise))
                level = 0.0314 + 129.85 * np.exp(-12.85 * loss)
                slope = -0.216 + 0.0172 * np.log10(tokens) + 0.0098 * np.log10(size)
                name = f"{size}-{tokens}"
                rows.append((name, size, tokens, loss, 0.0, 14.62 * 10 ** (-4.30 * loss)))
                for flops in np.geomspace(1e19, 1e21, 12):
                    reward = level + slope * (np.log10(flops) - 20)
                    rows.append((name, size, tokens, loss, flops, reward))
        columns = list(zip(*rows, strict=True))
        reward = np.array(columns[-1]) + dice.normal(0, noise, len(rows))
        return Curves.of(*columns[:-1], reward)

    return made
