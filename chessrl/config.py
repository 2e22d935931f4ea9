"""The whole configuration, typed: YAML in `conf/` composes it, Hydra overrides it, this checks it.

Past `parse` there is no dictionary: every stage takes these dataclasses.
"""

import math
from dataclasses import dataclass, field
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

STAGES = ("prepare", "pretrain", "traces", "sft", "rl", "evaluate", "pipeline", "collect")
MODELS_OF = ("pretrain", "sft", "rl")


class InputError(Exception):
    """Something a user gave cannot be used; the message is one line and says what to do."""


def operational(default: Any) -> Any:
    """A field that changes no outcome and so takes no part in the identity of a run."""
    return field(default=default, metadata={"operational": True})


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise ValueError(message)


@dataclass(kw_only=True)
class ModelConfig:
    """Shape of the decoder; the embeddings are untied."""

    name: str
    width: int
    """Width of the residual stream."""
    layers: int
    heads: int
    """Query heads."""
    kv_heads: int
    """Key and value heads, each shared by heads / kv_heads queries."""
    head_dim: int
    ffn: int
    """Hidden width of the SwiGLU."""
    norm_eps: float = 1e-6
    rope_base: float = 10000.0

    def __post_init__(self) -> None:
        sizes = (self.width, self.layers, self.heads, self.kv_heads, self.head_dim, self.ffn)
        _require(min(sizes) > 0, f"model sizes must be positive: {self}")
        _require(
            self.heads % self.kv_heads == 0,
            f"model.heads={self.heads} is no multiple of model.kv_heads={self.kv_heads}",
        )
        _require(
            self.norm_eps > 0 and self.rope_base > 0,
            f"model.norm_eps={self.norm_eps}, rope_base={self.rope_base}: not positive",
        )
        _require(self.head_dim % 2 == 0, f"model.head_dim={self.head_dim} is odd; RoPE pairs it")


@dataclass(kw_only=True)
class DataConfig:
    """Games and puzzles, what is kept of them, and how they are split."""

    name: str
    paths: list[str]
    """PGN files: .pgn, .pgn.zst, .pgn.bz2, .pgn.gz."""
    puzzles: str
    """Puzzles in the columns of the Lichess CSV, plain or compressed."""
    min_plies: int = 10
    """Shorter games are fragments and are skipped."""
    validation: float = 0.02
    """Share of the games, by hash of their moves, that measures the held-out loss."""
    test_per_bin: int = 200
    """Test puzzles from each rating bin, at most half of what the bin has."""
    sft: float = 0.5
    """Share of the other puzzles for SFT; RL gets the rest."""
    workers: int = operational(0)
    """Processes that read games; 0 means one per core. Never changes the output."""

    def __post_init__(self) -> None:
        _require(len(self.paths) > 0, "data.paths names no file")
        _require(self.min_plies >= 1, f"data.min_plies={self.min_plies} must be at least 1")
        _require(0 < self.validation < 1, f"data.validation={self.validation} is not in (0, 1)")
        _require(0 < self.sft < 1, f"data.sft={self.sft} is not in (0, 1)")
        _require(self.test_per_bin > 0, f"data.test_per_bin={self.test_per_bin} must be positive")
        _require(self.workers >= 0, f"data.workers={self.workers} is negative")


@dataclass(kw_only=True)
class PromptConfig:
    """What the model is shown before it moves."""

    form: str
    """`board`: a rendering of the position. `history`: all moves since the start of the game."""
    plies: int
    """Plies that a pretraining document holds after its board; 0 means to the end of the game."""

    def __post_init__(self) -> None:
        _require(self.form in ("board", "history"), f"prompt.form={self.form}: board or history")
        _require(self.plies >= 0, f"prompt.plies={self.plies} is negative")
        _require(
            self.form == "board" or self.plies == 0, "prompt.plies is for prompt.form=board only"
        )


