"""Reading PGN: what python-chess lets pass is refused, what it reads is read alike."""

import bz2
import gzip
import io
import itertools
import pickle
from collections import Counter
from pathlib import Path

import chess
import chess.pgn
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from chessrl.board.games import Game, SkipReport, parse_game, read_games, read_raw
from chessrl.board.headers import Header

STARTER = Path(__file__).parents[2] / "data/starter/games.pgn.bz2"
HEAD = '[Event "A"]\n[Result "*"]\n\n'
NEIGHBOUR = HEAD + "1. a3 a6 *\n\n"


def read(path: Path) -> tuple[list[str], list[tuple[str, str]], SkipReport]:
    """Moves of each game, (reason, token) of each skip; no game may vanish in between."""
    report = SkipReport()
    games = list(read_games(path, report))
    assert len(games) + report.counts.total() == sum(1 for _ in read_raw(path))
    skips = [(skip.reason, skip.token) for skip in report.records]
    return [" ".join(game.moves) for game in games], skips, report


@pytest.fixture
def read_text(tmp_path):
    def run(text: str | bytes):
        path = tmp_path / "games.pgn"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read(path)

    return run


@pytest.mark.parametrize(
    ("movetext", "reason", "token"),
    [
        ("1. d4 d5 2. Nf3 Nf6 3. Qd4 g6 4. g3", "illegal_move", "Qd4"),
        ("1. Nf3 d5 2. Nd4 e5 3. Nc3 a6 4. Nb5 Nf6", "illegal_move", "Nb5"),  # ambiguous
        ("1. e4 d5 2. e5 f5 3. exf6 a6 4. fxg7 a5 5. gxh8", "illegal_move", "gxh8"),
        ("1. c4 -- 2. g3 e5", "null_move", "--"),
        ("1. c4 Z0 2. g3 e5", "null_move", "Z0"),
        ("1. d4 d5 2. Lf4 Lf5", "malformed_token", "Lf4"),
        ("1. d4 d5 2. ♗f4", "malformed_token", "♗f4"),
        ("1. d4 d5 2. nf3", "malformed_token", "nf3"),
        ("1. d4 ) d5", "malformed_token", ")"),
        ("1. d4 d5 99999. c4", "malformed_token", "99999."),
        ("1. f3 e5 2. g4 Qh4# 3. a3 *", "moves_after_end", "a3"),
        ("1. d4 d5 1-0 2. c4", "text_after_result", "2."),
        ("1. d4 (1. e4 e5 d5 *", "unclosed_variation", "(1. e4 e5 d5 *"),
        ("1. d4 {so d5 *", "unclosed_comment", "{so d5 *"),
        ("*", "no_moves", ""),
        ("", "no_moves", ""),
    ],
)
def test_a_bad_game_is_skipped_with_its_reason_and_neighbours_stay(
    read_text, movetext, reason, token
):
    games, skips, _ = read_text(f"{NEIGHBOUR}{HEAD}{movetext}\n\n{NEIGHBOUR}")
    assert games == ["a2a3 a7a6", "a2a3 a7a6"]
    assert skips == [(reason, token)]


@pytest.mark.parametrize(
    ("tag", "reason"),
    [
        ('[Variant "Atomic"]', "variant"),
        ('[SetUp "1"]\n[FEN "4k3/8/8/8/8/8/4P3/4K3 w - - 0 1"]', "fen_start"),
        ('[White "A', "malformed_tag"),
    ],
)
def test_a_game_of_another_kind_is_skipped(read_text, tag, reason):
    games, skips, _ = read_text(f"{NEIGHBOUR}{tag}\n{HEAD}1. e4 e5 *\n\n{NEIGHBOUR}")
    assert games == ["a2a3 a7a6", "a2a3 a7a6"]
    assert [skip[0] for skip in skips] == [reason]


@pytest.mark.parametrize(
    "tag", ['[Variant "Standard"]', f'[FEN "{chess.STARTING_FEN}"]', '[White "A \\"B\\" C"]']
)
def test_a_tag_that_changes_nothing_does_not_cost_the_game(read_text, tag):
    assert read_text(f"{tag}\n{HEAD}1. e4 e5 *\n") == (["e2e4 e7e5"], [], SkipReport())


def test_the_record_names_the_place(read_text):
    *_, report = read_text(f"{NEIGHBOUR}{HEAD}1. d4 d5\n2. Nf3 Nf6\n3. Qd4 g6 *\n")
    (skip,) = report.records
    assert Path(skip.file).name == "games.pgn"
    # the neighbour has 5 lines, the head 3, and Qd4 stands on the third line after it
    assert (skip.index, skip.line, skip.reason, skip.token) == (1, 11, "illegal_move", "Qd4")
    assert report.counts == Counter(illegal_move=1)


