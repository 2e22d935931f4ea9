"""A stopped command ends within seconds, whatever swallows the exception or holds the thread."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

GRACE = 1.0

SCRIPT = Path(__file__).with_name("stopped.py")


def start(what: str, sent: signal.Signals, ignored: bool = False) -> subprocess.Popen:
    """The script at some work, and in the background of a shell where SIGINT is `ignored`."""
    handler = signal.SIG_IGN if ignored else signal.SIG_DFL
    return subprocess.Popen(
        [sys.executable, SCRIPT, str(GRACE), str(int(sent)), what],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, handler),
        env=os.environ | {"PYTHONPATH": str(SCRIPT.parents[1])},
    )


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize(
    ("work", "said", "seconds"),
    [
        ("swallowing", ["swallowed", "ready", "stopped"], (GRACE, GRACE + 3)),
        ("waiting", ["stopped"], (GRACE, GRACE + 3)),
        ("tidying", ["tidied", "stopped"], (0.5, 3)),
        ("failing", ["stopped"], (0, 3)),
        ("leaving", ["stopped"], (1, 4)),
    ],
)
def test_work_ends_with_its_line_and_status(work, said, seconds, times, sent):
    process = start(work, sent)
    assert process.stdout.readline() == "ready\n"
    began = time.monotonic()
    for _ in range(times):
        process.send_signal(sent)
        time.sleep(0.2)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130 and out.splitlines() == said, err
    assert not err
    assert seconds[0] <= time.monotonic() - began < seconds[1]


def test_an_ignored_sigint_is_heard():
    process = start("tidying", signal.SIGINT, ignored=True)
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out.splitlines()) == (130, ["tidied", "stopped"]), err


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_forked_process_is_another_one(sent):
    process = start("forking", sent)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out.splitlines()) == (0, ["unmoved"]), err


def test_what_ends_by_itself_leaves_the_signals_as_they_were():
    process = start("ending", signal.SIGTERM)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out.splitlines()) == (-signal.SIGTERM, ["as it was"]), err
