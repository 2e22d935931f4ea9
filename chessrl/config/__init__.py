"""The whole configuration, typed and checked; see `run.py` for how it comes about."""

from chessrl.config.base import InputError, operational
from chessrl.config.data import (
    DataConfig,
    EngineConfig,
    GameFilter,
    MineConfig,
    PuzzleSelection,
)
from chessrl.config.model import ModelConfig
from chessrl.config.run import STAGES, Run, parse
from chessrl.config.training import (
    MODELS_OF,
    EvaluateConfig,
    OptimConfig,
    PretrainConfig,
    PromptConfig,
    RlConfig,
    SftConfig,
    TracesConfig,
    TrainerConfig,
)

__all__ = [
    "MODELS_OF",
    "STAGES",
    "DataConfig",
    "EngineConfig",
    "EvaluateConfig",
    "GameFilter",
    "InputError",
    "MineConfig",
    "ModelConfig",
    "OptimConfig",
    "PretrainConfig",
    "PromptConfig",
    "PuzzleSelection",
    "RlConfig",
    "Run",
    "SftConfig",
    "TracesConfig",
    "TrainerConfig",
    "operational",
    "parse",
]
