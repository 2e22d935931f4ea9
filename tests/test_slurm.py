"""The launcher for SLURM: its settings are those of the plugin, and nobody needs it otherwise."""

import dataclasses
from pathlib import Path

import pytest
import yaml
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

CONF = Path(__file__).parents[1] / "conf"
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
