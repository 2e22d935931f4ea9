"""What the tags of a game tell, and which games they rule out before a move is read."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import chess

from chessrl.config.data import RESULTS, GameFilter

_STANDARD = {"", "?", "-", "standard", "chess", "normal", "from position"}
_SPEED_LIMITS = ((29, "ultrabullet"), (179, "bullet"), (479, "blitz"), (1499, "rapid"))
_CLOCK = re.compile(r"(?:[0-9]+/)?([0-9]{1,9})(?:\+([0-9]{1,9}))?")
_DATE = re.compile(r"([0-9]{4})(?:[./-]([0-9?]{1,2}))?(?:[./-]([0-9?]{1,2}))?")


TAGS = (
    "Variant", "FEN", "Result", "Date", "UTCDate", "WhiteElo", "BlackElo", "TimeControl",
    "WhiteTitle", "BlackTitle", "Site",
)  # fmt: skip
"""Tags that a header is made of; the others decide nothing."""


@dataclass(frozen=True, slots=True)
class Header:
    """The tags that decide something."""

    variant: str = ""
    fen: str = ""
    result: str = ""
    """Tag `Result` where it is one of `RESULTS`, else empty."""
    date: str = ""
    """Tag `Date`, or `UTCDate` where that says more; as written."""
    white_elo: int | None = None
    """Rating, None where unknown; never 0."""
    black_elo: int | None = None
    speed: str = "unknown"
    """One of `SPEEDS`."""
    bot: bool = False
    """One of the players has the title BOT."""
    site: str = ""

    @staticmethod
    def of(tags: Mapping[str, str]) -> "Header":
        """Read the tags of one game."""
        get = tags.get
        result, date = get("Result", ""), get("Date", "")
        return Header(
            variant=get("Variant", ""),
            fen=get("FEN", ""),
            result=result if result in RESULTS else "",
            date=date if date[:1].isdigit() else get("UTCDate", date),
            white_elo=parse_elo(get("WhiteElo", "")),
            black_elo=parse_elo(get("BlackElo", "")),
            speed=speed(get("TimeControl", "")),
            bot="BOT" in (get("WhiteTitle"), get("BlackTitle")),
            site=get("Site", ""),
        )

    @property
    def mean_elo(self) -> float | None:
        """Mean of the two ratings, None where one is unknown."""
        if self.white_elo is None or self.black_elo is None:
            return None
        return (self.white_elo + self.black_elo) / 2

    @property
    def year(self) -> int:
        """Year of the game, 0 where unknown."""
        return int(self.date[:4]) if re.match("[0-9]{4}", self.date) else 0


@lru_cache(4096)
def parse_elo(text: str) -> int | None:
    """Rating of an Elo tag; None for `?`, `-`, empty, 0 and whatever else is no number."""
    text = text.strip()
    return (int(text) or None) if text.isascii() and text.isdigit() and len(text) < 6 else None


@lru_cache(4096)
def speed(time_control: str) -> str:
    """Class of a `TimeControl` tag by the expected length, base + 40 increments in seconds.

    The bounds are those of Lichess: ultrabullet below 30 s, bullet below 180, blitz below 480,
    rapid below 1500. `-` and days per move (`1/86400`) are correspondence. Of several periods the
    first counts.
    """
    text = time_control.strip().split(":")[0]
    if text == "-" or text.startswith("1/"):
        return "correspondence"
    if not (clock := _CLOCK.fullmatch(text)):
        return "unknown"
    seconds = int(clock[1]) + 40 * int(clock[2] or 0)
    return next((name for limit, name in _SPEED_LIMITS if seconds <= limit), "classical")


def elo_class(header: Header, width: int) -> int | None:
    """Lower end of the class of mean Elo, None where a rating is unknown."""
    mean = header.mean_elo
    return None if mean is None else int(mean // width) * width


def refusal(header: Header, rules: GameFilter) -> tuple[str, str] | None:
    """Reason and value for which the tags rule a game out, None where they do not."""
    if header.variant.lower() not in _STANDARD:
        return "variant", header.variant
    if not _is_usual_start(header.fen):
        return "fen_start", header.fen
    if header.bot and rules.bots == "skip":
        return "bot", ""
    if rules.speeds and header.speed not in rules.speeds:
        return "speed", header.speed
    if header.result and (reason := refused_result(header.result, rules)):
        return reason, header.result
    if (rules.since or rules.until) and (reason := _refused_date(header.date, rules)):
        return reason, header.date
    if rules.asks_elo and (reason := _refused_elo(header, rules)):
        return reason, f"{header.white_elo} {header.black_elo}"
    return None


def refused_result(result: str, rules: GameFilter) -> str:
    """Reason for which a result, `*` for none, is not wanted; empty where it is."""
    if result not in RESULTS:
        return "unfinished" if rules.unfinished == "skip" else ""
    return "" if result in rules.results else "result"


def _refused_elo(header: Header, rules: GameFilter) -> str:
    mean = header.mean_elo
    if mean is None:
        return "unknown_elo" if rules.unknown_elo == "skip" else ""
    judged = (mean,) if rules.elo == "mean" else (header.white_elo, header.black_elo)
    inside = min(judged) >= rules.min_elo and max(judged) <= (rules.max_elo or max(judged))
    return "" if inside else "elo"


def _refused_date(date: str, rules: GameFilter) -> str:
    if not (parts := _DATE.match(date)):
        return "unknown_date" if rules.unknown_date == "skip" else ""
    known = [part.zfill(2) for part in parts.groups("??")]
    early, late = (
        ".".join(part if part.isdigit() else unknown for part in known) for unknown in ("00", "99")
    )
    since, until = rules.since, rules.until or "9999"
    if late < since or early[: len(until)] > until:
        return "date"
    if early[: len(since)] >= since and late[: len(until)] <= until:
        return ""
    return "unknown_date" if rules.unknown_date == "skip" else ""


def _is_usual_start(fen: str) -> bool:
    return fen.strip() in ("", "?") or fen.split()[:4] == chess.STARTING_FEN.split()[:4]
