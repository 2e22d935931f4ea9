"""Settings of the prompt and of the stages that train and measure the model."""

import math
from dataclasses import dataclass, field

from chessrl.config.base import added, operational, require

MODELS_OF = ("pretrain", "sft", "rl")


@dataclass(kw_only=True)
class PromptConfig:
    """What the model is shown before it moves."""

    form: str
    """`board`: a rendering of the position. `history`: all moves since the start of the game."""
    plies: int
    """Plies that a pretraining document holds after its board; 0 means to the end of the game."""

    def __post_init__(self) -> None:
        require(self.form in ("board", "history"), f"prompt.form={self.form}: board or history")
        require(self.plies >= 0, f"prompt.plies={self.plies} is negative")
        require(
            self.form == "board" or self.plies == 0, "prompt.plies is for prompt.form=board only"
        )


@dataclass(kw_only=True)
class OptimConfig:
    """Optimiser and schedule: linear warm-up, then a cosine, or constant and decayed at the end."""

    name: str
    """`adamw`, or `muon`: Muon for the matrices of the blocks, AdamW for everything else."""
    lr: float
    """Peak rate of AdamW's parameters."""
    matrix_lr: float = 0.0
    """Peak rate of Muon's parameters."""
    schedule: str = added("cosine")
    """`cosine`, or `wsd`: warm-up, stable, decay, whose trunk is shared by runs of any length."""
    final: float = 0.1
    """Rate at the end, as a share of the peak; 1 keeps it constant after the warm-up."""
    warmup: float = 0.05
    """Share of the steps that warm up, of a cosine."""
    warmup_steps: int = added(0)
    """Steps that warm up, of wsd: as many however long the run."""
    decay: float = added(0.0)
    """Share of the steps that decay, of wsd."""
    weight_decay: float = 0.1
    beta1: float = 0.9
    beta2: float = 0.95
    clip: float = 1.0
    """Largest norm of the gradient."""

    def __post_init__(self) -> None:
        require(self.name in ("adamw", "muon"), f"optim.name={self.name}: adamw or muon")
        require(self.lr > 0, f"optim.lr={self.lr} must be positive")
        require(
            (self.matrix_lr > 0) == (self.name == "muon"),
            f"optim.matrix_lr={self.matrix_lr} must be positive with muon and 0 without",
        )
        require(
            self.schedule in ("cosine", "wsd"), f"optim.schedule={self.schedule}: cosine or wsd"
        )
        require(
            self.schedule == "cosine" or self.warmup == 0,
            f"optim.warmup={self.warmup} is for a cosine: wsd has optim.warmup_steps, set it to 0",
        )
        require(
            self.schedule == "wsd" or (self.warmup_steps, self.decay) == (0, 0),
            "optim.warmup_steps and optim.decay are for optim.schedule=wsd",
        )
        require(self.warmup_steps >= 0, f"optim.warmup_steps={self.warmup_steps} is negative")
        require(0 <= self.decay < 1, f"optim.decay={self.decay} is not in [0, 1)")
        require(0 <= self.warmup < 1, f"optim.warmup={self.warmup} is not in [0, 1)")
        require(0 <= self.final <= 1, f"optim.final={self.final} is not in [0, 1]")
        require(self.clip > 0, f"optim.clip={self.clip} must be positive")
        require(self.weight_decay >= 0, f"optim.weight_decay={self.weight_decay} is negative")
        require(
            0 <= self.beta1 < 1 and 0 <= self.beta2 < 1,
            f"optim.beta1={self.beta1}, beta2={self.beta2}: not in [0, 1)",
        )


def _require_rows(stage: str, batch: int, context: int, microbatch: int) -> None:
    require(
        batch >= context and batch % context == 0,
        f"{stage}.batch_tokens={batch} is no multiple of {stage}.context={context}: a step is made "
        "of whole rows",
    )
    require(
        microbatch >= context,
        f"{stage}.microbatch_tokens={microbatch} holds no row of {stage}.context={context}",
    )


