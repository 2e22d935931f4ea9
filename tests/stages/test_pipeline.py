"""Short runs of every stage on real games: what they leave, and that they can be trusted again."""

import csv
import json
import math
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from curves import curve
from killing import begin_and_kill
from safetensors.torch import load_file, save_file

from chessrl import compute
from chessrl.board import tokens
from chessrl.board.puzzles import read_puzzles
from chessrl.board.skips import SkipReport
from chessrl.board.traces import read_trace
from chessrl.config import InputError
from chessrl.scaling.collect import collect, tidy
from chessrl.stages import checkpoints
from chessrl.stages.batches import Dataset
from chessrl.stages.evaluate import evaluate
from chessrl.stages.pipeline import pipeline
from chessrl.stages.pretrain import pretrain
from chessrl.stages.rl import rl
from chessrl.stages.runs import folder, run_identity, with_stage
from chessrl.stages.sft import sft

VOCABULARY = len(tokens.TOKENS)
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def done(tiny, tmp_path_factory):
    """A finished tiny pipeline: its configuration and results."""
    run = tiny(tmp_path_factory.mktemp("outputs"), "stage=pipeline")
    return run, pipeline(run)


@pytest.fixture(scope="module")
def done_history(tiny, tmp_path_factory, tiny_files):
    """The same with prompts of whole games."""
    run = tiny(
        tmp_path_factory.mktemp("outputs"),
        "prompt=history",
        f"data.puzzles={tiny_files['with_history']}",
        "pretrain.context=512",
    )
    return run, pipeline(run)


def test_the_pipeline_measures_after_each_training_stage(done):
    _, results = done
    assert [(r.stage, r.of) for r in results] == [
        ("prepare", ""),
        ("pretrain", ""),
        ("evaluate", "pretrain"),
        ("traces", ""),
        ("sft", ""),
        ("evaluate", "sft"),
        ("rl", ""),
        ("evaluate", "rl"),
    ]
    for result in results:
        assert result.status == "done"
        if result.stage == "evaluate":
            assert {row.k for row in result.pass_at_k} == {1, 2}
            assert {row.bin for row in result.pass_at_k} >= {"all", "B1-B4", "B0", "B5"}
            assert 0 < result.measures["game_nats_per_token"] < math.log(VOCABULARY)


def test_flops_are_those_of_the_study(done):
    run, results = done
    last = results[-1]
    n = compute.parameters(run.model, VOCABULARY)
    assert last.flops["pretrain"] == 6 * n * last.tokens["pretrain"]
    assert last.flops["sft"] == 6 * n * last.tokens["sft"]
    assert last.flops["rl"] == 10 * n * last.tokens["rl"]
    assert last.tokens["pretrain"] >= run.pretrain.tokens
    assert last.exact_flops["pretrain"] == pytest.approx(last.flops["pretrain"], rel=0.5)


def test_finished_stages_are_used_again(done):
    run, results = done
    files = {
        path: path.stat().st_mtime_ns for path in folder(run, "rl").path.parent.rglob("result.json")
    }
    assert len(files) == 8
    assert pipeline(run) == results
    assert files == {path: path.stat().st_mtime_ns for path in files}


def test_another_setting_is_another_run_and_shares_what_it_can(done, tiny):
    run, _ = done
    other = tiny(run.outputs, "rl.steps=6")
    same = tiny(run.outputs, "rl.microbatch_tokens=99", "data.workers=2")
    for stage in ("prepare", "pretrain", "traces", "sft"):
        assert run_identity(run, stage) == run_identity(other, stage)
    assert run_identity(run, "rl") != run_identity(other, "rl")
    assert run_identity(run, "rl") == run_identity(same, "rl")


def test_a_folder_never_changes_its_run(done, tiny):
    run, _ = done
    other = tiny(run.outputs, "stage=rl", "rl.steps=6", f"out={folder(run, 'rl').path}")
    with pytest.raises(InputError, match="choose another out"):
        rl(other)


