"""The small model that the tests of learning start from: how it was made, and made again.

    python tests/learner.py      rebuilds tests/data/learner.safetensors

The commands of the project with `SETTINGS`, one thread: `100k` after 2M tokens of the starter's
games (1.57 nats per token), then three epochs of thoughts on 179 mate-in-one puzzles (0.88). It
solves 2% of the other mates in one at the first try. Another machine rounds otherwise, and so ends
with other weights: tests read the file.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
LEARNER = ROOT / "tests" / "data" / "learner.safetensors"
PUZZLES = ("data.selection.themes=[mateIn1]", "trainer.precision=32-true", "trainer.compile=off")
"""Settings that the tests share with the making, so that both split the puzzles alike."""
SETTINGS = (*PUZZLES, "model=100k", "pretrain.tokens=2e6", "sft.epochs=3")


def rebuild() -> None:
    """Two minutes of one core for pretraining, seconds for the rest."""
    with tempfile.TemporaryDirectory() as outputs:
        for stage in ("prepare", "pretrain", "traces", "sft"):
            subprocess.run(
                [
                    sys.executable,
                    "-m",
                    "chessrl",
                    f"stage={stage}",
                    f"outputs={outputs}",
                    *SETTINGS,
                ],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
                check=True,
            )
        (weights,) = Path(outputs).glob("*/sft-*/checkpoints/model.safetensors")
        shutil.copyfile(weights, LEARNER)


if __name__ == "__main__":
    rebuild()
