"""A block of PGN text to documents: read, filter, hash, split, encode. Any process can do it."""

from collections import Counter
from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np

from chessrl.board.blocks import Block, PlainGame, games_of
from chessrl.board.documents import Documents, Form, write_documents
from chessrl.board.encoding import move_tokens
from chessrl.board.games import Game, parse_game
from chessrl.board.hashes import HashSet
from chessrl.board.headers import Header, elo_class, refusal, refused_result
from chessrl.board.pgn import MalformedTag, RawGame
from chessrl.board.positions import Lines, line_hashes, replay
from chessrl.board.reader import read_plain
from chessrl.board.records import GAME, RESULTS, SPLITS
from chessrl.board.skips import MAX_TOKEN, Skip
from chessrl.config.data import SPEEDS, GameFilter

_MOST_PLIES = np.iinfo(GAME["plies"]).max
_REASONS = ("", "reaches_puzzle", "over_long", "too_short")  # of two, the later one is told


@dataclass(frozen=True)
class Draw:
    """Which games are wanted, as far as it is told without playing them."""

    rules: GameFilter
    rates: dict[int, float] = field(default_factory=dict)
    """Share of the games to keep of each class of mean Elo, where they are balanced."""

    def refusal(self, header: Header, result: str, movetext: bytes) -> tuple[str, str] | None:
        """Reason and value for which a game is not wanted, None where it is.

        The draw depends on `movetext`, the text after the tags, so that it is the same for a game
        that is read in another way.
        """
        if reason := refusal(header, self.rules):
            return reason
        if reason := refused_result(result, self.rules):
            return reason, result
        rate = self.rates.get(elo_class(header, self.rules.balance_width), 1.0)
        if rate < 1:
            digest = blake2b(movetext.strip(), digest_size=8).digest()
            if _units(np.frombuffer(digest, "<u8"))[0] >= rate:
                return "unbalanced", f"{header.white_elo} {header.black_elo}"
        return None


@dataclass
class Played:
    """Legal games of a block."""

    lines: Lines
    index: np.ndarray
    """(G,) place of each in its block."""
    line: np.ndarray
    """(G,) line of the file where each starts, from 1."""
    headers: list[Header]
    results: list[str]
    sound: np.ndarray
    """(G,) bool: False where a game turned out illegal, and only a beginning of it is there."""


@dataclass
class Ingested:
    """What became of a block."""

    games: int
    """Games in it, whatever became of them."""
    position: int = 0
    """Bytes of the file on disk that have been read by its end."""
    documents: dict[str, Documents] = field(default_factory=dict)
    """Of each split."""
    skips: list[Skip] = field(default_factory=list)
    """Games left out; their index counts from the start of the block."""


@dataclass(frozen=True)
class CountElo:
    """First pass of a balance: how many games there are of each class of mean Elo."""

    rules: GameFilter

    def __call__(self, block: Block) -> Counter[int]:
        """Count the games of a block that the tags allow, by `headers.elo_class`."""
        counts: Counter[int] = Counter()
        for game in games_of(block):
            header = _header(game)
            if header is not None and not refusal(header, self.rules):
                counts[elo_class(header, self.rules.balance_width)] += 1
        counts.pop(None, None)
        return counts


@dataclass(frozen=True)
class Ingest:
    """What is done to each block."""

    draw: Draw
    form: Form
    validation: float
    """Share of the games held out, by the hash of their moves."""
    held_out: HashSet
    """Positions that no game kept may reach."""

    def __call__(self, block: Block) -> Ingested:
        """Read, filter, split and encode the games of a block."""
        skips: list[Skip] = []
        count, played = play(block, self.draw, skips)
        documents = {} if played is None else self._documents(block.file, played, skips)
        skips.sort(key=lambda skip: skip.index)
        return Ingested(count, block.position, documents, skips)

    def _documents(self, file: str, played: Played, skips: list[Skip]) -> dict[str, Documents]:
        lines, rules = played.lines, self.draw.rules
        plies, longest = lines.lengths, min(rules.max_plies or _MOST_PLIES, _MOST_PLIES)
        if rules.over_long == "cut":
            plies = np.minimum(plies, longest)
        reason = np.zeros(len(plies), np.int8)
        reason[reaches(lines, plies, self.held_out)] = 1
        reason[plies > longest] = 2
        reason[plies < rules.min_plies] = 3
        for g in np.flatnonzero((reason > 0) & played.sound):
            place = int(played.index[g]), int(played.line[g])
            skips.append(Skip(file, *place, _REASONS[reason[g]]))
        kept = np.flatnonzero((reason == 0) & played.sound)
        kept = kept[np.argsort(played.index[kept])]
        codes, moves = lines.codes, move_tokens(lines)
        hashes = move_hashes(codes, lines.offsets[kept], plies[kept])
        held = _units(hashes[:, 1]) < self.validation
        documents = {}
        for name, part in zip(SPLITS, (~held, held), strict=True):
            games = kept[part]
            documents[name] = write_documents(
                self.form,
                lines,
                moves,
                games,
                plies[games],
                cut=_units(hashes[part, 2]),
                rows=_rows(played, games, plies[games], codes, hashes[part, 0]),
                places=np.stack([played.index[games], played.line[games]], 1),
            )
        return documents


