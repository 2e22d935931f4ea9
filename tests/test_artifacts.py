"""The run folder: whole files, one identity, one worker, and results that come back."""

import hashlib
import json
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import yaml

from chessrl.artifacts import (
    Busy,
    PassAtK,
    Result,
    RunFolder,
    atomic_path,
    decisive,
    identity,
    sha256,
    write_json,
    write_text,
)
from chessrl.config import InputError

ROOT = Path(__file__).parents[1]


@dataclass
class Part:
    rate: float = 0.1
    workers: int = field(default=0, metadata={"operational": True})


@dataclass
class Whole:
    name: str = "x"
    part: Part = field(default_factory=Part)


def test_a_file_appears_when_it_is_whole(tmp_path):
    path = tmp_path / "new" / "a.txt"
    with atomic_path(path) as temporary:
        temporary.write_text("half")
        assert not path.exists()
        assert temporary.parent == path.parent  # on the same disk, or the move is no move
        temporary.write_text("whole")
    assert path.read_text() == "whole"
    assert [file.name for file in path.parent.iterdir()] == ["a.txt"]


def test_a_failure_leaves_the_old_file_and_no_rest(tmp_path):
    path = tmp_path / "a.txt"
    write_text(path, "old")
    with pytest.raises(RuntimeError, match="disk"), atomic_path(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError("disk")
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["a.txt"]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {"a": [1.0, float("-inf")]}])
def test_what_json_does_not_know_is_refused(tmp_path, value):
    write_json(tmp_path / "a.json", {"loss": None})
    with pytest.raises(ValueError):
        write_json(tmp_path / "a.json", value)
    assert json.loads((tmp_path / "a.json").read_text()) == {"loss": None}


def test_the_digest_is_sha256(tmp_path):
    (tmp_path / "a").write_bytes(b"abc")
    # FIPS 180-2, example B.1
    assert sha256(tmp_path / "a") == (
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    )


def test_operational_fields_decide_nothing():
    assert decisive(Whole()) == {"name": "x", "part": {"rate": 0.1}}
    assert decisive(Whole(part=Part(workers=7))) == decisive(Whole())
    assert decisive(Whole(part=Part(rate=0.2))) != decisive(Whole())


def test_identity_is_the_hash_of_what_decides():
    settings, parents = {"b": 1, "a": {"rate": 0.1}}, {"prepare": "0123"}
    text = '{"parents":{"prepare":"0123"},"settings":{"a":{"rate":0.1},"b":1},"stage":"sft"}'
    assert identity("sft", settings, parents) == hashlib.sha256(text.encode()).hexdigest()[:12]
    # the order of the keys does not matter, everything else does
    assert identity("sft", {"a": {"rate": 0.1}, "b": 1}, parents) == identity(
        "sft", settings, parents
    )
    others = {
        identity("rl", settings, parents),
        identity("sft", settings | {"b": 2}, parents),
        identity("sft", settings | {"a": {"rate": 0.2}}, parents),
        identity("sft", settings, {"prepare": "0124"}),
        identity("sft", settings, {}),
        identity("sft", settings, parents),
    }
    assert len(others) == 6


FULL = Result(
    stage="rl",
    identity="abc",
    parents={"sft": "def"},
    seed=3,
    model="1m",
    prompt="board",
    n_params=12,
    tokens={"pretrain": 1e6, "rl": 0.1},
    flops={"rl": 1e12},
    exact_flops={"rl": 9e11},
    measures={"reward": 1 / 3},
    pass_at_k=[PassAtK(bin="B1", k=4, mean=0.5, low=0.1, high=0.9, puzzles=7, samples=16)],
    seconds=1.5,
)


def test_a_result_comes_back(tmp_path):
    folder = RunFolder(tmp_path, "abc")
    assert folder.result is None
    assert folder.finished is None
    folder.write(FULL)
    assert Result.read(tmp_path / "result.json") == FULL
    assert folder.result == folder.finished == FULL


def test_a_failed_run_is_not_finished(tmp_path):
    folder = RunFolder(tmp_path, "abc")
    failed = replace(FULL, status="failed", message="out of puzzles")
    folder.write(failed)
    assert folder.result == failed
    assert folder.finished is None


