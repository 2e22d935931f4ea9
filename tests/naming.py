"""Files made in the current folder, and configurations that name them."""

from pathlib import Path

import pytest

from chessrl.config import DataConfig, InputError
from chessrl.downloads import Patience
from chessrl.sources import resolve


def made(*names: str) -> list[str]:
    """Make files that differ, each with its name as content."""
    for name in names:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(name)
    return list(names)


def data(*paths: str, **settings) -> DataConfig:
    """A configuration of these games and, unless told otherwise, the puzzles of `home`."""
    settings = {"puzzles": "puzzles.csv", "cache": "cache", **settings}
    return DataConfig(name="test", paths=list(paths), **settings)


def games(*paths: str, **settings) -> list[str]:
    """Files of games that a configuration becomes, without a download."""
    return resolve(data(*paths, **settings), fetch=False).paths


def refused(*paths: str, fetch: bool = False, **settings) -> str:
    """The one line that a configuration is refused with."""
    with pytest.raises(InputError) as error:
        resolve(data(*paths, **settings), fetch, Patience(tries=1))
    assert "\n" not in str(error.value)
    return str(error.value)
