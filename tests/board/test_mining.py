"""Mining: exact searches agree with brute force, and what is mined is a sound puzzle."""

import random
from itertools import islice
from pathlib import Path

import chess
import pytest

from chessrl.board import tokens
from chessrl.board.difficulty import COEFFICIENTS, HIGHEST, KINDS, LOWEST, describe, estimate
from chessrl.board.engine import Judged, win_probability
from chessrl.board.episodes import replay
from chessrl.board.games import read_games
from chessrl.board.mining import looked_at, mates_in_one, mates_in_two, mine_game
from chessrl.board.prompts import puzzle_prompt
from chessrl.board.puzzles import Puzzle, read_puzzles, validate, write_puzzles
from chessrl.board.skips import SkipReport
from chessrl.board.splits import game_key, split_puzzles
from chessrl.config import MineConfig

STARTER = Path(__file__).parents[2] / "data" / "starter"
WITH_MATES = (62, 64, 118, 189, 194)
"""Games of the starter in which mates were found."""


def mating(board: chess.Board) -> list[str]:
    """Brute force: every legal move that mates."""
    found = []
    for move in list(board.legal_moves):
        board.push(move)
        if board.is_checkmate():
            found.append(move.uci())
        board.pop()
    return sorted(found)


def forcing(board: chess.Board) -> list[str]:
    """Brute force: every first move after which each reply, and there is one, can be mated."""
    if mating(board):
        return []
    found = []
    for move in list(board.legal_moves):
        board.push(move)
        escapes = not any(board.legal_moves)
        for reply in list(board.legal_moves):
            board.push(reply)
            escapes = escapes or not mating(board)
            board.pop()
            if escapes:
                break
        board.pop()
        if not escapes:
            found.append(move.uci())
    return sorted(found)


def texts(moves: list[chess.Move]) -> list[str]:
    return [move.uci() for move in moves]


def endgames(count: int) -> list[chess.Board]:
    """Positions in which a few pieces hunt a king, the same in every run."""
    rng = random.Random(0)
    boards = []
    while len(boards) < count:
        board = chess.Board(None)
        for symbol in rng.choice(("KkQR", "KkQPp", "KkRRp", "KkQNb", "KkPPR", "KkBQpp")):
            low, high = (8, 55) if symbol in "Pp" else (0, 63)
            board.set_piece_at(rng.randint(low, high), chess.Piece.from_symbol(symbol))
        if board.is_valid():
            boards.append(board)
    return boards


def test_mates_in_one_are_those_of_brute_force(positions):
    boards = [*positions, *endgames(600)]
    expected = [mating(board) for board in boards]
    before = [board.fen() for board in boards]
    assert [texts(mates_in_one(board)) for board in boards] == expected
    assert sum(map(bool, expected)) > 30
    for board, moves in zip(boards, expected, strict=True):
        assert len(mates_in_one(board, 2)) == min(2, len(moves))
    assert [board.fen() for board in boards] == before


def two_agree(boards: list[chess.Board], mates: int, single: int) -> None:
    expected = [forcing(board) for board in boards]
    assert sum(map(bool, expected)) > mates
    assert sum(len(moves) == 1 for moves in expected) > single
    before = [board.fen() for board in boards]
    assert [texts(mates_in_two(board)) for board in boards] == expected
    for board, moves in zip(boards, expected, strict=True):
        assert texts(mates_in_two(board, 2)) == moves[:2]
    assert [board.fen() for board in boards] == before


def test_mates_in_two_are_those_of_brute_force(positions):
    two_agree([*positions[::30], *endgames(60)], mates=5, single=2)


@pytest.mark.slow
def test_mates_in_two_are_those_of_brute_force_in_many_positions(positions):
    two_agree([*positions, *endgames(1000)], mates=100, single=30)


