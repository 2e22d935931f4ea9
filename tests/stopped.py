"""Work that is to be stopped, in a process of its own.

    python stopped.py GRACE SIGNAL WORK

SIGNAL, a number, is the one that a work sends by itself.
"""

import ctypes
import os
import signal
import sys
import threading
import time

from chessrl import stopping

SENT = signal.Signals(int(sys.argv[2]))


def say(text: str) -> None:
    print(text, flush=True)


def swallowing() -> None:
    """Drop the exception, as Python does where it is raised in a callback from C."""
    while True:
        try:
            say("ready")
            time.sleep(60)
        except KeyboardInterrupt:
            say("swallowed")


def waiting() -> None:
    """Wait in C; the signal goes to another thread, so that it ends no system call."""
    signal.pthread_sigmask(signal.SIG_BLOCK, stopping.SIGNALS)
    threading.Timer(0.2, say, ["ready"]).start()
    ctypes.CDLL(None).sleep(60)


def tidying() -> None:
    """End in good order."""
    try:
        say("ready")
        time.sleep(60)
    finally:
        time.sleep(0.5)
        say("tidied")


class Lasting:
    """Takes its time when the interpreter ends."""

    def __del__(self, sleep=time.sleep) -> None:
        sleep(1.0)


def leaving() -> None:
    """Be met again after the end of the work."""
    sys.lasting = Lasting()  # where it is sure to be cleared
    say("ready")
    time.sleep(60)


def failing() -> None:
    """Let another exception take the place of the interruption."""
    try:
        say("ready")
        time.sleep(60)
    finally:
        raise RuntimeError("of the interruption")


def forking() -> None:
    """Send the signal to a fork, and live on."""
    child = os.fork()
    if not child:
        time.sleep(60)
        os._exit(0)
    time.sleep(0.2)
    os.kill(child, SENT)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -SENT
    time.sleep(2 * stopping.GRACE)
    say("unmoved")


def ending() -> None:
    """Work that ends by itself, or fails, before the signal."""
    before = signal.getsignal(signal.SIGINT)
    stopping.stoppable(lambda: None, lambda: say("stopped"))
    assert signal.getsignal(signal.SIGINT) is before
    try:
        stopping.stoppable(lambda: 1 / 0, lambda: say("stopped"))
    except ZeroDivisionError:
        say("as it was")
    os.kill(os.getpid(), SENT)


if __name__ == "__main__":
    stopping.GRACE = float(sys.argv[1])
    if sys.argv[3] == "ending":
        ending()
    stopping.stoppable(globals()[sys.argv[3]], lambda: say("stopped"))
