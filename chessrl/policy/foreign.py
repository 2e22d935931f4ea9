"""Reading a folder in the form of Hugging Face, and refusing what this version cannot rebuild.

The converse of `chessrl/policy/export.py`. A model that would not compute the same here is refused
with the reason; nothing is guessed.
"""

import dataclasses
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from chessrl.artifacts import read_json, sha256
from chessrl.config import InputError, ModelConfig
from chessrl.policy.export import ABOUT, WEIGHTS, Vocabulary, architecture, their_name
from chessrl.policy.transformer import INITIAL_SPREAD, Transformer

INDEX = f"{WEIGHTS}.index.json"
READ = ("config.json", INDEX, "tokenizer.json", "vocab.json")
EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
HEAD_DIM = 128
"""Head dimension of a dense Qwen3 whose config.json has none."""
CONVERTED = (torch.float16, torch.bfloat16)


class Refused(Exception):
    """Why a folder cannot be read, without its name."""


@dataclasses.dataclass(frozen=True)
class Imported:
    """A model that was read, and what is to be known of how."""

    model: Transformer
    changes: dict[str, Any]
    """What is not as it was in the folder; empty for what this project exported."""
    tokenizer: str | None
    """The file whose vocabulary was compared with ours; None where there was none."""


def fingerprint(folder: Path) -> str:
    """Hash of what is read of a folder, wherever it lies.

    Raises:
        InputError: it holds no config.json.
    """
    if not (folder / "config.json").is_file():
        raise InputError(f"source={folder}: no config.json there; name the folder of a model")
    files = [folder / name for name in READ] + sorted(folder.glob("*.safetensors"))
    content = [(path.name, sha256(path)) for path in files if path.is_file()]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def read_folder(folder: Path, vocabulary: Vocabulary, released: int, seed: int) -> Imported:
    """Rebuild the model of a folder, in single precision and with the whole vocabulary.

    Args:
        released: size of a vocabulary that is the first part of ours. Such a model gets the missing
            rows of embedding and head: normal, with the spread of untrained weights.
        seed: of those rows.

    Raises:
        InputError: the folder holds no model that can be rebuilt here.
    """
    try:
        theirs = _json(folder / "config.json")
        config, size = our_config(theirs)
        if size not in (released, len(vocabulary.tokens)):
            raise Refused(
                f"a vocabulary of {size} tokens, neither {released} nor {len(vocabulary.tokens)}"
            )
        about = theirs.get(ABOUT)
        if isinstance(about, dict) and about.get("vocabulary") != vocabulary.hash:
            raise Refused(
                f"it speaks vocabulary {about.get('vocabulary')}, this version {vocabulary.hash}"
            )
        tokenizer = _check_tokenizer(folder, vocabulary.tokens[:size])
        with torch.device("meta"):
            model = Transformer(config, size)
        expected = {their_name(name): tensor for name, tensor in model.state_dict().items()}
        tied = theirs.get("tie_word_embeddings", False)
        tensors, changes = _weights(folder, expected, tied)
    except Refused as reason:
        raise InputError(f"{folder} cannot be imported: {reason}") from None
    if size < len(vocabulary.tokens):
        added = len(vocabulary.tokens) - size
        generator = torch.Generator().manual_seed(seed)
        for name in (EMBEDDING, HEAD):
            rows = torch.randn(added, config.width, generator=generator) * INITIAL_SPREAD
            tensors[name] = torch.cat([tensors[name], rows])
        changes |= {"vocabulary_size": size, "new_rows_spread": INITIAL_SPREAD, "seed": seed}
    model = Transformer(config, len(vocabulary.tokens))
    model.load_state_dict({name: tensors[their_name(name)] for name in model.state_dict()})
    return Imported(model.eval(), changes, tokenizer)


def _json(path: Path) -> dict[str, Any]:
    try:
        content = read_json(path)
    except FileNotFoundError:
        raise Refused(f"there is no {path.name}") from None
    except ValueError as error:
        raise Refused(f"{path.name} is damaged ({error})") from None
    if not isinstance(content, dict):
        raise Refused(f"{path.name} holds no JSON object")
    return content


