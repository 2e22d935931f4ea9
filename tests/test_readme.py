"""The commands in the README are real: targets exist, settings are accepted, files are there."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from chessrl.config import Run

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = [
    line.split(" #")[0].strip()
    for block in re.findall(r"```\n(.*?)```", README, re.DOTALL)
    for line in block.splitlines()
    if line.startswith(("make ", ".venv/bin/python "))
]


def test_the_two_commands_are_there():
    assert {"make run", "make test"} <= set(COMMANDS)
    assert len(COMMANDS) >= 8


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_can_be_run(command, configure):
    words = shlex.split(command)
    if words[0] == "make":
        done = subprocess.run(
            ["make", "-n", "-C", str(ROOT), *words[1:]], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        called = [line for line in done.stdout.splitlines() if "-m chessrl" in line]
        if words[1] in ("test", "setup"):
            return
        words = shlex.split(called[-1])
    settings = [word for word in words[words.index("chessrl") + 1 :] if not word.startswith("-")]
    settings = [word for word in settings if word != "job"]
    assert isinstance(configure(*settings), Run)


@pytest.mark.parametrize("target", re.findall(r"\]\(([^)#]+)[^)]*\)", README))
def test_a_link_leads_somewhere(target):
    assert (ROOT / target).exists()


def test_the_pipeline_ends_in_a_table(tiny_settings, tmp_path):
    """What `make run` does, with settings that take seconds."""
    done = subprocess.run(
        [sys.executable, "-m", "chessrl", "stage=pipeline", f"outputs={tmp_path}", *tiny_settings],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for word in ("after", "pretrain", "sft", "rl", "pass@1"):
        assert word in done.stdout
    table = pd.read_csv(tmp_path / "starter" / "results.csv")
    assert set(table["of"].dropna()) == {"pretrain", "sft", "rl"}
    assert (tmp_path / "starter" / "results.md").read_text().startswith("| after |")
    again = subprocess.run(
        [sys.executable, "-m", "chessrl", "stage=collect", f"outputs={tmp_path}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert again.returncode == 0, again.stderr
    collected, keys = pd.read_csv(tmp_path / "results.csv"), ["identity", "step", "bin", "k"]
    pd.testing.assert_frame_equal(
        collected.sort_values(keys, ignore_index=True),
        table.sort_values(keys, ignore_index=True),
        check_like=True,
    )
