"""Training on a harvest: SFT reads exactly its documents, pretraining exactly its share."""

from collections import Counter

import pytest
import torch
from curves import curve
from planting import as_document, documents, puzzles_of, solved, write
from safetensors.torch import load_file

from chessrl.board import tokens
from chessrl.config import InputError
from chessrl.policy.weights import load_model, new_model, save_model
from chessrl.stages.batches import Dataset, Schedule
from chessrl.stages.evaluate import evaluate
from chessrl.stages.harvest import harvest
from chessrl.stages.pretrain import pretrain
from chessrl.stages.rollout_files import FOLDER
from chessrl.stages.runs import folder, parents, run_identity
from chessrl.stages.sft import sft
from chessrl.stages.traces import traces
from chessrl.stages.training import Steps


@pytest.fixture
def start(work, tmp_path):
    """Weights to begin with."""
    path = tmp_path / "start.safetensors"
    save_model(path, new_model(work().model, len(tokens.TOKENS), 3), tokens.VOCABULARY_HASH)
    return path


@pytest.fixture
def harvested(work):
    """Folder of a harvest of every RL puzzle, and its documents."""
    run = work("stage=harvest")
    episodes = [solved(puzzle, 2, run) for puzzle in puzzles_of(run, "rl")]
    write(folder(run, "rl").path / FOLDER, episodes)
    harvest(run)
    return folder(run, "harvest").path, [as_document(one) for one in episodes]


@pytest.fixture
def read(monkeypatch):
    """Documents of all batches made: tokens read, and the places where one is to be predicted."""
    found: Counter = Counter()
    unpatched = Schedule.batch

    def noted(self, step):
        batch = unpatched(self, step)
        for row in range(len(batch.inputs)):
            for number in range(1, int(batch.documents[row].max()) + 1):
                here = batch.documents[row] == number
                ids = [int(batch.inputs[row][here][0]), *batch.targets[row][here].tolist()]
                found[tuple(ids), (False, *batch.mask[row][here].tolist())] += 1
        return batch

    monkeypatch.setattr(Schedule, "batch", noted)
    return found


def counted(some) -> Counter:
    return Counter((tuple(ids), tuple(targets)) for ids, targets in some)


def test_sft_on_a_harvest_reads_its_documents_and_no_others(work, start, harvested, read):
    place, planted = harvested
    run = work(
        "stage=sft", f"checkpoint={start}", "sft.data=harvest", f"sft.harvest={place}",
        "sft.epochs=2", "sft.batch_tokens=256", "sft.context=128",
    )  # fmt: skip
    result = sft(run)
    passes = counted(planted)
    assert set(read) == set(passes)
    assert all(2 <= read[one] <= 3 for one in passes)  # the last batch reaches into a third
    assert result.tokens["sft"] == sum(len(ids) * n for (ids, _), n in read.items())
    assert set(parents(run, "sft")) == {"checkpoint"}  # no traces have to be made
    weights = folder(run, "sft").checkpoints / "model.safetensors"
    tested = work("stage=evaluate", f"checkpoint={weights}", "evaluate.puzzles=4")
    assert evaluate(tested).measures["episodes"] == 8


def test_sft_on_both_reads_traces_and_harvest(work, start, harvested, read):
    place, planted = harvested
    settings = ("sft.epochs=1", "sft.context=128", f"checkpoint={start}", "traces.puzzles=10")
    made = work("stage=traces", *settings)
    traces(made)
    written = documents(folder(made, "traces").path / "train")
    run = work("stage=sft", "sft.data=both", f"sft.harvest={place}", *settings)
    sft(run)
    expected = counted([*planted, *written])
    assert len(written) == 30 and set(read) == set(expected)
    assert set(parents(run, "sft")) == {"traces", "checkpoint"}


def mixed(work, place, *more):
    return work("stage=pretrain", f"pretrain.harvest={place}", *more)


def test_the_share_of_pretraining_is_that_of_its_documents(work, harvested, read):
    place, planted = harvested
    run = mixed(work, place, "pretrain.harvest_share=0.25")
    result = pretrain(run)
    planted = counted(planted)
    ours = sum(len(one[0]) * n for one, n in read.items() if one in planted)
    total = sum(len(ids) * n for (ids, _), n in read.items())
    assert total == result.tokens["pretrain"] >= 3e4
    assert abs(ours - 0.25 * total) <= run.pretrain.context
    assert result.measures["harvest_share"] == ours / total
    assert result.measures["harvest_epochs"] == pytest.approx(
        ours / sum(len(ids) for ids, _ in planted)
    )
    rows = curve(folder(run, "pretrain").metrics)
    assert len(rows) == result.measures["steps"]
    assert float(rows[-1]["harvest_share"]) == pytest.approx(ours / total, abs=1e-6)
    for row in rows:  # from the first step on
        off = abs(float(row["harvest_share"]) - 0.25) * float(row["tokens"])
        assert off <= run.pretrain.context
    assert "nats_per_ply" not in rows[0]  # thoughts are no game


