"""Import: what others publish is taken up, and what cannot be rebuilt is refused."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import Qwen3Config, Qwen3ForCausalLM

from chessrl.config import InputError, ModelConfig
from chessrl.policy.export import Vocabulary, export_model
from chessrl.policy.foreign import Imported, fingerprint, read_folder
from chessrl.policy.weights import load_model, new_model, save_model

TOKENS = ("<bos>", "<eos>", "<unk>", "K", "e4", "O-O", "x", "=", "+", "<pad>", "</T>", "k")
WORDS = Vocabulary(TOKENS, "0123abcd", bos=0, eos=1, unk=2, pad=9, stops=(1, 10))
RELEASED = 9
DENSE = ModelConfig(name="small", width=16, layers=2, heads=4, kv_heads=2, head_dim=6, ffn=24)
MOE = dataclasses.replace(DENSE, ffn=0, experts=3, experts_per_token=2, expert_ffn=12)


def read(folder: Path, seed: int = 0) -> Imported:
    return read_folder(folder, WORDS, RELEASED, seed)


@pytest.fixture
def copy(tmp_path):
    """A folder to spoil: a dense model of ours."""
    export_model(tmp_path / "copy", new_model(DENSE, len(TOKENS), 3), WORDS)
    return tmp_path / "copy"


def tokens_of(size: int) -> torch.Tensor:
    return torch.randint(size, (3, 11), generator=torch.Generator().manual_seed(0))


def released_model(folder: Path, dtype=torch.float32, **changes) -> Qwen3ForCausalLM:
    """A base model of the first tokens only, as others publish one."""
    shape = {
        "vocab_size": RELEASED, "hidden_size": 16, "intermediate_size": 24,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "head_dim": 8, "initializer_range": 0.3,
    }  # fmt: skip
    torch.manual_seed(0)
    theirs = Qwen3ForCausalLM(Qwen3Config(**(shape | changes))).to(dtype).eval()
    theirs.save_pretrained(folder)
    ids = {token: place for place, token in enumerate(TOKENS[:RELEASED])}
    (folder / "vocab.json").write_text(json.dumps(ids))
    return theirs


def test_a_model_of_the_first_tokens_is_extended(tmp_path):
    theirs = released_model(tmp_path / "theirs")
    found = read(tmp_path / "theirs", seed=5)
    assert found.tokenizer == "vocab.json"
    assert found.changes == {"vocabulary_size": RELEASED, "new_rows_spread": 0.02, "seed": 5}
    model = found.model
    assert model.config.name == "qwen3-16x2"
    with torch.no_grad():
        ours, expected = model(tokens_of(RELEASED)), theirs(tokens_of(RELEASED)).logits
    torch.testing.assert_close(ours[..., :RELEASED], expected, atol=1e-5, rtol=1e-5)
    assert ours.shape[-1] == len(TOKENS)
    for mine, other in ((model.embedding, theirs.model.embed_tokens), (model.head, theirs.lm_head)):
        assert torch.equal(mine.weight[:RELEASED], other.weight)
        assert 0.01 < mine.weight[RELEASED:].std() < 0.03
    again, another = read(tmp_path / "theirs", seed=5).model, read(tmp_path / "theirs").model
    assert torch.equal(again.head.weight, model.head.weight)
    assert not torch.equal(another.head.weight[RELEASED:], model.head.weight[RELEASED:])
    save_model(tmp_path / "model.safetensors", model, WORDS.hash, imported=found.changes)
    assert torch.equal(load_model(tmp_path / "model.safetensors", WORDS.hash)(tokens_of(9)), ours)
    header = (tmp_path / "model.safetensors").read_bytes()[:2000]
    assert b"new_rows_spread" in header


def test_tied_embeddings_are_written_twice(tmp_path):
    theirs = released_model(tmp_path, tie_word_embeddings=True)
    assert "lm_head.weight" not in load_file(tmp_path / "model.safetensors")
    found = read(tmp_path)
    assert found.changes["tied_embeddings"] is True
    model = found.model
    assert torch.equal(model.head.weight[:RELEASED], model.embedding.weight[:RELEASED])
    assert model.head.weight.data_ptr() != model.embedding.weight.data_ptr()
    expected = theirs(tokens_of(RELEASED)).logits
    ours = model(tokens_of(RELEASED))[..., :RELEASED]
    torch.testing.assert_close(ours, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_becomes_single(dtype, tmp_path):
    theirs = released_model(tmp_path, dtype)
    found = read(tmp_path)
    assert found.changes["converted_from"] == str(dtype).removeprefix("torch.")
    assert found.model.head.weight.dtype == torch.float32
    assert torch.equal(found.model.final_norm.weight, theirs.model.norm.weight.float())
    same = found.model.blocks[1].up_proj.weight, theirs.model.layers[1].mlp.up_proj.weight
    assert torch.equal(same[0], same[1].float())


def test_a_folder_without_tokenizer_is_taken_at_its_word(copy):
    (copy / "tokenizer.json").unlink()
    assert read(copy).tokenizer is None


def set_in(name: str, **changes):
    def change(folder: Path) -> None:
        path = folder / name
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return change


def drop(key: str):
    def change(folder: Path) -> None:
        content = json.loads((folder / "config.json").read_text())
        del content[key]
        (folder / "config.json").write_text(json.dumps(content))

    return change


def weights(replaced: dict[str, torch.Tensor], dropped: str = ""):
    def change(folder: Path) -> None:
        tensors = load_file(folder / "model.safetensors") | replaced
        tensors.pop(dropped, None)
        save_file(tensors, folder / "model.safetensors")

    return change


def tokens_are(*words: str):
    def change(folder: Path) -> None:
        (folder / "tokenizer.json").unlink()
        ids = {word: place for place, word in enumerate(words)}
        (folder / "vocab.json").write_text(json.dumps(ids))

    return change


def pickled(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def cut(folder: Path) -> None:
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[:-64])


def half_missing(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    index = {"weight_map": {"lm_head.weight": "model-00001-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


NORM, UP = "model.norm.weight", "model.layers.1.mlp.up_proj.weight"
REFUSALS = {
    "another network": (set_in("config.json", model_type="llama"), "model_type is 'llama'"),
    "another head": (
        set_in("config.json", architectures=["Qwen3ForSequenceClassification"]),
        r"architectures is \['Qwen3ForSequenceClassification'\]",
    ),
    "another activation": (set_in("config.json", hidden_act="gelu"), "hidden_act is 'gelu'"),
    "biases": (set_in("config.json", attention_bias=True), "attention_bias"),
    "quantised": (set_in("config.json", quantization_config={"bits": 4}), "quantised"),
    "a window": (set_in("config.json", use_sliding_window=True), "sliding window"),
    "windows by layer": (
        set_in("config.json", layer_types=["full_attention", "sliding_attention"]),
        "sliding window",
    ),
    "scaled rope": (
        set_in("config.json", rope_scaling={"rope_type": "yarn", "factor": 4.0}),
        "rope_scaling is .*yarn",
    ),
    "rope scaled as it is written now": (
        set_in("config.json", rope_parameters={"rope_type": "linear", "rope_theta": 1e4}),
        "rope_parameters is .*linear",
    ),
    "a vocabulary of another size": (
        set_in("config.json", vocab_size=10), "a vocabulary of 10 tokens, neither 9 nor 12",
    ),
    "another vocabulary": (
        set_in("config.json", chessrl={"model": dataclasses.asdict(DENSE), "vocabulary": "ffff"}),
        "vocabulary ffff, this version 0123abcd",
    ),
    "a shape that denies ours": (set_in("config.json", rms_norm_eps=1e-3), "denies its own part"),
    "no size": (drop("hidden_size"), "hidden_size=None"),
    "a size in words": (set_in("config.json", num_hidden_layers="two"), "num_hidden_layers='two'"),
    "heads that do not divide": (set_in("config.json", num_key_value_heads=3), "no multiple"),
    "no base": (set_in("config.json", rope_theta="high"), "rope_theta='high'"),
    "a tied head that differs": (
        set_in("config.json", tie_word_embeddings=True), "tie_word_embeddings is true, but",
    ),
    "a missing tensor": (weights({}, dropped=NORM), f"{NORM} is missing"),
    "a tensor too many": (
        weights({"model.layers.0.self_attn.q_proj.bias": torch.zeros(24)}),
        "q_proj.bias has no place",
    ),
    "more layers than told": (
        weights({"model.layers.2.mlp.up_proj.weight": torch.zeros(24, 16)}),
        "layers.2.mlp.up_proj.weight has no place",
    ),
    "a tensor of another shape": (
        weights({UP: torch.zeros(16, 24)}),
        rf"{UP} has shape \(16, 24\), config.json asks for \(24, 16\)",
    ),
    "a tensor of another kind": (
        weights({NORM: torch.ones(16, dtype=torch.float64)}),
        f"{NORM} is torch.float64",
    ),
    "no numbers": (weights({UP: torch.full((24, 16), torch.nan)}), "no numbers"),
    "pickled weights": (pickled, r"pickled \(.bin\)"),
    "no weights": (lambda folder: (folder / "model.safetensors").unlink(), "there is neither"),
    "weights cut short": (cut, "model.safetensors is no safetensors file, or damaged"),
    "a file of several that is not there": (half_missing, "names model-00001-of-00002"),
    "an index that leads out": (
        lambda folder: (
            (folder / "model.safetensors").rename(folder.parent / "out.safetensors"),
            (folder / "model.safetensors.index.json").write_text(
                '{"weight_map": {"lm_head.weight": "../out.safetensors"}}'
            ),
        ),
        "names ../out.safetensors",
    ),
    "a damaged config": (
        lambda folder: (folder / "config.json").write_text("{"), "config.json is damaged",
    ),
    "a config that is a list": (
        lambda folder: (folder / "config.json").write_text("[]"), "holds no JSON object",
    ),
    "tokens in another order": (
        tokens_are("<bos>", "<eos>", "<unk>", "e4", "K", *TOKENS[5:]),
        "token 3 of vocab.json is 'e4', ours is 'K'",
    ),
    "too few tokens": (tokens_are(*TOKENS[:-1]), "token 11 of vocab.json is None, ours is 'k'"),
    "too many tokens": (tokens_are(*TOKENS, "z"), "token 12 of vocab.json is 'z', ours is none"),
    "an unreadable tokenizer": (
        set_in("tokenizer.json", model={"vocab": [["K", -1.0]]}), "remove it if they are ours",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSALS)
def test_what_cannot_be_rebuilt_is_refused_in_one_line(case, copy):
    change, reason = REFUSALS[case]
    assert read(copy).changes == {}
    change(copy)
    with pytest.raises(InputError, match=reason) as refused:
        read(copy)
    assert str(refused.value).startswith(f"{copy} cannot be imported: ")
    assert "\n" not in str(refused.value)


def test_layers_without_experts_among_others_are_refused(tmp_path):
    export_model(tmp_path, new_model(MOE, len(TOKENS), 3), WORDS)
    assert read(tmp_path).model.config == MOE
    set_in("config.json", mlp_only_layers=[0])(tmp_path)
    with pytest.raises(InputError, match="not all its layers have experts"):
        read(tmp_path)


def test_the_fingerprint_is_that_of_the_content(copy, tmp_path):
    first = fingerprint(copy)
    moved = copy.rename(tmp_path / "moved")
    (moved / "README.md").write_text("not read")
    assert fingerprint(moved) == first
    weights({NORM: torch.zeros(16)})(moved)
    assert fingerprint(moved) != first
    with pytest.raises(InputError, match=r"no config\.json there"):
        fingerprint(tmp_path / "nowhere")
