"""Settings of RL: the axes along which the recipes of the field differ, each a choice by name."""

from dataclasses import dataclass

from chessrl.config.base import operational, require
from chessrl.config.training import OptimConfig

LOSSES = ("reinforce", "grpo", "dapo", "cispo", "gspo")
AGGREGATIONS = ("sample", "prompt", "token")
NORMALISATIONS = ("prompt", "batch", "none", "leave-one-out")
REWARDS = ("binary", "share", "legality", "engine")
ESTIMATORS = ("none", "k1", "k2", "k3")


def _choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    require(value in choices, f"{name}={value}: one of {', '.join(choices)}")


@dataclass(kw_only=True)
class LossConfig:
    """What a token contributes, given its advantage and its ratio to the sampling policy."""

    name: str
    """`reinforce`, `grpo`, `dapo`, `cispo` or `gspo`: chessrl/policy/surrogates.py."""
    low: float
    """The ratio counts from 1 - low; of cispo and reinforce 0: they have no lower bound."""
    high: float
    """The ratio counts up to 1 + high; of cispo the cap itself; of reinforce 0."""
    aggregation: str
    """Mean over tokens within a `sample`, within a `prompt`'s samples, or over each `token`."""
    entropy: float = 0.0
    """Weight of the policy's entropy in nats per token, added to what is maximised."""

    def __post_init__(self) -> None:
        _choice("rl.loss.name", self.name, LOSSES)
        _choice("rl.loss.aggregation", self.aggregation, AGGREGATIONS)
        bounds = f"rl.loss.low={self.low}, rl.loss.high={self.high}"
        if self.name == "reinforce":
            require((self.low, self.high) == (0, 0), f"{bounds}: both 0 with reinforce")
        elif self.name == "cispo":
            require(
                self.low == 0 and self.high >= 1,
                f"{bounds}: cispo has no lower bound (0), and a cap on the ratio of at least 1",
            )
        else:
            require(0 < self.low < 1 and self.high > 0, f"{bounds}: needs 0 < low < 1 and high > 0")
            require(
                self.name != "grpo" or self.low == self.high,
                f"{bounds}: grpo clips alike on both sides; dapo does not",
            )
        require(self.entropy >= 0, f"rl.loss.entropy={self.entropy} is negative")


@dataclass(kw_only=True)
class KlConfig:
    """Divergence of the policy from a reference, the model that RL started from."""

    estimator: str = "none"
    """Per token: `none`, which loads no reference, `k1`, `k2` or `k3` (Schulman 2020)."""
    weight: float = 0.0
    place: str = "loss"
    """`loss`: its gradient is taken. `reward`: it is taken off the reward of the episode."""
    refresh: int = 0
    """Steps after which the policy becomes the reference; 0 keeps the first."""

    def __post_init__(self) -> None:
        _choice("rl.kl.estimator", self.estimator, ESTIMATORS)
        _choice("rl.kl.place", self.place, ("loss", "reward"))
        require(
            (self.weight > 0) == (self.estimator != "none"),
            f"rl.kl.weight={self.weight} with rl.kl.estimator={self.estimator}: "
            "a weight above 0 and an estimator go together",
        )
        require(self.weight >= 0, f"rl.kl.weight={self.weight} is negative")
        require(
            self.refresh == 0 or (self.refresh > 0 and self.estimator != "none"),
            f"rl.kl.refresh={self.refresh}: a number of steps, and 0 without an estimator",
        )


@dataclass(kw_only=True)
class CurriculumConfig:
    """Which puzzles are practised."""

    name: str = "uniform"
    """`uniform`; `no-positive-resampling`: those that are solved go; `solvable`: only those that
    the starting model solves sometimes but not always."""
    threshold: float = 0.9
    """Share of a puzzle's last group that solves it from which no-positive-resampling drops it."""
    probe: int = 16
    """Episodes of each puzzle by which `solvable` chooses."""

    def __post_init__(self) -> None:
        names = ("uniform", "no-positive-resampling", "solvable")
        _choice("rl.curriculum.name", self.name, names)
        require(
            0 < self.threshold <= 1, f"rl.curriculum.threshold={self.threshold} is not in (0, 1]"
        )
        require(self.probe > 1, f"rl.curriculum.probe={self.probe}: at least 2")


@dataclass(kw_only=True)
class LengthConfig:
    """What keeps episodes short, beside the budget of tokens."""

    control: str = "budget"
    """`budget`: nothing else; `interrupt`: a thought is closed by force; `penalty`: a solved
    episode loses reward as it nears the budget (DAPO, arXiv 2503.14476)."""
    thought_min: int = 0
    thought_max: int = 0
    """Tokens of a turn, its `<T>` included, at which `interrupt` closes its thought: drawn evenly
    for each episode."""
    margin: int = 0
    """Tokens before the budget in which `penalty` grows from 0 to 1."""
    drop_truncated: bool = False
    """Leave episodes that ran out of tokens out of the loss and its denominators."""

    def __post_init__(self) -> None:
        _choice("rl.length.control", self.control, ("budget", "interrupt", "penalty"))
        require(
            (0 < self.thought_min <= self.thought_max)
            if self.control == "interrupt"
            else self.thought_min == self.thought_max == 0,
            f"rl.length.thought_min={self.thought_min}, thought_max={self.thought_max}: "
            "0 < thought_min <= thought_max with interrupt, 0 without",
        )
        require(
            self.margin > 0 if self.control == "penalty" else self.margin == 0,
            f"rl.length.margin={self.margin}: above 0 with penalty, 0 without",
        )