def test_the_first_ratio_is_one(done):
    run, _ = done
    with open(folder(run, "rl").metrics, newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["step"]) for row in rows] == [0, 1, 2, 3, 4]
    for row in rows:
        assert float(row["ratio_min"]) == pytest.approx(1, abs=1e-4)
        assert float(row["ratio_max"]) == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("pipeline_of", ["done", "done_history"])
def test_sft_documents_teach_thought_moves_and_stops_only(pipeline_of, request):
    run, _ = request.getfixturevalue(pipeline_of)
    puzzles = read_puzzles(folder(run, "prepare").path / "puzzles" / "sft.csv", SkipReport())
    documents = Dataset(folder(run, "traces").path / "train")
    owners = [puzzle for puzzle in puzzles for _ in range(run.traces.per_puzzle)]
    assert run.traces.per_puzzle == 3
    for puzzle, (ids, targets) in zip(owners, documents, strict=True):
        ids = ids.tolist()
        think, close = ids.index(tokens.THINK), ids.index(tokens.END_THINK)
        assert ids.count(tokens.BOS) == 1 and ids[0] == tokens.BOS
        assert not targets[:think].any() and targets[think : close + 1].all()
        lines = read_trace(puzzle.board(), ids[think + 1 : close])
        assert [m.uci() for m in lines[0]] and any(
            line[0].uci() == puzzle.solver_moves[0] for line in lines
        )
        answer = tokens.decode(
            i for i, ours in zip(ids[close + 1 :], targets[close + 1 :], strict=True) if ours
        )
        assert answer.endswith("<call_env>")
        assert answer.count("<call_env>") == len(puzzle.solver_moves)


def test_history_runs_through_every_stage(done_history):
    _, results = done_history
    assert [r.prompt for r in results] == ["history"] * 8
    assert results[-1].measures["episodes"] > 0


def test_collect_makes_one_tidy_table(done):
    run, results = done
    table = tidy(*collect(f"{run.outputs}/**"))
    assert set(table["identity"]) == {result.identity for result in results}
    measured = table[(table["stage"] == "evaluate") & (table["bin"] == "all") & (table["k"] == 1)]
    assert measured.set_index("of")["step"].dropna().to_dict() == {"sft": 0, "rl": 5}
    row = measured[measured["of"] == "rl"]
    loss = next(one.measures["game_nats_per_token"] for one in results if one.of == "pretrain")
    assert set(table["loss"].dropna()) == {loss}
    assert set(table[table["loss"].isna()]["stage"]) == {"prepare"}
    assert len(row) == 1
    curve = table[(table["stage"] == "rl") & (table["bin"] == "all") & (table["k"] == 1)]
    assert curve["step"].tolist() == [0, 1, 5]
    with open(folder(run, "rl").path / "curve.csv", newline="") as file:
        points = [one for one in csv.DictReader(file) if (one["bin"], one["k"]) == ("all", "1")]
    assert curve["pass_at_k"].tolist() == [float(one["mean"]) for one in points]
    assert curve["flops_rl"].tolist() == [float(one["flops"]) for one in points]
    before = sum(flops for stage, flops in results[-1].flops.items() if stage != "rl")
    assert (curve["flops_total"] - curve["flops_rl"]).tolist() == pytest.approx([before] * 3)
    assert curve["exact_flops_total"].iloc[-1] == pytest.approx(row["exact_flops_total"].item())
    with pytest.raises(InputError, match="no finished run"):
        collect(f"{run.outputs}/nothing/*")


class Killed(Exception):
    """Stands for the end of a process."""


