"""Batches: every document once, nothing too large, targets one place later than inputs."""

import numpy as np
import pytest
import torch

from chessrl.board.records import GAME
from chessrl.config import InputError
from chessrl.stages import batches
from chessrl.stages.batches import (
    Dataset,
    DatasetWriter,
    Schedule,
    collate,
    in_order,
    plan_epoch,
)

PAD = 99


def make_documents(count: int, seed: int = 0, longest: int = 40) -> list[tuple[list, list]]:
    """Documents that open with their number, so that they can be told apart."""
    rng = np.random.default_rng(seed)
    return [
        ([number, *rng.integers(90, size=length).tolist()],
         [False, *(rng.random(length) < 0.7).tolist()])
        for number, length in enumerate(rng.integers(1, longest, size=count).tolist())
    ]  # fmt: skip


def write(folder, documents) -> DatasetWriter:
    writer = DatasetWriter(folder)
    for ids, targets in documents:
        writer.add(ids, targets)
    writer.close()
    return writer


def content(dataset: Dataset) -> list[tuple[list, list]]:
    documents = [dataset[i] for i in range(len(dataset))]
    return [(ids.tolist(), targets.tolist()) for ids, targets in documents]


@pytest.mark.parametrize("shard_tokens", [1, 50, 300, 10**6])
def test_what_is_written_is_read_whatever_the_shards(tmp_path, monkeypatch, shard_tokens):
    monkeypatch.setattr(batches, "SHARD_TOKENS", shard_tokens)
    documents = make_documents(60)
    writer = write(tmp_path, documents)
    dataset = Dataset(tmp_path)
    assert content(dataset) == documents
    assert dataset.lengths.tolist() == [len(ids) for ids, _ in documents]
    total = sum(len(ids) for ids, _ in documents)
    assert (writer.documents, writer.tokens) == (60, total)
    assert writer.targets == sum(sum(targets) for _, targets in documents)
    shards = len(list(tmp_path.glob("*.tokens.npy")))
    assert writer.shards == shards
    expected = {1: 60, 10**6: 1}.get(shard_tokens)
    if expected:
        assert shards == expected
    else:  # a shard is closed by the document that fills it: of 40 tokens at most
        assert total / (shard_tokens + 40) <= shards <= total / shard_tokens + 1
        assert shards > 1


def test_the_same_documents_make_the_same_bytes(tmp_path):
    for name in "ab":
        write(tmp_path / name, make_documents(20))
    files = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert files == ["00000.offsets.npy", "00000.targets.npy", "00000.tokens.npy"]
    for name in files:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert (tmp_path / "a" / "00000.tokens.npy").stat().st_size < 2 * Dataset(
        tmp_path / "a"
    ).lengths.sum()  # a byte per token, and a header


def test_writing_again_leaves_nothing_of_before(tmp_path, monkeypatch):
    monkeypatch.setattr(batches, "SHARD_TOKENS", 1)
    write(tmp_path, make_documents(9))
    write(tmp_path, make_documents(4, seed=1))
    assert content(Dataset(tmp_path)) == make_documents(4, seed=1)


def test_a_writer_goes_on_after_the_shards_that_are_done(tmp_path, monkeypatch):
    monkeypatch.setattr(batches, "SHARD_TOKENS", 60)
    documents = make_documents(30)
    shards = write(tmp_path, documents).shards
    done = len(np.load(tmp_path / "00001.offsets.npy")) + len(
        np.load(tmp_path / "00000.offsets.npy")
    )
    writer = DatasetWriter(tmp_path, 2)
    assert shards > 2 and len(list(tmp_path.iterdir())) == 2 * 3
    for ids, targets in make_documents(5, seed=1):
        writer.add(ids, targets)
    writer.close()
    assert content(Dataset(tmp_path)) == documents[: done - 2] + make_documents(5, seed=1)


