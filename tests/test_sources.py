"""What a configuration names and which files it becomes, on this disk."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from naming import data, games, made, refused

from chessrl.config import InputError
from chessrl.sources import content_hash, expand, resolve

MISSING = "{}: no such file; mend data.paths, data.puzzles or checkpoint="


@pytest.mark.parametrize(
    "name",
    ["a.pgn", "a", "a b.pgn", "a[1].pgn", "a*.pgn", "what?.pgn", "[x]/[y].pgn.zst", "ä.pgn", "~a"],
)
def test_a_file_is_itself_whatever_its_name(home, name):
    made(name, "a1.pgn", "abc.pgn", "x/y.pgn.zst", "whats.pgn")
    assert games(name) == [name]
    assert games(str(home / name)) == [str(home / name)]
    assert resolve(data("a1.pgn", puzzles=name), fetch=False).puzzles == name


@pytest.mark.parametrize("name", ["g", "g h", "g[1]", "g*", "g/deep"])
def test_a_folder_gives_its_games_at_any_depth_in_order(home, name):
    made("g1/x.pgn", "gg/x.pgn")
    inside = made(
        f"{name}/a.PGN", f"{name}/b.pgn.bz2", f"{name}/b.pgn.gz", f"{name}/b/c.pgn",
        f"{name}/b/d/e.zst", f"{name}/c.pgn.zst", f"{name}/f.bz2", f"{name}/g.gz",
    )  # fmt: skip
    made(
        f"{name}/README", f"{name}/a.txt", f"{name}/a.pgn.json", f"{name}/a.pgn.part",
        f"{name}/puzzles.csv", f"{name}/puzzles.csv.zst", f"{name}/x.tar.gz", f"{name}/pgn",
        f"{name}/.a.pgn", f"{name}/.b/a.pgn",
    )  # fmt: skip
    assert games(name) == games(name + "/") == sorted(inside, key=lambda path: Path(path).parts)


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("g/*.pgn", ["g/a.pgn", "g/b.pgn"]),
        ("g/*", ["g/a.pgn", "g/b.pgn", "g/b.txt"]),
        ("g/?.pgn", ["g/a.pgn", "g/b.pgn"]),
        ("g/[b-z].pgn", ["g/b.pgn"]),
        ("g/**/*.pgn", ["g/a.pgn", "g/b.pgn", "g/d/c.pgn", "g/d/e/a.pgn"]),
        ("g/**", ["g/a.pgn", "g/b.pgn", "g/b.txt", "g/d/c.pgn", "g/d/e/a.pgn"]),
        ("**/a.pgn", ["g/a.pgn", "g/d/e/a.pgn"]),
        ("~/g/*.pgn", ["{home}/g/a.pgn", "{home}/g/b.pgn"]),
        ("{home}/g/d/*", ["{home}/g/d/c.pgn"]),
    ],
)
def test_a_glob_gives_what_it_matches_in_order(home, pattern, found):
    made("g/b.pgn", "g/a.pgn", "g/b.txt", "g/d/c.pgn", "g/d/e/a.pgn")
    made("g/a.pgn.json", "g/c.part", "g/.h.pgn")
    assert games(pattern.format(home=home)) == [path.format(home=home) for path in found]


def test_entries_keep_their_order(home):
    made("z.pgn", "g/b.pgn", "g/a.pgn", "a.pgn", "y1.pgn", "y2.pgn")
    assert games("z.pgn", "g", "a.pgn", "y*.pgn") == [
        "z.pgn", "g/a.pgn", "g/b.pgn", "a.pgn", "y1.pgn", "y2.pgn"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("paths", "found"),
    [
        (["a.pgn", "a.pgn"], ["a.pgn"]),
        (["a.pgn", "./a.pgn", "~/a.pgn", "{home}/a.pgn", "g/../a.pgn"], ["a.pgn"]),
        (["link.pgn", "a.pgn"], ["link.pgn"]),
        (["a.pgn", "link.pgn"], ["a.pgn"]),
        (["*.pgn"], ["a.pgn"]),
        (["g", "g/*", "g/b.pgn"], ["g/b.pgn"]),
        (["g/b.pgn", "h"], ["g/b.pgn"]),
        (["h", "g"], ["h/b.pgn"]),
        (["same.txt", "a.pgn"], ["same.txt"]),
        (["twin.txt", "a.pgn"], ["twin.txt", "a.pgn"]),
    ],
)
def test_a_file_named_twice_is_read_once(home, paths, found):
    made("a.pgn", "g/b.pgn")
    Path("link.pgn").symlink_to("a.pgn")
    Path("h").symlink_to("g")
    os.link("a.pgn", "same.txt")
    Path("twin.txt").write_text("a.pgn")  # another file, though its content is the same
    assert games(*(path.format(home=home) for path in paths)) == found


def test_links_to_folders_are_followed_and_end(home):
    made("far/x.pgn", "g/a.pgn", "g/d/b.pgn")
    Path("g/d/up").symlink_to(home / "g")
    Path("g/far").symlink_to(home / "far")
    assert games("g") == ["g/a.pgn", "g/d/b.pgn", "g/far/x.pgn"]


@pytest.mark.parametrize("path", ["a.pgn", "no/such/a.pgn", "~/a.pgn", "~nobody/a.pgn", "x" * 5000])
def test_a_missing_file_is_named(home, path):
    made("b.pgn")
    assert refused(path) == MISSING.format(path)
    assert refused("b.pgn", puzzles=path) == MISSING.format(path)
    with pytest.raises(InputError) as error:
        content_hash(path)
    assert str(error.value) == MISSING.format(path)


@pytest.mark.parametrize("path", ["", "a\0b"])
def test_what_is_no_name_is_no_file(home, path):
    made("b.pgn")
    assert refused(path) == MISSING.format(path)


@pytest.mark.parametrize("path", ["g", "g/gone.pgn", "g/*.pgn"])
def test_a_link_to_nowhere_is_not_passed_over(home, path):
    made("g/a.pgn")
    Path("g/gone.pgn").symlink_to("/no/such/file")
    assert refused(path) == MISSING.format("g/gone.pgn")


@pytest.mark.parametrize("path", ["empty", "g", "g/*.pgn", "b[1].pgn", "**/x.pgn", "~/g/*.zst"])
def test_nothing_found_ends_in_one_line(home, path):
    made("g/a.txt", "a.pgn")
    Path("empty").mkdir()
    said = refused("a.pgn", path)
    assert said.startswith(f"{path}: ")
    assert "mend data.paths" in said


def test_a_folder_is_no_puzzle_file(home):
    made("g/a.pgn")
    assert refused("g", puzzles="g").startswith("g: a folder")


def test_a_folder_that_cannot_be_read_is_not_passed_over(home, monkeypatch):
    made("g/a.pgn", "g/closed/b.pgn")
    scandir = os.scandir

    def closed(path):  # root, as whom tests may run, is kept out by no mode
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", closed)
    assert refused("g") == "g/closed: Permission denied; mend data.paths"


def test_expand_alone_says_the_same(home):
    made("a[1].pgn", "a1.pgn")
    assert expand("a[1].pgn") == [Path("a[1].pgn")]
    assert expand("a[1]*") == [Path("a1.pgn")]


def test_all_else_stays_as_it_was(home):
    made("a.pgn")
    given = data("a.pgn", "./a.pgn", validation=0.5, workers=3)
    before = replace(given, paths=list(given.paths))
    found = resolve(given, fetch=True)
    assert given == before
    assert found == replace(given, paths=["a.pgn"])
    assert resolve(found, fetch=False) == found