@pytest.mark.parametrize(
    ("fen", "mate"),
    [
        ("r1bq1r2/pp2n3/4N2k/3pPppP/1b1n2Q1/2N5/PP3PP1/R1B1K2R w KQ g6 0 15", "h5g6"),
        ("6br/5Ppk/6pp/8/8/8/8/6K1 w - - 0 1", "f7f8n"),
        ("8/4Q3/8/8/8/3k4/2R5/R3K3 w Q - 0 1", "e1c1"),
    ],
    ids=["en passant", "a knight from a pawn", "castling"],
)
def test_rare_mates_are_found(fen, mate):
    assert texts(mates_in_one(chess.Board(fen))) == [mate]


def test_stalemate_is_no_mate():
    board = chess.Board("k7/2K5/8/1Q6/8/8/8/8 w - - 0 1")
    assert "b5b6" not in texts(mates_in_two(board)) + texts(mates_in_one(board))
    after = chess.Board("7k/8/6K1/8/8/8/5Q2/8 w - - 0 1")  # Qf7 leaves no move
    assert texts(mates_in_one(after)) == mating(after)
    trap = chess.Board("7k/5Q2/8/8/8/4K3/8/8 w - - 0 1")
    assert texts(mates_in_two(trap)) == forcing(trap)
    assert "e3f4" not in texts(mates_in_two(trap))


@pytest.mark.parametrize("step", [6, pytest.param(1, marks=pytest.mark.slow)])
def test_every_known_mate_of_the_starter_is_found(step, tmp_path):
    header, *rows = (STARTER / "puzzles.csv").read_text().splitlines(keepends=True)
    mates = [row for row in rows if "mateIn1" in row or "mateIn2" in row]
    (tmp_path / "p.csv").write_text(header + "".join(mates[::step]))
    puzzles = read_puzzles(tmp_path / "p.csv", SkipReport())
    assert len(puzzles) > 1300 // step
    for puzzle in puzzles:
        search = mates_in_one if "mateIn1" in puzzle.themes else mates_in_two
        assert puzzle.moves[1] in texts(search(puzzle.board())), puzzle


@pytest.fixture(scope="module")
def mined() -> list[Puzzle]:
    """Exact mates of a few real games."""
    games = list(islice(read_games(STARTER / "games.pgn.bz2", SkipReport()), max(WITH_MATES) + 1))
    return [
        puzzle
        for number in WITH_MATES
        for puzzle in mine_game(games[number].moves, MineConfig(per_game=3), None, f"g/{number}")
    ]


def answers(puzzle: Puzzle) -> list[str]:
    """Solver moves in token notation."""
    board, written = puzzle.board(), []
    for number, uci in enumerate(puzzle.moves[1:]):
        move = chess.Move.from_uci(uci)
        text = tokens.decode(tokens.push_encoded(board, move))
        if number % 2 == 0:
            written.append(text)
    return written


def test_mined_mates_are_sound_puzzles(mined, tmp_path):
    assert len(mined) >= 7
    assert {"mateIn1", "mateIn2"} <= {theme for puzzle in mined for theme in puzzle.themes}
    for puzzle in mined:
        assert validate(puzzle) is None
        assert replay(puzzle, answers(puzzle)).reward == 1
        board = chess.Board()
        for uci in puzzle.history:
            board.push_uci(uci)
        assert board.fen() == puzzle.fen
        assert LOWEST <= puzzle.rating <= HIGHEST
        assert puzzle.id[0] == "m" and len(puzzle.id) == 11
        for form in ("board", "history"):
            assert puzzle_prompt(puzzle, form)[0] == tokens.BOS
    write_puzzles(tmp_path / "p.csv", mined)
    report = SkipReport()
    assert read_puzzles(tmp_path / "p.csv", report) == mined
    assert report.counts == {}


def test_mined_mates_have_one_first_move_and_the_hardest_reply(mined):
    for puzzle in mined:
        board = puzzle.board()
        if "mateIn1" in puzzle.themes:
            assert mating(board) == [puzzle.moves[1]]
            continue
        assert forcing(board) == [puzzle.moves[1]]
        board.push_uci(puzzle.moves[1])
        left = {}
        for reply in list(board.legal_moves):
            board.push(reply)
            left[reply.uci()] = len(mating(board))
            board.pop()
        fewest = min(left.values())
        assert puzzle.moves[2] == min(uci for uci, mates in left.items() if mates == fewest)