def test_documents_in_bulk_are_those_one_by_one(tmp_path):
    documents = make_documents(20)
    write(tmp_path / "single", documents)
    writer = DatasetWriter(tmp_path / "bulk")
    for part in (documents[:7], documents[7:7], documents[7:]):
        rows = np.zeros(len(part), GAME)
        rows["plies"] = range(len(part))
        writer.extend(
            np.array([token for ids, _ in part for token in ids], np.uint8),
            np.array([flag for _, targets in part for flag in targets], bool),
            np.array([len(ids) for ids, _ in part], int),
            rows,
        )
    assert not writer.full and not (tmp_path / "bulk").exists()
    writer.close()
    writer.close()  # nothing is left to write
    assert (writer.shards, writer.documents) == (1, 20)
    for what in ("tokens", "targets", "offsets"):
        name = f"00000.{what}.npy"
        assert (tmp_path / "bulk" / name).read_bytes() == (tmp_path / "single" / name).read_bytes()
    assert np.load(tmp_path / "bulk" / "00000.games.npy")["plies"].tolist() == [
        *range(7),
        *range(13),
    ]
    assert not (tmp_path / "single" / "00000.games.npy").exists()


def test_a_token_that_does_not_fit_is_an_error(tmp_path):
    writer = DatasetWriter(tmp_path)
    with pytest.raises(OverflowError):
        writer.add([1, 256], [False, True])
        writer.close()


def test_a_folder_without_documents_is_refused(tmp_path):
    DatasetWriter(tmp_path).close()
    with pytest.raises(InputError, match="no documents in"):
        Dataset(tmp_path)


def test_collation_by_hand():
    # prompt 5 6 7, answer 8 9: exactly the places that predict 8 and 9 count
    batch = collate(
        [(np.array([5, 6, 7, 8, 9]), np.array([0, 0, 0, 1, 1], bool)),
         (np.array([1, 2]), np.array([0, 1], bool))],
        context=100, pad=PAD,
    )  # fmt: skip
    assert batch.inputs.shape == batch.targets.shape == batch.mask.shape == (2, 16)
    assert batch.inputs[0].tolist() == [5, 6, 7, 8, 9] + [PAD] * 11
    assert batch.targets[0].tolist() == [6, 7, 8, 9] + [PAD] * 12
    assert batch.mask[0].tolist() == [False, False, True, True] + [False] * 12
    assert batch.targets[0][batch.mask[0]].tolist() == [8, 9]
    assert batch.inputs[1].tolist() == [1, 2] + [PAD] * 14
    assert batch.targets[1][batch.mask[1]].tolist() == [2]
    assert batch.inputs[1][batch.mask[1]].tolist() == [1]
    assert batch.tokens == 7


@pytest.mark.parametrize(("length", "width"), [(2, 16), (17, 16), (18, 32), (33, 32), (34, 48)])
def test_rows_are_padded_to_a_multiple_of_16_columns(length, width):
    batch = collate([(np.arange(length), np.ones(length, bool))], context=1000, pad=PAD)
    assert batch.inputs.shape == (1, width)  # of length - 1 pairs
    assert batch.mask.sum() == length - 1


def test_a_document_longer_than_the_context_is_cut():
    batch = collate([(np.arange(40), np.ones(40, bool))], context=10, pad=PAD)
    assert batch.inputs[0, :10].tolist() == list(range(10))
    assert batch.targets[0][batch.mask[0]].tolist() == list(range(1, 10))
    assert batch.tokens == 10


def test_the_plan_holds_each_document_once_and_keeps_the_bound():
    rng = np.random.default_rng(0)
    lengths = rng.integers(2, 200, size=3000)
    plan = plan_epoch(lengths, 800, seed=3, epoch=0)
    assert sorted(np.concatenate(plan).tolist()) == list(range(3000))
    assert max(len(rows) * lengths[rows].max() for rows in plan) <= 800
    # and pads little: batches are at least 80% full of tokens, on average
    assert lengths.sum() / (800 * len(plan)) > 0.8


def test_a_document_that_fills_a_batch_stands_alone():
    plan = plan_epoch(np.array([10, 10, 10]), 10, seed=0, epoch=0)
    assert [len(rows) for rows in plan] == [1, 1, 1]


def as_lists(plan) -> list[list[int]]:
    return [rows.tolist() for rows in plan]


def test_the_order_depends_on_seed_and_epoch():
    lengths = np.random.default_rng(0).integers(2, 50, size=300)
    plans = [as_lists(plan_epoch(lengths, 400, seed, epoch))
             for seed, epoch in ((0, 0), (0, 0), (0, 1), (1, 0))]  # fmt: skip
    assert plans[0] == plans[1]
    assert plans[0] != plans[2] != plans[3] != plans[0]


