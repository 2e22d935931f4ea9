"""Addresses: which are asked, where they may lead, and what their files are called."""

import pytest
from webserver import BODY, FOREVER, HASH, Answer, interrupted, names, refused

from chessrl.downloads import download, finished


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "ftp://127.0.0.1/games.pgn",
        "data:text/plain,games",
        "/etc/passwd",
        "games.pgn",
        "",
        "http:games.pgn",
        "http:///games.pgn",
        "https://",
        "http://[::1/games.pgn",
        "javascript:alert(1)",
    ],
)
def test_only_http_is_asked(tmp_path, url):
    folder = tmp_path / "cache"
    assert "http" in refused(url, folder)
    assert not folder.exists()


@pytest.mark.parametrize(
    "host", ["a b", "*.lichess.org", ".x", "a" * 70 + ".org", "127.0.0.1:99999", "127.0.0.1:x"]
)
def test_a_host_that_cannot_be_ends_at_once_in_one_line(tmp_path, patience, pauses, host):
    refused(f"http://{host}/games.pgn", tmp_path, None, patience)
    assert pauses == []


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_followed_with_its_range(site, tmp_path, status):
    url = interrupted(site, tmp_path, 1000)
    site.files["/there.pgn"] = BODY
    site.plan = [Answer(status=status, headers={"Location": f"{site.url}/there.pgn"})]
    assert download(url, tmp_path, HASH) == tmp_path / "games.pgn"
    assert [path for path, _, _ in site.asked] == ["/games.pgn", "/there.pgn"]
    assert site.starts == [1000, 1000]


@pytest.mark.parametrize(
    "target", ["file:///etc/passwd", "ftp://127.0.0.1/games.pgn", "data:,x", "/games.pgn"]
)
def test_a_redirect_elsewhere_or_in_circles_is_refused(site, tmp_path, pauses, patience, target):
    site.plan = [Answer(status=302, headers={"Location": target})] * FOREVER
    refused(f"{site.url}/games.pgn", tmp_path, None, patience)
    assert names(tmp_path) == []
    assert pauses == []


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/..%2f..%2f..%2fevil.pgn",
        "/a/%2e%2e",
        "/a/..%2F",
        "/a%5C..%5Cevil.pgn",
        "/%2Fetc%2Fpasswd",
        "/.hidden",
        "/...",
        "/nul%00.pgn",
        "/line%0Aend.pgn",
        "/a;rm%20-rf%20~.pgn",
        "/spaced%20name%20[1].pgn",
        "/%F0%9F%90%B4.pgn",
        "/" + "long" * 100 + ".pgn",
        "/note.pgn.json",
        "/half.part",
        "/get?file=../../x.pgn",
    ],
)
def test_every_name_is_a_plain_one_in_the_folder(site, tmp_path, path):
    folder = tmp_path / "deep" / "cache"
    site.other = BODY
    found = download(site.url + path, folder)
    assert found.parent == folder
    assert found.read_bytes() == BODY
    assert found.name.isprintable()
    assert not found.name.startswith(".")
    assert len(found.name) < 150
    assert finished(site.url + path, folder) == found
    assert len(names(folder)) == 2
    assert [p.name for p in tmp_path.rglob("*") if p.is_dir()] == ["deep", "cache"]


def test_a_name_stays_as_readable_as_it_was(site, tmp_path):
    site.other = BODY
    found = download(f"{site.url}/d/spaced%20name+(1)%20[a].pgn", tmp_path)
    assert found.name == "spaced name+(1) [a].pgn"
    found = download(f"{site.url}/d/games.pgn?month=1", tmp_path)
    assert found.name.endswith("-games.pgn")  # what the name alone says may be anything


def test_the_ending_of_a_long_name_stays(site, tmp_path):
    site.files["/" + "x" * 400 + ".pgn.zst"] = BODY
    assert download(f"{site.url}/{'x' * 400}.pgn.zst", tmp_path).name.endswith("x.pgn.zst")


def test_addresses_never_share_a_file(site, tmp_path):
    paths = [
        "/games.pgn", "/a/games.pgn", "/b/games.pgn", "/games.pgn.json", "/games.pgn.part",
        "/games.pgn?month=1", "/games.pgn?month=2", "/a%2Fgames.pgn",
    ]  # fmt: skip
    for number, path in enumerate(paths):
        site.files[path.partition("?")[0]] = b"%d" % number
    found, bodies = [], []
    for path in paths:
        bodies.append(site.files[path.partition("?")[0]])
        found.append(download(site.url + path, tmp_path))
    assert len(set(found)) == len(paths)
    assert [path.name for path in found].count("games.pgn") == 1
    assert [path.read_bytes() for path in found] == bodies
    asked = len(site.asked)
    assert [download(site.url + path, tmp_path) for path in paths] == found
    assert len(site.asked) == asked
