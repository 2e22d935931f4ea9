"""Parameters and FLOPs: the study's accounting is the budget's unit, with an exact count beside it.

The study (arXiv 2607.16097): 6 N per token of pretraining and SFT; in RL 2 N for the rollout, 2 N
for the reference model and 6 N for the update, per token of prompt and response. In a mixture of
experts N is what a token passes through, the active parameters.
"""

from dataclasses import dataclass

from chessrl.config import BudgetConfig, InputError, ModelConfig, RlConfig

TRAIN, FORWARD = 6, 2
"""FLOPs per parameter and token of a training step, and of a forward pass."""


def block_matrices(model: ModelConfig, experts: int | None = None) -> int:
    """Weights of the matrices in one block, with all its experts or so many of them."""
    query = model.width * model.heads * model.head_dim
    key = model.width * model.kv_heads * model.head_dim
    hidden = model.ffn + (model.experts if experts is None else experts) * model.expert_ffn
    return 2 * query + 2 * key + 3 * model.width * hidden + model.width * model.experts


def parameters(model: ModelConfig, vocabulary: int) -> int:
    """All weights: embeddings, head, norms and every expert included."""
    return _parameters(model, vocabulary, model.experts)


def active_parameters(model: ModelConfig, vocabulary: int) -> int:
    """N of the FLOPs: the weights that a token passes through; all of them in a dense model."""
    return _parameters(model, vocabulary, model.experts_per_token)


def _parameters(model: ModelConfig, vocabulary: int, experts: int) -> int:
    norms = 2 * model.width + 2 * model.head_dim
    blocks = model.layers * (block_matrices(model, experts) + norms)
    return blocks + 2 * vocabulary * model.width + model.width


def training_flops(active: int, tokens: float) -> float:
    """Pretraining or SFT on so many tokens, by the study's accounting."""
    return TRAIN * active * tokens


def rl_flops(active: int, sampled: float, trained: float, anchored: float) -> float:
    """RL by the study's accounting: 10 N per token with a reference model, 8 N without.

    Args:
        sampled: tokens of prompt and response that were sampled.
        trained: those of episodes that took part in an update; in the study all of them.
        anchored: those that a reference model read.
    """
    return active * (FORWARD * (sampled + anchored) + TRAIN * trained)


def exact_forward_flops(model: ModelConfig, vocabulary: int, tokens: float, length: float) -> float:
    """A forward pass counted by its matrix products, causal attention included.

    Looking up an embedding costs nothing, the head does. A training step takes three times this.

    Args:
        tokens: tokens read in all.
        length: mean tokens per row; a token attends to half of them on average.
    """
    blocks = model.layers * block_matrices(model, model.experts_per_token)
    matrices = blocks + vocabulary * model.width
    attention = model.layers * 2 * model.heads * model.head_dim * (length + 1) / 2
    return 2 * tokens * (matrices + attention)


@dataclass(frozen=True)
class Split:
    """How a budget is spent; the FLOPs of all stages sum to it."""

    tokens: float
    """Tokens of pretraining."""
    steps: int
    """Updates of RL."""
    flops: dict[str, float]
    """FLOPs by stage."""


def rl_step_flops(active: int, rl: RlConfig, episode: float) -> float:
    """One update of RL, if no episode is left out or sampled more than once.

    Args:
        episode: mean tokens of prompt and response together.
    """
    sampled = rl.prompts * rl.group_size * episode
    return rl_flops(active, sampled, sampled, sampled if rl.kl.estimator != "none" else 0.0)


def split(budget: BudgetConfig, active: int, rl: RlConfig) -> Split:
    """Tokens of pretraining and steps of RL that spend a budget.

    Traces and SFT cost what the budget expects of them. RL makes whole steps, so their number is
    rounded, and pretraining takes what that leaves or lacks: half a step at most.

    Args:
        active: parameters that a token passes through, N.

    Raises:
        InputError: nothing is left for one step of RL, or for pretraining.
    """
    traces = FORWARD * active * budget.traces_tokens
    sft = training_flops(active, budget.sft_tokens)
    step = rl_step_flops(active, rl, budget.prompt_tokens + budget.response_tokens)
    left = (1 - budget.alpha) * budget.flops - traces - sft
    steps = round(left / step)
    pretrain = budget.flops - traces - sft - steps * step
    if steps < 1 or pretrain <= 0:
        raise InputError(
            f"budget.flops={budget.flops:.3g} with budget.alpha={budget.alpha:g}: traces and SFT "
            f"take {traces + sft:.3g} and a step of RL {step:.3g}, so that pretraining would get "
            f"{max(pretrain, 0):.3g} and RL {steps} steps; raise the budget, or change alpha"
        )
    flops = {"pretrain": pretrain, "traces": traces, "sft": sft, "rl": steps * step}
    return Split(pretrain / training_flops(active, 1), steps, flops)
