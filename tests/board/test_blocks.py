"""Blocks of a file hold the games that a reader of single lines finds, wherever they are cut."""

import bz2
import dataclasses
import gzip
import itertools
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import zstandard
from hypothesis import example, given, settings
from hypothesis import strategies as st
from oracle import HEAD, odd_texts

from chessrl.board import blocks, pgn
from chessrl.board.blocks import Block, PlainGame, games_of, read_blocks
from chessrl.board.games import parse_game, read_raw
from chessrl.board.headers import Header
from chessrl.board.pgn import RawGame, decode, tokenize


def found(path: Path) -> list[RawGame]:
    """Games of all blocks of a file, plain ones made raw again; their places counted over it."""
    games = []
    line = 0
    for block in read_blocks(path):
        assert block.line >= line
        line = block.line
        for place, game in enumerate(games_of(block)):
            assert game.index == place
            raw = game.raw(block.file) if isinstance(game, PlainGame) else game
            assert (raw.index, raw.line) == (game.index, game.line)
            games.append(dataclasses.replace(raw, index=len(games)))
            if isinstance(game, PlainGame):
                alike(game, raw)
    return games


def alike(game: PlainGame, raw: RawGame) -> None:
    """What is known of a plain game at once is what its text says."""
    assert game.header == Header.of(raw.tags())
    told = [token for token in tokenize(decode(raw.movetext)) if token.kind != "number"]
    told_at_once = [token for token in tokenize(game.movetext) if token.kind != "number"]
    assert [token[:2] for token in told] == [token[:2] for token in told_at_once]
    assert {token.kind for token in told[:-1]} <= {"san", "castling"}
    assert told[-1][:2] == ("result", game.result)
    assert b"\0" not in game.text
    reason = getattr(parse_game(raw), "reason", "")
    assert reason in (
        "",
        "variant",
        "fen_start",
        "bot",
        "illegal_move",
        "moves_after_end",
        "no_moves",
    )


@pytest.fixture(scope="module")
def file(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("blocks") / "games.pgn"


@settings(max_examples=300)
@given(
    text=odd_texts(),
    size=st.sampled_from((1, 60, 400)),
    reach=st.sampled_from((1, 200, 10**6)),
    longest=st.sampled_from((30, 150, 10**6)),
    lookahead=st.sampled_from((20, 10**5)),
)
@example((HEAD + "1. d4 d5 1-0\n\n{resigns}\n").encode(), 1, 10**6, 10**6, 10**5)
@example(b'[Event "A"]\n[Event "B"]\n\n1. d4 d5 *\n', 1, 10**6, 10**6, 10**5)
@example((HEAD + '1. d4 {\n [Event "B"]\n' + "x\n" * 20 + "} *\n").encode(), 1, 10**6, 10**6, 20)
@example(b'{[Event "A"]\n[Result "*"]\n\n1. a3 *\n\n[Event "B"]\n\n1. a3 *\n', 1, 1, 30, 20)
def test_blocks_hold_the_games_that_single_lines_give(file, text, size, reach, longest, lookahead):
    file.write_bytes(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "SIZE", size)
        patch.setattr(blocks, "REACH", reach)
        patch.setattr(blocks, "MAX_GAME", longest)
        patch.setattr(pgn, "MAX_GAME", longest)
        patch.setattr(pgn, "_LOOKAHEAD", lookahead)
        assert found(file) == list(read_raw(file))


@dataclasses.dataclass
class Pieces:
    """A stream that arrives in pieces of given lengths, over and over."""

    data: bytes
    lengths: list[int]
    position: int = 0

    def __iter__(self):
        return self

    def __next__(self) -> bytes:
        if self.position >= len(self.data):
            raise StopIteration
        length = next(self._turn)
        self.position += length
        return self.data[self.position - length : self.position]

    def __post_init__(self):
        self._turn = itertools.cycle(self.lengths)


@settings(max_examples=100)
@given(
    text=odd_texts(),
    lengths=st.lists(st.integers(1, 500), min_size=1, max_size=5),
    size=st.sampled_from((3, 60, 400)),  # at least a byte order mark
    reach=st.sampled_from((60, 400, 10**6)),
)
@example((HEAD + "1. d4 {a\rb\r\n} d5 *\n\n").encode(), [1, 2, 4], 3, 10**6)
def test_chunks_of_any_length_give_the_same_blocks(file, text, lengths, size, reach):
    seen = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "SIZE", size)
        patch.setattr(blocks, "REACH", reach)
        patch.setattr(blocks, "_TAG_NAME", 20)
        for some in (lengths, [1], [10**6]):
            patch.setattr(blocks, "open_chunks", lambda _, some=some: Pieces(text, some))
            seen.append([dataclasses.replace(b, position=0) for b in read_blocks(file)])
    assert seen[0] == seen[1] == seen[2]


