"""Games from PGN files: every game is either given out whole and legal, or counted as skipped."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import chess

from chessrl.board.headers import Header, refusal
from chessrl.board.pgn import MalformedTag, RawGame, Splitter, decode, tokenize
from chessrl.board.skips import MAX_TOKEN, Skip, SkipReport
from chessrl.board.streams import BrokenStream, open_lines
from chessrl.config.data import GameFilter

__all__ = ["Game", "Skip", "SkipReport", "parse_game", "read_games", "read_raw", "split_lines"]

ANY = GameFilter(min_plies=1, bots="keep")
"""Every game of ordinary chess from the usual start."""
_NOISE = re.compile(r"\{[^}]*\}|;[^\n]*|^%[^\n]*", re.MULTILINE)
_BLANK_LINE = re.compile(r"\n[^\S\n]*\n")


@dataclass(frozen=True, slots=True)
class Game:
    """A legal game of ordinary chess from the usual start."""

    moves: tuple[str, ...]
    """Moves in UCI, castling as the king's move of two squares."""
    result: str
    """`1-0`, `0-1`, `1/2-1/2` or `*`: the tag where it says, the movetext otherwise."""
    header: Header
    index: int = 0
    """Place in the file, from 0."""
    line: int = 0
    """Line of the file where the game starts, from 1."""


def read_games(path: str | Path, report: SkipReport) -> Iterator[Game]:
    """Stream the games of a PGN file: plain, `.zst`, `.bz2` or `.gz`.

    Games given out and skips counted add up to the games of the file. A compressed file that
    is cut adds one `truncated_stream`, at the game in which it breaks.

    Args:
        path: the file.
        report: takes a record of each game that is left out.

    Raises:
        FileNotFoundError: at once, where `path` is not a file.
    """
    return _taken(map(parse_game, read_raw(path)), report)


def _taken(parsed: Iterator[Game | Skip], report: SkipReport) -> Iterator[Game]:
    for item in parsed:
        if isinstance(item, Skip):
            report.add(item)
        else:
            yield item


def read_raw(path: str | Path) -> Iterator[RawGame]:
    """Stream the raw games of a PGN file, for `parse_game` here or in other processes.

    Raises:
        FileNotFoundError: at once, where `path` is not a file.
    """
    return split_lines(Splitter(str(path)), open_lines(path))


def split_lines(splitter: Splitter, lines: Iterator[bytes]) -> Iterator[RawGame]:
    """All raw games of `lines`, the last one closed by their end or by the break of the stream."""
    try:
        yield from splitter.split(lines)
    except BrokenStream as broken:
        if splitter.complete:
            yield splitter.finish()
        yield splitter.finish(fault=broken.reason)
        return
    if not splitter.empty:
        yield splitter.finish()


def parse_game(raw: RawGame, rules: GameFilter = ANY) -> Game | Skip:
    """Check one raw game and resolve its moves; pure, so that a process pool can map it.

    What the tags rule out (`headers.refusal`) is skipped before a move is read. The other reasons
    of a skip: `truncated_stream`, `broken_stream`, `too_long`, `undecodable`,
    `no_headers`, `malformed_tag`, `no_moves`, `malformed_token`,
    `null_move`, `illegal_move` (ambiguous ones too), `moves_after_end` (after mate or
    stalemate), `text_after_result`, `wrong_move_number` (none or not the next one
    after a blank line: another game may have lost its header), `unclosed_comment`,
    `unclosed_variation`.
    """
    if raw.fault:
        return _skip(raw, raw.fault)
    movetext = decode(raw.movetext)
    if "\0" in movetext or b"\0" in raw.header:
        return _skip(raw, "undecodable")
    if not raw.header.strip():
        return _skip(raw, "no_headers", movetext[:20].split("\n")[0])
    try:
        header = Header.of(raw.tags())
    except MalformedTag as error:
        return Skip(raw.file, raw.index, error.line, "malformed_tag", error.text[:MAX_TOKEN])
    if reason := refusal(header, rules):
        return _skip(raw, *reason)
    played = _play(raw, movetext)
    if isinstance(played, Skip):
        return played
    moves, ending = played
    return Game(moves, header.result or ending, header, raw.index, raw.line)


def _play(raw: RawGame, movetext: str) -> tuple[tuple[str, ...], str] | Skip:
    """Moves in UCI and the result in the movetext, `*` where there is none."""
    board = chess.Board()
    moves: list[str] = []
    ending = ""
    end = 0  # of the token before
    for kind, text, start in tokenize(movetext):
        reason = kind
        resumed = moves and _blank_line(movetext[end:start])
        if kind in ("unclosed_comment", "unclosed_variation", "malformed_token"):
            pass
        elif ending:
            reason = "text_after_result"
        elif kind == "result":
            ending, reason = text, ""
        elif kind == "number":
            number = text.rstrip(".")
            fits = not resumed or not number or int(number) == board.fullmove_number
            reason = "" if fits else "wrong_move_number"
        elif kind in ("san", "castling"):
            unnumbered = resumed and board.turn == chess.WHITE
            reason = "wrong_move_number" if unnumbered else _push(board, text, moves)
        if reason:
            line = raw.movetext_line + movetext.count("\n", 0, start)
            return Skip(raw.file, raw.index, line, reason, text[:MAX_TOKEN])
        end = start + len(text)
    if not moves:
        return _skip(raw, "no_moves")
    return tuple(moves), ending or "*"


def _blank_line(text: str) -> bool:
    """Whether there is a blank line between two tokens, outside comments."""
    return text.count("\n") > 1 and _BLANK_LINE.search(_NOISE.sub(".", text)) is not None


def _push(board: chess.Board, text: str, moves: list[str]) -> str:
    """Play one SAN move and note its UCI; returns the reason where it cannot be played."""
    san = text.rstrip("+#").removeprefix("P").replace("0", "O")
    try:
        move = board.parse_san(san)
    except ValueError:
        return "illegal_move" if any(board.generate_legal_moves()) else "moves_after_end"
    board.push(move)
    moves.append(move.uci())
    return ""


def _skip(raw: RawGame, reason: str, token: str = "") -> Skip:
    return Skip(raw.file, raw.index, raw.line, reason, token[:MAX_TOKEN])
