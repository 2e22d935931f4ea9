"""The launcher for SLURM: its settings are those of the plugin, and nobody needs it otherwise."""

import dataclasses
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

ROOT = Path(__file__).parents[1]
CONF = ROOT / "conf"
LAUNCHER = CONF / "hydra" / "launcher" / "slurm.yaml"


def test_each_setting_is_one_of_the_plugins():
    plugin = pytest.importorskip("hydra_plugins.hydra_submitit_launcher.config")
    known = {field.name for field in dataclasses.fields(plugin.SlurmQueueConf)}
    assert yaml.safe_load(LAUNCHER.read_text()).keys() <= known


@pytest.mark.parametrize(
    ("chosen", "target"),
    [((), "BasicLauncher"), (("hydra/launcher=slurm", "trainer.devices=4"), "SlurmLauncher")],
)
def test_it_is_used_where_it_is_asked_for(chosen, target):
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("config", list(chosen), return_hydra_config=True)
    launcher = config.hydra.launcher
    assert launcher._target_.endswith(target)
    if chosen:
        assert OmegaConf.select(config, "hydra.launcher.gpus_per_node") == 4
        assert launcher.tasks_per_node == 1


@pytest.mark.skipif(find_spec("submitit") is not None, reason="the plugin is installed")
def test_without_the_plugin_one_line_says_what_to_install():
    command = [sys.executable, "-m", "chessrl", "-m", "hydra/launcher=slurm", "seed=0,1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("chessrl: ") and "pip install hydra-submitit-launcher" in line
