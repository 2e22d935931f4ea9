"""What was cut is gone on with, and never made of two versions of a file."""

import hashlib
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from webserver import BODY, HASH, OTHER, Answer, interrupted, names

from chessrl.artifacts import write_json
from chessrl.downloads import cache, download, finished, read_note

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("have", [1, 1000, len(BODY) // 2, len(BODY) - 1])
@pytest.mark.parametrize(
    ("validators", "condition"),
    [
        ({"ETag": '"one"'}, '"one"'),
        ({"Last-Modified": "Tue, 01 Jan 2013 00:00:00 GMT"}, "Tue, 01 Jan 2013 00:00:00 GMT"),
        ({"ETag": 'W/"one"', "Last-Modified": "yesterday"}, "yesterday"),
        ({"ETag": '"one"', "Last-Modified": "yesterday"}, '"one"'),
    ],
)
def test_only_the_rest_is_asked_for(site, tmp_path, have, validators, condition):
    site.validators = validators
    url = interrupted(site, tmp_path, have)
    assert download(url, tmp_path, HASH).read_bytes() == BODY
    assert site.asked == [("/games.pgn", f"bytes={have}-", condition)]
    assert names(tmp_path) == ["games.pgn", "games.pgn.json"]


def test_a_part_that_is_whole_needs_no_request(site, tmp_path):
    url = interrupted(site, tmp_path, len(BODY) - 1)
    with open(tmp_path / "games.pgn.part", "ab") as part:
        part.write(BODY[-1:])
    assert download(url, tmp_path, HASH).read_bytes() == BODY
    assert site.asked == []


def test_a_killed_process_is_gone_on_from(site, tmp_path):
    url = f"{site.url}/games.pgn"
    site.plan = [Answer(cut=270_000, stall=20)]
    code = "import sys; from pathlib import Path; from chessrl.downloads import download\n"
    code += "download(sys.argv[1], Path(sys.argv[2]))"
    process = subprocess.Popen([sys.executable, "-c", code, url, tmp_path], cwd=ROOT)
    part = tmp_path / "games.pgn.part"
    until = time.monotonic() + 60
    while not (part.exists() and part.stat().st_size):
        assert process.poll() is None
        assert time.monotonic() < until
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    have = part.stat().st_size
    assert 0 < have < len(BODY)
    assert names(tmp_path) == ["games.pgn.json", "games.pgn.part"]
    assert finished(url, tmp_path) is None
    site.asked.clear()
    assert download(url, tmp_path).read_bytes() == BODY  # nor is the lock of the dead held
    assert site.starts == [have]


@pytest.mark.parametrize("have", [1, 250_000, len(BODY) - 1])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"ETag": '"one"'}, {"ETag": '"two"'}),
        ({"Last-Modified": "yesterday"}, {"Last-Modified": "today"}),
        ({"ETag": 'W/"one"'}, {"ETag": 'W/"two"'}),
        ({"ETag": '"one"'}, {}),
        ({}, {}),
    ],
)
@pytest.mark.parametrize("if_range", [True, False])
def test_a_file_that_changed_starts_over(site, tmp_path, patience, have, before, after, if_range):
    site.validators = before
    url = interrupted(site, tmp_path, have)
    site.validators = after
    site.files["/games.pgn"] = OTHER
    site.plan = [Answer(if_range=if_range)]
    path = download(url, tmp_path, patience=patience)
    assert path.read_bytes() == OTHER
    assert read_note(path).sha256 == hashlib.sha256(OTHER).hexdigest()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"ETag": '"one"'}, {"ETag": '"two"'}),
        ({"Last-Modified": "yesterday"}, {"Last-Modified": "today"}),
        ({}, {}),
    ],
)
@pytest.mark.parametrize("if_range", [True, False])
def test_a_change_of_the_same_length_starts_over(site, tmp_path, patience, before, after, if_range):
    site.validators = before
    url = interrupted(site, tmp_path, 1000)
    site.files["/games.pgn"] = OTHER[: len(BODY)]
    site.validators = after
    site.plan = [Answer(if_range=if_range)]
    assert download(url, tmp_path, patience=patience).read_bytes() == OTHER[: len(BODY)]


def test_a_server_without_ranges_starts_over(site, tmp_path):
    url = interrupted(site, tmp_path, 1000)
    site.plan = [Answer(ranges=False)]
    assert download(url, tmp_path).read_bytes() == BODY
    assert len(site.asked) == 1


@pytest.mark.parametrize(
    "span",
    [
        "",
        "nonsense",
        "bytes 0-299999/300000",
        "bytes 999-299999/300000",
        "bytes 1000-299999/300001",
        "bytes 1000-299999/*",
        "bytes */300000",
    ],
)
def test_a_part_that_was_not_asked_for_is_not_used(site, tmp_path, patience, span):
    url = interrupted(site, tmp_path, 1000)
    site.plan = [Answer(content_range=span)]
    assert download(url, tmp_path, patience=patience).read_bytes() == BODY
    assert site.starts == [1000, 0]


def test_more_than_was_promised_is_not_used(site, tmp_path, patience):
    url = interrupted(site, tmp_path, 1000)
    site.plan = [Answer(extra=b"!")]
    assert download(url, tmp_path, patience=patience).read_bytes() == BODY


@pytest.mark.parametrize("rest", [OTHER, b"x" * (len(BODY) + 5)])
def test_a_part_nobody_knows_is_not_gone_on_with(site, tmp_path, rest):
    (tmp_path / "games.pgn.part").write_bytes(rest)
    assert download(f"{site.url}/games.pgn", tmp_path).read_bytes() == BODY
    assert site.starts == [0]


def test_a_part_that_is_too_long_starts_over(site, tmp_path):
    url = interrupted(site, tmp_path, 1000)
    (tmp_path / "games.pgn.part").write_bytes(OTHER)
    assert download(url, tmp_path).read_bytes() == BODY
    assert site.starts == [0]


@pytest.mark.parametrize("note", ["", "[]", "{", '{"url": "x", "colour": 1}', "{}"])
def test_a_damaged_note_costs_a_download_and_no_more(site, tmp_path, note):
    url = interrupted(site, tmp_path, 1000)
    (tmp_path / "games.pgn.json").write_text(note)
    assert download(url, tmp_path).read_bytes() == BODY
    assert site.starts == [0]


def test_a_kill_between_the_new_note_and_its_first_byte_mixes_nothing(site, tmp_path, monkeypatch):
    url = interrupted(site, tmp_path, 1000)
    site.files["/games.pgn"] = OTHER
    site.validators = {"ETag": '"two"'}
    with monkeypatch.context() as patch:

        def killed(path, value):
            write_json(path, value)
            raise KeyboardInterrupt

        patch.setattr(cache, "write_json", killed)
        with pytest.raises(KeyboardInterrupt):
            download(url, tmp_path)
    assert read_note(tmp_path / "games.pgn").etag == '"two"'
    assert download(url, tmp_path).read_bytes() == OTHER


def test_a_server_may_send_the_rest_in_pieces(site, tmp_path, patience):
    url = interrupted(site, tmp_path, 50_000)
    site.plan = [Answer(piece=50_000)] * 5
    assert download(url, tmp_path, HASH, patience).read_bytes() == BODY
    assert site.starts == [50_000, 100_000, 150_000, 200_000, 250_000]
