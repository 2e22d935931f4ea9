"""Settings of the data: where games and puzzles come from, and which of them are kept."""

import re
from dataclasses import dataclass, field

from chessrl.config.base import operational, require

SPEEDS = ("ultrabullet", "bullet", "blitz", "rapid", "classical", "correspondence", "unknown")
"""Classes of time control, as Lichess draws them; see `chessrl/board/headers.py`."""
RESULTS = ("1-0", "0-1", "1/2-1/2")
"""Results of games that were finished."""

_DATE = re.compile(r"[0-9]{4}(\.(0[1-9]|1[0-2])(\.(0[1-9]|[12][0-9]|3[01]))?)?")
_MONTH = re.compile(r"20[0-9]{2}-(0[1-9]|1[0-2])")
_KEEP_OR_SKIP = ("keep", "skip")


@dataclass(kw_only=True)
class GameFilter:
    """Which games are kept. All but the plies and repetitions is told by the headers alone.

    Variants and games that do not begin from the usual start are always skipped.
    """

    min_plies: int = 10
    """Shorter games are fragments and are skipped."""
    max_plies: int = 0
    """Plies of the longest game; 0 means any."""
    over_long: str = "skip"
    """What a longer game does: `skip`, or `cut` after `max_plies`."""
    min_elo: int = 0
    max_elo: int = 0
    """Range of the Elo, both ends included; 0 leaves an end open."""
    elo: str = "mean"
    """What has to lie in the range: the `mean` of the two players, or `both`."""
    balance: int = 0
    """Games kept, about, of each class of mean Elo, drawn by hash over all sources; 0 keeps all."""
    balance_width: int = 100
    """Width of such a class, in Elo."""
    unknown_elo: str = "skip"
    """What a game does without both ratings, where a range or a balance asks: `keep` or `skip`."""
    speeds: list[str] = field(default_factory=list)
    """Classes of time control that are kept; none named keeps all, games without one too."""
    since: str = ""
    until: str = ""
    """First and last date, `yyyy`, `yyyy.mm` or `yyyy.mm.dd`, both included; empty is open."""
    unknown_date: str = "skip"
    """What a game does whose date does not say, where dates are asked for: `keep` or `skip`."""
    results: list[str] = field(default_factory=lambda: list(RESULTS))
    """Results that are kept."""
    unfinished: str = "keep"
    """What a game with result `*` or none does: `keep` or `skip`."""
    bots: str = "skip"
    """What a game of an account with the title BOT does: `keep` or `skip`."""
    duplicates: str = "skip"
    """What a game does whose moves have been seen before: `keep` or `skip`."""

    def __post_init__(self) -> None:
        require(self.min_plies >= 1, f"data.filter.min_plies={self.min_plies} must be at least 1")
        require(
            self.max_plies == 0 or self.max_plies >= self.min_plies,
            f"data.filter.max_plies={self.max_plies} is below min_plies={self.min_plies}",
        )
        require(
            self.over_long in ("skip", "cut"),
            f"data.filter.over_long={self.over_long}: skip or cut",
        )
        require(
            min(self.min_elo, self.max_elo) >= 0,
            f"data.filter.min_elo={self.min_elo}, max_elo={self.max_elo}: not negative",
        )
        require(
            self.max_elo == 0 or self.max_elo >= self.min_elo,
            f"data.filter.max_elo={self.max_elo} is below min_elo={self.min_elo}",
        )
        require(self.elo in ("mean", "both"), f"data.filter.elo={self.elo}: mean or both")
        require(self.balance >= 0, f"data.filter.balance={self.balance} is negative")
        require(self.balance_width > 0, "data.filter.balance_width must be positive")
        for name in ("unknown_elo", "unknown_date", "unfinished", "bots", "duplicates"):
            value = getattr(self, name)
            require(value in _KEEP_OR_SKIP, f"data.filter.{name}={value}: keep or skip")
        require(len(self.results) > 0, "data.filter.results names no result")
        for name, allowed in (("speeds", SPEEDS), ("results", RESULTS)):
            odd = [value for value in getattr(self, name) if value not in allowed]
            require(not odd, f"data.filter.{name}={odd}: any of {', '.join(allowed)}")
        for name in ("since", "until"):
            value = getattr(self, name)
            require(
                not value or _DATE.fullmatch(value) is not None,
                f"data.filter.{name}={value}: yyyy, yyyy.mm or yyyy.mm.dd (in quotes)",
            )

        length = min(len(self.since), len(self.until))
        require(
            self.since[:length] <= self.until[:length],
            f"data.filter.until={self.until} is before since={self.since}",
        )

    @property
    def asks_elo(self) -> bool:
        """Whether a rating decides."""
        return bool(self.min_elo or self.max_elo or self.balance)


