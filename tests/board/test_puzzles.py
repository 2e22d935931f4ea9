"""Puzzles: the convention, the bins, and every row either sound or counted."""

import bz2
import gzip
from collections import Counter
from pathlib import Path

import chess
import pytest
import zstandard

from chessrl.board.puzzles import Puzzle, read_puzzles, validate, write_puzzles
from chessrl.board.skips import SkipReport

HEADER = "PuzzleId,FEN,Moves,Rating,RatingDeviation,Popularity,NbPlays,Themes,GameUrl,OpeningTags\n"
CASTLE = "4k2r/8/8/8/8/8/6K1/R7 w k - 0 1"
CASTLE_ROW = f"cast,{CASTLE},a1a7 e8g8 a7a1 f8a8,1500,80,95,100,castling short,https://l.org/a#2,"


def puzzle(**changes) -> Puzzle:
    values = {"id": "p", "fen": CASTLE, "moves": ("a1a7", "e8g8", "a7a1", "f8a8"), "rating": 1500}
    return Puzzle(**(values | changes))


@pytest.fixture
def read(tmp_path):
    def run(text: str | bytes) -> tuple[list[Puzzle], SkipReport]:
        path = tmp_path / "puzzles.csv"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        report = SkipReport()
        return read_puzzles(path, report), report

    return run


def test_the_opponent_moves_first():
    taken = puzzle()
    assert taken.solver_moves == ("e8g8", "f8a8")
    assert taken.replies == ("a7a1",)
    board = taken.board()
    assert board.turn == chess.BLACK
    assert board.piece_at(chess.A7) == chess.Piece(chess.ROOK, chess.WHITE)
    assert validate(taken) is None


def test_no_solver_move_is_refused():
    with pytest.raises(ValueError, match="puzzle p has no solver move"):
        puzzle(moves=("a1a7",))


@pytest.mark.parametrize(
    ("rating", "name"),
    [(399, "B0"), (800, "B0"), (801, "B1"), (1200, "B1"), (1201, "B2"), (1600, "B2"),
     (1601, "B3"), (2000, "B3"), (2001, "B4"), (2400, "B4"), (2401, "B5"), (3200, "B5")],
)  # fmt: skip
def test_bins_are_open_below_and_closed_above(rating, name):
    assert puzzle(rating=rating).bin == name


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"fen": "no board"}, "bad_fen"),
        ({"fen": "4k3/8/8/8/8/8/8/8 w - - 0 1"}, "illegal_position"),
        ({"fen": "4k3/8/8/8/8/8/4R3/4K3 w - - 0 1"}, "illegal_position"),  # Black left in check
        ({"moves": ("a1a7", "e8c8")}, "illegal_move"),
        ({"moves": ("a1a7", "e1g1")}, "illegal_move"),  # White's castling
        ({"moves": ("a1a7", "e8h8")}, "illegal_move"),  # legal, but not spelt as UCI spells it
        ({"moves": ("a1a7", "0000")}, "illegal_move"),
        ({"moves": ("a1a7", "castles")}, "illegal_move"),
        ({"history": ("e2e4", "e7e5")}, "history_mismatch"),
    ],
)
def test_an_unsound_puzzle_has_a_reason(changes, reason):
    assert validate(puzzle(**changes)) == reason


def test_history_has_to_lead_to_the_position():
    fen = "rnbqkbnr/pppp1ppp/8/4p3/6P1/5P2/PPPPP2P/RNBQKBNR b KQkq - 0 2"
    mate = {"fen": fen, "moves": ("d8h4", "e1f2")}
    assert validate(puzzle(**mate, history=("f2f3", "e7e5", "g2g4"))) == "illegal_move"  # mate
    line = {"fen": fen, "moves": ("a7a6", "a2a3")}
    assert validate(puzzle(**line, history=("f2f3", "e7e5", "g2g4"))) is None
    longer = ("g1h3", "e7e5", "h3g1", "e5e4", "f2f3", "e4e5")
    assert validate(puzzle(**line, history=longer)) == "history_mismatch"
    # the same position two moves later: the clock of the FEN tells them apart
    shuffled = ("f2f3", "g8f6", "g2g4", "f6g8", "g1h3", "e7e5", "h3g1")
    assert validate(puzzle(**line, history=shuffled)) == "history_mismatch"


