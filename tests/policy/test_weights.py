"""Weights: a file alone rebuilds its model, and the wrong file says why it is wrong."""

import json

import pytest
import torch
from safetensors.torch import save_file

from chessrl.config import InputError
from chessrl.policy.weights import load_model, new_model, save_model


def test_a_file_rebuilds_its_model(model, tmp_path):
    path = tmp_path / "checkpoints" / "model.safetensors"
    save_model(path, model, "abc")
    loaded = load_model(path, "abc")
    assert loaded.config == model.config
    assert not loaded.training
    assert loaded.state_dict().keys() == model.state_dict().keys()
    for name, tensor in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor)
    tokens = torch.arange(13)[None]
    assert torch.equal(loaded(tokens), model(tokens))
    assert [file.name for file in path.parent.iterdir()] == ["model.safetensors"]


def test_saving_again_replaces_the_file(model, tmp_path):
    path = tmp_path / "model.safetensors"
    save_model(path, model, "abc")
    with torch.no_grad():
        model.head.weight += 1
    save_model(path, model, "abc")
    assert torch.equal(load_model(path, "abc").head.weight, model.head.weight)


def test_another_vocabulary_is_refused_with_both_hashes(model, tmp_path):
    path = tmp_path / "model.safetensors"
    save_model(path, model, "1111aaaa")
    with pytest.raises(InputError, match=r"model\.safetensors.*1111aaaa.*2222bbbb"):
        load_model(path, "2222bbbb")


def test_a_damaged_or_foreign_file_is_refused(model, tmp_path):
    path = tmp_path / "model.safetensors"
    save_model(path, model, "abc")
    whole = path.read_bytes()
    for damaged in (whole[:-100], whole[:50], b"", b"no weights at all", b"PK" + whole):
        path.write_bytes(damaged)
        with pytest.raises(InputError, match=r"model\.safetensors is no safetensors file"):
            load_model(path, "abc")
    save_file({"weight": torch.ones(2)}, path)  # sound, but not one of ours
    with pytest.raises(InputError, match="speaks vocabulary None"):
        load_model(path, "abc")


def test_equal_weights_give_equal_bytes(model, tmp_path):
    written = set()
    for number in range(4):
        save_model(tmp_path / str(number), model, "abc")
        written.add((tmp_path / str(number)).read_bytes())
    assert len(written) == 1


@pytest.mark.parametrize(
    "about", [{"vocabulary": "abc"}, {"vocabulary": "abc", "vocabulary_size": 13, "model": {}}]
)
def test_a_file_that_does_not_hold_a_model_is_refused(about, tmp_path):
    path = tmp_path / "model.safetensors"
    save_file({"weight": torch.ones(2)}, path, {"chessrl": json.dumps(about)})
    with pytest.raises(InputError, match=r"model\.safetensors does not hold a model"):
        load_model(path, "abc")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match=r"no weights at .*absent\.safetensors"):
        load_model(tmp_path / "absent.safetensors", "abc")


def test_a_seed_makes_the_weights_and_leaves_the_global_generator_alone(model):
    before = torch.random.get_rng_state()
    models = [new_model(model.config, 13, seed) for seed in (3, 3, 4)]
    assert torch.equal(torch.random.get_rng_state(), before)
    first, second, third = (model.head.weight for model in models)
    assert torch.equal(first, second)
    assert not torch.equal(first, third)
