"""The run folder: what a stage leaves on disk, and how another stage finds and trusts it.

    config.yaml     the resolved configuration
    manifest.json   where it came from: commit, versions, parents, hashes of data
    metrics.csv     one row per interval
    checkpoints/    weights and training state
    result.json     written last; a folder without one with status "done" is unfinished

A run is named by the hash of what decides its outcome and of its parents. A finished one is used
again, an unfinished one goes on, and a folder never changes its identity.
"""

import contextlib
import dataclasses
import fcntl
import hashlib
import importlib.metadata
import json
import os
import platform
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import yaml

from chessrl.config import InputError

VERSIONED = ("torch", "lightning", "chess", "numpy", "hydra-core")


@contextlib.contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """A path beside `path` to write to, which takes its place when the block ends without error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        with open(temporary, "rb") as written:
            os.fsync(written.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a whole file or nothing."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write JSON, whole or not at all; NaN is refused, a missing number is null."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    """The value in a JSON file; raises ValueError where it is none."""
    return json.loads(path.read_text(encoding="utf-8"))


def sha256(path: Path) -> str:
    """Hex digest of a file's bytes."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def decisive(config: Any) -> Any:
    """A config as plain data, without what changes no outcome.

    That is a field marked as operational, and one that was added later and holds its default.
    """
    if dataclasses.is_dataclass(config):
        return {
            f.name: decisive(getattr(config, f.name))
            for f in dataclasses.fields(config)
            if not f.metadata.get("operational")
            and not (f.metadata.get("added") and getattr(config, f.name) == f.default)
        }
    return config


def identity(stage: str, settings: dict[str, Any], parents: dict[str, str]) -> str:
    """Twelve hex digits that name a run by its stage, what decides it, and its parents."""
    content = {"stage": stage, "settings": settings, "parents": parents}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@dataclass(kw_only=True)
class PassAtK:
    """One measured pass@k with its 95% interval over puzzles."""

    bin: str
    """Rating bin, `all`, or `B1-B4` as in the study's aggregates."""
    k: int
    mean: float
    low: float
    high: float
    puzzles: int
    samples: int
    """Episodes of each puzzle, n."""


@dataclass(kw_only=True)
class Result:
    """What a finished or failed stage tells the rest of the project."""

    stage: str
    identity: str
    parents: dict[str, str] = field(default_factory=dict)
    status: str = "done"
    """`done`, `failed`, or `open`: a trunk, which may always grow."""
    message: str = ""
    """Why it failed."""
    seed: int = 0
    model: str = ""
    of: str = ""
    """For an evaluation, the stage whose model was measured."""
    prompt: str = ""
    n_params: int = 0
    tokens: dict[str, float] = field(default_factory=dict)
    """Tokens read by each stage up to this one."""
    flops: dict[str, float] = field(default_factory=dict)
    """FLOPs of each stage up to this one, by the study's accounting."""
    exact_flops: dict[str, float] = field(default_factory=dict)
    """The same, counted by matrix products."""
    measures: dict[str, float] = field(default_factory=dict)
    """Named numbers: losses in nats, rates as shares, counts."""
    pass_at_k: list[PassAtK] = field(default_factory=list)
    seconds: float = 0.0

    @staticmethod
    def read(path: Path) -> "Result":
        """Read a result.json.

        Raises:
            InputError: the file is not one.
        """
        try:
            content = read_json(path)
            content["pass_at_k"] = [PassAtK(**row) for row in content["pass_at_k"]]
            return Result(**content)
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"{path} is damaged or of another version ({error}): remove its folder"
            ) from error


def failure(error: BaseException) -> str:
    """One line that says what went wrong."""
    if isinstance(error, SystemExit):
        return f"a process that was started for it ended with status {error.code}"
    return f"{type(error).__name__}: {error}".splitlines()[0]