@dataclass(kw_only=True)
class OptimConfig:
    """Optimiser and schedule: linear warm-up, then cosine decay."""

    name: str
    """`adamw`, or `muon`: Muon for the matrices of the blocks, AdamW for everything else."""
    lr: float
    """Peak rate of AdamW's parameters."""
    matrix_lr: float = 0.0
    """Peak rate of Muon's parameters."""
    final: float = 0.1
    """Rate at the end, as a share of the peak; 1 keeps it constant after the warm-up."""
    warmup: float = 0.05
    """Share of the steps that warm up."""
    weight_decay: float = 0.1
    beta1: float = 0.9
    beta2: float = 0.95
    clip: float = 1.0
    """Largest norm of the gradient."""

    def __post_init__(self) -> None:
        _require(self.name in ("adamw", "muon"), f"optim.name={self.name}: adamw or muon")
        _require(self.lr > 0, f"optim.lr={self.lr} must be positive")
        _require(
            (self.matrix_lr > 0) == (self.name == "muon"),
            f"optim.matrix_lr={self.matrix_lr} must be positive with muon and 0 without",
        )
        _require(0 <= self.warmup < 1, f"optim.warmup={self.warmup} is not in [0, 1)")
        _require(0 <= self.final <= 1, f"optim.final={self.final} is not in [0, 1]")
        _require(self.clip > 0, f"optim.clip={self.clip} must be positive")
        _require(self.weight_decay >= 0, f"optim.weight_decay={self.weight_decay} is negative")
        _require(
            0 <= self.beta1 < 1 and 0 <= self.beta2 < 1,
            f"optim.beta1={self.beta1}, beta2={self.beta2}: not in [0, 1)",
        )


@dataclass(kw_only=True)
class PretrainConfig:
    """Next-token prediction on games."""

    tokens: float
    """Tokens read in all, T of the scaling laws, prompts included."""
    batch_tokens: int
    """Tokens in one step, whatever the number of devices."""
    context: int
    """Longest document, in tokens; longer ones are cut."""
    optim: OptimConfig
    checkpoint_every: int = operational(500)
    """Steps between checkpoints."""
    log_every: int = operational(20)
    """Steps between rows of metrics.csv."""

    def __post_init__(self) -> None:
        _require(
            0 < self.tokens < math.inf, f"pretrain.tokens={self.tokens} must be positive and finite"
        )
        _require(self.context > 1, f"pretrain.context={self.context} must exceed 1")
        _require(
            self.batch_tokens >= self.context,
            f"pretrain.batch_tokens={self.batch_tokens} holds no document of {self.context} tokens",
        )
        _require(min(self.checkpoint_every, self.log_every) > 0, "pretrain: intervals must be > 0")


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
        _require(self.first_moves > 0, f"traces.first_moves={self.first_moves} must be positive")
        _require(0 < self.lines_min <= self.lines_max, "traces: 0 < lines_min <= lines_max")
        _require(0 < self.plies_min <= self.plies_max, "traces: 0 < plies_min <= plies_max")
        _require(
            self.lines_min <= self.lines_mean <= self.lines_max,
            f"traces.lines_mean={self.lines_mean} is not within lines_min and lines_max",
        )
        _require(
            self.plies_min <= self.plies_mean <= self.plies_max,
            f"traces.plies_mean={self.plies_mean} is not within plies_min and plies_max",
        )
        _require(min(self.lines_sigma, self.plies_sigma) >= 0, "traces: sigmas are negative")
        _require(self.temperature > 0, f"traces.temperature={self.temperature} must be positive")
        _require(min(self.puzzles, self.max_rating) >= 0, "traces: counts are negative")
        _require(self.per_puzzle > 0, f"traces.per_puzzle={self.per_puzzle} must be positive")
        _require(self.batch > 0, f"traces.batch={self.batch} must be positive")


@dataclass(kw_only=True)
class SftConfig:
    """Supervised fine-tuning on traces and answers."""

    epochs: float
    batch_tokens: int
    """Tokens in one step, whatever the number of devices."""
    context: int
    """Longest document, in tokens; longer ones are left out and counted."""
    optim: OptimConfig
    checkpoint_every: int = operational(200)
    log_every: int = operational(10)

    def __post_init__(self) -> None:
        _require(
            0 < self.epochs < math.inf, f"sft.epochs={self.epochs} must be positive and finite"
        )
        _require(
            self.batch_tokens >= self.context > 1,
            f"sft.batch_tokens={self.batch_tokens} holds no document of {self.context} tokens",
        )
        _require(min(self.checkpoint_every, self.log_every) > 0, "sft: intervals must be > 0")


