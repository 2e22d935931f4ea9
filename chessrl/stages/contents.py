"""Hashes of what a user hands from run to run by its place: the content counts, not the place."""

import glob
import hashlib
import json
from functools import cache
from pathlib import Path

from chessrl.artifacts import sha256
from chessrl.config import InputError
from chessrl.stages.rollout_files import FOLDER, files_in


@cache
def documents_content(folder: str) -> str:
    """Hash of the documents of a harvest.

    Raises:
        InputError: there are none.
    """
    shards = sorted((Path(folder) / "train").glob("*.npy"))
    if not shards:
        raise InputError(f"no documents in {folder}/train: name the folder of a harvest")
    return _digest([(path.name, sha256(path)) for path in shards])


@cache
def rollout_files(pattern: str) -> list[tuple[Path, str]]:
    """Files of episodes that a pattern names, and the hash of each, the oldest step first.

    Args:
        pattern: files, folders of them, or folders of RL runs, by their place or as a glob. Those
            of one step are in the order of their hashes, whatever their place.

    Raises:
        InputError: there are none.
    """
    found: set[Path] = set()
    for path in map(Path, glob.glob(pattern, recursive=True)):
        found |= {path} if path.is_file() else {*files_in(path), *files_in(path / FOLDER)}
    if not found:
        raise InputError(f"no episodes in {pattern}: name files or folders in which RL kept them")
    hashed = [(path, sha256(path)) for path in found]
    return sorted(hashed, key=lambda one: (one[0].name, one[1]))


def rollouts_content(pattern: str) -> str:
    """Hash of the files of episodes that a pattern names."""
    return _digest([(path.name, content) for path, content in rollout_files(pattern)])


def _digest(content: list[tuple[str, str]]) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()