def provenance() -> dict[str, Any]:
    """Commit, versions and machine that a run is made with."""
    root = Path(__file__).parent.parent

    def git(*arguments: str) -> str | None:
        command = ["git", "-C", str(root), *arguments]
        try:
            return subprocess.run(
                command, capture_output=True, text=True, check=True
            ).stdout.strip()
        except (OSError, subprocess.CalledProcessError):
            return None  # no git, or no checkout

    changes = git("status", "--porcelain", "--untracked-files=no")
    return {
        "commit": git("rev-parse", "HEAD"),
        "modified": None if changes is None else bool(changes),
        "python": platform.python_version(),
        "versions": {name: importlib.metadata.version(name) for name in VERSIONED},
        "machine": platform.machine(),
    }


class Busy(InputError):
    """Another process works in a run folder, or has finished it since it was looked at."""

    def __init__(self, message: str, folder: "RunFolder") -> None:
        super().__init__(message)
        self.folder = folder


class RunFolder:
    """A folder that belongs to one run."""

    def __init__(self, path: Path, run_identity: str) -> None:
        self.path = path
        self.identity = run_identity
        self.checkpoints = path / "checkpoints"
        self.metrics = path / "metrics.csv"

    @property
    def result(self) -> Result | None:
        """The result, or None while there is none.

        Raises:
            InputError: it belongs to another run.
        """
        file = self.path / "result.json"
        try:
            result = Result.read(file)
        except FileNotFoundError:
            return None
        self._refuse_other(result.identity)
        return result

    @property
    def finished(self) -> Result | None:
        """The result of a run that is done; None if it has still to run."""
        result = self.result
        return result if result is not None and result.status == "done" else None

    @property
    def manifest(self) -> dict[str, Any]:
        """The manifest of a started run.

        Raises:
            InputError: it is damaged.
        """
        file = self.path / "manifest.json"
        try:
            return read_json(file)
        except ValueError as error:
            raise InputError(f"{file} is damaged ({error}): remove the folder") from error

    def _refuse_other(self, other: str) -> None:
        if other != self.identity:
            raise InputError(
                f"{self.path} holds run {other}, but this configuration is run {self.identity}: "
                "choose another out=, or remove the folder"
            )

    @contextlib.contextmanager
    def started(self, config: Any, about: dict[str, Any]) -> Iterator[None]:
        """Claim the folder for the work in the block; config and manifest are written first.

        Raises:
            InputError: the folder holds another run.
            Busy: another process works in it, or has just finished it.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        with open(self.path / ".lock", "w", encoding="utf-8") as lock:
            if not _locked(lock, tries=5):
                raise Busy(f"another process is working in {self.path}", self)
            if (self.path / "manifest.json").exists():
                self._refuse_other(self.manifest["identity"])
                for unfinished in self.path.rglob(".*.tmp"):  # of a process that was killed
                    unfinished.unlink()
            if self.finished is not None:
                message = f"another process has just finished {self.path}: run it again"
                raise Busy(message, self)
            write_text(self.path / "config.yaml", yaml.safe_dump(dataclasses.asdict(config)))
            self.describe({"identity": self.identity, **about, **provenance()})
            (self.path / "result.json").unlink(missing_ok=True)
            yield

    def settle(self, told: Callable[[str], None], every: float = 1.0) -> None:
        """Wait until no process works in the folder; the lock of one that died is free.

        Args:
            told: is told once that there is something to wait for.
            every: seconds between two looks.
        """
        if not self.path.exists():
            return
        with open(self.path / ".lock", "a", encoding="utf-8") as lock:
            if _locked(lock):
                return
            told(f"waiting for {self.path}: another process is making it")
            while not _locked(lock):
                time.sleep(every)

    def describe(self, facts: dict[str, Any]) -> None:
        """Add facts to the manifest."""
        known = self.manifest if (self.path / "manifest.json").exists() else {}
        write_json(self.path / "manifest.json", known | facts)

    def write(self, result: Result) -> None:
        """Write result.json; with it the run is over."""
        write_json(self.path / "result.json", dataclasses.asdict(result))


def _locked(lock: IO[str], tries: int = 1) -> bool:
    """Whether the lock could be had; it is tried for longer than a process that waits holds it."""
    for left in reversed(range(tries)):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if left:
                time.sleep(0.05)
    return False
