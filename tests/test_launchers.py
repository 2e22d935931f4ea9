"""Launchers: their settings are those of the plugins, and nobody needs these otherwise."""

import dataclasses
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from chessrl.__main__ import missing_plugin

ROOT = Path(__file__).parents[1]
CONF = ROOT / "conf"
LAUNCHERS = CONF / "hydra" / "launcher"


@pytest.mark.parametrize(
    ("name", "plugin", "settings"),
    [
        ("slurm", "hydra_submitit_launcher", "SlurmQueueConf"),
        ("parallel", "hydra_joblib_launcher", "JobLibLauncherConf"),
    ],
)
def test_each_setting_is_one_of_the_plugins(name, plugin, settings):
    module = pytest.importorskip(f"hydra_plugins.{plugin}.config")
    known = {field.name for field in dataclasses.fields(getattr(module, settings))}
    assert yaml.safe_load((LAUNCHERS / f"{name}.yaml").read_text()).keys() <= known


@pytest.mark.parametrize(
    ("chosen", "target"),
    [
        ((), "BasicLauncher"),
        (("hydra/launcher=parallel",), "JoblibLauncher"),
        (("hydra/launcher=slurm", "trainer.devices=4"), "SlurmLauncher"),
    ],
)
def test_it_is_used_where_it_is_asked_for(chosen, target):
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("config", list(chosen), return_hydra_config=True)
    launcher = config.hydra.launcher
    assert launcher._target_.endswith(target)
    if target == "SlurmLauncher":
        assert OmegaConf.select(config, "hydra.launcher.gpus_per_node") == 4
        assert launcher.tasks_per_node == 1


@pytest.mark.skipif(find_spec("submitit") is not None, reason="the plugin is installed")
def test_without_the_plugin_one_line_says_what_to_install():
    command = [sys.executable, "-m", "chessrl", "-m", "hydra/launcher=slurm", "seed=0,1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("chessrl: ") and "pip install hydra-submitit-launcher" in line


@pytest.mark.parametrize("word", ["hydra/launcher=parallel", "hydra/launcher=slurm"])
def test_a_plugin_that_is_missing_is_named(word, monkeypatch):
    monkeypatch.setattr("chessrl.__main__.find_spec", lambda name: None)
    package = {"parallel": "hydra-joblib-launcher", "slurm": "hydra-submitit-launcher"}
    assert missing_plugin(word) == package[word.partition("=")[2]]
    assert missing_plugin("hydra/launcher=basic") is None
    monkeypatch.setattr("chessrl.__main__.find_spec", lambda name: name)
    assert missing_plugin(word) is None
