"""Export: what transformers loads computes the same, and comes back byte by byte."""

import dataclasses
import json

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from chessrl.config import ModelConfig
from chessrl.policy.export import Vocabulary, export_model, their_config, their_name
from chessrl.policy.foreign import read_folder
from chessrl.policy.transformer import Transformer
from chessrl.policy.weights import new_model, save_model

TOKENS = ("<bos>", "<eos>", "<unk>", "K", "e4", "O-O", "x", "=", "+", "<pad>", "</T>", "k")
WORDS = Vocabulary(TOKENS, "0123abcd", bos=0, eos=1, unk=2, pad=9, stops=(1, 10))
DENSE = ModelConfig(
    name="small", width=16, layers=2, heads=4, kv_heads=2, head_dim=6, ffn=24, rope_base=500.0,
    norm_eps=1e-5,
)  # fmt: skip
MOE = dataclasses.replace(
    DENSE, name="mixed", ffn=0, experts=3, experts_per_token=2, expert_ffn=12, router_aux=0.01
)
SHAPES = {config.name: config for config in (DENSE, MOE)}


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


def some_tokens() -> torch.Tensor:
    return torch.randint(len(TOKENS), (3, 11), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", SHAPES)
def test_transformers_loads_it_and_computes_the_same(name, exported):
    model, folder = exported[name]
    theirs, said = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not any(said.values()), said
    assert type(theirs).__name__ == their_config(model.config, WORDS)["architectures"][0]
    assert theirs.dtype == torch.float32
    with torch.no_grad():
        ours = model(some_tokens())
        assert ours.std() > 0.3
        expected = theirs.eval()(some_tokens()).logits
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
    found = read_folder(folder, WORDS, 9, seed=0)
    assert (found.changes, found.tokenizer) == ({}, "tokenizer.json")
    save_model(tmp_path / "before", model, WORDS.hash)
    save_model(tmp_path / "after", found.model, WORDS.hash, imported=found.changes)
    assert (tmp_path / "before").read_bytes() == (tmp_path / "after").read_bytes()


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
