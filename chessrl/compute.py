"""Parameters and FLOPs: the study's accounting is the budget's unit, with an exact count beside it.

The study (arXiv 2607.16097): 6 N per token of pretraining and SFT; in RL 2 N for the rollout, 2 N
for the reference model and 6 N for the update, per token of prompt and response.
"""

from chessrl.config import ModelConfig

TRAIN, FORWARD = 6, 2
"""FLOPs per parameter and token of a training step, and of a forward pass."""


def block_matrices(model: ModelConfig) -> int:
    """Weights of the matrices in one block."""
    query = model.width * model.heads * model.head_dim
    key = model.width * model.kv_heads * model.head_dim
    return 2 * query + 2 * key + 3 * model.width * model.ffn


def parameters(model: ModelConfig, vocabulary: int) -> int:
    """N: all weights, embeddings, head and norms included."""
    norms = 2 * model.width + 2 * model.head_dim
    blocks = model.layers * (block_matrices(model) + norms)
    return blocks + 2 * vocabulary * model.width + model.width


def training_flops(n_params: int, tokens: float) -> float:
    """Pretraining or SFT on so many tokens, by the study's accounting."""
    return TRAIN * n_params * tokens


def rl_flops(n_params: int, rollout_tokens: float, reference: bool) -> float:
    """RL on so many tokens of prompt and response: 10 N with a reference model, 8 N without."""
    return (FORWARD + TRAIN + (FORWARD if reference else 0)) * n_params * rollout_tokens


def exact_forward_flops(model: ModelConfig, vocabulary: int, tokens: float, length: float) -> float:
    """A forward pass counted by its matrix products, causal attention included.

    Looking up an embedding costs nothing, the head does. A training step takes three times this.

    Args:
        tokens: tokens read in all.
        length: mean tokens per row; a token attends to half of them on average.
    """
    matrices = model.layers * block_matrices(model) + vocabulary * model.width
    attention = model.layers * 2 * model.heads * model.head_dim * (length + 1) / 2
    return 2 * tokens * (matrices + attention)
