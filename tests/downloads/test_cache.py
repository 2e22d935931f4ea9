"""A download is whole, checked, used again, alone at its work, and honest about the disk."""

import hashlib
import json
import os
import resource
import shutil
import threading
from collections import namedtuple

import pytest
from webserver import BODY, HASH, OTHER, Answer, interrupted, names, refused

from chessrl import progress
from chessrl.config import InputError
from chessrl.downloads import Patience, download, finished


def test_a_file_comes_whole_with_a_note_and_nothing_else(site, tmp_path):
    folder = tmp_path / "new" / "cache"
    path = download(f"{site.url}/games.pgn#top", folder)
    assert path == folder / "games.pgn"
    assert path.read_bytes() == BODY
    assert names(folder) == ["games.pgn", "games.pgn.json"]
    assert json.loads((folder / "games.pgn.json").read_text()) == {
        "url": f"{site.url}/games.pgn",
        "bytes": len(BODY),
        "sha256": HASH,
        "mtime_ns": path.stat().st_mtime_ns,
        "etag": '"one"',
        "last_modified": "",
    }


@pytest.mark.parametrize("sha256", [None, HASH, HASH.upper()])
def test_a_finished_file_is_used_without_the_network(site, tmp_path, sha256):
    url = f"{site.url}/games.pgn"
    assert finished(url, tmp_path) is None
    path = download(url, tmp_path, sha256)
    for lock in tmp_path.glob(".*.lock"):
        lock.unlink()
    assert download(url, tmp_path, sha256) == finished(url, tmp_path) == path
    assert len(site.asked) == 1
    assert not list(tmp_path.glob(".*.lock"))  # so that a read-only cache will do


@pytest.mark.parametrize(
    "answer",
    [
        Answer(chunked=True),
        Answer(told=False),
        Answer(zips=True),
        Answer(status=200, headers={"Content-Encoding": "gzip"}),
        Answer(status=200, headers={"Content-Encoding": "x-gzip"}, chunked=True),
    ],
    ids=str,
)
def test_the_bytes_are_those_that_were_sent(site, tmp_path, answer):
    site.plan = [answer]
    assert download(f"{site.url}/games.pgn", tmp_path).read_bytes() == BODY
    assert len(site.asked) == 1


def test_an_empty_file_is_a_file(site, tmp_path):
    site.files["/none.pgn"] = b""
    path = download(f"{site.url}/none.pgn", tmp_path)
    assert path.read_bytes() == b""
    path.unlink()
    assert finished(f"{site.url}/none.pgn", tmp_path) is None


@pytest.mark.parametrize("have", [None, 1000])
def test_another_sha256_removes_what_came(site, tmp_path, have):
    url = f"{site.url}/games.pgn" if have is None else interrupted(site, tmp_path, have)
    wrong = "0" * 64
    said = refused(url, tmp_path, wrong)
    assert HASH in said
    assert wrong in said
    assert names(tmp_path) == []
    assert download(url, tmp_path, HASH).read_bytes() == BODY


def test_a_file_that_is_not_what_is_published_now_is_fetched_anew(site, tmp_path):
    url = f"{site.url}/games.pgn"
    download(url, tmp_path)
    site.files["/games.pgn"] = OTHER
    site.validators = {"ETag": '"two"'}
    path = download(url, tmp_path, hashlib.sha256(OTHER).hexdigest())
    assert path.read_bytes() == OTHER


@pytest.mark.parametrize("length", [0, 1, len(BODY) - 1, len(BODY) + 1])
def test_a_file_that_lost_its_length_is_fetched_anew(site, tmp_path, length):
    url = f"{site.url}/games.pgn"
    path = download(url, tmp_path)
    os.truncate(path, length)
    assert finished(url, tmp_path) is None
    assert download(url, tmp_path).read_bytes() == BODY


@pytest.mark.parametrize("part", [False, True])
def test_a_file_put_there_by_hand_is_taken_if_it_is_right(site, tmp_path, part):
    url = interrupted(site, tmp_path, 1000) if part else f"{site.url}/games.pgn"
    (tmp_path / "games.pgn").write_bytes(OTHER)
    assert "by hand" in refused(url, tmp_path, HASH)
    assert (tmp_path / "games.pgn").read_bytes() == OTHER  # not ours to remove
    (tmp_path / "games.pgn").write_bytes(BODY)
    assert finished(url, tmp_path) is None
    path = download(url, tmp_path, HASH)
    assert finished(url, tmp_path) == path
    assert names(tmp_path) == ["games.pgn", "games.pgn.json"]
    assert site.asked == []


def test_an_older_version_is_not_taken_for_the_one_that_is_on_its_way(site, tmp_path):
    url = f"{site.url}/games.pgn"
    download(url, tmp_path)
    site.files["/games.pgn"] = OTHER
    site.validators = {"ETag": '"two"'}
    site.plan = [Answer(cut=1000)]
    new = hashlib.sha256(OTHER).hexdigest()
    with pytest.raises(InputError):
        download(url, tmp_path, new, Patience(tries=1))
    assert finished(url, tmp_path) is None
    assert download(url, tmp_path, new).read_bytes() == OTHER
    assert site.starts == [0, 0, 1000]


def test_a_disk_that_is_too_small_is_told_before_the_first_byte(site, tmp_path, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**6, 0, len(BODY) - 1))
    with pytest.raises(InputError, match="make room") as error:
        download(f"{site.url}/games.pgn", tmp_path)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "games.pgn.part").exists()
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**6, 0, len(BODY)))
    assert download(f"{site.url}/games.pgn", tmp_path).read_bytes() == BODY


def test_a_disk_that_fills_up_ends_in_one_line_and_can_be_gone_on_from(
    site, tmp_path, patience, pauses
):
    url = f"{site.url}/games.pgn"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (280_000, hard))
    try:
        with pytest.raises(InputError, match="make room") as error:
            download(url, tmp_path, None, patience)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "\n" not in str(error.value)
    assert pauses == []
    have = (tmp_path / "games.pgn.part").stat().st_size
    assert have > 0
    site.asked.clear()
    assert download(url, tmp_path, HASH).read_bytes() == BODY
    assert site.starts == [have]


def test_a_cache_that_cannot_be_made_ends_in_one_line(site, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"data\.cache=") as error:
        download(f"{site.url}/games.pgn", tmp_path / "file" / "cache")
    assert str(tmp_path) in str(error.value)
    assert "\n" not in str(error.value)


def test_two_at_once_download_once(site, tmp_path):
    site.plan = [Answer(cut=1000, stall=0.5)]
    found = []
    url = f"{site.url}/games.pgn"
    threads = [
        threading.Thread(target=lambda: found.append(download(url, tmp_path))) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [tmp_path / "games.pgn"] * 3
    assert found[0].read_bytes() == BODY
    assert len(site.asked) == 1


def test_progress_is_told_in_megabytes_with_what_is_left(
    site, tmp_path, patience, monkeypatch, capsys
):
    monkeypatch.setattr(progress, "LINE_EVERY", 0.0)
    site.files["/games.pgn"] = os.urandom(3_500_000)
    site.plan = [Answer(cut=2_200_000)]
    download(f"{site.url}/games.pgn", tmp_path, None, patience)
    lines = [line for line in capsys.readouterr().err.splitlines() if "/3 MB" in line]
    assert [line.split("/")[0] for line in lines] == [f"games.pgn: {n}" for n in (1, 2, 3)]
    assert all("s to go" in line for line in lines)
