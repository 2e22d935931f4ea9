"""Models in the form of Hugging Face: Qwen3ForCausalLM, or Qwen3MoeForCausalLM with experts.

The files are written here, without their libraries: names and shapes are the same in both forms, so
that no weight is changed. `chessrl/policy/foreign.py` reads such folders.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from chessrl.artifacts import atomic_path, decisive, write_json
from chessrl.config import ModelConfig
from chessrl.policy.transformer import INITIAL_SPREAD, Transformer

ABOUT = "chessrl"
"""Key of config.json that holds what is ours: model config and vocabulary hash."""
WEIGHTS = "model.safetensors"
POSITIONS = 4096
"""Stated as the longest context. Rotary positions set no limit, but vLLM wants one."""


@dataclass(frozen=True)
class Vocabulary:
    """What a folder must say of the tokens; a token's id is its place."""

    tokens: tuple[str, ...]
    hash: str
    bos: int
    eos: int
    unk: int
    pad: int
    stops: tuple[int, ...]
    """Tokens at which a generated text ends."""


_RENAMED = (
    (r"^embedding\.", "model.embed_tokens."),
    (r"^final_norm\.", "model.norm."),
    (r"^head\.", "lm_head."),
    (r"^blocks\.", "model.layers."),
    (r"\.attention\.", ".self_attn."),
    (r"\.input_norm\.", ".input_layernorm."),
    (r"\.ffn_norm\.", ".post_attention_layernorm."),
    (r"\.experts\.router\.", ".mlp.gate."),
    (r"\.experts\.members\.", ".mlp.experts."),
    (r"^(model\.layers\.\d+)\.(gate|up|down)_proj\.", r"\1.mlp.\2_proj."),
)


def their_name(name: str) -> str:
    """Hugging Face's name of one of our weights."""
    for pattern, replacement in _RENAMED:
        name = re.sub(pattern, replacement, name)
    return name


def architecture(config: ModelConfig) -> tuple[str, str]:
    """Class and model type that a model is there."""
    return ("Qwen3MoeForCausalLM", "qwen3_moe") if config.experts else ("Qwen3ForCausalLM", "qwen3")


def their_config(config: ModelConfig, vocabulary: Vocabulary) -> dict[str, Any]:
    """The content of config.json."""
    name, kind = architecture(config)
    theirs: dict[str, Any] = {
        "architectures": [name],
        "model_type": kind,
        "vocab_size": len(vocabulary.tokens),
        "hidden_size": config.width,
        "intermediate_size": config.ffn or config.experts_per_token * config.expert_ffn,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": POSITIONS,
        "initializer_range": INITIAL_SPREAD,
        "rms_norm_eps": config.norm_eps,
        "rope_theta": config.rope_base,
        "rope_scaling": None,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "use_sliding_window": False,
        "sliding_window": None,
        "max_window_layers": config.layers,
        "tie_word_embeddings": False,
        "use_cache": True,
        "bos_token_id": vocabulary.bos,
        "eos_token_id": vocabulary.eos,
        "pad_token_id": vocabulary.pad,
        "torch_dtype": "float32",
    }
    if config.experts:
        theirs |= {
            "num_experts": config.experts,
            "num_experts_per_tok": config.experts_per_token,
            "moe_intermediate_size": config.expert_ffn,
            "norm_topk_prob": config.expert_norm,
            "router_aux_loss_coef": config.router_aux,
            "decoder_sparse_step": 1,
            "mlp_only_layers": [],
        }
    return theirs | {ABOUT: {"model": decisive(config), "vocabulary": vocabulary.hash}}


def generation_config(vocabulary: Vocabulary) -> dict[str, Any]:
    """The content of generation_config.json: sampling from the model's own distribution."""
    return {
        "bos_token_id": vocabulary.bos,
        "eos_token_id": list(vocabulary.stops),
        "pad_token_id": vocabulary.pad,
        "do_sample": True,
        "temperature": 1.0,
        "top_k": 0,
        "top_p": 1.0,
    }


def tokenizer_files(vocabulary: Vocabulary) -> dict[str, dict[str, Any]]:
    """Name and content of the files of a tokenizer that splits at spaces and knows whole tokens."""
    special = {
        f"{name}_token": vocabulary.tokens[getattr(vocabulary, name)]
        for name in ("bos", "eos", "unk", "pad")
    }
    flags = {
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": True,
    }
    ids = {token: place for place, token in enumerate(vocabulary.tokens)}
    added = [{"id": ids[token], "content": token} | flags for token in special.values()]
    return {
        "tokenizer.json": {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": sorted(added, key=lambda token: token["id"]),
            "normalizer": None,
            "pre_tokenizer": {"type": "WhitespaceSplit"},
            "post_processor": None,
            "decoder": None,
            "model": {"type": "WordLevel", "vocab": ids, "unk_token": special["unk_token"]},
        },
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": POSITIONS,
            "padding_side": "left",
            "clean_up_tokenization_spaces": False,
            **special,
        },
        "special_tokens_map.json": special,
    }


def export_model(folder: Path, model: Transformer, vocabulary: Vocabulary) -> None:
    """Write the folder that `from_pretrained` loads; config.json comes last and makes it one.

    Raises:
        ValueError: the model has another number of tokens than the vocabulary.
    """
    if model.head.out_features != len(vocabulary.tokens):
        raise ValueError(
            f"{model.head.out_features} rows in the head, {len(vocabulary.tokens)} tokens"
        )
    tensors = {their_name(name): tensor.contiguous() for name, tensor in model.state_dict().items()}
    with atomic_path(folder / WEIGHTS) as temporary:
        save_file(tensors, temporary, metadata={"format": "pt"})
    for name, content in tokenizer_files(vocabulary).items():
        write_json(folder / name, content)
    write_json(folder / "generation_config.json", generation_config(vocabulary))
    write_json(folder / "config.json", their_config(model.config, vocabulary))
