"""The whole configuration, typed and checked; see `run.py` for how it comes about."""

from chessrl.config.base import InputError, operational
from chessrl.config.budget import BudgetConfig
from chessrl.config.data import (
    DataConfig,
    EngineConfig,
    GameFilter,
    MineConfig,
    PuzzleSelection,
)
from chessrl.config.harvest import HarvestConfig
from chessrl.config.law import AdviseConfig, FrontierConfig, LawConfig
from chessrl.config.model import ModelConfig
from chessrl.config.rl import (
    AheadConfig,
    CurriculumConfig,
    KlConfig,
    LengthConfig,
    LossConfig,
    RlConfig,
)
from chessrl.config.run import STAGES, Run, parse
from chessrl.config.training import (
    MODELS_OF,
    EvaluateConfig,
    OptimConfig,
    PretrainConfig,
    PromptConfig,
    SftConfig,
    TracesConfig,
    TrainerConfig,
)

__all__ = [
    "MODELS_OF",
    "STAGES",
    "AdviseConfig",
    "AheadConfig",
    "BudgetConfig",
    "CurriculumConfig",
    "DataConfig",
    "EngineConfig",
    "EvaluateConfig",
    "FrontierConfig",
    "GameFilter",
    "HarvestConfig",
    "InputError",
    "KlConfig",
    "LawConfig",
    "LengthConfig",
    "LossConfig",
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