def our_config(theirs: dict[str, Any]) -> tuple[ModelConfig, int]:
    """Our form of a config.json, and the size of its vocabulary.

    Raises:
        Refused: it describes another network.
    """
    kind = theirs.get("model_type")
    if kind not in ("qwen3", "qwen3_moe"):
        raise Refused(f"model_type is {kind!r}, not 'qwen3' or 'qwen3_moe'")
    _refuse_other_networks(theirs)
    width, heads = _size(theirs, "hidden_size"), _size(theirs, "num_attention_heads")
    shape: dict[str, Any] = {
        "width": width,
        "layers": _size(theirs, "num_hidden_layers"),
        "heads": heads,
        "kv_heads": _size(theirs, "num_key_value_heads"),
        "head_dim": HEAD_DIM if kind == "qwen3" else width // heads,
        "ffn": 0,
        "norm_eps": _number(theirs, "rms_norm_eps", 1e-6),
        "rope_base": _number(theirs | _rope(theirs), "rope_theta", 10000.0),
    }
    if theirs.get("head_dim") is not None:
        shape["head_dim"] = _size(theirs, "head_dim")
    if kind == "qwen3":
        shape["ffn"] = _size(theirs, "intermediate_size")
    else:
        count = "num_experts" if "num_experts" in theirs else "num_local_experts"
        shape |= {
            "experts": _size(theirs, count),
            "experts_per_token": _size(theirs, "num_experts_per_tok"),
            "expert_ffn": _size(theirs, "moe_intermediate_size"),
            "expert_norm": bool(theirs.get("norm_topk_prob", False)),
            "router_aux": _number(theirs, "router_aux_loss_coef", 0.001),
        }
    about = theirs.get(ABOUT)
    try:
        config = ModelConfig(name=f"{kind}-{width}x{shape['layers']}", **shape)
        if isinstance(about, dict):
            stated = ModelConfig(**about["model"])
            config = dataclasses.replace(config, name=stated.name)
            if config != stated:
                raise Refused(f"config.json denies its own part {ABOUT!r}: {config} and {stated}")
    except (ValueError, TypeError, KeyError) as error:
        raise Refused(f"config.json does not fit this version: {error}") from None
    name = architecture(config)[0]
    if theirs.get("architectures") not in (None, [name]):
        raise Refused(f"architectures is {theirs['architectures']}, not [{name!r}]")
    return config, _size(theirs, "vocab_size")


def _refuse_other_networks(theirs: dict[str, Any]) -> None:
    """Refuse what Qwen3 may be told to do and this model does not."""
    act = theirs.get("hidden_act", "silu")
    if act != "silu":
        raise Refused(f"hidden_act is {act!r}, not 'silu'")
    if theirs.get("attention_bias"):
        raise Refused("attention_bias is true; this model has no biases")
    if theirs.get("quantization_config"):
        raise Refused("its weights are quantised (quantization_config)")
    layers = theirs.get("layer_types") or []
    if theirs.get("use_sliding_window") or any(layer != "full_attention" for layer in layers):
        raise Refused("its attention has a sliding window (use_sliding_window, layer_types)")
    _rope(theirs)
    if theirs.get("decoder_sparse_step", 1) != 1 or theirs.get("mlp_only_layers"):
        raise Refused("not all its layers have experts (decoder_sparse_step, mlp_only_layers)")


def _rope(theirs: dict[str, Any]) -> dict[str, Any]:
    """The base of the rotary positions, where it stands apart; nothing else may be set."""
    settings: dict[str, Any] = {}
    for key in ("rope_scaling", "rope_parameters"):
        part = theirs.get(key) or {}
        plain = {name: part[name] for name in ("rope_theta",) if name in part}
        if part not in (plain, plain | {"rope_type": "default"}, plain | {"type": "default"}):
            raise Refused(f"{key} is {part}; rotary positions are not scaled here")
        settings |= plain
    return settings


def _size(theirs: dict[str, Any], key: str) -> int:
    value = theirs.get(key)
    if type(value) is not int or value < 1:
        raise Refused(f"config.json has {key}={value!r}, which is no positive integer")
    return value