def test_batches_do_not_come_by_length():
    lengths = np.random.default_rng(0).integers(2, 200, size=4000)
    plan = plan_epoch(lengths, 800, seed=0, epoch=0)
    widths = [lengths[rows].max() for rows in plan]
    assert len(plan) > 400
    # a batch tells nothing of the next: the bound is 5 / sqrt(400)
    assert abs(np.corrcoef(widths[:-1], widths[1:])[0, 1]) < 0.25


@pytest.fixture
def dataset(tmp_path, monkeypatch) -> Dataset:
    monkeypatch.setattr(batches, "SHARD_TOKENS", 200)
    write(tmp_path, make_documents(80))
    return Dataset(tmp_path)


def schedule(dataset: Dataset, **changes) -> Schedule:
    settings = {"batch_tokens": 120, "context": 50, "seed": 0, "pad": PAD} | changes
    return Schedule(dataset, **settings)


def test_a_pass_reads_every_document(dataset):
    plan = schedule(dataset, epochs=1.0)
    rows = [row for step in range(len(plan)) for row in plan.batch(step).inputs]
    assert sorted(int(row[0]) for row in rows) == list(range(80))
    total = int(dataset.lengths.sum())
    assert (plan.tokens, plan.epochs, plan.cumulative[-1]) == (total, 1.0, total)
    assert sum(plan.batch(step).tokens for step in range(len(plan))) == total
    targets = sum(int(plan.batch(step).mask.sum()) for step in range(len(plan)))
    assert targets == sum(sum(targets) for _, targets in content(dataset))


def test_two_passes_differ_and_each_reads_every_document(dataset):
    once = len(schedule(dataset, epochs=1.0))
    plan = schedule(dataset, epochs=2.0)
    halves = [np.concatenate(plan.steps[:once]), np.concatenate(plan.steps[once:])]
    assert all(sorted(half.tolist()) == list(range(80)) for half in halves)
    assert halves[0].tolist() != halves[1].tolist()
    assert plan.epochs == 2.0


@pytest.mark.parametrize("goal", [1, 500, 1500.5, 7000])
def test_the_plan_stops_with_the_step_that_reaches_the_goal(dataset, goal):
    plan = schedule(dataset, tokens=goal)
    read = [plan.batch(step).tokens for step in range(len(plan))]
    assert np.cumsum(read).tolist() == plan.cumulative
    assert plan.cumulative[-1] == plan.tokens >= goal
    assert sum(read[:-1]) < goal
    assert plan.epochs == pytest.approx(plan.tokens / dataset.lengths.sum())


def test_a_longer_run_begins_like_a_shorter_one(dataset):
    short, long = schedule(dataset, tokens=900), schedule(dataset, tokens=5000)
    assert as_lists(long.steps)[: len(short)] == as_lists(short.steps)
    again = schedule(dataset, tokens=5000)
    for step in (0, 7, len(long) - 1):  # a resumed run finds the same batches
        assert torch.equal(again.batch(step).inputs, long.batch(step).inputs)
        assert torch.equal(again.batch(step).mask, long.batch(step).mask)
    assert as_lists(schedule(dataset, tokens=5000, seed=1).steps) != as_lists(long.steps)


def test_cut_documents_count_as_what_is_read(dataset):
    plan = schedule(dataset, context=10, epochs=1.0)
    assert plan.tokens == np.minimum(dataset.lengths, 10).sum()
    assert sum(plan.batch(step).tokens for step in range(len(plan))) == plan.tokens
    assert max(plan.batch(step).inputs.shape[1] for step in range(len(plan))) == 16


@pytest.mark.parametrize("batch_tokens", [10, 120, 10**5])
def test_in_order_reads_all_once_whatever_the_batch(dataset, batch_tokens):
    found = []
    for batch in in_order(dataset, batch_tokens, context=50, pad=PAD):
        found += batch.inputs[:, 0].tolist()
    assert found == list(range(80))


def test_a_damaged_shard_is_named(tmp_path):
    writer = DatasetWriter(tmp_path)
    writer.add([1, 2, 3], [False, True, True])
    writer.close()
    shard = tmp_path / "00000.tokens.npy"
    shard.write_bytes(shard.read_bytes()[:-2])
    with pytest.raises(InputError, match=r"a shard in .* is damaged"):
        Dataset(tmp_path)