def test_a_move_is_taken_where_python_chess_calls_it_legal_and_nowhere_else(positions):
    for board in positions[::30]:
        legal = {move.uci() for move in board.legal_moves}
        origins = chess.SquareSet(board.occupied_co[board.turn])
        targets = [chess.square_name(square) for square in chess.SQUARES]
        spelt = {chess.square_name(origin) + target for origin in origins for target in targets}
        spelt |= {move + "q" for move in spelt if move[3] in "18"} | legal
        for uci in spelt:
            after = board.copy(stack=False)
            if uci in legal:
                after.push_uci(uci)
            answers = [move.uci() for move in after.legal_moves] or ["none"]
            reason = validate(puzzle(fen=board.fen(), moves=(uci, answers[0])))
            sound = uci in legal and answers != ["none"]
            assert reason == (None if sound else "illegal_move"), (board.fen(), uci)


def test_columns_reach_the_puzzle(read):
    (taken,), report = read(HEADER + CASTLE_ROW + "\n")
    assert taken == puzzle(
        id="cast", themes=("castling", "short"), popularity=95, game="https://l.org/a#2"
    )
    assert report.counts == {}


def test_columns_may_be_absent_reordered_or_empty(read):
    (taken,), _ = read(f"Rating,Moves,FEN,PuzzleId\r\n1500,a1a7 e8g8,{CASTLE},x\r\n")
    assert taken == puzzle(id="x", moves=("a1a7", "e8g8"))
    (taken,), _ = read(f"{HEADER}x,{CASTLE},a1a7 e8g8,1500,,,,,,\n")
    assert taken == puzzle(id="x", moves=("a1a7", "e8g8"))


FOOLS = "rnbqkbnr/pppp1ppp/8/4p3/6P1/5P2/PPPPP2P/RNBQKBNR b KQkq - 0 2"


def test_the_history_column_may_be_filled_empty_or_absent(read):
    header = HEADER.rstrip() + ",History\n"
    row = f"h,{FOOLS},a7a6 a2a3,900,,,,,,,"
    (taken,), _ = read(header + row + "f2f3 e7e5 g2g4\n")
    assert taken.history == ("f2f3", "e7e5", "g2g4")
    (taken,), _ = read(header + row + "\n")
    assert taken.history is None
    (taken,), _ = read(HEADER + row[:-1] + "\n")
    assert taken.history is None
    taken, report = read(header + row + "f2f3 e7e5\n")
    assert (taken, report.counts) == ([], Counter(history_mismatch=1))


def test_what_is_written_is_read_back(tmp_path):
    written = [
        puzzle(id="bare"),
        puzzle(id="full", themes=("mate", "short"), popularity=-7, game="https://l.org/a#2"),
        puzzle(id='comma, and "quotes"', popularity=0, rating=0),
        puzzle(id="h", fen=FOOLS, moves=("a7a6", "a2a3"), history=("f2f3", "e7e5", "g2g4")),
        puzzle(id="é"),
    ]
    report = SkipReport()
    write_puzzles(tmp_path / "new" / "puzzles.csv", iter(written))
    assert read_puzzles(tmp_path / "new" / "puzzles.csv", report) == written
    assert report.counts == {}
    lines = (tmp_path / "new" / "puzzles.csv").read_text().splitlines()
    assert lines[0] + "\n" == HEADER.rstrip() + ",History\n"
    assert lines[4] == f"h,{FOOLS},a7a6 a2a3,1500,,,,,,,f2f3 e7e5 g2g4"
    write_puzzles(tmp_path / "new" / "puzzles.csv", [])  # in the place of the old file
    assert read_puzzles(tmp_path / "new" / "puzzles.csv", report) == []


