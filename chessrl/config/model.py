"""Settings of the model: its shape, dense or with experts."""

from dataclasses import dataclass

from chessrl.config.base import added, require


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
    """Hidden width of the SwiGLU; 0 where experts take its place."""
    norm_eps: float = 1e-6
    rope_base: float = 10000.0
    experts: int = added(0)
    """Experts in each block, a SwiGLU each; 0 is the dense model."""
    experts_per_token: int = added(0)
    """Experts that a token passes through, those that the router finds likeliest."""
    expert_ffn: int = added(0)
    """Hidden width of an expert."""
    expert_norm: bool = added(True)
    """Whether the weights of a token's experts are scaled to a sum of 1."""
    router_aux: float = added(0.0)
    """Weight of the load-balancing loss in pretraining and SFT."""

    def __post_init__(self) -> None:
        sizes = (self.width, self.layers, self.heads, self.kv_heads, self.head_dim)
        require(min(sizes) > 0, f"model sizes must be positive: {self}")
        if self.experts == 0:
            require(self.ffn > 0, f"model.ffn={self.ffn} must be positive")
            require(
                self.expert_norm
                and (self.experts_per_token, self.expert_ffn, self.router_aux) == (0, 0, 0),
                "model: settings of experts need model.experts above 0",
            )
        else:
            require(self.ffn == 0, f"model.ffn={self.ffn} must be 0 where there are experts")
            require(
                1 <= self.experts_per_token <= self.experts,
                f"model.experts_per_token={self.experts_per_token} is not in 1 to model.experts="
                f"{self.experts}",
            )
            require(self.expert_ffn > 0, f"model.expert_ffn={self.expert_ffn} must be positive")
            require(self.router_aux >= 0, f"model.router_aux={self.router_aux} is negative")
        require(
            self.heads % self.kv_heads == 0,
            f"model.heads={self.heads} is no multiple of model.kv_heads={self.kv_heads}",
        )
        require(
            self.norm_eps > 0 and self.rope_base > 0,
            f"model.norm_eps={self.norm_eps}, rope_base={self.rope_base}: not positive",
        )
        require(self.head_dim % 2 == 0, f"model.head_dim={self.head_dim} is odd; RoPE pairs it")