@dataclass(kw_only=True)
class PretrainConfig:
    """Next-token prediction on games."""

    tokens: float
    """Tokens read in all, T of the scaling laws, prompts included."""
    batch_tokens: int
    """Places in one step, whatever the number of devices: a multiple of `context`."""
    context: int
    """Places in a row of packed documents; longer ones are cut to so many tokens."""
    optim: OptimConfig
    harvest: str | None = operational(None)
    """Folder of a harvest whose documents are mixed in; its content takes part in the identity."""
    harvest_share: float = added(0.1)
    """Share of the tokens that come from the harvest."""
    microbatch_tokens: int = operational(32768)
    """Places in one backward pass of a device; changes memory, never the update."""
    checkpoint_every: int = operational(500)
    """Steps between checkpoints."""
    log_every: int = operational(20)
    """Steps between rows of metrics.csv."""

    def __post_init__(self) -> None:
        require(
            0 < self.tokens < math.inf, f"pretrain.tokens={self.tokens} must be positive and finite"
        )
        require(self.context > 1, f"pretrain.context={self.context} must exceed 1")
        require(
            0 < self.harvest_share < 1,
            f"pretrain.harvest_share={self.harvest_share} is not in (0, 1)",
        )
        require(
            self.optim.schedule == "cosine" or self.optim.decay > 0,
            "pretrain.optim.decay must be positive with wsd: the share of the steps that decay",
        )
        _require_rows("pretrain", self.batch_tokens, self.context, self.microbatch_tokens)
        require(min(self.checkpoint_every, self.log_every) > 0, "pretrain: intervals must be > 0")


@dataclass(kw_only=True)
class TracesConfig:
    """Lines sampled from the pretrained model, merged into a tree and written depth-first."""

    first_moves: int
    """Candidate first moves sampled from the position; equal ones merge."""
    lines_mean: float
    lines_sigma: float
    lines_min: int
    lines_max: int
    """Lines per first move: a rounded log-normal of this mean and log-sd, truncated."""
    plies_mean: float
    plies_sigma: float
    plies_min: int
    plies_max: int
    """Plies per line, the first move included: likewise."""
    temperature: float = 1.0
    per_puzzle: int = 1
    """Documents of each puzzle, each with lines of its own."""
    puzzles: int = 0
    """SFT puzzles to write traces for, in hashed order; 0 means all."""
    max_rating: int = 0
    """Leave out harder puzzles; 0 means none."""
    batch: int = 256
    """Lines sampled at a time."""

    def __post_init__(self) -> None:
        require(self.first_moves > 0, f"traces.first_moves={self.first_moves} must be positive")
        require(0 < self.lines_min <= self.lines_max, "traces: 0 < lines_min <= lines_max")
        require(0 < self.plies_min <= self.plies_max, "traces: 0 < plies_min <= plies_max")
        require(
            self.lines_min <= self.lines_mean <= self.lines_max,
            f"traces.lines_mean={self.lines_mean} is not within lines_min and lines_max",
        )
        require(
            self.plies_min <= self.plies_mean <= self.plies_max,
            f"traces.plies_mean={self.plies_mean} is not within plies_min and plies_max",
        )
        require(min(self.lines_sigma, self.plies_sigma) >= 0, "traces: sigmas are negative")
        require(self.temperature > 0, f"traces.temperature={self.temperature} must be positive")
        require(min(self.puzzles, self.max_rating) >= 0, "traces: counts are negative")
        require(self.per_puzzle > 0, f"traces.per_puzzle={self.per_puzzle} must be positive")
        require(self.batch > 0, f"traces.batch={self.batch} must be positive")


@dataclass(kw_only=True)
class SftConfig:
    """Supervised fine-tuning on traces and answers."""

    epochs: float
    batch_tokens: int
    """Places in one step, whatever the number of devices: a multiple of `context`."""
    context: int
    """Places in a row of packed documents; longer ones are left out and counted."""
    optim: OptimConfig
    data: str = added("traces")
    """Documents to train on: `traces`, `harvest`, or `both`."""
    harvest: str | None = operational(None)
    """Folder of a harvest; its content takes part in the identity."""
    microbatch_tokens: int = operational(32768)
    """Places in one backward pass of a device; changes memory, never the update."""
    checkpoint_every: int = operational(200)
    log_every: int = operational(10)

    def __post_init__(self) -> None:
        require(0 < self.epochs < math.inf, f"sft.epochs={self.epochs} must be positive and finite")
        require(self.context > 1, f"sft.context={self.context} must exceed 1")
        require(
            self.data in ("traces", "harvest", "both"),
            f"sft.data={self.data}: traces, harvest or both",
        )
        require(
            (self.harvest is not None) == (self.data != "traces"),
            f"sft.data={self.data} needs sft.harvest=FOLDER, that of a harvest"
            if self.harvest is None
            else "sft.harvest is for sft.data=harvest or sft.data=both",
        )
        require(self.optim.schedule == "cosine", "sft.optim.schedule: only a cosine")
        _require_rows("sft", self.batch_tokens, self.context, self.microbatch_tokens)
        require(min(self.checkpoint_every, self.log_every) > 0, "sft: intervals must be > 0")


