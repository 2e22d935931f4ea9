"""Batches: every document once, all of one shape, targets one place later than inputs."""

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
    first = np.array([5, 6, 7, 8, 9]), np.array([0, 0, 0, 1, 1], bool)
    second = np.array([1, 2, 3]), np.array([0, 1, 0], bool)
    batch = collate([[first, second], [second]], width=8, context=9, pad=PAD)
    assert batch.inputs.tolist() == [[5, 6, 7, 8, 1, 2, PAD, PAD], [1, 2] + [PAD] * 6]
    assert batch.targets.tolist() == [[6, 7, 8, 9, 2, 3, PAD, PAD], [2, 3] + [PAD] * 6]
    no, yes = False, True
    assert batch.mask.tolist() == [
        [no, no, yes, yes, yes, no, no, no],
        [yes, no, no, no, no, no, no, no],
    ]
    assert batch.documents.tolist() == [[1, 1, 1, 1, 2, 2, 0, 0], [1, 1, 0, 0, 0, 0, 0, 0]]
    assert (batch.tokens, batch.counted) == (11, 4)


def test_a_document_longer_than_the_context_is_cut():
    batch = collate([[(np.arange(40), np.ones(40, bool))]], width=10, context=10, pad=PAD)
    assert batch.inputs[0].tolist() == [*range(9), PAD]
    assert batch.targets[0][batch.mask[0]].tolist() == list(range(1, 10))
    assert batch.tokens == 10


@pytest.mark.parametrize("parts", [1, 2, 3, 5, 7])
def test_the_parts_of_a_batch_hold_each_row_once_and_are_alike(parts):
    rows = [[(np.array([row, row]), np.ones(2, bool))] for row in range(5)]
    batch = collate(rows, width=1, context=2, pad=PAD)
    cut = [batch.part(number, parts) for number in range(parts)]
    assert {part.inputs.shape for part in cut} == {(-(-5 // parts), 1)}
    assert all((part.counted, part.tokens) == (5, 10) for part in cut)
    read = [part.inputs[part.mask] for part in cut]
    assert sorted(torch.cat(read).tolist()) == list(range(5))
    assert all((part.documents > 0).equal(part.mask) for part in cut)


@pytest.fixture
def dataset(tmp_path, monkeypatch) -> Dataset:
    monkeypatch.setattr(batches, "SHARD_TOKENS", 200)
    write(tmp_path, make_documents(80))
    return Dataset(tmp_path)


def schedule(dataset: Dataset, **changes) -> Schedule:
    settings = {"batch_tokens": 150, "context": 50, "seed": 0, "pad": PAD} | changes
    return Schedule(dataset, **settings)


def numbers(plan: Schedule, steps: range) -> list[int]:
    """Documents of these steps, in order."""
    return [int(number) for step in steps for row in plan.of(step) for number in row]


def readable(dataset: Dataset) -> set[int]:
    """Documents with anything to predict: a lone token is none."""
    return set(np.flatnonzero(dataset.lengths > 1).tolist())


def test_each_pass_reads_every_document_once(dataset):
    plan = schedule(dataset, epochs=3.0)
    read = numbers(plan, range(len(plan)))
    usable = readable(dataset)
    assert len(usable) < len(dataset) or min(dataset.lengths) > 1
    passes = [read[i * len(usable) : (i + 1) * len(usable)] for i in range(2)]
    assert all(set(one) == usable for one in passes)
    assert passes[0] != passes[1]
    assert plan.documents == len(read)
    assert 3.0 <= plan.epochs < 3.0 + plan.rows * 50 / dataset.lengths.sum()


def test_all_batches_have_the_same_shape_and_hold_what_the_plan_says(dataset):
    plan = schedule(dataset, epochs=2.0)
    places = targets = 0
    for step in range(len(plan)):
        batch = plan.batch(step)
        assert batch.inputs.shape == (3, 50)
        for row, documents in enumerate(plan.of(step)):
            ids = [dataset[i][0] for i in documents]
            assert batch.inputs[row][batch.documents[row] > 0].tolist() == [
                int(token) for one in ids for token in one[:-1]
            ]
        places += int((batch.documents > 0).sum())
        targets += int(batch.mask.sum())
        assert batch.counted == batch.mask.sum()
    assert plan.padding == pytest.approx(1 - places / (len(plan) * 150))
    assert targets > 0


@pytest.mark.parametrize("goal", [1, 500, 1500.5, 7000])
def test_the_plan_stops_with_the_step_that_reaches_the_goal(dataset, goal):
    plan = schedule(dataset, tokens=goal)
    read = [plan.batch(step).tokens for step in range(len(plan))]
    assert np.cumsum(read).tolist() == plan.cumulative.tolist()
    assert plan.cumulative[-1] == plan.tokens >= goal
    assert sum(read[:-1]) < goal
    assert plan.epochs == pytest.approx(plan.tokens / dataset.lengths.sum())


def test_a_longer_run_begins_like_a_shorter_one(dataset):
    short, long = schedule(dataset, tokens=900), schedule(dataset, tokens=5000)
    both = range(len(short))
    assert len(short) < len(long) and numbers(long, both) == numbers(short, both)
    again = schedule(dataset, tokens=5000)
    for step in (0, 7, len(long) - 1):  # a resumed run finds the same batches
        assert torch.equal(again.batch(step).inputs, long.batch(step).inputs)
        assert torch.equal(again.batch(step).mask, long.batch(step).mask)
    other = schedule(dataset, tokens=5000, seed=1)
    assert numbers(other, both) != numbers(long, both)


def test_cut_documents_count_as_what_is_read(dataset):
    plan = schedule(dataset, context=10, batch_tokens=30, epochs=1.0)
    read = numbers(plan, range(len(plan)))
    assert plan.tokens == np.minimum(dataset.lengths[read], 10).sum()
    assert sum(plan.batch(step).tokens for step in range(len(plan))) == plan.tokens


def test_what_must_be_whole_is_left_out_and_counted(dataset):
    plan = schedule(dataset, context=20, batch_tokens=60, epochs=1.0, whole=True)
    long = set(np.flatnonzero(dataset.lengths > 20).tolist())
    assert 0 < len(long) < 80
    assert not long & set(numbers(plan, range(len(plan))))
    assert plan.left_out == len(dataset) - len(readable(dataset) - long)
    with pytest.raises(InputError, match="documents are longer than context=1"):
        schedule(dataset, context=1, batch_tokens=3, epochs=1.0, whole=True)


def test_a_dataset_smaller_than_a_batch_is_read_more_than_once(dataset):
    plan = schedule(dataset, batch_tokens=20000, tokens=1)
    assert len(plan) == 1 and plan.epochs > 5
    assert plan.batch(0).inputs.shape == (400, 50)


@pytest.mark.parametrize("batch_tokens", [10, 120, 10**5])
def test_in_order_reads_all_once_whatever_the_batch(dataset, batch_tokens):
    found = []
    for batch in in_order(dataset, batch_tokens, context=50, pad=PAD):
        found += (
            batch.inputs[:, 0].tolist() if batch.inputs.shape[1] else [None] * len(batch.inputs)
        )
    assert found == list(range(80))


def test_a_damaged_shard_is_named(tmp_path):
    writer = DatasetWriter(tmp_path)
    writer.add([1, 2, 3], [False, True, True])
    writer.close()
    shard = tmp_path / "00000.tokens.npy"
    shard.write_bytes(shard.read_bytes()[:-2])
    with pytest.raises(InputError, match=r"a shard in .* is damaged"):
        Dataset(tmp_path)