def test_the_starter_puzzles_survive_writing(tmp_path):
    starter = Path(__file__).parents[2] / "data" / "starter" / "puzzles.csv"
    head = starter.read_text().splitlines(keepends=True)[:201]
    (tmp_path / "head.csv").write_text("".join(head))
    puzzles = read_puzzles(tmp_path / "head.csv", SkipReport())
    assert len(puzzles) == 200
    write_puzzles(tmp_path / "copy.csv", puzzles)
    assert read_puzzles(tmp_path / "copy.csv", SkipReport()) == puzzles


def test_every_row_is_taken_or_counted(read):
    rows = [
        CASTLE_ROW,
        f"x1,{CASTLE},a1a7,1500,,,,,,",
        f"x2,{CASTLE},a1a7 e8c8,1500,,,,,,",
        f"x3,{CASTLE},a1a7 e8g8,{'9' * 5000},,,,,,",
        f"x4,{CASTLE},a1a7 e8g8,1500",
        f'x5,{CASTLE},"a1a7 e8g8,1500,,,,,,',
        "x6,4k3/8/8/8/8/8/8/8 w - - 0 1,a1a7 e8g8,1500,,,,,,",
        CASTLE_ROW,
        "",
        f"x7,{CASTLE},a1a7 e8g8,1500,,most,,,,",
        f"x8,{CASTLE},a1a7 e8g8,1500,,-7,,,,",
    ]
    taken, report = read(HEADER + "\n".join(rows) + "\n")
    assert [(item.id, item.popularity) for item in taken] == [("cast", 95), ("x8", -7)]
    # line 1 is the header; the blank line is line 10 and no row
    assert [(skip.index, skip.line, skip.reason) for skip in report.records] == [
        (1, 3, "no_solver_move"),
        (2, 4, "illegal_move"),
        (3, 5, "bad_rating"),
        (4, 6, "broken_row"),
        (5, 7, "broken_row"),
        (6, 8, "illegal_position"),
        (7, 9, "duplicate_id"),
        (8, 11, "bad_popularity"),
    ]


def test_workers_change_nothing(tmp_path):
    rows = [f"{i % 700:03},{CASTLE},a1a7 e8{'gc'[i % 9 == 0]}8,{i}" for i in range(1000)]
    text = "PuzzleId,FEN,Moves,Rating\n" + "\n".join(rows)
    (tmp_path / "p.csv.gz").write_bytes(gzip.compress(text.encode())[:-9])  # the end is missing
    results = []
    for workers in (1, 2):
        report = SkipReport()
        results.append((read_puzzles(tmp_path / "p.csv.gz", report, workers), report))
    assert results[0] == results[1]
    assert set(results[0][1].counts) == {"illegal_move", "duplicate_id", "truncated_stream"}


def test_bytes_that_do_not_decode_are_counted(read):
    taken, report = read(HEADER.encode() + b"x\xff,a,b c,1,,,,,,\n" + CASTLE_ROW.encode())
    assert [item.id for item in taken] == ["cast"]
    assert report.counts == Counter(undecodable=1)


def test_a_file_without_header_is_refused_in_one_line(read):
    for text in (CASTLE_ROW + "\n", ""):
        with pytest.raises(ValueError, match=r"puzzles\.csv: .* lacks PuzzleId") as refusal:
            read(text)
        assert "\n" not in str(refusal.value)


def two_zstd_frames(data: bytes) -> bytes:
    return zstandard.compress(data[:30_000]) + zstandard.compress(data[30_000:])


@pytest.mark.parametrize("pack", [bz2.compress, gzip.compress, two_zstd_frames])
def test_compressed_files_and_cut_ones(read, pack):
    rows = [f"{i * 7919 % 100_003:05},{CASTLE},a1a7 e8g8,{500 + i},,,,,," for i in range(2000)]
    data = pack((HEADER + "\n".join(rows)).encode())
    taken, report = read(data)
    assert [item.rating for item in taken] == list(range(500, 2500))
    assert report.counts == {}
    cut, report = read(data[:-5])
    assert cut == taken[: len(cut)]
    assert len(cut) < 2000 or pack is gzip.compress  # gzip's last bytes hold only the checksum
    assert report.counts == Counter(truncated_stream=1)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no such file: .*absent\.csv"):
        read_puzzles(tmp_path / "absent.csv", SkipReport())
