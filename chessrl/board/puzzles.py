"""Lichess puzzles: what one is, how a file of them is read, and which are refused."""

import csv
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path

import chess

from chessrl.artifacts import atomic_path
from chessrl.board.skips import MAX_TOKEN, Skip, SkipReport
from chessrl.board.streams import BrokenStream, open_lines
from chessrl.workers import map_in_order

COLUMNS = (
    "PuzzleId", "FEN", "Moves", "Rating", "RatingDeviation", "Popularity", "NbPlays", "Themes",
    "GameUrl", "OpeningTags",
)  # fmt: skip
"""Columns of the Lichess puzzle file, in its order; the first four are needed."""
HISTORY = "History"
"""A column of ours: the moves of the source game up to the FEN, in UCI, empty where unknown."""
BIN_EDGES = (800, 1200, 1600, 2000, 2400)
"""Highest rating of each bin but the last."""
BINS = ("B0", "B1", "B2", "B3", "B4", "B5")
"""Rating bins: <= 800, (800, 1200], (1200, 1600], (1600, 2000], (2000, 2400], > 2400."""

_NUMBER = re.compile("[0-9]{1,4}")
_CHUNK = 256  # rows that a process checks at a time
_move = lru_cache(1 << 13)(chess.Move.from_uci)


@dataclass(frozen=True, slots=True)
class Puzzle:
    """A position and the one line that solves it, in the convention of Lichess."""

    id: str
    fen: str
    """Position before the opponent's move `moves[0]`."""
    moves: tuple[str, ...]
    """UCI: the opponent's move, then the solver's and the opponent's in turn."""
    rating: int
    themes: tuple[str, ...] = ()
    popularity: int | None = None
    """-100 to 100, None where unknown."""
    game: str | None = None
    """Address of the source game, None where unknown."""
    history: tuple[str, ...] | None = None
    """Moves of the source game from the usual start to `fen`, in UCI; None where unknown."""

    def __post_init__(self) -> None:
        if len(self.moves) < 2:
            raise ValueError(f"puzzle {self.id} has no solver move: moves={self.moves}")

    @property
    def solver_moves(self) -> tuple[str, ...]:
        """The moves to find, in UCI."""
        return self.moves[1::2]

    @property
    def replies(self) -> tuple[str, ...]:
        """The opponent's answers to them, in UCI."""
        return self.moves[2::2]

    @property
    def bin(self) -> str:
        """Rating bin, one of `BINS`."""
        return BINS[bisect_left(BIN_EDGES, self.rating)]

    def board(self) -> chess.Board:
        """A new board at the position the solver sees, after `moves[0]`."""
        board = chess.Board(self.fen)
        board.push_uci(self.moves[0])
        return board


def validate(puzzle: Puzzle) -> str | None:
    """Reason to refuse a puzzle, None where it is sound.

    `bad_fen` cannot be read, `illegal_position` is no position of chess (a king is missing, the
    side that moved is in check, ...), `illegal_move` somewhere in the line, `history_mismatch`
    where `history` does not lead to `fen`.
    """
    try:
        board = chess.Board(puzzle.fen)
    except ValueError:
        return "bad_fen"
    if not board.is_valid():
        return "illegal_position"
    if puzzle.history is not None and not leads_to(puzzle.history, board):
        return "history_mismatch"
    return None if _play(board, puzzle.moves) else "illegal_move"


def leads_to(moves: Iterable[str], board: chess.Board) -> bool:
    """Whether UCI moves from the usual start end in the position of `board`, at its move number.

    Placement, side to move, castling rights and the en passant captures that are legal have to
    agree, and so the number of the moves; the halfmove clock need not.
    """
    played = chess.Board()
    return _play(played, moves) and played.ply() == board.ply() and played.epd() == board.epd()


def _play(board: chess.Board, moves: Iterable[str]) -> bool:
    """Push UCI moves while they are legal and spelt the one usual way; whether all were."""
    for text in moves:
        try:
            move = _move(text)
        except ValueError:
            return False
        if not board.is_pseudo_legal(move):
            return False
        if board.occupied_co[board.turn] & chess.BB_SQUARES[move.to_square]:
            return False  # castling written as the king taking its rook
        board.push(move)
        if board.was_into_check():  # with the above this is `is_legal`, in half of the time
            return False
    return True


