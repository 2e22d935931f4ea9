"""Work spread over processes, its results in the order of the items."""

import multiprocessing
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from chessrl.config import InputError

Item = TypeVar("Item")
Done = TypeVar("Done")


def map_in_order(
    work: Callable[[Item], Done], items: Iterable[Item], workers: int
) -> Iterator[Done]:
    """Do the work on every item, read ahead but little.

    Args:
        work: goes to each process once, so it may be large; it must not depend on the order.
        items: large enough to be worth sending.
        workers: processes; 0 means one per core, 1 does it here.

    Raises:
        InputError: a process was killed from outside.
    """
    workers = workers or os.cpu_count() or 1
    if workers == 1:
        yield from map(work, items)
        return
    waiting: deque[Future] = deque()
    with ProcessPoolExecutor(workers, initializer=_remember, initargs=(work,)) as pool:
        try:
            for item in items:
                waiting.append(pool.submit(_do, item))
                if len(waiting) >= 2 * workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except BrokenProcessPool as error:
            raise InputError(
                "a worker process was killed, perhaps for want of memory: try data.workers=1"
            ) from error
        finally:
            for future in waiting:
                future.cancel()


def _remember(work: Callable) -> None:
    global _work
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears it too, and ends the work
    _work = work
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A parent that is killed would leave processes that wait for it, and hold its lock."""
    parent = multiprocessing.parent_process()
    try:
        parent.join()
    except ValueError:  # within a process of joblib there is nothing to wait on
        while os.getppid() == parent.pid:
            time.sleep(1)
    os._exit(1)


def _do(item: Item) -> Done:
    return _work(item)
