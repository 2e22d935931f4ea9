"""Export and import as stages, and a model with experts through all of them."""

import csv
import json
import math

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from chessrl import compute
from chessrl.artifacts import decisive
from chessrl.board import tokens
from chessrl.config import InputError, ModelConfig
from chessrl.policy.weights import load_model
from chessrl.stages.evaluate import evaluate
from chessrl.stages.exporting import RELEASED, VOCABULARY, export, import_model
from chessrl.stages.pipeline import pipeline
from chessrl.stages.prepare import prepare
from chessrl.stages.pretrain import pretrain
from chessrl.stages.runs import folder, run_identity, with_stage

EXPERTS = (
    "model.ffn=0",
    "model.experts=4",
    "model.experts_per_token=2",
    "model.expert_ffn=96",
    "model.router_aux=0.01",
)


@pytest.fixture(scope="module")
def trained(tiny, tmp_path_factory):
    """A pretrained tiny model: its configuration."""
    run = tiny(tmp_path_factory.mktemp("outputs"), "stage=pretrain", "pretrain.tokens=1e4")
    prepare(with_stage(run, "prepare"))
    pretrain(run)
    return run


@pytest.fixture(scope="module")
def mixed(tiny, tmp_path_factory):
    """A finished tiny pipeline of a model with experts: its configuration and results."""
    run = tiny(tmp_path_factory.mktemp("outputs"), "stage=pipeline", *EXPERTS)
    return run, pipeline(run)


@pytest.fixture
def again(tiny, trained):
    """The configuration of the trained model with other overrides."""

    def made(*overrides: str):
        return tiny(trained.outputs, "pretrain.tokens=1e4", *overrides)

    return made


def weights_of(run, stage: str):
    return folder(run, stage).checkpoints / "model.safetensors"


def metrics_of(run, stage: str) -> list[dict[str, str]]:
    with open(folder(run, stage).metrics, newline="") as file:
        return list(csv.DictReader(file))


def test_the_vocabulary_is_the_released_one_and_ours():
    assert RELEASED == 81
    assert tokens.TOKENS[RELEASED] == "<pad>"
    assert VOCABULARY.stops == (tokens.EOS, tokens.CALL_ENV)


def test_a_trained_model_goes_out_and_comes_back(trained, again):
    run = again("stage=export", "evaluate.of=pretrain")
    result = export(run)
    out = folder(run, "export").path
    assert out.name.startswith("export-pretrain-")
    assert (result.status, result.of, result.model) == ("done", "pretrain", "100k")
    assert result.parents == {"pretrain": run_identity(trained, "pretrain")}
    assert result.flops["pretrain"] > 0
    assert export(run) == result  # finished: used again

    text = "<bos> P e2 e4 P e7 e5 N g1 f3"
    ids = [tokens.ID[word] for word in text.split()]
    tokenizer = AutoTokenizer.from_pretrained(out)
    assert tokenizer(text)["input_ids"] == ids
    assert tokenizer(" ".join(tokens.TOKENS))["input_ids"] == list(range(95))
    theirs = AutoModelForCausalLM.from_pretrained(out).eval()
    model = load_model(weights_of(trained, "pretrain"), tokens.VOCABULARY_HASH)
    with torch.no_grad():
        expected = theirs(torch.tensor([ids])).logits
        torch.testing.assert_close(model(torch.tensor([ids])), expected, atol=1e-5, rtol=1e-5)

    back = again("stage=import", f"source={out}")
    result = import_model(back)
    assert (result.status, result.model) == ("done", "100k")
    assert result.n_params == compute.parameters(trained.model, 95)
    assert weights_of(back, "import").read_bytes() == weights_of(trained, "pretrain").read_bytes()
    manifest = folder(back, "import").manifest
    assert (manifest["source"], manifest["changes"]) == (str(out), {})
    assert manifest["tokenizer"] == "tokenizer.json"


def test_what_was_imported_can_be_measured(trained, again, tmp_path):
    """Also into a folder of one's own, and from weights given by their path."""
    start = folder(trained, "pretrain").checkpoints / "start.safetensors"
    out = tmp_path / "hf"
    export(again("stage=export", f"checkpoint={start}", f"out={out}"))
    assert (out / "config.json").is_file() and (out / "result.json").is_file()
    back = again("stage=import", f"source={out}", f"out={tmp_path / 'back'}")
    import_model(back)
    weights = tmp_path / "back" / "checkpoints" / "model.safetensors"
    assert weights.read_bytes() == start.read_bytes()
    measured = [
        evaluate(again("stage=evaluate", "evaluate.of=pretrain", f"checkpoint={path}"))
        for path in (weights, start)
    ]
    assert measured[0] == measured[1]