@pytest.mark.parametrize(
    ("movetext", "moves"),
    [
        ("1.e4 e5 2.Nf3 Nc6 3.Bc4 Bc5 4.0-0", "e2e4 e7e5 g1f3 b8c6 f1c4 f8c5 e1g1"),
        ("1. e4! e5?! $14 2. Nf3!?", "e2e4 e7e5 g1f3"),
        ("1. e4 (1. d4 (1. c4 --) 1... Lf5) 1... e5", "e2e4 e7e5"),
        ("1. e4 {a ( ; b} e5 ; c } {\n2. Nf3", "e2e4 e7e5 g1f3"),
        ("1. e4\n% { escaped )\ne5", "e2e4 e7e5"),
        ('1. e4 {\n\n[Event "B"]\n\n1. d4 *\n\n} e5', "e2e4 e7e5"),
        ("1. e4 d5 2. e5 f5 3. exf6 e.p. a6 4. fxg7 a5 5. gxh8=Q",
         "e2e4 d7d5 e4e5 f7f5 e5f6 a7a6 f6g7 a6a5 g7h8q"),
        ("1. Pe2-e4 e7e5 2. Ng1f3+", "e2e4 e7e5 g1f3"),
        ("1. c4 c5\n\n2. d4 d5", "c2c4 c7c5 d2d4 d7d5"),  # one game, not two
        ("1. c4 c5 {\n\n} d4 {two\n\nparts} d5", "c2c4 c7c5 d2d4 d7d5"),
        ("1. c4 c5\n; so\nd4\n% so\nd5", "c2c4 c7c5 d2d4 d7d5"),
    ],
)  # fmt: skip
def test_what_pgn_allows_is_read(read_text, movetext, moves):
    assert read_text(f"{HEAD}{movetext} *\n\n{NEIGHBOUR}") == (
        [moves, "a2a3 a7a6"], [], SkipReport(),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "games", "reasons"),
    [
        ("1. d4 d5 *\n", [], ["no_headers"]),
        (f"{HEAD}1. c4 c5 *\n\n1. d4 d5 *\n", ["c2c4 c7c5"], ["no_headers"]),
        (f"{HEAD}1. c4 c5\n\n1. d4 d5 *\n", [], ["wrong_move_number"]),
        (f"{HEAD}1. c4 c5\n\nd4 d5 *\n", [], ["wrong_move_number"]),
        (f"{HEAD}1. c4 c5\n \t\n1. d4 d5 *\n", [], ["wrong_move_number"]),
        (f"{HEAD}1. c4 c5 ; {{\n\n; }}\n1. d4 d5 *\n", [], ["wrong_move_number"]),
    ],
)
def test_text_without_a_header_never_becomes_a_game(read_text, text, games, reasons):
    found, skips, _ = read_text(f"{text}\n{NEIGHBOUR}")
    assert found == [*games, "a2a3 a7a6"]
    assert [skip[0] for skip in skips] == reasons


def test_an_open_comment_costs_only_its_own_game(read_text):
    commented = HEAD + "1. h3 {fine} h6 *\n\n"
    games, skips, _ = read_text(f"{HEAD}1. d4 {{never closed\n\n{commented}{NEIGHBOUR}")
    assert games == ["h2h3 h7h6", "a2a3 a7a6"]
    assert skips == [("unclosed_comment", "{never closed")]


def test_headers_with_gaps_and_headers_alone(read_text):
    games, skips, _ = read_text(f'[Event "A"]\n\n\n[Site "B"]\n\n\n1. e4 *\n\n\n{HEAD}{NEIGHBOUR}')
    assert games == ["e2e4", "a2a3 a7a6"]
    assert [skip[0] for skip in skips] == ["no_moves"]


def test_encodings(read_text):
    windows = (NEIGHBOUR + NEIGHBOUR).replace("\n", "\r\n").encode("utf-8-sig")
    assert read_text(windows)[0] == ["a2a3 a7a6"] * 2
    latin = ('[White "Muñoz"]\n' + NEIGHBOUR).encode("latin-1")
    utf = ('[White "Muñoz"]\n' + NEIGHBOUR).encode()
    assert read_text(latin + utf)[0] == ["a2a3 a7a6"] * 2
    assert read_text(NEIGHBOUR.encode("utf-16"))[1] == [("undecodable", "")]


