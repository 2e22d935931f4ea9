"""Weights on disk: one safetensors file that carries its model config and vocabulary with it."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from chessrl.artifacts import atomic_path, decisive
from chessrl.config import InputError, ModelConfig
from chessrl.policy.transformer import Transformer

ABOUT = "chessrl"
"""Key under which a weights file says what it holds, as JSON."""


def save_model(
    path: Path, model: Transformer, vocabulary: str, imported: dict[str, Any] | None = None
) -> None:
    """Write weights, model config and vocabulary hash, whole or not at all.

    Args:
        imported: what was changed in weights that came from elsewhere, written beside the rest.
    """
    about = {
        "model": decisive(model.config),
        "vocabulary": vocabulary,
        "vocabulary_size": model.head.out_features,
    }
    if imported:
        about["imported"] = imported
    tensors = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    with atomic_path(path) as temporary:
        save_file(tensors, temporary, metadata={ABOUT: json.dumps(about)})  # one entry: fixed bytes


def load_model(path: Path, vocabulary: str) -> Transformer:
    """Rebuild the model that a weights file holds, from the file alone.

    Raises:
        InputError: there is no such file, it is damaged, or it speaks another vocabulary.
    """
    if not path.is_file():
        raise InputError(
            f"no weights at {path}: run the stage that makes them, or mend checkpoint="
        )
    try:
        with safe_open(path, framework="pt") as file:
            about = json.loads((file.metadata() or {}).get(ABOUT, "{}"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise InputError(f"{path} is no safetensors file, or a damaged one: {error}") from error
    if about.get("vocabulary") != vocabulary:
        raise InputError(
            f"{path} speaks vocabulary {about.get('vocabulary')}, this version {vocabulary}"
        )
    try:
        config = ModelConfig(**about["model"])
        model = Transformer(config, about["vocabulary_size"])
        model.load_state_dict(tensors)
    except (KeyError, ValueError, TypeError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"{path} does not hold a model of this version: {reason}") from error
    return model.eval()


def new_model(config: ModelConfig, vocabulary_size: int, seed: int) -> Transformer:
    """A freshly initialised model; the same seed gives the same weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Transformer(config, vocabulary_size)