def test_a_missing_number_is_not_written_as_nan(tmp_path):
    with pytest.raises(ValueError):
        RunFolder(tmp_path, "abc").write(replace(FULL, measures={"loss": float("nan")}))
    assert not (tmp_path / "result.json").exists()


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"stage": "rl", "identity": "x", "pass_at_k": [], "new": 1}']
)
def test_what_is_no_result_is_refused_with_its_path(tmp_path, text):
    (tmp_path / "result.json").write_text(text)
    with pytest.raises(InputError, match=r"result\.json is damaged or of another version"):
        Result.read(tmp_path / "result.json")


def test_a_started_run_says_what_it_is(tmp_path):
    folder = RunFolder(tmp_path / "run", "abc")
    with folder.started(Whole(), {"stage": "rl", "parents": {"sft": "def"}}):
        manifest = folder.manifest
        folder.describe({"kept": 5})
    assert (manifest["identity"], manifest["stage"]) == ("abc", "rl")
    assert set(manifest["versions"]) >= {"torch", "chess", "numpy"}
    assert folder.manifest == manifest | {"kept": 5}
    config = yaml.safe_load((folder.path / "config.yaml").read_text())
    assert config == {"name": "x", "part": {"rate": 0.1, "workers": 0}}


def test_the_folder_of_another_run_is_refused(tmp_path):
    with RunFolder(tmp_path, "abc").started(Whole(), {}):
        pass
    before = (tmp_path / "manifest.json").read_bytes()
    with (
        pytest.raises(InputError, match=r"holds run abc.*is run other"),
        RunFolder(tmp_path, "other").started(Whole(name="y"), {}),
    ):
        raise AssertionError("it started")
    assert (tmp_path / "manifest.json").read_bytes() == before
    assert yaml.safe_load((tmp_path / "config.yaml").read_text())["name"] == "x"
    RunFolder(tmp_path, "abc").write(FULL)
    with pytest.raises(InputError, match="holds run abc"):
        _ = RunFolder(tmp_path, "other").result


def test_the_same_run_goes_on_in_its_folder(tmp_path):
    folder = RunFolder(tmp_path, "abc")
    for number in range(2):
        with folder.started(Whole(), {f"start{number}": number}):
            pass
    assert folder.manifest["start0"] == 0
    assert folder.manifest["start1"] == 1


CLAIM = """
import sys
import threading
from pathlib import Path
from chessrl.artifacts import RunFolder
from chessrl.config import InputError, OptimConfig
try:
    with RunFolder(Path(sys.argv[1]), "abc").started(OptimConfig(name="adamw", lr=1.0), {}):
        print("started")
except InputError as error:
    print(error)
"""


def claim(path: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", CLAIM, str(path)], cwd=ROOT, capture_output=True, text=True,
        timeout=60, check=True,
    )  # fmt: skip
    return done.stdout.strip()


def test_only_one_process_works_in_a_folder(tmp_path):
    with RunFolder(tmp_path, "abc").started(Whole(), {}):
        assert claim(tmp_path) == f"another process is working in {tmp_path}"
        assert yaml.safe_load((tmp_path / "config.yaml").read_text())["name"] == "x"
    assert claim(tmp_path) == "started"  # and it is free again


HOLD = """
import sys, time
from pathlib import Path
from chessrl.artifacts import RunFolder
from chessrl.config import OptimConfig
with RunFolder(Path(sys.argv[1]), "abc").started(OptimConfig(name="adamw", lr=1.0), {}):
    print("started", flush=True)
    time.sleep(60)
"""


def test_a_folder_settles_when_its_process_dies(tmp_path):
    folder, told = RunFolder(tmp_path / "run", "abc"), []
    folder.settle(told.append)  # there is no such folder
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder.path)], cwd=ROOT, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout.readline() == b"started\n"
        threading.Timer(0.3, holder.kill).start()
        with pytest.raises(Busy, match="another process is working"), folder.started(Whole(), {}):
            pass
        folder.settle(told.append, every=0.01)
        assert holder.wait() == -signal.SIGKILL
    assert told == [f"waiting for {folder.path}: another process is making it"]
    with folder.started(Whole(), {}):
        pass
    folder.settle(told.append)
    assert len(told) == 1


def test_a_run_that_fails_frees_its_folder(tmp_path):
    folder = RunFolder(tmp_path, "abc")
    with pytest.raises(RuntimeError), folder.started(Whole(), {}):
        raise RuntimeError
    with folder.started(Whole(), {}):
        pass


def test_a_damaged_manifest_is_named(tmp_path):
    (tmp_path / "manifest.json").write_text('{"ide')
    with (
        pytest.raises(InputError, match=r"manifest\.json is damaged"),
        RunFolder(tmp_path, "abc").started({}, {}),
    ):
        pass