@pytest.mark.parametrize("schedule", ["cosine", "wsd"])
def test_a_mixed_run_that_was_killed_ends_like_an_unbroken_one(
    schedule, work, harvested, tmp_path, monkeypatch
):
    place, _ = harvested
    wsd = (
        "pretrain.optim.schedule=wsd", "pretrain.optim.warmup=0", "pretrain.optim.warmup_steps=2",
        "pretrain.optim.decay=0.5",
    )  # fmt: skip
    settings = (f"out={tmp_path / 'unbroken'}", *(wsd if schedule == "wsd" else ()))
    unbroken = mixed(work, place, *settings)
    pretrain(unbroken)
    again = mixed(work, place, *settings, f"out={tmp_path / 'again'}")
    unpatched = Steps.__iter__

    def until_killed(self):
        for number, batch in enumerate(unpatched(self), self.trainer.global_step):
            if number == 11:
                raise KeyboardInterrupt
            yield batch

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Steps, "__iter__", until_killed)
        pretrain(again)
    assert folder(again, "pretrain").finished is None
    pretrain(again)
    ours, theirs = (
        load_file(folder(run, "pretrain").checkpoints / "model.safetensors")
        for run in (again, unbroken)
    )
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert curve(folder(again, "pretrain").metrics) == curve(folder(unbroken, "pretrain").metrics)


@pytest.mark.parametrize("schedule", ["cosine", "wsd"])
def test_pretraining_goes_on_from_a_checkpoint(schedule, work, start):
    wsd = (
        "pretrain.optim.schedule=wsd", "pretrain.optim.warmup=0", "pretrain.optim.warmup_steps=2",
        "pretrain.optim.decay=0.5",
    )  # fmt: skip
    settings = ("stage=pretrain", "pretrain.tokens=1e4", *(wsd if schedule == "wsd" else ()))
    run = work(*settings, f"checkpoint={start}", "model=1m")  # the file says which model
    result = pretrain(run)
    out = folder(run, "pretrain")
    first, given, last = (
        load_file(path)
        for path in (
            out.checkpoints / "start.safetensors", start, out.checkpoints / "model.safetensors",
        )
    )  # fmt: skip
    assert all(torch.equal(first[name], given[name]) for name in given)
    assert any(not torch.equal(last[name], given[name]) for name in given)
    assert (result.model, set(result.parents)) == ("100k", {"prepare", "checkpoint"})
    assert load_model(out.checkpoints / "model.safetensors", tokens.VOCABULARY_HASH)
    if schedule == "wsd":
        assert folder(run, "trunk").result.model == "100k"
        assert set(folder(run, "trunk").result.parents) == {"prepare", "checkpoint"}


def test_names_follow_the_content(work, start, harvested, tmp_path):
    place, _ = harvested
    moved = tmp_path / "moved"
    moved.symlink_to(place)
    other = tmp_path / "other"
    (other / "train").mkdir(parents=True)
    for path in (place / "train").iterdir():
        content = bytearray(path.read_bytes())
        content[-1] ^= path.name.endswith("tokens.npy")
        (other / "train" / path.name).write_bytes(content)
    again = tmp_path / "again.safetensors"
    save_model(again, new_model(work().model, len(tokens.TOKENS), 4), tokens.VOCABULARY_HASH)

    def name(stage, *settings):
        return run_identity(work(f"stage={stage}", *settings), stage)

    for stage, more in (("pretrain", ()), ("sft", ("sft.data=both",))):
        given = [name(stage, *more, f"{stage}.harvest={one}") for one in (place, moved, other)]
        assert given[0] == given[1] != given[2]
        assert name(stage) not in given
        assert len({name(stage, f"checkpoint={one}") for one in (start, again)}) == 2
    assert name("sft", "sft.data=both", f"sft.harvest={place}") != name(
        "sft", "sft.data=harvest", f"sft.harvest={place}"
    )
    shares = [
        name("pretrain", f"pretrain.harvest={place}", f"pretrain.harvest_share={share}")
        for share in (0.1, 0.2)
    ]
    assert len(set(shares)) == 2
    assert name("pretrain", "pretrain.harvest_share=0.2") == name("pretrain")  # of nothing
    assert name("pretrain", "model=1m", f"checkpoint={start}") == name(
        "pretrain", f"checkpoint={start}"
    )
    with pytest.raises(InputError, match="name the folder of a harvest"):
        name("pretrain", f"pretrain.harvest={tmp_path / 'nowhere'}")


def test_the_documents_have_the_form_of_traces(harvested):
    place, planted = harvested
    assert documents(place / "train") == planted
    assert len(Dataset(place / "train")) == len(planted) > 20
