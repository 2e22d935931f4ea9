"""Which failures are asked about again, how often, and when it ends; the list of checksums."""

from http.server import ThreadingHTTPServer
from itertools import pairwise

import pytest
from webserver import BODY, FOREVER, HASH, Answer, Handler, interrupted, names, refused

from chessrl.config import InputError
from chessrl.downloads import Patience, checksums, download


@pytest.mark.parametrize("chunked", [False, True])
def test_cuts_without_end_do_no_harm_while_bytes_come(site, tmp_path, patience, chunked):
    cut = 20_000
    site.plan = [Answer(cut=cut, chunked=chunked) for _ in range(len(BODY) // cut - 1)]
    assert download(f"{site.url}/games.pgn", tmp_path, HASH, patience).read_bytes() == BODY
    assert site.starts == list(range(0, len(BODY), cut))
    assert len(site.asked) > 2 * patience.tries


def test_silence_is_a_cut(site, tmp_path, pauses):
    site.plan = [Answer(cut=270_000, stall=2), Answer(cut=0, stall=2)]
    patience = Patience(tries=3, read=0.5, sleep=pauses.append)
    assert download(f"{site.url}/games.pgn", tmp_path, HASH, patience).read_bytes() == BODY
    assert site.starts[0] == 0
    assert 0 < site.starts[1] == site.starts[2]


@pytest.mark.parametrize(
    "answer",
    [
        Answer(cut=0),
        Answer(cut=9000, ranges=False),
        Answer(cut=9000, chunked=True, ranges=False),
        Answer(status=503),
        Answer(cut=10, content_range="bytes 5-10/11"),
        Answer(status=206),
        Answer(status=206, headers={"Content-Range": "bytes 0-299999/300000"}),
        Answer(status=416),
        Answer(status=204),
    ],
    ids=str,
)
def test_a_server_that_never_gets_further_is_given_up(site, tmp_path, patience, pauses, answer):
    site.plan = [answer] * FOREVER
    said = refused(f"{site.url}/games.pgn", tmp_path, None, patience)
    assert f"{patience.tries} times in a row" in said
    assert "again" in said
    assert len(site.asked) in (patience.tries, patience.tries + 1)
    assert not (tmp_path / "games.pgn").exists()


def test_a_server_with_another_version_each_time_is_given_up(site, tmp_path, patience):
    site.plan = [Answer(cut=9000, headers={"ETag": f'"{n}"'}) for n in range(FOREVER)]
    refused(f"{site.url}/games.pgn", tmp_path, None, patience)
    assert len(site.asked) == patience.tries


def test_pauses_double_up_to_a_bound(site, tmp_path, pauses):
    site.plan = [Answer(status=500)] * FOREVER
    patience = Patience(tries=7, first=2, longest=20, sleep=pauses.append)
    refused(f"{site.url}/games.pgn", tmp_path, None, patience)
    assert pauses == [2, 4, 8, 16, 20, 20]


def test_pauses_begin_anew_after_progress(site, tmp_path, pauses):
    plan = [Answer(cut=0), Answer(cut=0), Answer(cut=100), Answer(cut=0)]
    site.plan = plan
    download(f"{site.url}/games.pgn", tmp_path, HASH, Patience(sleep=pauses.append))
    assert pauses == [1, 2, 1, 2]


@pytest.mark.parametrize(
    ("wanted", "pause"), [("7", 7), ("0", 1), ("99999999", 600), ("soon", 1), ("-5", 1)]
)
def test_a_server_may_ask_for_a_longer_pause(site, tmp_path, patience, pauses, wanted, pause):
    site.plan = [Answer(status=429, headers={"Retry-After": wanted})]
    download(f"{site.url}/games.pgn", tmp_path, HASH, patience)
    assert pauses == [pause]


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504, 599])
def test_what_may_pass_is_asked_again(site, tmp_path, patience, status):
    site.plan = [Answer(status=status), Answer(cut=100), Answer(status=status)]
    assert download(f"{site.url}/games.pgn", tmp_path, HASH, patience).read_bytes() == BODY
    assert site.starts == [0, 0, 100, 100]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 451, 304])
def test_what_stays_ends_at_once(site, tmp_path, patience, pauses, status):
    url = interrupted(site, tmp_path, 1000)
    site.plan = [Answer(status=status)]
    said = refused(url, tmp_path, None, patience)
    assert str(status) in said
    assert "mend" in said
    assert len(site.asked) == 1
    assert pauses == []
    assert "games.pgn.part" in names(tmp_path)  # an expired leave is no reason to lose it


def test_no_server_is_asked_again_and_given_up(tmp_path, patience, pauses, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.server_close()
    said = refused(f"http://127.0.0.1:{server.server_port}/games.pgn", tmp_path, None, patience)
    assert "no answer" in said
    assert len(pauses) == patience.tries - 1


def test_pauses_are_sane():
    waits = [Patience().pause(failures, 0) for failures in range(1, 6)]
    assert waits[0] <= 2
    assert all(a < b for a, b in pairwise(waits))
    assert sum(waits) < 120


@pytest.mark.parametrize("base", ["", "/mirror", "/mirror/"])
def test_the_published_checksums_are_read(site, patience, base):
    text = f"{HASH}  a.pgn.zst\n{HASH.upper()} *b.pgn.zst\r\n\nno line\n{HASH[1:]}  c.pgn.zst\n"
    path = f"{base.rstrip('/')}/standard/sha256sums.txt"
    site.files[path] = text.encode()
    site.plan = [Answer(status=503), Answer(cut=30), Answer(cut=30, chunked=True)]
    assert checksums(site.url + base, patience) == {"a.pgn.zst": HASH, "b.pgn.zst": HASH}
    assert site.asked == [(path, "", "")] * 4


@pytest.mark.parametrize("body", [None, b"", b"<html>nothing here</html>", b"\xff\xfe\x00"])
def test_no_list_is_told_in_one_line(site, patience, capsys, body):
    if body is not None:
        site.files["/standard/sha256sums.txt"] = body
    assert checksums(site.url, patience) is None
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert "checksums" in lines[0]


def test_a_list_that_cannot_be_had_is_no_absent_list(site, patience):
    site.plan = [Answer(status=500)] * FOREVER
    with pytest.raises(InputError, match="500"):
        checksums(site.url, patience)