def test_puzzles_of_a_game_stay_on_one_side(mined):
    assert len({game_key(puzzle.game) for puzzle in mined}) == len(WITH_MATES)
    split = split_puzzles(mined, sft=0.5, test_per_bin=1)
    sides = [{puzzle.game for puzzle in part} for part in split.values()]
    assert sum(map(len, sides)) == len(WITH_MATES)


FOOLS = ("f2f3", "e7e5", "g2g4", "d8h4")


def test_a_game_that_ends_in_mate():
    (puzzle,) = mine_game(FOOLS, MineConfig(), game="g/0")
    assert (puzzle.moves, puzzle.history) == (FOOLS[2:], FOOLS[:2])
    assert puzzle.themes == ("mate", "mateIn1", "oneMove", "opening")
    assert puzzle.game == "g/0"
    given_up = mine_game(FOOLS[:3], MineConfig(), game="g/0")
    every = mine_game(FOOLS, MineConfig(last_plies=0, per_game=9), game="g/0")
    assert given_up == every == [puzzle]
    assert mine_game(FOOLS, MineConfig(last_plies=1)) == []


def test_positions_looked_at_are_counted():
    settings = MineConfig(last_plies=3)
    assert looked_at(40, settings, []) == 3
    assert looked_at(1, settings, []) == 0
    assert looked_at(40, MineConfig(last_plies=0), []) == 39  # all but the start and the first ply
    (puzzle,) = mine_game(FOOLS, settings)
    assert looked_at(4, settings, [puzzle]) == 2


def test_two_mates_are_no_puzzle():
    moves = ("h2h3", "e7e6", "g2g4", "f8d6", "f2f3")
    board = chess.Board()
    for uci in moves:
        board.push_uci(uci)
    assert mating(board) == ["d6g3", "d8h4"]
    assert mine_game(moves, MineConfig()) == []
    judge = Told({})
    assert mine_game(moves, with_engine(), judge) == []
    assert judge.asked == []


class Told:
    """A judge that has been told its answers; elsewhere nothing is better than anything else."""

    def __init__(self, known: dict[str, list[tuple[str, int]]]) -> None:
        self.known = known
        self.asked: list[str] = []

    def __call__(self, board: chess.Board) -> list[Judged]:
        key = board.fen()
        assert key not in self.asked, "a position is judged once"
        self.asked.append(key)
        lines = self.known.get(key)
        if lines is None:
            lines = [(move.uci(), 0) for move in islice(board.legal_moves, 2)]
        return [
            Judged(chess.Move.from_uci(uci), win_probability(worth), worth) for uci, worth in lines
        ]


GAME = ("e2e4", "e7e5", "g1f3", "d8h4")
"""Black leaves the queen to the knight."""
LINE = ("f3h4", "b8c6", "h4f3", "g8f6")


