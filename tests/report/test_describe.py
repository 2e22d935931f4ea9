"""What `stage=describe` writes and draws, also of datasets that lack something."""

import json
import shutil

import numpy as np
import pytest
from matplotlib.image import imread

from chessrl.board import tokens
from chessrl.board.records import GAME, RESULTS
from chessrl.config import InputError
from chessrl.config.data import SPEEDS
from chessrl.report.contents import Documents
from chessrl.report.dataset import measure, numbers
from chessrl.report.describe import describe, tables
from chessrl.report.figures import figure
from chessrl.stages.prepare import prepare
from chessrl.stages.runs import folder


def test_describe_writes_tables_numbers_and_a_picture(
    configure, dataset, write_tables, tmp_path, capsys
):
    write_tables(dataset)
    describe(configure("stage=describe", f"dataset={dataset}"))
    printed = capsys.readouterr()
    assert "mine/prepare-0 (board prompt)" in printed.out
    assert "1.e4 c5 2.Nf3 d6" in printed.out
    assert "written: dataset.md, dataset.json and dataset.png" in printed.err
    page = (dataset / "dataset.md").read_text()
    assert page.startswith("# Dataset mine/prepare-0 (board prompt)\n\n## Splits\n\n| split |")
    assert "| 1-0 | 3 | 50.0% |" in page
    assert "| unknown | 2 | 33.3% |" in page
    assert "| `<bos>` | " in page
    saved = json.loads((dataset / "dataset.json").read_text())
    assert saved == json.loads(json.dumps(numbers(measure(dataset))))
    picture = imread(dataset / "dataset.png")
    assert picture.shape[1] == 1705
    assert picture.shape[0] > 1500
    assert picture[..., :3].std() > 0.1
    assert len(figure(measure(dataset)).axes) == 6 + 3 + 1 + 3  # starter puzzles: no popularity
    describe(configure("stage=describe", f"dataset={dataset}", f"out={tmp_path / 'elsewhere'}"))
    assert sorted(p.name for p in (tmp_path / "elsewhere").iterdir()) == [
        "dataset.json", "dataset.md", "dataset.png",
    ]  # fmt: skip
    again = (tmp_path / "elsewhere" / "dataset.png").read_bytes()
    assert again == (dataset / "dataset.png").read_bytes()


def test_without_a_folder_the_prepared_one_is_described(tiny, tmp_path, capsys):
    run = tiny(tmp_path, "stage=describe")
    with pytest.raises(InputError, match=r"prepare has not finished in .*make data"):
        describe(run)
    prepare(tiny(tmp_path, "stage=prepare"))
    describe(run)
    assert (folder(run, "prepare").path / "dataset.png").is_file()
    assert folder(run, "prepare").finished is not None


def test_a_dataset_that_lacks_most_things(dataset, configure, capsys):
    """An older manifest, no validation, no tables of games, no puzzles; then no tokens either."""
    manifest = json.loads((dataset / "manifest.json").read_text())
    (dataset / "manifest.json").write_text(json.dumps({"identity": manifest["identity"]}))
    shutil.rmtree(dataset / "validation")
    shutil.rmtree(dataset / "puzzles")
    (dataset / "result.json").unlink()
    statistics = measure(dataset)
    assert list(statistics.documents) == ["train"]
    assert statistics.prompt == "" and statistics.counted("games", "train") is None
    assert len(figure(statistics).axes) == 4
    describe(configure("stage=describe", f"dataset={dataset}"))
    assert "has no result.json" in capsys.readouterr().err
    (dataset / "manifest.json").unlink()
    unknown = (0, 0, 0, 0, RESULTS.index("*"), SPEEDS.index("unknown"), 12, 1, (0, 0, 0, 0))
    for file in (dataset / "train").glob("*.npy"):
        file.unlink()
    np.save(dataset / "train" / "00000.games.npy", np.array([unknown], GAME))
    statistics = measure(dataset)
    assert len(figure(statistics).axes) == 3  # plies, openings, results
    assert statistics.all_documents == Documents()


def test_an_empty_table_and_an_empty_shard(dataset, write_shard):
    np.save(dataset / "validation" / "00000.games.npy", np.zeros(0, GAME))
    write_shard(dataset / "validation", [])
    statistics = measure(dataset)
    assert statistics.games["validation"].total == 0
    assert statistics.documents["validation"].total == 0
    rows = {table.title: table.rows for table in tables(statistics)}
    assert rows["Splits"][1] == ["validation", "0", "0", "0", "0", "0", ""]
    assert len(figure(statistics).axes) == 4 + 3


@pytest.mark.parametrize("what", ["nothing", "empty", "file"])
def test_what_is_no_dataset(tmp_path, what):
    path = tmp_path / what
    if what == "empty":
        path.mkdir()
    elif what == "file":
        path.write_text("x")
    with pytest.raises(InputError, match="is no dataset folder: give dataset= a folder that"):
        measure(path)


@pytest.mark.parametrize("name", ["tokens", "targets", "offsets", "games", "puzzles", "manifest"])
def test_damage_is_told_in_one_line(dataset, write_tables, name):
    write_tables(dataset)
    file = {
        "puzzles": dataset / "puzzles" / "sft.csv",
        "manifest": dataset / "manifest.json",
    }.get(name, dataset / "train" / f"00000.{name}.npy")
    file.write_bytes(file.read_bytes()[:7] if name == "manifest" else b"\x93NUMPY")
    with pytest.raises(InputError, match=r"is damaged .*: remove its folder") as caught:
        measure(dataset)
    assert "\n" not in str(caught.value)


def test_shards_that_do_not_fit_or_hold_other_tokens(dataset):
    file = dataset / "train" / "00000.tokens.npy"
    ids = np.load(file)
    np.save(file, ids[:-1])
    with pytest.raises(InputError, match="tokens, targets and offsets do not fit"):
        measure(dataset)
    ids[5] = len(tokens.TOKENS)
    np.save(file, ids)
    with pytest.raises(InputError, match="tokens outside the vocabulary"):
        measure(dataset)


def test_another_vocabulary_is_refused(dataset):
    manifest = json.loads((dataset / "manifest.json").read_text())
    (dataset / "manifest.json").write_text(json.dumps(manifest | {"vocabulary": "0123"}))
    with pytest.raises(InputError, match=r"speaks vocabulary 0123, .*: prepare it again"):
        measure(dataset)


def test_a_place_that_cannot_be_written_to(configure, dataset, tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match=r"cannot write to .*: give another folder with out="):
        describe(configure("stage=describe", f"dataset={dataset}", f"out={tmp_path / 'file'}"))
