"""The games of prepare: the same bytes from any number of workers and after any interruption."""

import bz2
import dataclasses
import gzip
import hashlib
import json
import os
import signal
import time
from pathlib import Path

import chess
import numpy as np
import pytest
from oracle import documents_of, hashes_of, san

from chessrl.board import blocks
from chessrl.board.documents import Form
from chessrl.board.records import GAME, RESULTS
from chessrl.config import InputError, Run
from chessrl.stages import batches, ingest
from chessrl.stages.batches import Dataset
from chessrl.stages.ingest import STATE
from chessrl.stages.prepare import prepare
from chessrl.stages.runs import folder

SETTINGS = ("stage=prepare", "data.validation=0.3", "data.filter.min_plies=12")
SHORT = '[Event "short"]\n\n1. e4 e5 *\n\n'
ODD = '[Event "odd"]\n\n1. e4 e5 2. Ke3 *\n\n[Event "odd"]\n\n1. d4 {open *\n\n'


def elo(number: int) -> int:
    """Every tenth game is one of strong players."""
    return 2000 + number if number % 10 == 0 else 1200 + number % 90


@pytest.fixture(scope="module")
def moves(starter_games) -> list[list[chess.Move]]:
    """Different games."""
    games = [[chess.Move.from_uci(uci) for uci in game.moves] for game in starter_games]
    return [game for game in games if len(game) >= 12]


def pgn(moves: list[list[chess.Move]], first: int = 0) -> str:
    text = ""
    for number, game in enumerate(moves, first):
        result = RESULTS[number % 4]
        text += (
            f'[Event "{number}"]\n[Date "{1900 + number % 100}.01.01"]\n[Result "{result}"]\n'
            f'[WhiteElo "{elo(number) + 10}"]\n[BlackElo "{elo(number) - 10}"]\n\n'
            f"{san(game, result)}\n\n"
        )
    return text


@pytest.fixture(scope="module")
def sources(tmp_path_factory, moves) -> list[Path]:
    """Three files that share games: 0 to 69, 50 to 119 and 0 to 9 of `moves`, with odd ones."""
    home = tmp_path_factory.mktemp("sources")
    (home / "a.pgn").write_text(pgn(moves[:70]))
    middle = pgn(moves[50:80], 50) + SHORT + ODD + pgn(moves[80:120], 80)
    (home / "b.pgn.gz").write_bytes(gzip.compress(middle.encode()))
    (home / "c.pgn.bz2").write_bytes(bz2.compress(pgn(moves[:10], 500).encode()))
    return [home / name for name in ("a.pgn", "b.pgn.gz", "c.pgn.bz2")]


@pytest.fixture
def make(tiny, sources, monkeypatch):
    """A configuration that reads the sources in small blocks to small shards."""
    monkeypatch.setattr(blocks, "SIZE", 6000)
    monkeypatch.setattr(batches, "SHARD_TOKENS", 9000)
    known: dict[tuple[str, ...], Run] = {}

    def made(outputs: Path, *overrides: str) -> Run:
        paths = ",".join(map(str, sources))
        if overrides not in known:  # composing takes longer than running
            known[overrides] = tiny(outputs, *SETTINGS, f"data.paths=[{paths}]", *overrides)
        return dataclasses.replace(known[overrides], outputs=str(outputs))

    return made


def content(run: Run) -> dict[str, str]:
    """Hash of every file that stages read, and what the manifest counts."""
    out = folder(run, "prepare")
    files = [*out.path.glob("*/*.npy"), *out.path.glob("puzzles/*.csv"), out.path / "skipped.jsonl"]
    told = {str(f.relative_to(out.path)): hashlib.sha256(f.read_bytes()).hexdigest() for f in files}
    assert not [*out.path.glob("*/.*"), *out.path.glob(f"*{STATE}*")]
    return told | {what: out.manifest[what] for what in ("kept", "counts", "skipped")}


def rows(run: Run, split: str) -> np.ndarray:
    """Rows of all games of a split, shard by shard held against its documents."""
    tables = []
    home = folder(run, "prepare").path / split
    for path in sorted(home.glob("*.games.npy")):
        tables.append(np.load(path))
        offsets = np.load(path.with_name(path.name.replace("games", "offsets")))
        assert tables[-1].dtype == GAME
        assert tables[-1]["documents"].sum() == len(offsets) - 1
    return np.concatenate(tables)