def told(*worths: list[tuple[str, int]] | None) -> Told:
    """Answers in the position after GAME, and after each two plies of LINE; replies are LINE's."""
    board = chess.Board()
    for uci in GAME:
        board.push_uci(uci)
    known = {}
    for number, uci in enumerate(LINE):
        if number % 2:
            known[board.fen()] = [(uci, -900), ("a7a6", -950)]
        elif worths[number // 2 : number // 2 + 1]:
            known[board.fen()] = worths[number // 2]
        board.push_uci(uci)
    return Told(known)


def with_engine(**changes) -> MineConfig:
    return MineConfig(last_plies=1, **changes)


def test_a_judge_finds_a_win_that_is_new_and_the_only_one():
    (puzzle,) = mine_game(GAME, with_engine(), told([("f3h4", 900), ("b1c3", 0)]))
    assert puzzle.moves == ("d8h4", "f3h4")
    assert puzzle.themes == ("crushing", "oneMove", "opening")
    assert validate(puzzle) is None
    (puzzle,) = mine_game(GAME, with_engine(), told([("f3h4", 500), ("b1c3", 0)]))
    assert puzzle.themes == ("advantage", "oneMove", "opening")


@pytest.mark.parametrize(
    "first",
    [
        [("f3h4", 900), ("b1c3", 500)],  # the second wins too
        [("f3h4", 200), ("b1c3", -900)],  # the best does not win
    ],
)
def test_what_is_not_the_only_win_is_no_puzzle(first):
    assert mine_game(GAME, with_engine(), told(first)) == []


@pytest.mark.parametrize(("before", "found"), [(-600, 0), (-200, 0), (0, 1), (200, 1)])
def test_a_win_has_to_be_new(before, found):
    """900 centipawns after a move that, well played, left -200 or 0 to the opponent."""
    judge = told([("f3h4", 900), ("b1c3", 0)])
    board = chess.Board()
    for uci in GAME[:-1]:
        board.push_uci(uci)
    judge.known[board.fen()] = [("b8c6", before), ("a7a6", before - 100)]
    assert len(mine_game(GAME, with_engine(), judge)) == found


def test_the_line_goes_on_while_there_is_one_answer():
    sole = [("h4f3", 900), ("a2a3", 100)]
    judge = told([("f3h4", 900), ("b1c3", 0)], sole)
    (puzzle,) = mine_game(GAME, with_engine(), judge)
    assert puzzle.moves == ("d8h4", *LINE[:3])  # ends with a move of the solver
    assert puzzle.themes == ("crushing", "opening", "short")
    judge = told([("f3h4", 900), ("b1c3", 0)], sole)
    assert mine_game(GAME, with_engine(max_solver_moves=1), judge)[0].moves == ("d8h4", "f3h4")


def test_a_line_does_not_end_on_a_forced_move():
    forced = [("h4f3", 900)]
    (puzzle,) = mine_game(GAME, with_engine(), told([("f3h4", 900), ("b1c3", 0)], forced))
    assert puzzle.moves == ("d8h4", "f3h4")


def test_a_single_legal_move_is_no_puzzle():
    moves = ("f2f4", "e7e5", "f4e5", "d8h4")
    board = chess.Board()
    for uci in moves:
        board.push_uci(uci)
    assert texts(list(board.legal_moves)) == ["g2g3"]
    judge = Told({})
    assert mine_game(moves, with_engine(), judge) == []
    assert judge.asked == []


def test_a_judge_may_find_the_mates_too():
    moves = ("e2e4", "e7e5", "f1c4", "b8c6", "d1h5", "a7a6")
    board = chess.Board()
    for uci in moves:
        board.push_uci(uci)
    judge = Told({board.fen(): [("h5f7", 10**6), ("b1c3", 0)]})
    (puzzle,) = mine_game(moves, with_engine(mates=0), judge)
    assert puzzle.themes == ("mate", "mateIn1", "oneMove", "opening")
    assert puzzle.moves == mine_game(moves, with_engine())[0].moves


def test_ratings_are_guessed_by_kind(mined, starter):
    assert all(len(row) == len(KINDS) for row in COEFFICIENTS.values())
    for puzzle in [*mined, *starter]:
        board = chess.Board(puzzle.fen)
        kind, values = describe(board, puzzle.moves)
        assert set(values) == set(COEFFICIENTS)
        assert board.fen() == puzzle.fen
        if kind != "other":
            assert kind in puzzle.themes
    guesses = [estimate(chess.Board(p.fen), p.moves) for p in starter]
    easy = [g for g, p in zip(guesses, starter, strict=True) if p.rating < 1000]
    hard = [g for g, p in zip(guesses, starter, strict=True) if p.rating > 2000]
    assert sum(hard) / len(hard) - sum(easy) / len(easy) > 400