@dataclass(kw_only=True)
class EvaluateConfig:
    """pass@k on the test puzzles and the held-out game loss."""

    of: str
    """The stage whose model is measured: pretrain, sft or rl."""
    samples: int
    """Episodes per puzzle, n; pass@k is given for k = 1, 2, 4, ... up to n."""
    temperature: float
    max_new_tokens: int
    puzzles: int = 0
    """Test puzzles to use, in hashed order; 0 means all."""
    seed: int = 0
    """Of the samples; apart from the run's, so that all models meet the same dice."""
    batch: int = 512
    """Episodes sampled at a time."""
    game_tokens: float = 2e5
    """Held-out tokens that measure the game loss; 0 means all."""
    game_context: int = 256
    """Longest held-out document, in tokens; longer ones are cut."""

    def __post_init__(self) -> None:
        require(self.of in MODELS_OF, f"evaluate.of={self.of}: one of {', '.join(MODELS_OF)}")
        require(0 <= self.seed < 2**32, f"evaluate.seed={self.seed} is not in [0, 2**32)")
        require(self.samples > 0, f"evaluate.samples={self.samples} must be positive")
        require(self.temperature > 0, f"evaluate.temperature={self.temperature}: not positive")
        require(self.max_new_tokens > 0, "evaluate.max_new_tokens must be positive")
        require(self.batch >= self.samples, "evaluate.batch holds fewer than evaluate.samples")
        require(min(self.puzzles, self.game_tokens) >= 0, "evaluate: counts are negative")
        require(self.game_context > 1, f"evaluate.game_context={self.game_context} must exceed 1")


@dataclass(kw_only=True)
class TrainerConfig:
    """Where and how Lightning runs."""

    accelerator: str
    devices: int
    """Devices of one machine; pretraining and SFT start a process for each."""
    precision: str
    """Of pretraining and SFT: 32-true, bf16-mixed, or auto: bf16 where the hardware has it."""
    rl_precision: str
    """Of RL, its sampling included: 32-true or bf16-mixed."""
    strategy: str = operational("ddp")
    """With several devices: `ddp`, each holds the whole model, or `fsdp`, each a part of it."""
    compile: str = operational("auto")
    """Compile the blocks in pretraining and SFT: on, off, or auto: where it gains time."""
    divergence: float = operational(1.0)
    """Nats by which the smoothed loss may rise above its best in pretraining and SFT before the
    run is stopped; 0 never stops it."""
    loggers: list[str] = field(default_factory=list, metadata={"operational": True})
    """Where measures go beside metrics.csv: tensorboard, wandb."""

    def __post_init__(self) -> None:
        require(
            self.accelerator in ("cpu", "cuda", "mps"),
            f"trainer.accelerator={self.accelerator}: cpu, cuda or mps",
        )
        require(
            self.precision in ("auto", "32-true", "bf16-mixed"),
            f"trainer.precision={self.precision}: auto, 32-true or bf16-mixed",
        )
        require(
            self.rl_precision in ("32-true", "bf16-mixed"),
            f"trainer.rl_precision={self.rl_precision}: 32-true or bf16-mixed",
        )
        require(self.strategy in ("ddp", "fsdp"), f"trainer.strategy={self.strategy}: ddp or fsdp")
        require(self.divergence >= 0, f"trainer.divergence={self.divergence} is negative")
        for name in self.loggers:
            require(
                name in ("tensorboard", "wandb"),
                f"trainer.loggers: {name} is neither tensorboard nor wandb; metrics.csv is "
                "always written",
            )
        require(self.devices > 0, f"trainer.devices={self.devices} must be positive")
        require(
            self.compile in ("auto", "on", "off"),
            f"trainer.compile={self.compile}: auto, on or off",
        )
        require(
            self.devices == 1 or self.accelerator != "mps",
            f"trainer.devices={self.devices}: mps has one device",
        )