@dataclass(kw_only=True)
class PuzzleSelection:
    """Which puzzles are kept, and how they are split."""

    min_rating: int = 0
    max_rating: int = 0
    """Range of the rating, both ends included; 0 leaves the upper end open."""
    min_popularity: int = -100
    """Least popularity, -100 to 100; a puzzle without one passes."""
    max_plies: int = 0
    """Longest solution, in plies after the opponent's first move; 0 means any."""
    themes: list[str] = field(default_factory=list)
    """A puzzle needs one of these; none named keeps all."""
    without: list[str] = field(default_factory=list)
    """And none of these."""
    balance: int = 0
    """Puzzles kept, chosen greedily so that themes and solution lengths come out even; 0: all."""
    test_per_bin: int = 200
    """Test puzzles from each rating bin, at most half of what the bin has."""
    sft: float = 0.5
    """Share of the other puzzles of each bin for SFT; RL gets the rest."""
    rl_easy: float = 0.0
    """Share of B0 to B2 among the RL puzzles (the study: .7); 0 takes them as they come."""

    def __post_init__(self) -> None:
        require(
            min(self.min_rating, self.max_rating) >= 0,
            f"data.selection.min_rating={self.min_rating}, max_rating={self.max_rating}: negative",
        )
        require(
            self.max_rating == 0 or self.max_rating >= self.min_rating,
            f"data.selection.max_rating={self.max_rating} is below min_rating={self.min_rating}",
        )
        require(
            -100 <= self.min_popularity <= 100,
            f"data.selection.min_popularity={self.min_popularity} is not in [-100, 100]",
        )
        require(
            min(self.max_plies, self.balance) >= 0,
            f"data.selection.max_plies={self.max_plies}, balance={self.balance}: not negative",
        )
        require(0 < self.sft < 1, f"data.selection.sft={self.sft} is not in (0, 1)")
        require(
            self.test_per_bin > 0,
            f"data.selection.test_per_bin={self.test_per_bin} must be positive",
        )
        require(0 <= self.rl_easy < 1, f"data.selection.rl_easy={self.rl_easy} is not in [0, 1)")


@dataclass(kw_only=True)
class DataConfig:
    """Games and puzzles: where they lie, what is kept of them, and how they are split."""

    name: str
    paths: list[str]
    """PGN files (.pgn, .zst, .bz2, .gz), folders, globs, or addresses to download from."""
    months: list[str] = field(default_factory=list)
    """Months of rated standard games of Lichess, `yyyy-mm`, to download."""
    puzzles: str
    """Puzzles in the columns of the Lichess CSV, plain or compressed: a file or an address."""
    filter: GameFilter = field(default_factory=GameFilter)
    selection: PuzzleSelection = field(default_factory=PuzzleSelection)
    validation: float = 0.02
    """Share of the games, by hash of their moves, that measures the held-out loss."""
    lichess: str = operational("https://database.lichess.org")
    """Where Lichess, or a mirror of it, keeps its months."""
    cache: str = operational("data/cache")
    """Folder of downloaded files."""
    workers: int = operational(0)
    """Processes that read games; 0 means one per core. Never changes the output."""

    def __post_init__(self) -> None:
        require(len(self.paths) + len(self.months) > 0, "data.paths and data.months name no file")
        odd = [month for month in self.months if not _MONTH.fullmatch(month)]
        require(not odd, f"data.months={odd}: months are written yyyy-mm")
        require(0 < self.validation < 1, f"data.validation={self.validation} is not in (0, 1)")
        require(self.workers >= 0, f"data.workers={self.workers} is negative")


@dataclass(kw_only=True)
class EngineConfig:
    """A UCI engine that judges positions; `none` where no engine is asked for."""

    name: str
    path: str = operational("")
    """Program to start, found in PATH or by its full path."""
    nodes: int = 0
    """Nodes searched for each judgement: a limit of nodes is repeatable, one of time is not."""
    hash_mb: int = 64
    """Memory of its hash table, in MB; with few MB a judgement can come out otherwise."""

    def __post_init__(self) -> None:
        require(
            self.name == "none" or (bool(self.path) and self.nodes > 0),
            f"engine={self.name} needs engine.path and a positive engine.nodes",
        )
        require(self.hash_mb > 0, f"engine.hash_mb={self.hash_mb} must be positive")


@dataclass(kw_only=True)
class MineConfig:
    """Which positions of games become puzzles."""

    games: int = 0
    """Games to look at, in the order of the sources; 0 means all."""
    last_plies: int = 12
    """Positions looked at from the end of each game; 0 means all."""
    per_game: int = 1
    """Puzzles taken from a game at most, those found latest first."""
    mates: int = 2
    """Longest mate searched exactly, in moves: 1 or 2; 0 leaves it to the engine."""
    margin: float = 0.35
    """With an engine: win probability by which the best move beats the second and what the solver
    had before, 0 to 1."""
    winning: float = 0.7
    """With an engine: win probability that the best move has at least, 0 to 1."""
    max_solver_moves: int = 5
    """Longest solution taken from an engine."""

    def __post_init__(self) -> None:
        require(
            min(self.games, self.last_plies) >= 0,
            f"mine.games={self.games}, last_plies={self.last_plies}: not negative",
        )
        require(self.per_game > 0, f"mine.per_game={self.per_game} must be positive")
        require(self.mates in (0, 1, 2), f"mine.mates={self.mates}: 0, 1 or 2")
        require(0 < self.margin < 1, f"mine.margin={self.margin} is not in (0, 1)")
        require(0 < self.winning < 1, f"mine.winning={self.winning} is not in (0, 1)")
        require(self.max_solver_moves > 0, "mine.max_solver_moves must be positive")