@pytest.mark.parametrize("prompt", ["board", "history"])
def test_documents_are_those_of_the_games_in_their_order(make, moves, tiny_files, tmp_path, prompt):
    run = make(tmp_path, f"prompt={prompt}", f"data.puzzles={tiny_files['with_history']}")
    prepare(run)
    form = Form(run.prompt.form, run.prompt.plies)
    skipped = {s["index"] for s in skips(run) if s["reason"] == "reaches_puzzle"}
    assert skipped == set()  # the puzzles are of games that are not among these
    for split in ("train", "validation"):
        numbers = [n for n in range(120) if (hashes_of(moves[n])[1] < 0.3) == (split != "train")]
        dataset = Dataset(folder(run, "prepare").path / split)
        found = [(ids.tolist(), targets.tolist()) for ids, targets in dataset]
        assert found == [document for n in numbers for document in documents_of(moves[n], form)]
        games = rows(run, split)
        assert games["key"].tolist() == [hashes_of(moves[n])[0] for n in numbers]
        assert games["white_elo"].tolist() == [elo(n) + 10 for n in numbers]
        assert games["black_elo"].tolist() == [elo(n) - 10 for n in numbers]
        assert games["year"].tolist() == [1900 + n % 100 for n in numbers]
        assert [RESULTS[place] for place in games["result"]] == [RESULTS[n % 4] for n in numbers]
        assert games["plies"].tolist() == [len(moves[n]) for n in numbers]
        counts = folder(run, "prepare").manifest["counts"]
        assert counts[f"games_{split}"] == len(numbers)
        assert counts[f"plies_{split}"] == games["plies"].sum()
        assert counts[f"documents_{split}"] == len(found)
        assert counts[f"tokens_{split}"] == sum(len(ids) for ids, _ in found)
        assert counts[f"targets_{split}"] == sum(sum(targets) for _, targets in found)


