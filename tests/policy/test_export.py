"""Export and import: what transformers loads computes the same, and what is not ours is refused."""

import dataclasses
import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen3Config, Qwen3ForCausalLM

from chessrl.config import InputError, ModelConfig
from chessrl.policy.export import Vocabulary, export_model, their_config, their_name
from chessrl.policy.foreign import fingerprint, read_folder
from chessrl.policy.transformer import Transformer
from chessrl.policy.weights import load_model, new_model, save_model

TOKENS = ("<bos>", "<eos>", "<unk>", "K", "e4", "O-O", "x", "=", "+", "<pad>", "</T>", "k")
WORDS = Vocabulary(TOKENS, "0123abcd", bos=0, eos=1, unk=2, pad=9, stops=(1, 10))
RELEASED = 9
DENSE = ModelConfig(
    name="small", width=16, layers=2, heads=4, kv_heads=2, head_dim=6, ffn=24, rope_base=500.0,
    norm_eps=1e-5,
)  # fmt: skip
MOE = dataclasses.replace(
    DENSE, name="mixed", ffn=0, experts=3, experts_per_token=2, expert_ffn=12, router_aux=0.01
)
SHAPES = {config.name: config for config in (DENSE, MOE)}


def read(folder: Path, seed: int = 0):
    return read_folder(folder, WORDS, RELEASED, seed)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Models and the folders they were written to, by name."""
    made = {}
    for name, config in SHAPES.items():
        folder = tmp_path_factory.mktemp(name)
        model = new_model(config, len(TOKENS), 3)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(10 if parameter.ndim > 1 else 1)
        export_model(folder, model.eval(), WORDS)
        made[name] = model, folder
    return made


@pytest.fixture
def copy(exported, tmp_path):
    """A folder to spoil: the dense model."""
    shutil.copytree(exported["small"][1], tmp_path / "copy")
    return tmp_path / "copy"


def tokens_of(size: int = len(TOKENS)) -> torch.Tensor:
    return torch.randint(size, (3, 11), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", SHAPES)
def test_transformers_loads_it_and_computes_the_same(name, exported):
    model, folder = exported[name]
    theirs, said = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not any(said.values()), said
    assert type(theirs).__name__ == their_config(model.config, WORDS)["architectures"][0]
    assert theirs.dtype == torch.float32
    with torch.no_grad():
        ours = model(tokens_of())
        assert ours.std() > 0.3
        expected = theirs.eval()(tokens_of()).logits
    torch.testing.assert_close(ours, expected, atol=1e-5, rtol=1e-5)
    config, samples = theirs.config, theirs.generation_config
    assert (config.bos_token_id, config.eos_token_id, config.pad_token_id) == (0, 1, 9)
    assert not config.tie_word_embeddings
    assert (samples.eos_token_id, samples.pad_token_id, samples.top_k) == ([1, 10], 9, 0)


def test_a_greedy_continuation_is_ours(exported):
    model, folder = exported["small"]
    theirs = AutoModelForCausalLM.from_pretrained(folder)
    prompt = torch.tensor([[0, 3, 4]])
    written = theirs.generate(
        prompt, attention_mask=torch.ones_like(prompt), do_sample=False, max_new_tokens=8,
        eos_token_id=None,
    )  # fmt: skip
    for place in range(3, written.shape[1]):
        assert model(written[:, :place])[0, -1].argmax() == written[0, place]


def test_the_tokenizer_knows_whole_tokens_between_spaces(exported):
    tokenizer = AutoTokenizer.from_pretrained(exported["small"][1])
    text = " ".join(TOKENS)
    assert tokenizer(text)["input_ids"] == list(range(len(TOKENS)))
    assert tokenizer.decode(range(len(TOKENS))) == text
    assert tokenizer("<bos> K e4 O-O </T>")["input_ids"] == [0, 3, 4, 5, 10]
    assert tokenizer("  K   e4 ")["input_ids"] == [3, 4]
    assert tokenizer("Ke4 e5 K")["input_ids"] == [2, 2, 3]
    ids = (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.unk_token_id)
    assert (*ids, tokenizer.pad_token_id, len(tokenizer)) == (0, 1, 2, 9, len(TOKENS))
    both = tokenizer(["K", "K e4"], padding=True)
    assert both["input_ids"] == [[9, 3], [3, 4]]
    assert both["attention_mask"] == [[0, 1], [1, 1]]
    assert tokenizer.decode([0, 3, 4, 10, 9], skip_special_tokens=True) == "K e4 </T>"


def test_config_json_says_the_shape(exported):
    content = json.loads((exported["small"][1] / "config.json").read_text())
    expected = {
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": 12,
        "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6, "hidden_act": "silu",
        "rms_norm_eps": 1e-5, "rope_theta": 500.0, "attention_bias": False,
        "tie_word_embeddings": False, "torch_dtype": "float32",
    }  # fmt: skip
    assert content.items() >= expected.items()
    assert content["chessrl"]["vocabulary"] == WORDS.hash
    assert ModelConfig(**content["chessrl"]["model"]) == DENSE
    mixed = json.loads((exported["mixed"][1] / "config.json").read_text())
    assert mixed["model_type"] == "qwen3_moe"
    assert (mixed["num_experts"], mixed["num_experts_per_tok"]) == (3, 2)
    assert (mixed["moe_intermediate_size"], mixed["norm_topk_prob"]) == (12, True)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("by", ["us", "transformers"])
def test_what_was_exported_comes_back_byte_by_byte(name, by, exported, tmp_path):
    """Also after transformers has loaded it and written it anew, in several files."""
    model, folder = exported[name]
    if by == "transformers":
        theirs = AutoModelForCausalLM.from_pretrained(folder)
        theirs.save_pretrained(tmp_path / "again", max_shard_size="6KB")
        AutoTokenizer.from_pretrained(folder).save_pretrained(tmp_path / "again")
        folder = tmp_path / "again"
        assert len(list(folder.glob("*.safetensors"))) > 3
    found = read(folder)
    assert (found.changes, found.tokenizer) == ({}, "tokenizer.json")
    save_model(tmp_path / "before", model, WORDS.hash)
    save_model(tmp_path / "after", found.model, WORDS.hash, imported=found.changes)
    assert (tmp_path / "before").read_bytes() == (tmp_path / "after").read_bytes()


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


def test_layers_without_experts_among_others_are_refused(exported, tmp_path):
    shutil.copytree(exported["mixed"][1], tmp_path / "copy")
    set_in("config.json", mlp_only_layers=[0])(tmp_path / "copy")
    with pytest.raises(InputError, match="not all its layers have experts"):
        read(tmp_path / "copy")


def test_the_fingerprint_is_that_of_the_content(copy, tmp_path):
    first = fingerprint(copy)
    moved = copy.rename(tmp_path / "moved")
    (moved / "README.md").write_text("not read")
    assert fingerprint(moved) == first
    weights({NORM: torch.zeros(16)})(moved)
    assert fingerprint(moved) != first
    with pytest.raises(InputError, match=r"no config\.json there"):
        fingerprint(tmp_path / "nowhere")


def test_every_weight_has_a_name_of_its_own():
    for config in SHAPES.values():
        with torch.device("meta"):
            names = Transformer(config, 12).state_dict()
        theirs = [their_name(name) for name in names]
        assert len(set(theirs)) == len(theirs)
        assert all(name.startswith(("model.", "lm_head.")) for name in theirs)


def test_a_head_of_another_size_is_a_mistake(tmp_path):
    with pytest.raises(ValueError, match="13 rows"):
        export_model(tmp_path, new_model(DENSE, 13, 0), WORDS)
    assert not list(tmp_path.iterdir())
