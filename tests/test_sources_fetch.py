"""What is named by address or month is fetched, checked, found again, and hashed once."""

import hashlib
import os
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from naming import data, games, made, refused

from chessrl import sources
from chessrl.config import DataConfig, InputError
from chessrl.downloads import download, read_note
from chessrl.sources import content_hash, month_address, resolve


@pytest.fixture
def site(home, monkeypatch):
    """A mirror of Lichess with two months, their checksums and puzzles; lists what it is asked."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    asked = []

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *_):
            asked.append(self.path)

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(home / "mirror")))
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    server.url = f"http://127.0.0.1:{server.server_port}"
    server.asked = asked
    months = made(*(f"mirror/standard/{name(month)}" for month in ("2013-01", "2013-02")))
    made("mirror/puzzles.csv.zst", "mirror/b.pgn", "mirror/c.pgn")
    publish(months)
    yield server
    server.shutdown()
    server.server_close()


def name(month: str) -> str:
    return month_address("x", month).rpartition("/")[2]


def publish(files: list[str]) -> None:
    lines = [f"{content_hash(file)}  {Path(file).name}" for file in files]
    Path("mirror/standard/sha256sums.txt").write_text("\n".join(lines) + "\n")


def test_months_lie_where_lichess_has_them():
    assert month_address("https://database.lichess.org/", "2013-01") == (
        "https://database.lichess.org/standard/lichess_db_standard_rated_2013-01.pgn.zst"
    )


def test_all_that_is_named_is_fetched_once_and_found_again(home, site):
    made("a.pgn", "g/z.pgn")
    given = data(
        f"{site.url}/c.pgn", "a.pgn", f"{site.url}/b.pgn", "g",
        months=["2013-02", "2013-01"], lichess=site.url,
        puzzles=f"{site.url}/puzzles.csv.zst", cache="~/cache",
    )  # fmt: skip
    assert f"{site.url}/puzzles.csv.zst is not in" in refused_data(given)
    assert site.asked == []
    found = resolve(given, fetch=True)
    cache = home / "cache"
    assert found.paths == [
        str(cache / "c.pgn"), "a.pgn", str(cache / "b.pgn"), "g/z.pgn",
        str(cache / name("2013-02")), str(cache / name("2013-01")),
    ]  # fmt: skip
    assert found.months == []
    assert found.puzzles == str(cache / "puzzles.csv.zst")
    assert Path(found.puzzles).read_text() == "mirror/puzzles.csv.zst"
    assert [Path(path).read_text() for path in found.paths[-2:]] == [
        f"mirror/standard/{name('2013-02')}",
        f"mirror/standard/{name('2013-01')}",
    ]
    assert len(site.asked) == 6  # five files and the list
    site.shutdown()
    assert resolve(given, fetch=True) == resolve(given, fetch=False) == found
    assert len(site.asked) == 6


def refused_data(given: DataConfig) -> str:
    with pytest.raises(InputError) as error:
        resolve(given, fetch=False)
    return str(error.value)


@pytest.mark.parametrize(
    ("paths", "settings"),
    [
        ([], {"months": ["2013-01"]}),
        (["a.pgn"], {"puzzles": "/puzzles.csv.zst"}),
        (["/b.pgn"], {}),
        (["a.pgn", "/b.pgn?x=*"], {}),
    ],
)
def test_what_is_not_there_yet_asks_for_make_data(home, site, paths, settings):
    made("a.pgn")
    paths = [site.url + path if path.startswith("/") else path for path in paths]
    if "puzzles" in settings:
        settings = {"puzzles": site.url + settings["puzzles"]}
    said = refused(*paths, lichess=site.url, **settings)
    assert site.url in said
    assert "`make data`" in said
    assert site.asked == []


def test_a_month_that_is_not_what_is_published_is_refused(home, site):
    text = Path("mirror/standard/sha256sums.txt").read_text()
    right = content_hash(f"mirror/standard/{name('2013-02')}")
    Path("mirror/standard/sha256sums.txt").write_text(text.replace(right, "0" * 64))
    months = {"months": ["2013-01", "2013-02"], "lichess": site.url}
    said = refused(**months, fetch=True)
    assert right in said
    assert "0" * 64 in said
    assert not Path("cache", name("2013-02")).exists()
    assert Path("cache", name("2013-01")).exists()
    publish([f"mirror/standard/{name('2013-02')}"])
    assert len(resolve(data(**months), fetch=True).paths) == 2


def test_a_mirror_without_a_list_is_used_and_told(home, site, capsys):
    Path("mirror/standard/sha256sums.txt").unlink()
    found = resolve(data(months=["2013-01"], lichess=site.url), fetch=True)
    assert Path(found.paths[0]).exists()
    assert "checksums" in capsys.readouterr().err


def test_a_month_that_the_list_lacks_is_used_and_told(home, site, capsys):
    publish([f"mirror/standard/{name('2013-02')}"])
    resolve(data(months=["2013-01", "2013-02"], lichess=site.url), fetch=True)
    lines = [line for line in capsys.readouterr().err.splitlines() if "unchecked" in line]
    assert len(lines) == 1
    assert "2013-01" in lines[0]


def test_a_month_that_is_not_out_yet_ends_in_one_line(home, site):
    said = refused(months=["2013-01", "2099-01"], lichess=site.url, fetch=True)
    assert "404" in said
    assert "2099-01" in said


@pytest.mark.parametrize(
    "settings", [{"puzzles": "no.csv"}, {"paths": ["no.pgn"]}, {"paths": ["no*.pgn"]}]
)
def test_a_wrong_path_is_told_before_anything_is_fetched(home, site, settings):
    paths = [f"{site.url}/b.pgn", *settings.pop("paths", [])]
    refused(*paths, months=["2013-01"], lichess=site.url, fetch=True, **settings)
    assert site.asked == []


@pytest.mark.parametrize("address", ["ftp://x.org/a.pgn", "file:///etc/passwd", "s3://b/a.pgn"])
@pytest.mark.parametrize("fetch", [True, False])
def test_only_http_is_an_address(home, address, fetch):
    made("a.pgn")
    for said in (
        refused(address, fetch=fetch),
        refused("a.pgn", puzzles=address, fetch=fetch),
        refused(months=["2013-01"], lichess=address, fetch=fetch),
    ):
        assert said.startswith(address)
        assert "only http" in said


def test_a_folder_that_holds_the_cache_takes_the_games_alone(home, site):
    given = data(months=["2013-01"], lichess=site.url, puzzles=f"{site.url}/puzzles.csv.zst")
    found = resolve(given, fetch=True)
    assert games("cache") == games("cache", *found.paths) == found.paths


@pytest.fixture
def large(home, site, monkeypatch):
    """A downloaded file over the size from which hashes are remembered; its note lies."""
    monkeypatch.setattr(sources, "REMEMBERED", 10)
    Path("mirror/b.pgn").write_bytes(b"x" * 11)
    path = download(f"{site.url}/b.pgn", home / "cache")
    lie(path)
    return path


def lie(path: Path) -> None:
    note = Path(f"{path}.json")
    note.write_text(note.read_text().replace(read_note(path).sha256, "remembered"))


def test_the_hash_of_a_large_download_is_remembered(home, large):
    assert content_hash(large) == content_hash(str(large)) == "remembered"
    Path("link.pgn").symlink_to(large)
    assert content_hash("link.pgn") == "remembered"


def test_the_size_from_which_hashes_are_remembered_is_as_documented(home, large, monkeypatch):
    monkeypatch.undo()
    assert sources.REMEMBERED == 64 * 2**20


@pytest.mark.parametrize("change", ["content", "time", "length", "small", "note", "moved"])
def test_a_hash_is_taken_anew_when_anything_is_different(home, large, monkeypatch, change):
    state = large.stat()
    if change == "content":
        large.write_bytes(b"y" * 11)
    elif change == "time":
        os.utime(large, ns=(state.st_atime_ns, state.st_mtime_ns + 1))
    elif change == "length":
        large.write_bytes(b"x" * 12)
        os.utime(large, ns=(state.st_atime_ns, state.st_mtime_ns))
    elif change == "small":
        monkeypatch.setattr(sources, "REMEMBERED", 11)
    elif change == "note":
        Path(f"{large}.json").write_text("{")
    elif change == "moved":
        large = large.rename(large.with_name("other.pgn"))
    assert content_hash(large) == hashlib.sha256(large.read_bytes()).hexdigest()


@pytest.mark.parametrize(
    ("option", "addresses"),
    [
        (["data=gnuchess"], ["https://ftp.gnu.org/gnu/chess/book_1.02.pgn.gz"]),
        (["data=puzzles"], ["https://database.lichess.org/lichess_db_puzzle.csv.zst"]),
        (
            ["data=lichess", "data.months=[2013-02,2013-01]"],
            [
                "https://database.lichess.org/lichess_db_puzzle.csv.zst",
                month_address("https://database.lichess.org", "2013-02"),
                month_address("https://database.lichess.org", "2013-01"),
            ],
        ),
    ],
)
def test_the_options_name_what_is_to_be_downloaded(
    option, addresses, configure, tmp_path, monkeypatch
):
    asked = []

    def downloaded(url: str, folder: Path, *_) -> Path:
        asked.append(url)
        path = folder / url.rpartition("/")[2]
        path.write_text(url)
        return path

    monkeypatch.setattr(sources, "download", downloaded)
    monkeypatch.setattr(sources, "checksums", lambda *_: None)
    given = configure(*option, f"data.cache={tmp_path}").data
    root = Path(__file__).parents[1]
    monkeypatch.chdir(root)
    found = resolve(given, fetch=True)
    assert asked == addresses
    assert len(found.paths) == max(1, len(given.months))


def test_the_months_of_lichess_are_filtered_as_in_the_study(configure):
    kept = configure("data=lichess", "data.months=[2013-01]").data.filter
    assert (kept.min_elo, kept.max_elo, kept.speeds) == (800, 3000, ["blitz", "rapid"])
    assert (kept.unfinished, kept.bots) == ("skip", "skip")


def test_months_have_to_be_given(configure):
    with pytest.raises(InputError, match=r"data\.(months|paths)"):
        configure("data=lichess")