def read_puzzles(path: str | Path, report: SkipReport, workers: int = 1) -> list[Puzzle]:
    """Read a Lichess puzzle CSV: plain, `.zst`, `.bz2` or `.gz`, in the order of the file.

    Columns go by the names in the header; all but `PuzzleId`, `FEN`, `Moves` and `Rating` may
    be empty or absent; `History` may come with them (see `HISTORY`). Each row becomes a puzzle
    or is counted in `report`: the reasons of `validate`, and `broken_row`, `undecodable`,
    `bad_rating`, `bad_popularity`, `no_solver_move`, `duplicate_id`, `truncated_stream`,
    `broken_stream`.

    Args:
        path: the file.
        report: where refused rows are counted.
        workers: processes that check the puzzles, 0 for one per core; never changes what comes
            back.

    Raises:
        FileNotFoundError: `path` is not a file.
        ValueError: the first line is not a header with the needed columns.
    """
    lines = open_lines(path)
    try:
        header = next(csv.reader([next(lines, b"").decode("latin-1")]), [])
    except BrokenStream as broken:
        raise ValueError(f"{path}: no line can be read ({broken.reason})") from None
    if missing := [name for name in COLUMNS[:4] if name not in header]:
        raise ValueError(f"{path}: no puzzle file, the first line lacks {', '.join(missing)}")
    puzzles: list[Puzzle] = []
    seen: set[str] = set()
    rows = _rows(lines)
    chunks = iter(lambda: list(islice(rows, _CHUNK)), [])
    for checked in map_in_order(partial(_checked, header), chunks, workers):
        for index, line, item in checked:
            if isinstance(item, Puzzle) and item.id in seen:
                item = "duplicate_id", item.id
            if isinstance(item, Puzzle):
                seen.add(item.id)
                puzzles.append(item)
            else:
                reason, token = item
                report.add(Skip(str(path), index, line, reason, token[:MAX_TOKEN]))
    return puzzles


_Row = tuple[int, int, bytes | BrokenStream]
"""Row index from 0, line number from 1, text; a break in the stream is the last row."""
_Checked = tuple[int, int, Puzzle | tuple[str, str]]
"""Index and line number of a row, and its puzzle, or reason and token."""


def _rows(lines: Iterator[bytes]) -> Iterator[_Row]:
    index, number = 0, 1
    try:
        for line in lines:
            number += 1
            if line.strip():
                yield index, number, line
                index += 1
    except BrokenStream as broken:
        yield index, number, broken


def _checked(header: list[str], rows: list[_Row]) -> list[_Checked]:
    """Rows with what is in them, by themselves: repeated ids are not looked for."""
    checked = []
    for index, line, row in rows:
        item = (row.reason, "") if isinstance(row, BrokenStream) else _puzzle(header, row)
        if isinstance(item, Puzzle) and (reason := validate(item)):
            item = reason, item.id
        checked.append((index, line, item))
    return checked


def _puzzle(header: list[str], row: bytes) -> Puzzle | tuple[str, str]:
    """Puzzle of one row, or reason and token; the board is not looked at."""
    try:
        cells = next(csv.reader([row.decode()], strict=True))
    except UnicodeDecodeError:
        return "undecodable", row[:20].decode("latin-1")
    except csv.Error:
        return "broken_row", row[:20].decode("latin-1")
    if len(cells) != len(header):
        return "broken_row", cells[0][:20]
    cell = dict(zip(header, cells, strict=True))
    popularity = cell.get("Popularity", "")
    moves = tuple(cell["Moves"].split())
    if not cell["PuzzleId"]:
        return "broken_row", ""
    if not _NUMBER.fullmatch(cell["Rating"]):
        return "bad_rating", cell["Rating"]
    if popularity and not _NUMBER.fullmatch(popularity.removeprefix("-")):
        return "bad_popularity", popularity
    if len(moves) < 2:
        return "no_solver_move", cell["PuzzleId"]
    return Puzzle(
        id=cell["PuzzleId"],
        fen=cell["FEN"],
        moves=moves,
        rating=int(cell["Rating"]),
        themes=tuple(cell.get("Themes", "").split()),
        popularity=int(popularity) if popularity else None,
        game=cell.get("GameUrl") or None,
        history=tuple(cell.get(HISTORY, "").split()) or None,
    )


def write_puzzles(path: Path, puzzles: Iterable[Puzzle]) -> None:
    """Write a CSV that `read_puzzles` reads back as the same puzzles, whole or not at all.

    It has the columns of Lichess, those that a puzzle does not hold empty, and `History`. A puzzle
    of the usual start has no history to write; it is read back as unknown.
    """
    with atomic_path(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow((*COLUMNS, HISTORY))
        for puzzle in puzzles:
            cells = {
                "PuzzleId": puzzle.id,
                "FEN": puzzle.fen,
                "Moves": " ".join(puzzle.moves),
                "Rating": puzzle.rating,
                "Popularity": puzzle.popularity,
                "Themes": " ".join(puzzle.themes),
                "GameUrl": puzzle.game,
                HISTORY: " ".join(puzzle.history or ()),
            }
            rows.writerow(cells.get(name) for name in (*COLUMNS, HISTORY))