def test_tags_reach_the_game(tmp_path):
    path = tmp_path / "g.pgn"
    path.write_text(
        '[Date "1999.??.??"]\n[Result "1-0"]\n[WhiteElo "2650"]\n[BlackElo "?"]\n\n1. e4 1-0\n\n'
        '[UTCDate "2020.01.02"]\n[Result "?"]\n[WhiteElo "0"]\n\n1. d4 1/2-1/2\n'
    )
    first, second = read_games(path, SkipReport())
    header = Header(result="1-0", date="1999.??.??", white_elo=2650)
    assert first == Game(("e2e4",), "1-0", header, index=0, line=1)
    assert second == Game(("d2d4",), "1/2-1/2", Header(date="2020.01.02"), index=1, line=8)


def two_zstd_frames(data: bytes) -> bytes:
    """A skippable frame as in Lichess dumps, then two frames that cut a game in two."""
    compress = zstandard.ZstdCompressor().compress
    middle = len(data) // 2
    skippable = b"\x50\x2a\x4d\x18\x04\x00\x00\x00abcd"
    return skippable + compress(data[:middle]) + compress(data[middle:])


PACKERS = {"zst": two_zstd_frames, "gz": gzip.compress, "bz2": bz2.compress}


@pytest.mark.parametrize("suffix", PACKERS)
def test_compressed_files_and_cut_ones(tmp_path, suffix):
    games = [f"{HEAD}1. {a} {b} *\n\n" for a, b in itertools.product(WHITE, BLACK)] * 5
    data = PACKERS[suffix]("".join(games).encode())
    path = tmp_path / f"g.pgn.{suffix}"
    path.write_bytes(data)
    whole, skips, _ = read(path)
    assert len(whole) == 2000 and skips == []

    path.write_bytes(data[: len(data) * 4 // 5])
    cut, skips, _ = read(path)
    assert cut == whole[: len(cut)]
    assert skips == [("truncated_stream", "")]
    if suffix == "gz":  # the others come in blocks larger than this file
        assert len(cut) > 500
        path.write_bytes(data + b"junk after the end")
        assert read(path)[0] == whole


WHITE, BLACK = (
    [board.san(move) for move in board.legal_moves]
    for board in (
        chess.Board(),
        chess.Board("rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR b - - 0 1"),
    )
)


def test_a_wide_zstd_window_is_read(tmp_path):
    parameters = zstandard.ZstdCompressionParameters(window_log=27, enable_ldm=True)
    compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    path = tmp_path / "g.pgn.zst"
    path.write_bytes(compressor.compress(NEIGHBOUR.encode() * 10) + compressor.flush())
    assert len(read(path)[0]) == 10


def test_a_missing_file_is_named_at_once(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no such file: .*absent\.pgn"):
        read_games(tmp_path / "absent.pgn", SkipReport())


def test_raw_games_go_through_pickle(tmp_path):
    path = tmp_path / "g.pgn"
    path.write_text(NEIGHBOUR + HEAD + "1. Lf4 *")
    raws = list(read_raw(path))
    through = pickle.loads(
        pickle.dumps([parse_game(raw) for raw in pickle.loads(pickle.dumps(raws))])
    )
    assert through == [parse_game(raw) for raw in raws]


def test_python_chess_reads_the_starter_alike():
    ours = list(itertools.islice(read_games(STARTER, SkipReport()), 300))
    with bz2.open(STARTER, "rt") as file:
        for game in ours:
            oracle = chess.pgn.read_game(file)
            assert oracle.errors == []
            assert game.moves == tuple(move.uci() for move in oracle.mainline_moves())
            told = oracle.headers["Result"], oracle.headers["Date"]
            assert (game.result, game.header.date) == told


@st.composite
def legal_games(draw) -> list[chess.Move]:
    board = chess.Board()
    choices = draw(st.lists(st.integers(0, 999), min_size=1, max_size=60))
    for choice in choices:
        legal = list(board.legal_moves)
        if not legal:
            break
        board.push(legal[choice % len(legal)])
    return board.move_stack


@settings(max_examples=25, deadline=None)
@given(st.lists(legal_games(), min_size=1, max_size=3))
def test_random_legal_games_survive_writing_and_reading(tmp_path_factory, games):
    text = io.StringIO()
    for moves in games:
        game = chess.pgn.Game()
        game.add_line(moves, comment="a [%clk 0:01:00] comment; (with) {things", nags=[1])
        game.add_variation(chess.Move.from_uci("a2a3"))
        print(game, end="\n\n", file=text)
    path = tmp_path_factory.mktemp("written") / "g.pgn"
    path.write_text(text.getvalue())
    found, skips, _ = read(path)
    assert skips == []
    assert found == [" ".join(move.uci() for move in moves) for moves in games]
