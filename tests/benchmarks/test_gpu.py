"""The check of a GPU runs on the CPU too, and says what it should."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_it_runs_on_the_cpu_and_agrees_with_itself():
    options = "--device cpu --models 100k --seconds 0.2 --rows 2 --length 64 --sampled-rows 4"
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "gpu.py", *options.split(), "--steps", "3"],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = done.stdout
    assert said.startswith("cpu: peak unknown, matrix product ")
    assert len(re.findall(r"^100k: (?:training|sampling) [\d,]+ tokens/s", said, re.M)) == 2
    assert re.findall(r"at most (\S+) nats in (\S+)", said) == [
        ("0", "float32"), ("0", "bf16-mixed"),
    ]  # fmt: skip