@dataclass(kw_only=True)
class AheadConfig:
    """How far sampling runs ahead of training."""

    scheme: str = "on-policy"
    """`on-policy`; `ppo`: a frozen policy samples `k` batches, an update each; `pipeline`: batches
    are in flight while the weights change, at most `k` updates behind."""
    k: int = 0
    asynchronous: bool = False
    """Of `pipeline`: a process of its own samples, as fast as it can; otherwise both take turns,
    and the same seed gives the same run."""

    def __post_init__(self) -> None:
        _choice("rl.ahead.scheme", self.scheme, ("on-policy", "ppo", "pipeline"))
        allowed = {"on-policy": self.k == 0, "ppo": self.k > 0, "pipeline": self.k >= 0}
        require(
            allowed[self.scheme],
            f"rl.ahead.k={self.k}: 0 with on-policy, at least 1 with ppo, at least 0 with pipeline",
        )
        require(
            not self.asynchronous or self.scheme == "pipeline",
            "rl.ahead.asynchronous is for rl.ahead.scheme=pipeline",
        )


@dataclass(kw_only=True)
class CurveConfig:
    """pass@k on test puzzles along the way, at steps spaced evenly in their logarithm."""

    points: int = 0
    """Steps at which it is measured, the first (0) and the last included; 0 measures nothing."""
    puzzles: int = 256
    """Test puzzles, in hashed order; 0 means all."""
    samples: int = 4
    """Episodes per puzzle."""

    def __post_init__(self) -> None:
        require(self.points == 0 or self.points > 1, f"rl.curve.points={self.points}: 0, or >= 2")
        require(self.puzzles >= 0, f"rl.curve.puzzles={self.puzzles} is negative")
        require(self.samples > 0, f"rl.curve.samples={self.samples} must be positive")


@dataclass(kw_only=True)
class RlConfig:
    """Policy gradients on puzzles, each episode judged by python-chess."""

    steps: int
    """Updates."""
    prompts: int
    """Puzzles in one step, P."""
    group_size: int
    """Episodes of each puzzle, G."""
    max_new_tokens: int
    """Tokens that the model may write in one episode, all turns together."""
    temperature: float
    loss: LossConfig
    advantage: str
    """Of an episode over its group: in standard deviations of the `prompt`'s rewards, of the
    `batch`, `none`, or `leave-one-out`."""
    optim: OptimConfig
    reward: str = "binary"
    """`binary`, `share` of the solver's moves, `legality`, or win probability by an `engine`."""
    zero_variance: str = "keep"
    """Groups whose rewards agree: `keep` them in the mean, `drop` them from it, or `refill` the
    batch with other puzzles."""
    refill_rounds: int = 4
    """Rounds of sampling after which a batch that is not full goes on as it is."""
    fp32_head: bool = False
    """Logits in FP32, in sampling and training, where `trainer.rl_precision` is lower."""
    kl: KlConfig
    curriculum: CurriculumConfig
    length: LengthConfig
    ahead: AheadConfig
    curve: CurveConfig
    max_rating: int = 0
    """Leave out harder puzzles; 0 means none."""
    gate: int = operational(64)
    """Puzzles on which a group must disagree somewhere before training begins; 0 looks at none."""
    alarms: str = operational("say")
    """A sign of a broken run: `say` it, or `stop`."""
    keep_rollouts: int = operational(0)
    """Newest episodes that are kept in `rollouts/`; 0 keeps none."""
    microbatch_tokens: int = operational(16384)
    """Tokens in one backward pass; changes memory, never the update."""
    checkpoint_every: int = operational(20)

    def __post_init__(self) -> None:
        require(self.steps > 0, f"rl.steps={self.steps} must be positive")
        require(self.optim.schedule == "cosine", "rl.optim.schedule: only a cosine")
        require(self.prompts > 0, f"rl.prompts={self.prompts} must be positive")
        require(
            self.group_size > 1, f"rl.group_size={self.group_size}: a group needs two to compare"
        )
        require(self.max_new_tokens > 0, f"rl.max_new_tokens={self.max_new_tokens}: not positive")
        require(self.temperature > 0, f"rl.temperature={self.temperature} must be positive")
        _choice("rl.advantage", self.advantage, NORMALISATIONS)
        _choice("rl.reward", self.reward, REWARDS)
        _choice("rl.zero_variance", self.zero_variance, ("keep", "drop", "refill"))
        require(self.refill_rounds > 0, f"rl.refill_rounds={self.refill_rounds} must be positive")
        require(
            self.zero_variance != "refill" or self.ahead.scheme != "pipeline",
            "rl.zero_variance=refill samples until the batch is full: not with "
            "rl.ahead.scheme=pipeline, where batches are in flight; choose drop",
        )
        require(
            self.length.thought_max < self.max_new_tokens
            and self.length.margin <= self.max_new_tokens,
            f"rl.length: a thought or margin of rl.max_new_tokens={self.max_new_tokens} and more",
        )
        _choice("rl.alarms", self.alarms, ("say", "stop"))
        require(min(self.gate, self.keep_rollouts) >= 0, "rl.gate, rl.keep_rollouts: negative")
        require(self.max_rating >= 0, f"rl.max_rating={self.max_rating} is negative")
        require(self.microbatch_tokens > 0, "rl.microbatch_tokens must be positive")
        require(self.checkpoint_every > 0, "rl.checkpoint_every must be positive")