def test_a_released_model_speaks_our_vocabulary_afterwards(trained, again, tmp_path):
    """A folder of the first 81 tokens, made from an export by cutting it."""
    out = tmp_path / "released"
    export(again("stage=export", "evaluate.of=pretrain", f"out={out}"))
    theirs = AutoModelForCausalLM.from_pretrained(out)
    theirs.resize_token_embeddings(RELEASED)
    del theirs.config.chessrl
    theirs.save_pretrained(tmp_path / "cut")
    back = again("stage=import", f"source={tmp_path / 'cut'}", "seed=3")
    import_model(back)
    ours, before = (load_file(weights_of(*which)) for which in ((back, "import"),
                                                                (trained, "pretrain")))  # fmt: skip
    for name in ("embedding.weight", "head.weight"):
        assert torch.equal(ours[name][:RELEASED], before[name][:RELEASED])
        assert ours[name].shape == before[name].shape
        assert not torch.equal(ours[name][RELEASED:], before[name][RELEASED:])
    changes = folder(back, "import").manifest["changes"]
    assert changes == {"vocabulary_size": 81, "new_rows_spread": 0.02, "seed": 3}
    other = again("stage=import", f"source={tmp_path / 'cut'}", "seed=4")
    assert run_identity(other, "import") != run_identity(back, "import")


def test_an_export_needs_its_parent(again):
    with pytest.raises(InputError, match="sft has not finished in"):
        export(again("stage=export", "evaluate.of=sft"))


@pytest.mark.parametrize(
    ("overrides", "named"),
    [
        (("stage=import",), "needs source=FOLDER"),
        (("stage=pretrain", "source=x"), "source= cannot be used with stage=pretrain"),
        (("stage=import", "source=x", "checkpoint=y"), "checkpoint= cannot be used"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(overrides, named, configure):
    with pytest.raises(InputError, match=named):
        configure(*overrides)


def test_a_refused_folder_leaves_nothing_behind(again, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    run = again("stage=import", f"source={tmp_path}")
    with pytest.raises(InputError, match="model_type is 'gpt2'"):
        import_model(run)
    assert not folder(run, "import").path.exists()
    with pytest.raises(InputError, match=r"no config\.json there"):
        import_model(again("stage=import", "source=/nowhere"))


def test_dense_models_keep_their_names():
    """Runs and weights from before there were experts are found again."""
    dense = ModelConfig(name="d", width=8, layers=1, heads=2, kv_heads=1, head_dim=4, ffn=12)
    assert list(decisive(dense)) == [
        "name", "width", "layers", "heads", "kv_heads", "head_dim", "ffn", "norm_eps", "rope_base",
    ]  # fmt: skip


def test_experts_go_through_every_stage(mixed):
    run, results = mixed
    assert all(result.status == "done" for result in results)
    active = compute.active_parameters(run.model, 95)
    last = results[-1]
    assert last.n_params == compute.parameters(run.model, 95) > active
    assert last.flops["pretrain"] == 6 * active * last.tokens["pretrain"]
    assert last.flops["traces"] == 2 * active * last.tokens["traces"]
    assert last.flops["rl"] == 10 * active * last.tokens["rl"]
    for stage in ("pretrain", "sft", "rl"):
        assert folder(run, stage).finished.measures["active_params"] == active


def test_the_use_of_experts_is_logged(mixed):
    run, _ = mixed
    for stage in ("pretrain", "sft", "rl"):
        rows = [row for row in metrics_of(run, stage) if row.get("expert_entropy")]
        assert rows, stage
        for row in rows:
            assert 0 < float(row["expert_entropy"]) <= math.log(4) + 1e-6
            least, most = float(row["expert_least"]), float(row["expert_most"])
            assert 0 <= least <= 0.25 <= most <= 0.5  # of two per token, at most half go to one
    assert all(float(row["router_balance"]) >= 1.99 for row in metrics_of(run, "pretrain"))
    assert "router_balance" not in metrics_of(run, "rl")[0]


def test_the_ratio_is_one_with_experts_too(mixed):
    """The sampler and the update route each token alike."""
    run, _ = mixed
    for row in metrics_of(run, "rl"):
        if row["ratio_min"]:
            assert float(row["ratio_min"]) == pytest.approx(1, abs=1e-3)
            assert float(row["ratio_max"]) == pytest.approx(1, abs=1e-3)


def test_experts_go_out_and_come_back(mixed, tiny):
    run, _ = mixed
    out = tiny(run.outputs, "stage=export", "evaluate.of=rl", *EXPERTS)
    export(out)
    path = folder(out, "export").path
    ids = torch.tensor([[tokens.BOS, 8, 42, 44, 9, 3]])
    model = load_model(weights_of(run, "rl"), tokens.VOCABULARY_HASH)
    with torch.no_grad():
        expected = AutoModelForCausalLM.from_pretrained(path).eval()(ids).logits
        torch.testing.assert_close(model(ids), expected, atol=1e-5, rtol=1e-5)
    back = tiny(run.outputs, "stage=import", f"source={path}")
    import_model(back)
    assert weights_of(back, "import").read_bytes() == weights_of(run, "rl").read_bytes()