def play(block: Block, draw: Draw, skips: list[Skip]) -> tuple[int, Played | None]:
    """Play the games of a block that are wanted; the others are added to `skips`.

    Returns:
        Number of games in the block, and those that are legal, None where there are none.
    """
    count = 0
    plain: list[PlainGame] = []
    odd: list[RawGame] = []
    for game in games_of(block):
        count += 1
        if isinstance(game, RawGame):
            odd.append(game)
        elif refused := draw.refusal(game.header, game.header.result or game.result, game.body):
            skips.append(_skip(block.file, game, *refused))
        else:
            plain.append(game)
    read = read_plain([game.movetext for game in plain])
    if read is None:
        odd += [game.raw(block.file) for game in plain]
        plain, sound, parts = [], np.zeros(0, bool), []
    else:
        lines, sound = read
        odd += [plain[g].raw(block.file) for g in np.flatnonzero(~sound)]
        parts = [lines]
    slow = [game for raw in odd if (game := _slowly(raw, draw, skips))]
    if slow:
        parts.append(replay(game.moves for game in slow))
    if not parts:
        return count, None
    games = [*plain, *slow]
    return count, Played(
        lines=Lines.joined(parts),
        index=np.array([game.index for game in games]),
        line=np.array([game.line for game in games]),
        headers=[game.header for game in games],
        results=[game.header.result or game.result for game in games],
        sound=np.concatenate([sound, np.ones(len(slow), bool)]),
    )


def _skip(file: str, game: PlainGame | RawGame, reason: str, token: str) -> Skip:
    return Skip(file, game.index, game.line, reason, token[:MAX_TOKEN])


def _slowly(raw: RawGame, draw: Draw, skips: list[Skip]) -> Game | None:
    game = parse_game(raw, draw.rules)
    if isinstance(game, Game):
        if not (refused := draw.refusal(game.header, game.result, raw.movetext)):
            return game
        game = _skip(raw.file, raw, *refused)
    skips.append(game)
    return None


def _header(game: PlainGame | RawGame) -> Header | None:
    if isinstance(game, PlainGame):
        return game.header
    try:
        return Header.of(game.tags())
    except MalformedTag:
        return None


def reaches(lines: Lines, plies: np.ndarray, positions: HashSet) -> np.ndarray:
    """(G,) bool: which games reach one of the positions within so many plies, the start too."""
    found = positions.contains(line_hashes(lines))
    if not found.any():
        return np.zeros(len(plies), bool)
    place = np.arange(len(found)) - np.repeat(lines.first_position, lines.lengths + 1)
    found &= place <= np.repeat(plies, lines.lengths + 1)
    return np.logical_or.reduceat(found, lines.first_position)


def move_hashes(codes: np.ndarray, start: np.ndarray, plies: np.ndarray) -> np.ndarray:
    """(G, 3) uint64 that depend on the moves of each game alone: name, split and first cut.

    Args:
        codes: `Lines.codes`.
        start: (G,) first move of each game.
        plies: (G,) moves that count.
    """
    data = codes.astype("<u2").tobytes()
    digests = [
        blake2b(data[2 * a : 2 * (a + n)], digest_size=24).digest()
        for a, n in zip(start.tolist(), plies.tolist(), strict=True)
    ]
    return np.frombuffer(b"".join(digests), "<u8").reshape(-1, 3)


def _units(hashes: np.ndarray) -> np.ndarray:
    """Numbers in [0, 1), spread evenly over hashes."""
    return (hashes >> np.uint64(11)) / 2.0**53


def _rows(
    played: Played, games: np.ndarray, plies: np.ndarray, codes: np.ndarray, keys: np.ndarray
) -> np.ndarray:
    rows = np.zeros(len(games), GAME)
    headers = [played.headers[g] for g in games]
    rows["key"], rows["plies"] = keys, plies
    for name in ("white_elo", "black_elo", "year"):
        rows[name] = [min(getattr(header, name) or 0, 65535) for header in headers]
    rows["result"] = [RESULTS.index(played.results[g]) for g in games]
    rows["speed"] = [SPEEDS.index(header.speed) for header in headers]
    for ply in range(rows["opening"].shape[1]):
        there = plies > ply
        rows["opening"][there, ply] = codes[played.lines.offsets[games[there]] + ply]
    return rows
