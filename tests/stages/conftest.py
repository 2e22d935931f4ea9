"""What the tests of training share: a prepared dataset."""

from pathlib import Path

import pytest

from chessrl.stages.prepare import prepare


@pytest.fixture(scope="session")
def prepared(tiny, tmp_path_factory) -> Path:
    """An outputs folder in which the tiny games are prepared."""
    outputs = tmp_path_factory.mktemp("prepared")
    prepare(tiny(outputs, "stage=prepare"))
    return outputs