@pytest.mark.parametrize("stage", ["pretrain", "sft", "rl"])
def test_a_resumed_run_equals_an_unbroken_one(stage, done, tiny, tmp_path, monkeypatch):
    """Kill after a checkpoint, in the middle of further steps; go on from the checkpoint."""
    run, _ = done
    unbroken = folder(run, stage)
    again = with_stage(tiny(run.outputs), stage)
    again.out = str(tmp_path / stage)
    work = {"pretrain": pretrain, "sft": sft, "rl": rl}[stage]
    stop = {"pretrain": 8, "sft": 3, "rl": 3}[stage]
    begin_and_kill(lambda: work(again), monkeypatch, stop, Killed)
    assert folder(again, stage).finished is None
    result = work(again)
    resumed = folder(again, stage)
    ours = load_file(resumed.checkpoints / "model.safetensors")
    theirs = load_file(unbroken.checkpoints / "model.safetensors")
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert curve(resumed.metrics) == curve(unbroken.metrics)
    assert result.tokens == unbroken.finished.tokens


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_with_a_line_and_a_status(sent, done, tiny_settings, tmp_path):
    run, _ = done
    settings = (*tiny_settings, f"outputs={run.outputs}", f"out={tmp_path}", "pretrain.tokens=1e8")
    process = subprocess.Popen(
        [sys.executable, "-m", "chessrl", "stage=pretrain", *settings],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
    )
    while process.poll() is None and not list(tmp_path.glob("checkpoints/step-*.ckpt")):
        time.sleep(0.2)
    process.send_signal(sent)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 130, said
    assert said.splitlines()[-1].startswith("chessrl: stopped; the same command goes on")
    assert not (tmp_path / "result.json").exists()


def test_a_damaged_checkpoint_is_passed_over(done, tiny, tmp_path, monkeypatch, capsys):
    run, _ = done
    good = sorted(folder(run, "pretrain").checkpoints.glob("step-*.ckpt"))
    assert len(good) == 2
    for path in good:
        (tmp_path / path.name).write_bytes(path.read_bytes())
    newest = tmp_path / good[1].name
    whole = newest.read_bytes()
    middle = len(whole) // 2
    newest.write_bytes(whole[:middle] + bytes([whole[middle] ^ 255]) + whole[middle + 1 :])
    assert checkpoints.last_checkpoint(tmp_path) == tmp_path / good[0].name
    newest.write_bytes(whole[:middle])
    (tmp_path / ".step-99999999.ckpt.1.tmp").write_bytes(b"half")
    assert checkpoints.last_checkpoint(tmp_path) == tmp_path / good[0].name
    assert good[1].name in capsys.readouterr().err


def test_a_stage_whose_parent_is_missing_says_what_to_run(tiny, tmp_path):
    with pytest.raises(InputError, match="make data"):
        pretrain(tiny(tmp_path, "stage=pretrain"))


def test_weights_of_another_vocabulary_are_refused(done, tiny, tmp_path):
    run, _ = done
    weights = load_file(folder(run, "sft").checkpoints / "model.safetensors")
    foreign = tmp_path / "foreign.safetensors"
    about = {"vocabulary": "0123456789abcdef", "vocabulary_size": 95}
    save_file(weights, foreign, {"chessrl": json.dumps(about)})
    with pytest.raises(InputError, match="0123456789abcdef") as refused:
        evaluate(tiny(run.outputs, "stage=evaluate", f"checkpoint={foreign}"))
    assert tokens.VOCABULARY_HASH in str(refused.value)


def test_a_checkpoint_can_be_measured_by_its_path(done, tiny):
    run, results = done
    path = folder(run, "rl").checkpoints / "model.safetensors"
    result = evaluate(tiny(run.outputs, "stage=evaluate", f"checkpoint={path}"))
    assert result.pass_at_k == results[-1].pass_at_k
    assert "checkpoint" in result.parents


def test_manifest_and_config_stand_beside_the_result(done):
    run, _ = done
    out = folder(run, "rl")
    manifest = json.loads((out.path / "manifest.json").read_text())
    assert manifest["identity"] == out.identity
    assert {"commit", "versions", "python"} <= manifest.keys()
    assert (out.path / "config.yaml").read_text().count("group_size: 4") == 1
