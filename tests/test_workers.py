"""Work in processes: results in their order, little read ahead, nothing left behind."""

import os
import select
import signal
import time

import pytest

from chessrl.config import InputError
from chessrl.workers import map_in_order


def square(number: int) -> int:
    time.sleep(0.002 * (number % 3))  # some take longer
    return number * number


def fail(number: int) -> int:
    if number == 7:
        raise KeyError("seven")
    return number


def end(number: int) -> int:
    if number == 7:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def where(_: int) -> int:
    return os.getpid()


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_results_come_in_the_order_of_the_items(workers):
    assert list(map_in_order(square, iter(range(50)), workers)) == [n * n for n in range(50)]
    assert list(map_in_order(square, iter([]), workers)) == []


@pytest.mark.parametrize("cores", [1, 2, None])
def test_no_number_means_one_per_core(cores, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    (process,) = map_in_order(where, [7], 0)
    assert (process == os.getpid()) == (cores != 2)


@pytest.mark.parametrize("workers", [1, 3])
def test_little_is_read_ahead(workers):
    taken = []
    results = map_in_order(square, (taken.append(n) or n for n in range(1000)), workers)
    for n in range(20):
        assert next(results) == n * n
        assert len(taken) <= n + 1 + 2 * workers
    results.close()
    assert len(taken) <= 20 + 2 * workers


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_comes_to_the_caller(workers):
    results = map_in_order(fail, range(50), workers)
    assert [next(results) for _ in range(7)] == list(range(7))
    with pytest.raises(KeyError, match="seven"):
        next(results)


def test_a_killed_worker_is_told_in_a_line():
    with pytest.raises(InputError, match="a worker process was killed") as told:
        list(map_in_order(end, range(50), 2))
    assert "\n" not in str(told.value)


def test_workers_end_with_a_parent_that_is_killed():
    reading, writing = os.pipe()  # closed at the other end once nobody is left
    if not (child := os.fork()):
        try:
            results = map_in_order(square, range(1000), 2)
            os.write(writing, b"".join(b"." for _ in range(20) if next(results) >= 0))
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    os.close(writing)
    os.waitpid(child, 0)
    assert os.read(reading, 100) == b"." * 20
    assert select.select([reading], [], [], 20)[0]
    assert os.read(reading, 100) == b""
    os.close(reading)
