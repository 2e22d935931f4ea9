"""One job, typed: YAML in `conf/` composes it, Hydra overrides it, this checks it.

Past `parse` there is no dictionary: every stage takes these dataclasses.
"""

from dataclasses import dataclass

from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from chessrl.config.base import InputError, require
from chessrl.config.budget import BudgetConfig
from chessrl.config.data import DataConfig, EngineConfig, MineConfig
from chessrl.config.harvest import HarvestConfig
from chessrl.config.law import AdviseConfig, FrontierConfig, LawConfig
from chessrl.config.model import ModelConfig
from chessrl.config.rl import RlConfig
from chessrl.config.training import (
    EvaluateConfig,
    PretrainConfig,
    PromptConfig,
    SftConfig,
    TracesConfig,
    TrainerConfig,
)

STAGES = (
    "prepare", "pretrain", "traces", "sft", "rl", "harvest", "evaluate", "pipeline", "collect",
    "mine", "describe", "export", "import", "frontier", "advise",
)  # fmt: skip


@dataclass(kw_only=True)
class Run:
    """One job: a stage and everything that decides its outcome."""

    stage: str
    run: str
    """Folder under `outputs` that the stages of this work share."""
    outputs: str
    out: str | None = None
    """Folder of this stage's result, instead of the one named by its identity."""
    runs: str
    """Glob of run folders for stage=collect."""
    dataset: str | None = None
    """Dataset folder for stage=describe, instead of the one that this configuration prepares."""
    checkpoint: str | None = None
    """Weights to start from or measure, instead of the parent stage's."""
    source: str | None = None
    """Folder of a Hugging Face model that stage=import reads."""
    dry: bool = False
    """Say what would be done and what it would cost, and do nothing."""
    seed: int
    model: ModelConfig
    budget: BudgetConfig
    data: DataConfig
    mine: MineConfig
    engine: EngineConfig
    prompt: PromptConfig
    pretrain: PretrainConfig
    traces: TracesConfig
    sft: SftConfig
    rl: RlConfig
    harvest: HarvestConfig
    evaluate: EvaluateConfig
    trainer: TrainerConfig
    law: LawConfig
    frontier: FrontierConfig
    advise: AdviseConfig

    def __post_init__(self) -> None:
        require(self.stage in STAGES, f"stage={self.stage}: one of {', '.join(STAGES)}")
        require(0 <= self.seed < 2**32, f"seed={self.seed} is not in [0, 2**32)")
        require(
            self.prompt.form != "board" or self.pretrain.context >= 80,
            f"pretrain.context={self.pretrain.context} leaves no room after a board: at least 80",
        )
        require(
            self.checkpoint is None
            or self.stage not in ("pipeline", "prepare", "mine", "import", "frontier", "advise"),
            f"checkpoint= cannot be used with stage={self.stage}",
        )
        require(
            self.budget.flops is None or self.checkpoint is None,
            "budget.flops cannot be used with checkpoint=: what its weights cost is unknown",
        )
        many = self.trainer.devices > 1
        optims = {"pretrain": self.pretrain.optim, "sft": self.sft.optim}
        for stage, optim in optims.items():
            require(
                not many
                or self.trainer.strategy != "fsdp"
                or self.stage not in (stage, "pipeline")
                or optim.name == "adamw",
                f"trainer.strategy=fsdp: {stage}.optim.name={optim.name} needs whole matrices, "
                f"choose {stage}/optim=adamw",
            )
        require(
            not many or not self.rl.ahead.asynchronous or self.stage not in ("rl", "pipeline"),
            f"trainer.devices={self.trainer.devices}: rl.ahead.asynchronous trains on one device, "
            "beside a process that samples",
        )
        require(
            not many or self.model.experts == 0,
            f"trainer.devices={self.trainer.devices}: models with experts train on one device, "
            "since their load-balancing loss is of the whole batch",
        )
        require(
            (self.source is not None) == (self.stage == "import"),
            "stage=import needs source=FOLDER, the model to read"
            if self.stage == "import"
            else f"source= cannot be used with stage={self.stage}",
        )


ConfigStore.instance().store("schema", Run)


def parse(config: DictConfig) -> Run:
    """The typed run that a composed configuration describes.

    Raises:
        InputError: a key is unknown, or a value has the wrong type or is out of range.
    """
    try:
        plain = OmegaConf.to_container(config, resolve=True)
        return OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(Run), plain))
    except (OmegaConfBaseException, ValueError) as error:
        noise = ("object_type", "reference_type")
        lines = [line.strip() for line in str(error).splitlines()]
        lines = [line for line in lines if not line.startswith(noise)]
        raise InputError("configuration: " + ", ".join(lines)) from error
