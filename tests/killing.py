"""Training that is broken off between two steps, within a test."""

from collections.abc import Callable

import pytest

from chessrl.stages import training


def begin_and_kill(
    work: Callable[[], object],
    monkeypatch: pytest.MonkeyPatch,
    stop: int,
    killed: type[BaseException],
) -> None:
    """Begin `work`, and raise `killed` where it asks for the batch after so many steps."""
    unpatched = training.Steps.__iter__

    def until_killed(self):
        for number, batch in enumerate(unpatched(self)):
            if number == stop:
                raise killed
            yield batch

    monkeypatch.setattr(training.Steps, "__iter__", until_killed)
    with pytest.raises(killed):
        work()
    monkeypatch.setattr(training.Steps, "__iter__", unpatched)
