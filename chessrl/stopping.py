"""SIGINT and SIGTERM end the command within seconds, with one line and one status.

The first raises KeyboardInterrupt in the main thread; those after it change nothing. Python drops
an exception that is raised in a callback from C, and raises none while C code waits. So a thread,
which hears of a signal at once, ends the process where that takes too long: files appear whole or
not at all, and nothing is lost.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType

STATUS = 130
GRACE = 10.0
"""Seconds to end in good order."""
SIGNALS = (signal.SIGINT, signal.SIGTERM)


def stoppable(work: Callable[[], None], farewell: Callable[[], None]) -> None:
    """Do some work that a signal ends; to be called in the main thread, one at a time.

    A SIGINT that is ignored, as in what a script starts in the background, is heard too.

    Args:
        farewell: says that the work was stopped; called at most once.

    Raises:
        SystemExit: it was stopped, or was interrupted by itself.
    """
    stop = _Stop(farewell)
    try:
        stop.listen()
        work()
        stop.forget()
    except BaseException as error:
        if not (stop.heard or isinstance(error, KeyboardInterrupt)):
            stop.forget()
            raise
        stop.tell()
        for number in SIGNALS:  # Python gives the default back to others while it ends
            signal.signal(number, signal.SIG_IGN)
        sys.exit(STATUS)


class _Stop:
    """Whether a signal was heard, and what follows from it."""

    def __init__(self, farewell: Callable[[], None]) -> None:
        self.farewell = farewell
        self.heard = False
        self._told = threading.Lock()

    def listen(self) -> None:
        """Take the signals."""
        self._before = {number: signal.getsignal(number) for number in SIGNALS}
        reading, self._writing = os.pipe()
        os.set_blocking(self._writing, False)
        threading.Thread(target=self._watch, args=(reading,), daemon=True).start()
        signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
        _listening.append(self)
        for number in SIGNALS:
            signal.signal(number, self._interrupt)

    def forget(self) -> None:
        """Give the signals back."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        _listening.remove(self)
        signal.set_wakeup_fd(-1)
        os.close(self._writing)

    def tell(self) -> None:
        """Say so, if it was not said before."""
        if self._told.acquire(blocking=False):
            self.farewell()

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if not self.heard:
            self.heard = True
            raise KeyboardInterrupt

    def _watch(self, reading: int) -> None:
        with os.fdopen(reading, "rb", buffering=0) as numbers:
            while (heard := numbers.read(1)) and heard[0] not in SIGNALS:
                pass
            if heard:
                time.sleep(GRACE)
                self.tell()
                os._exit(STATUS)


_listening: list[_Stop] = []


def _after_fork() -> None:
    """A forked process is no longer this work, and writes to its pipe no more."""
    if _listening:
        signal.set_wakeup_fd(-1)
        for number in SIGNALS:
            signal.signal(number, signal.SIG_DFL)


os.register_at_fork(after_in_child=_after_fork)
