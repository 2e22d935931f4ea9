"""The command line in a process that kills itself: what a resume is tested with.

    python dying.py HOW STEP JOURNAL key=value ...

HOW is `never`, `step` (kill -9 when the batch of that step, from 0, is asked for) or
`save` (kill -9 when half of the checkpoint of that step is written).
JOURNAL gets a line per batch read: its step and its content.
"""

import hashlib
import io
import os
import signal
import sys
from pathlib import Path

import torch

from chessrl.__main__ import main
from chessrl.stages.batches import Schedule
from chessrl.stages.training import Steps


def die() -> None:
    """As by kill -9: nothing is closed, nothing cleaned up."""
    os.kill(os.getpid(), signal.SIGKILL)


def kill_at(last: int) -> None:
    """Let no step from `last` on begin."""
    unpatched = Steps.__iter__

    def until_killed(self):
        first = self.trainer.global_step
        for number, batch in enumerate(unpatched(self), first):
            if number == last:
                die()
            yield batch

    Steps.__iter__ = until_killed


def kill_while_saving(step: int) -> None:
    """Write the first half of the checkpoint of a step, and no more."""
    unpatched = torch.save

    def half(what, path, *args, **kwargs):
        if f"step-{step:08d}" not in str(path):
            return unpatched(what, path, *args, **kwargs)
        whole = io.BytesIO()
        unpatched(what, whole)
        content = whole.getvalue()
        with open(path, "wb") as file:
            file.write(content[: len(content) // 2])
            file.flush()
            die()

    torch.save = half


def keep_journal(path: Path) -> None:
    """Note the content of every batch that is made."""
    unpatched = Schedule.batch

    def noted(self, step):
        batch = unpatched(self, step)
        digest = hashlib.sha256(batch.inputs.numpy().tobytes() + batch.mask.numpy().tobytes())
        with open(path, "a", encoding="utf-8") as file:
            file.write(f"{step} {digest.hexdigest()[:16]}\n")
        return batch

    Schedule.batch = noted


if __name__ == "__main__":
    how, at, journal = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    del sys.argv[1:4]
    torch.set_num_threads(1)
    keep_journal(journal)
    if how != "never":
        {"step": kill_at, "save": kill_while_saving}[how](at)
    main()