@dataclass(kw_only=True)
class RlConfig:
    """GRPO on puzzles, each episode judged by python-chess."""

    steps: int
    prompts: int
    """Puzzles in one step, P."""
    group_size: int
    """Episodes of each puzzle, G."""
    max_new_tokens: int
    """Tokens that the model may write in one episode, all turns together."""
    temperature: float
    clip: float
    """The probability ratio is clipped to [1 - clip, 1 + clip]."""
    kl: float
    """Weight of the k3 estimate of KL(policy || SFT policy) in the loss; 0 loads no reference."""
    optim: OptimConfig
    max_rating: int = 0
    """Leave out harder puzzles; 0 means none."""
    microbatch_tokens: int = operational(16384)
    """Tokens in one backward pass; changes memory, never the update."""
    checkpoint_every: int = operational(20)

    def __post_init__(self) -> None:
        _require(self.steps > 0, f"rl.steps={self.steps} must be positive")
        _require(self.prompts > 0, f"rl.prompts={self.prompts} must be positive")
        _require(
            self.group_size > 1, f"rl.group_size={self.group_size}: a group needs two to compare"
        )
        _require(self.max_new_tokens > 0, f"rl.max_new_tokens={self.max_new_tokens}: not positive")
        _require(self.temperature > 0, f"rl.temperature={self.temperature} must be positive")
        _require(0 < self.clip < 1, f"rl.clip={self.clip} is not in (0, 1)")
        _require(self.kl >= 0, f"rl.kl={self.kl} is negative")
        _require(self.microbatch_tokens > 0, "rl.microbatch_tokens must be positive")
        _require(self.checkpoint_every > 0, "rl.checkpoint_every must be positive")


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
        _require(self.of in MODELS_OF, f"evaluate.of={self.of}: one of {', '.join(MODELS_OF)}")
        _require(0 <= self.seed < 2**32, f"evaluate.seed={self.seed} is not in [0, 2**32)")
        _require(self.samples > 0, f"evaluate.samples={self.samples} must be positive")
        _require(self.temperature > 0, f"evaluate.temperature={self.temperature}: not positive")
        _require(self.max_new_tokens > 0, "evaluate.max_new_tokens must be positive")
        _require(self.batch >= self.samples, "evaluate.batch holds fewer than evaluate.samples")
        _require(min(self.puzzles, self.game_tokens) >= 0, "evaluate: counts are negative")
        _require(self.game_context > 1, f"evaluate.game_context={self.game_context} must exceed 1")


@dataclass(kw_only=True)
class TrainerConfig:
    """Where and how Lightning runs."""

    accelerator: str
    devices: int
    precision: str
    """Of pretraining and SFT: 32-true, bf16-mixed, or auto: bf16 where the hardware has it."""
    rl_precision: str
    """Of RL, its sampling included: 32-true or bf16-mixed."""

    def __post_init__(self) -> None:
        _require(
            self.accelerator in ("cpu", "cuda", "mps"),
            f"trainer.accelerator={self.accelerator}: cpu, cuda or mps",
        )
        _require(
            self.precision in ("auto", "32-true", "bf16-mixed"),
            f"trainer.precision={self.precision}: auto, 32-true or bf16-mixed",
        )
        _require(
            self.rl_precision in ("32-true", "bf16-mixed"),
            f"trainer.rl_precision={self.rl_precision}: 32-true or bf16-mixed",
        )
        _require(
            self.devices == 1,
            f"trainer.devices={self.devices}: only one works, each would read one batch",
        )


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
    checkpoint: str | None = None
    """Weights to start from or measure, instead of the parent stage's."""
    seed: int
    model: ModelConfig
    data: DataConfig
    prompt: PromptConfig
    pretrain: PretrainConfig
    traces: TracesConfig
    sft: SftConfig
    rl: RlConfig
    evaluate: EvaluateConfig
    trainer: TrainerConfig

    def __post_init__(self) -> None:
        _require(self.stage in STAGES, f"stage={self.stage}: one of {', '.join(STAGES)}")
        _require(0 <= self.seed < 2**32, f"seed={self.seed} is not in [0, 2**32)")
        _require(
            self.prompt.form != "board" or self.pretrain.context >= 80,
            f"pretrain.context={self.pretrain.context} leaves no room after a board: at least 80",
        )
        _require(
            self.checkpoint is None or self.stage not in ("pipeline", "prepare", "pretrain"),
            f"checkpoint= cannot be used with stage={self.stage}",
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
