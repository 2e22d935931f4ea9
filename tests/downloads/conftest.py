"""A server to download from, and a patience that does not wait."""

import pytest
from webserver import serving

from chessrl.downloads import Patience


@pytest.fixture
def site(monkeypatch):
    """A server, and what it is told and asked."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with serving() as site:
        yield site


@pytest.fixture
def pauses():
    """The pauses that were made, in seconds."""
    return []


@pytest.fixture
def patience(pauses):
    """Four tries without a wait."""
    return Patience(tries=4, connect=5, read=5, sleep=pauses.append)