def skips(run: Run) -> list[dict]:
    text = (folder(run, "prepare").path / "skipped.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def test_every_skip_has_its_place_over_files_and_blocks(make, sources, tmp_path):
    run = make(tmp_path)
    prepare(run)
    a, b, c = map(str, sources)
    found = [(s["file"], s["index"], s["line"], s["reason"]) for s in skips(run)]
    expected = [(b, n, 1 + 8 * n, "duplicate") for n in range(20)]
    expected += [(b, 30, 241, "too_short"), (b, 31, 247, "illegal_move")]
    expected += [(b, 32, 251, "unclosed_comment")]
    expected += [(c, n, 1 + 8 * n, "duplicate") for n in range(10)]
    assert found == expected
    assert a not in {place[0] for place in found}
    assert folder(run, "prepare").manifest["skipped"] == {
        "duplicate": 30, "illegal_move": 1, "too_short": 1, "unclosed_comment": 1,
    }  # fmt: skip
    keep = make(tmp_path / "keep", "data.filter.duplicates=keep")
    prepare(keep)
    assert folder(keep, "prepare").manifest["kept"] == 150


def test_workers_change_no_byte(make, tmp_path):
    seen = []
    for workers in (1, 2):
        run = make(tmp_path / str(workers), f"data.workers={workers}")
        prepare(run)
        seen.append((folder(run, "prepare").identity, content(run)))
    assert len([name for name in seen[0][1] if name.startswith("train/")]) >= 4 * 3
    assert seen[0] == seen[1]


def test_classes_of_elo_come_out_even_over_all_sources(make, tiny, tmp_path, moves):
    run = make(tmp_path, "data.filter.balance=20", "data.filter.balance_width=1000")
    prepare(run)
    counts = folder(run, "prepare").manifest
    # 1000 to 1999: 126 games in the sources, of which 20 are drawn, standard deviation 4.1, and
    # copies are left out; 2000 and above: 14 and 1 copies, all of them wanted
    tables = np.concatenate([rows(run, split) for split in ("train", "validation")])
    strong = (tables["white_elo"] > 1990).sum()
    weak = len(tables) - strong
    assert strong == 12
    assert 8 <= weak <= 32
    assert counts["skipped"]["unbalanced"] + counts["kept"] >= 120
    order = {hashes_of(game)[0]: n for n, game in enumerate(moves)}
    kept = sorted(order[int(key)] for key in tables["key"] if order[int(key)] % 10)
    assert kept[0] < 60 < kept[-1]  # not the first ones only
    again = make(tmp_path / "again", *SETTINGS, "data.filter.balance=20", "data.workers=2",
                 "data.filter.balance_width=1000")  # fmt: skip
    prepare(again)
    assert content(again) == content(run)


def killed(run: Run, at: int) -> bool:
    """Run prepare in a process that is killed before it moves its `at`-th file into place."""
    if child := os.fork():
        _, status = os.waitpid(child, 0)
        assert status in (0, signal.SIGKILL)
        return status == signal.SIGKILL
    try:
        moved, replace = 0, os.replace

        def counting(source, target):
            nonlocal moved
            moved += 1
            if moved == at:
                os.kill(os.getpid(), signal.SIGKILL)
            replace(source, target)

        os.replace = counting
        prepare(run)
        os._exit(0)
    finally:
        os._exit(1)


def test_a_killed_run_goes_on_to_the_same_bytes(make, tmp_path, capsys):
    whole = make(tmp_path / "whole")
    prepare(whole)
    expected, resumed = content(whole), 0
    at = 3
    while killed(run := make(tmp_path / str(at)), at):
        capsys.readouterr()
        if at % 3 == 0:
            killed(run, 10)  # and once more
        again = make(tmp_path / str(at), f"data.workers={1 + at % 2}")
        prepare(again)
        resumed += "goes on in" in capsys.readouterr().err
        assert content(again) == expected
        at += 8
    assert at > 40
    assert resumed > 3


def test_a_killed_run_of_many_workers_does_not_keep_its_folder(make, tmp_path, capsys):
    run = make(tmp_path, "data.workers=2")
    assert killed(run, 20)
    for _ in range(100):  # the workers end by themselves, within an instant
        try:
            prepare(run)
            break
        except InputError as error:
            assert "another process is working" in str(error)
            time.sleep(0.1)
    assert "goes on in" in capsys.readouterr().err
    assert folder(run, "prepare").finished is not None


def test_an_error_leaves_a_run_that_goes_on(make, tmp_path, monkeypatch):
    whole, run = make(tmp_path / "whole"), make(tmp_path / "broken")
    prepare(whole)
    taken = 0

    def take(*arguments):
        nonlocal taken
        taken += 1
        if taken == 9:
            raise RuntimeError("the disk is full")
        real(*arguments)

    real = ingest._take
    with monkeypatch.context() as patch:
        patch.setattr(ingest, "_take", take)
        with pytest.raises(RuntimeError, match="the disk is full"):
            prepare(run)
    out = folder(run, "prepare")
    assert out.result.status == "failed"
    assert (out.path / STATE).exists()
    prepare(run)
    assert content(run) == content(whole)


@pytest.mark.parametrize("damage", ["empty", "garbage", "half", "flipped", "other"])
def test_a_damaged_state_is_told_in_a_line(make, tmp_path, damage):
    run = make(tmp_path)
    assert killed(run, 15)  # the first state has just been written
    path = folder(run, "prepare").path / STATE
    data = bytearray(path.read_bytes())
    if damage == "flipped":
        data[len(data) // 2] ^= 255
    elif damage == "other":
        with open(path, "wb") as file:
            np.savez(file, text=np.zeros(3, np.uint8))
        data = path.read_bytes()
    else:
        data = {"empty": b"", "garbage": b"garbage" * 50, "half": data[: len(data) // 2]}[damage]
    path.write_bytes(data)
    with pytest.raises(
        InputError, match=r"state\.npz is damaged .*remove it to start over"
    ) as told:
        prepare(run)
    assert "\n" not in str(told.value)
    path.unlink()
    prepare(run)
    assert folder(run, "prepare").manifest["kept"] == 120