def _number(theirs: dict[str, Any], key: str, default: float) -> float:
    value = theirs.get(key, default)
    if type(value) not in (int, float):
        raise Refused(f"config.json has {key}={value!r}, which is no number")
    return float(value)


def _check_tokenizer(folder: Path, ours: tuple[str, ...]) -> str | None:
    """Compare the vocabulary of a folder with ours, token by token."""
    for name in ("tokenizer.json", "vocab.json"):
        if not (folder / name).is_file():
            continue
        content = _json(folder / name)
        try:
            known = content
            if name == "tokenizer.json":
                added = content.get("added_tokens") or []
                known = content["model"]["vocab"] | {one["content"]: one["id"] for one in added}
            theirs = {int(place): token for token, place in known.items()}
        except (KeyError, TypeError, ValueError):
            raise Refused(
                f"{name} has no list of tokens that can be compared; remove it if they are ours"
            ) from None
        for place in [*range(len(ours)), *sorted(set(theirs) - set(range(len(ours))))]:
            expected = repr(ours[place]) if place < len(ours) else "none, past the last"
            if place >= len(ours) or theirs.get(place) != ours[place]:
                raise Refused(
                    f"token {place} of {name} is {theirs.get(place)!r}, ours is {expected}"
                )
        return name
    return None


def _weights(
    folder: Path, expected: dict[str, Tensor], tied: bool
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """All weights in single precision, and what had to be changed."""
    tensors: dict[str, Tensor] = {}
    for path in _files(folder):
        try:
            with safe_open(path, framework="pt") as file:
                for name in file.keys():  # noqa: SIM118
                    if name in tensors:
                        raise Refused(f"{name} stands in two files")
                    tensors[name] = file.get_tensor(name)
        except SafetensorError as error:
            raise Refused(f"{path.name} is no safetensors file, or damaged: {error}") from None
    changes: dict[str, Any] = {}
    if tied and EMBEDDING in tensors:
        head = tensors.get(HEAD, tensors[EMBEDDING])
        if not torch.equal(head.float(), tensors[EMBEDDING].float()):
            raise Refused(f"tie_word_embeddings is true, but {HEAD} is not {EMBEDDING}")
        tensors[HEAD] = tensors[EMBEDDING].clone()
        changes["tied_embeddings"] = True
    for name in sorted(tensors.keys() - expected.keys()):
        raise Refused(f"{name} has no place in this model")
    for name, place in expected.items():
        if name not in tensors:
            raise Refused(f"{name} is missing")
        tensor = tensors[name]
        if tensor.shape != place.shape:
            shapes = f"has shape {tuple(tensor.shape)}, config.json asks for {tuple(place.shape)}"
            raise Refused(f"{name} {shapes}")
        if tensor.dtype in CONVERTED:
            changes["converted_from"] = str(tensor.dtype).removeprefix("torch.")
            tensors[name] = tensor = tensor.float()
        if tensor.dtype != torch.float32:
            raise Refused(f"{name} is {tensor.dtype}, not float32, float16 or bfloat16")
        if not tensor.isfinite().all():
            raise Refused(f"{name} holds values that are no numbers")
    return tensors, changes


def _files(folder: Path) -> Iterator[Path]:
    """The safetensors files that hold the weights."""
    if (folder / WEIGHTS).is_file():
        yield folder / WEIGHTS
        return
    if not (folder / INDEX).is_file():
        if any(folder.glob("*.bin")):
            raise Refused("its weights are pickled (.bin); save them as safetensors")
        raise Refused(f"there is neither {WEIGHTS} nor {INDEX}")
    named = _json(folder / INDEX).get("weight_map")
    if not isinstance(named, dict) or not all(isinstance(name, str) for name in named.values()):
        raise Refused(f"{INDEX} has no weight_map")
    for name in sorted(set(named.values())):
        if Path(name).name != name or not (folder / name).is_file():
            raise Refused(f"{INDEX} names {name}, which is not there")
        yield folder / name
