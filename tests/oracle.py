"""Random games, and what the array code has to make of them, move by move with python-chess."""

import dataclasses
import random
import struct
from collections.abc import Iterable, Sequence
from hashlib import blake2b

import chess
import numpy as np
import pytest
from hypothesis import strategies as st

from chessrl.board import reader, tokens
from chessrl.board.blocks import Block
from chessrl.board.documents import Documents, Form
from chessrl.board.hashes import HashSet
from chessrl.board.ingest import Draw, Ingest, Ingested
from chessrl.board.positions import Lines, board_array
from chessrl.board.records import SPLITS
from chessrl.board.splits import Position, position_key
from chessrl.config.data import GameFilter

NOBODY = HashSet(np.zeros(0, np.uint64))
NONE = Documents(*[np.zeros(0)] * 5)
HISTORY = Form("history")
HEAD = '[Event "A"]\n[Result "*"]\n\n'
GAME = HEAD + "1. a3 a6 2. h3 h6 *\n\n"
LONG = HEAD + "1. Nf3 Nf6 2. Ng1 Ng8 " * 20 + "*\n\n"
PIECES = (  # what a file of games may hold, and more
    GAME,
    LONG,
    '[Event "B"]\n[White "Muñoz \\"x\\""]\n[Result "1-0"]\n\n1. e4! {good} e5?! $4 2. Nf3 1-0\n\n',
    HEAD + "1. e4 {two\nlines, and [%clk 0:01:00]} e5\n2. Nf3 Nc6 1/2-1/2\n\n",
    HEAD + "1. d4 d5 2. c4",  # no result, no end
    HEAD + "1. d4 d5\n\n",
    HEAD + "1. d4 {never closed d5 1-0\n\n",
    HEAD + "1. d4 (never closed d5 0-1\n\n",
    HEAD + '1. d4 {closed later\n[Event "C"]\n[Site "D"]\n\n1. c4 c5 *\n',
    HEAD + '1. d4 { 1-0\n\n[Event "in a comment"]\n\n1. d4 d5 1-0\n\n} d5 *\n\n',
    HEAD + '1. d4 {an\n [Event "indented"]\n comment} d5 *\n\n',
    HEAD + "1. d4 d5\n\n2. c4 e6 *\n\n",
    HEAD + "1. d4 d5 *\n \t \n",
    HEAD + "1. d4 ; 1-0\n\n",
    HEAD + "1. d4 ; { [\n% } {\nd5 *\n\n",
    HEAD + "1. d4 d5 1-0 {resigns}\n\n",
    HEAD + "1. d4 d5 1-0\n\n{resigns}\n\n",
    HEAD + "1. d4 d5 1-0 1. e4 e5 0-1\n\n",
    HEAD + HEAD,
    '[Event "A"]\n[Site "Zürich \\\\ \\"x"]\n[Variant "Écarté"]\n\n1. d4 d5 *\n\n',
    '[Event "A"]\n[Site "Zürich"]\n[Variant "Écarté"]\n\n1. d4 d5 *\n\n',
    '[Event "A\0"]\n\n1. d4 d5 *\n\n',
    HEAD + "1. d4 {\0} d5 *\n\n",
    '[Event "A"]\n[Event "B"]\n\n1. d4 d5 *\n\n',
    '[Event "A"]\n[Site "A"]\n[Site "B"]\n[Date "2"] [Round "3"]\n\n\n1. d4 d5 *\n\n',
    '[Event "A"]\n\n[Event "B"]\n[Black "unclosed\n\n1. d4 d5 *\n\n',
    '[Event "A"]\n[Result "*"]\n1. d4 d5 *\n[Event "B"]\n1. c4 c5 *\n',
    "1. d4 d5 *\n\n",
    "1. d4 d5",
    "*\n\n",
    "} e5 1-0\n\n",
    "%escaped\n",
    "text before [Event\n",
    "\n",
    "\n\n\n",
    "  \n",
    "\0\n",
    HEAD + "1. d4 {a\rb} d5 *\n\n",
    "{",
    "[",
    '["',
    "é\n",
)


def wild_game(seed: int, plies: int) -> list[chess.Move]:
    """A random legal game that seeks what is rare: castling, en passant, promotions, checks."""
    rng, board = random.Random(seed), chess.Board()
    while len(board.move_stack) < plies and (legal := list(board.legal_moves)):
        wish, some = rng.random(), []
        if wish < 0.5:
            some = [move for move in legal if move.promotion]
            some += [*board.generate_castling_moves(), *board.generate_legal_ep()]
        if not some and wish < 0.1:
            some = [move for move in legal if board.gives_check(move)]
        if not some and wish < 0.9:  # kings and rooks wait until they have castled
            waiting = board.castling_rights & chess.BB_RANKS[0 if board.turn else 7]
            light = (chess.KNIGHT, chess.BISHOP, chess.QUEEN) if waiting else chess.PIECE_TYPES
            kinds = (chess.PAWN,) if wish < 0.5 else light
            some = [move for move in legal if board.piece_type_at(move.from_square) in kinds]
        board.push(rng.choice(some or legal))
    return board.move_stack


def wild_games(plies: int = 120) -> st.SearchStrategy[list[chess.Move]]:
    """Games of `wild_game` with one to `plies` plies."""
    return st.builds(wild_game, st.integers(0, 2**32), st.integers(1, plies))


def uci(moves: Iterable[chess.Move]) -> tuple[str, ...]:
    """Moves in UCI."""
    return tuple(move.uci() for move in moves)


def san(moves: Iterable[chess.Move], result: str = "*") -> str:
    """Movetext with numbers."""
    return f"{chess.Board().variation_san(moves)} {result}"


