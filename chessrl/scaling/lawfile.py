"""A joint law as settings: read from `conf/law`, written as a file of that group."""

from dataclasses import asdict

import yaml

from chessrl.config import LawConfig
from chessrl.scaling.joint import Exponential, JointLaw, LossSurface, Slope


def law_of(config: LawConfig) -> JointLaw:
    """The law that settings hold."""
    return JointLaw(
        loss=LossSurface(**asdict(config.loss)),
        anchor=config.anchor,
        reward=Exponential(**asdict(config.reward)),
        slope=Slope(**asdict(config.slope)),
        floor=Exponential(**asdict(config.floor)),
        max_loss=config.max_loss,
    )


def law_yaml(law: JointLaw, error: float) -> str:
    """The settings that hold a law, with all digits; a file of it is an option of `law=`.

    Args:
        error: RMSE of its predictions for runs that it was not fitted to.
    """
    settings = {
        "loss": {name: float(getattr(law.loss, name)) for name in ("e", "a", "alpha", "b", "beta")},
        "anchor": float(law.anchor),
        "reward": {name: float(value) for name, value in asdict(law.reward).items()},
        "slope": {name: float(value) for name, value in asdict(law.slope).items()},
        "floor": {name: float(value) for name, value in asdict(law.floor).items()},
        "max_loss": float(law.max_loss),
        "error": float(error),
    }
    return yaml.safe_dump(settings, sort_keys=False)
