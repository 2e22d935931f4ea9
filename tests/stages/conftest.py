"""What the tests of training share: a prepared dataset."""

from pathlib import Path

import pytest

from chessrl.artifacts import Result
from chessrl.stages.prepare import prepare
from chessrl.stages.runs import folder


@pytest.fixture(scope="session")
def prepared(tiny, tmp_path_factory) -> Path:
    """An outputs folder in which the tiny games are prepared."""
    outputs = tmp_path_factory.mktemp("prepared")
    prepare(tiny(outputs, "stage=prepare"))
    return outputs


@pytest.fixture
def work(prepared, tiny, tmp_path):
    """A run whose RL is done as far as anyone can tell: `work(*overrides)`."""
    base = tiny(prepared)
    place = tmp_path / "outputs" / base.run
    place.mkdir(parents=True)
    for path in (Path(base.outputs) / base.run).glob("prepare-*"):
        (place / path.name).symlink_to(path)

    def made(*overrides: str):
        run = tiny(tmp_path / "outputs", *overrides)
        out = folder(run, "rl")
        if run.stage == "harvest" and not run.harvest.rollouts and out.result is None:
            with out.started(run, {"stage": "rl"}):
                played = Result(stage="rl", identity=out.identity, model="own", n_params=7)
                played.tokens = {"rl": 5.0}
                out.write(played)
        return run

    return made