def frames(data: bytes) -> bytes:
    """A skippable frame, two frames cut in the middle of a game, blocks of few games."""
    parameters = zstandard.ZstdCompressionParameters(window_log=27, enable_ldm=True)
    packed = b"\x50\x2a\x4d\x18\x04\x00\x00\x00abcd"
    for part in (data[: len(data) // 3 + 5], data[len(data) // 3 + 5 :]):
        writer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
        for at in range(0, len(part), 1000):
            packed += writer.compress(part[at : at + 1000])
            packed += writer.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
        packed += writer.flush()
    return packed


PACKERS = {"pgn": bytes, "zst": frames, "gz": gzip.compress, "bz2": lambda d: bz2.compress(d, 1)}
NUMBERED = "".join(
    f'[Event "{n}"]\n[Result "*"]\n\n1. {"Nf3 Nf6 2. Ng1 Ng8 3." * (n % 7)} a3 *\n\n'
    for n in range(2000)
).encode()


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(blocks, "SIZE", 5000)


@pytest.mark.parametrize("suffix", PACKERS)
def test_the_container_changes_nothing(small, tmp_path, suffix):
    (tmp_path / "plain").write_bytes(NUMBERED)
    (tmp_path / "packed").write_bytes(PACKERS[suffix](NUMBERED))
    packed, plain = (list(read_blocks(tmp_path / name)) for name in ("packed", "plain"))
    assert b"".join(block.text for block in packed) == NUMBERED
    assert [(b.line, b.text) for b in packed] == [(b.line, b.text) for b in plain]
    assert len(packed) == pytest.approx(len(NUMBERED) / 5000, rel=0.1)
    assert packed[-1].position == (tmp_path / "packed").stat().st_size
    places = [block.position for block in packed]
    assert places == sorted(places) and places[0] > 0


def names(path: Path) -> Iterator[tuple[str, str, int]]:
    """First line, fault and place of each game."""
    for block in read_blocks(path):
        for game in games_of(block):
            plain = isinstance(game, PlainGame)
            first = (game.text if plain else game.header).split(b"\n")[0].decode()
            yield first, "" if plain else game.fault, game.line


def known(data: bytes, suffix: str) -> bytes:
    """What can be had of a cut file, by another way than the reader's."""
    if suffix == "gz":
        return zlib.decompressobj(31).decompress(data)
    if suffix == "bz2":
        return bz2.BZ2Decompressor().decompress(data)
    text, rest = b"", data[12:]
    while rest:
        frame = zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj()
        text += frame.decompress(rest)
        rest = frame.unused_data
    return text


@pytest.mark.parametrize("suffix", ["zst", "gz", "bz2"])
def test_a_cut_file_gives_all_before_the_cut_and_one_skip(small, tmp_path, suffix):
    whole = PACKERS[suffix](NUMBERED)
    path = tmp_path / "cut.pgn"
    cuts = [20, 100, len(whole) - 20, len(whole) - 1, *range(500, len(whole), len(whole) // 9)]
    counts = set()
    for cut in cuts:
        path.write_bytes(whole[:cut])
        text = known(whole[:cut], suffix)
        games = list(names(path))
        done = text[: text.rfind(b"\n") + 1].count(b"*\n\n")
        counts.add(done)
        assert [name for name, _, _ in games[:-1]] == [f'[Event "{n}"]' for n in range(done)]
        assert [fault for _, fault, _ in games] == [""] * done + ["truncated_stream"]
        assert games[-1][2] - done * 5 in (0, 1)  # the blank line before it, or its own first
    assert len(counts) > 3


@pytest.mark.parametrize("suffix", ["zst", "gz", "bz2"])
def test_a_damaged_file_is_told_once(small, tmp_path, suffix):
    whole = bytearray(PACKERS[suffix](NUMBERED))
    whole[len(whole) * 2 // 3 : len(whole) * 2 // 3 + 40] = b"\xff" * 40
    (tmp_path / "damaged.pgn").write_bytes(whole)
    faults = [fault for _, fault, _ in names(tmp_path / "damaged.pgn")]
    assert len(faults) > 100
    assert faults == [""] * (len(faults) - 1) + ["broken_stream"]


def test_a_break_far_from_a_sure_start_is_told_once(monkeypatch, tmp_path):
    monkeypatch.setattr(blocks, "SIZE", 50)
    monkeypatch.setattr(blocks, "REACH", 400)
    monkeypatch.setattr(blocks, "_TAG_NAME", 50)
    text = (HEAD + "1. d4 d5 1-0 {no sure start}\n") * 500  # none of the results ends its line
    packed = gzip.compress(text.encode())
    (tmp_path / "cut.pgn").write_bytes(packed[: len(packed) * 2 // 3])
    games = found(tmp_path / "cut.pgn")
    assert len(games) > 100
    assert [game.fault for game in games] == [""] * (len(games) - 1) + ["truncated_stream"]


def test_lines_and_places_are_those_of_the_file(small, tmp_path):
    (tmp_path / "games.pgn").write_bytes(b"\n\n" + NUMBERED)
    games = found(tmp_path / "games.pgn")
    assert [(game.index, game.line, game.movetext_line) for game in games] == [
        (n, 5 * n + 3, 5 * n + 6) for n in range(2000)
    ]


def test_ordinary_games_are_plain():
    movetexts = (
        "1. e4 e5 2. Nf3 *",
        "1.e4 e5 2.Nf3 1-0",
        "1. e4! { [%eval 0.2] [%clk 0:10:00] } 1... e5?! { [%eval 0.3] } 2. Nf3 $1 $14 1/2-1/2",
        "1. e4 {\n[%clk 0:01:00]\n\n} e5 0-1",
        "1. e4\ne5 2.\nNbd7 R1xa3+ Qa1xb2# exd8=Q+ O-O-O e8=N *",
    )
    text = "".join(f'[Event "x"]\n[Site "é"]\n\n{movetext}\n\n' for movetext in movetexts)
    games = list(games_of(Block("f", 0, text.encode())))
    assert [type(game) for game in games] == [PlainGame] * 5