def boards_of(moves: Sequence[chess.Move], start: chess.Board | None = None) -> list[chess.Board]:
    """All positions of a game, the first and the last too."""
    board = (start or chess.Board()).copy()
    boards = [board.copy(stack=False)]
    for move in moves:
        board.push(move)
        boards.append(board.copy(stack=False))
    return boards


def lines_of(moves: Sequence[chess.Move], start: chess.Board | None = None) -> Lines:
    """One game as arrays; `start` has White to move and both kings at home."""
    boards = boards_of(moves, start)
    rooks = (chess.BB_H1, chess.BB_A1, chess.BB_H8, chess.BB_A8)
    return Lines(
        offsets=np.array([0, len(moves)]),
        origin=np.array([move.from_square for move in moves], np.uint8),
        target=np.array([move.to_square for move in moves], np.uint8),
        promotion=np.array([move.promotion or 0 for move in moves], np.uint8),
        boards=np.array([board_array(board) for board in boards]),
        castling=np.array(
            [[bool(board.clean_castling_rights() & rook) for rook in rooks] for board in boards]
        ),
        ep_file=np.array(
            [-1 if b.ep_square is None else chess.square_file(b.ep_square) for b in boards], np.int8
        ),
        mate=np.array([boards[-1].is_checkmate()]),
    )


def move_tokens(moves: Iterable[chess.Move], start: chess.Board | None = None) -> list[list[int]]:
    """Tokens of each move."""
    board = (start or chess.Board()).copy()
    return [tokens.push_encoded(board, move) for move in moves]


def hashes_of(moves: Sequence[chess.Move]) -> tuple[int, float, float]:
    """Key of a game, and its numbers in [0, 1) for the split and for the first cut."""
    codes = [m.from_square | m.to_square << 6 | (m.promotion or 0) << 12 for m in moves]
    digest = blake2b(struct.pack(f"<{len(codes)}H", *codes), digest_size=24).digest()
    key, side, cut = struct.unpack("<3Q", digest)
    return key, (side >> 11) / 2**53, (cut >> 11) / 2**53


def position_keys(moves: Sequence[chess.Move]) -> set[Position]:
    """Placement and side to move of every position of a game."""
    return {position_key(board) for board in boards_of(moves)}


def documents_of(
    moves: Sequence[chess.Move], form: Form, plies: int | None = None
) -> list[tuple[list[int], list[bool]]]:
    """Tokens and targets of each document of a game, of which the first `plies` count."""
    kept = len(moves) if plies is None else min(plies, len(moves))
    _, _, cut = hashes_of(moves[:kept])
    _, starts = form.starts(np.array([kept]), np.array([cut]))
    boards, written = boards_of(moves), move_tokens(moves)
    documents = []
    for start in starts.tolist():
        end = min(start + form.plies, kept) if form.name == "board" and form.plies else kept
        shown = tokens.encode_board(boards[start]) if form.name == "board" else []
        told = [token for move in written[start:end] for token in move]
        told += [tokens.EOS] * (end == len(moves))
        documents.append(
            ([tokens.BOS, *shown, *told], [False] * (1 + len(shown)) + [True] * len(told))
        )
    return documents


def unpacked(documents: Documents) -> list[list[tuple[list[int], list[bool]]]]:
    """Documents of each game, as `documents_of` gives them."""
    assert documents.lengths.sum() == len(documents.ids) == len(documents.targets)
    assert documents.games["documents"].sum() == len(documents.lengths)
    edges = np.cumsum(documents.lengths)[:-1]
    pairs = zip(np.split(documents.ids, edges), np.split(documents.targets, edges), strict=True)
    rows = iter([(ids.tolist(), targets.tolist()) for ids, targets in pairs])
    return [[next(rows) for _ in range(count)] for count in documents.games["documents"].tolist()]


@st.composite
def odd_texts(draw, longest: int = 10) -> bytes:
    """Odd pieces in any order, line ends of any kind."""
    text = "".join(draw(st.lists(st.sampled_from(PIECES), min_size=1, max_size=longest)))
    data = text.encode(draw(st.sampled_from(("utf-8", "utf-8", "latin-1"))))
    if draw(st.booleans()):
        data = data.rstrip(b"\n")
    if draw(st.booleans()):
        data = data.replace(b"\n", b"\r\n")
    return b"\xef\xbb\xbf" * draw(st.booleans()) + data


def ingest_twice(
    block: Block,
    *,
    form: Form = HISTORY,
    validation: float = 0.0,
    held_out: HashSet = NOBODY,
    rates: dict[int, float] | None = None,
    **rules,
) -> Ingested:
    """A block ingested with the compiled reader and without it, which has to give the same."""
    draw = Draw(GameFilter(**{"min_plies": 1, "bots": "keep"} | rules), rates or {})
    work = Ingest(draw, form, validation, held_out)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "compiled", None)
        slow = work(block)
    fast = work(block)
    assert (fast.games, fast.skips, fast.position) == (slow.games, slow.skips, slow.position)
    for name in SPLITS:
        one, other = fast.documents.get(name), slow.documents.get(name)
        if one is None or other is None:  # nothing legal in the block
            assert not len((one or other or NONE).ids)
            continue
        for field in dataclasses.fields(Documents):
            left, right = getattr(one, field.name), getattr(other, field.name)
            assert left.dtype == right.dtype and np.array_equal(left, right), field.name
    kept = sum(len(documents.games) for documents in fast.documents.values())
    assert fast.games == kept + len(fast.skips)
    assert [skip.index for skip in fast.skips] == sorted(skip.index for skip in fast.skips)
    return fast
