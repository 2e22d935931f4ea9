"""Puzzles that judges get wrong, with answers and the verdicts due, written by hand."""

from dataclasses import dataclass

from chessrl.board.puzzles import Puzzle

Answers = tuple[str, str, str]
"""Turns as tokens, `;` between them; the ending; UCI of each judged answer, `-` for no move."""


@dataclass(frozen=True)
class Case:
    """A puzzle and what its answers must come to."""

    puzzle: Puzzle
    answers: tuple[Answers, ...]


def _puzzle(name: str, fen: str, line: str) -> Puzzle:
    return Puzzle(id=f"selftest/{name}", fen=fen, moves=tuple(line.split()), rating=1500)


def _case(name: str, fen: str, line: str, *answers: Answers) -> Case:
    return Case(_puzzle(name, fen, line), answers)


CASTLERS = "r3k2r/p6p/8/8/8/8/P6P/R3K2R {} KQkq - 0 1"
TWO_MATES = "7k/8/6K1/8/8/8/8/QR6 b - - 0 1"
PAWN = "4k3/8/8/8/8/8/4P3/4K3 b - - 0 1"

HARD = (
    _case(
        "castling-by-black",
        "4k2r/8/8/8/8/8/6K1/R7 w k - 0 1",
        "a1a7 e8g8 a7a1 f8a8",
        ("O-O ; R f8 a8", "solved", "e8g8 f8a8"),
        ("O-O", "truncated", "e8g8"),
        ("O-O ; R f8 e8", "wrong", "e8g8 f8e8"),
        ("O-O ; R h8 a8", "illegal", "e8g8 -"),
        ("O-O ; f8 a8", "malformed", "e8g8 -"),
        ("K e8 d8 ; R f8 a8", "wrong", "e8d8"),  # no reply after an error
        ("R h8 f8 ; R f8 a8", "wrong", "h8f8"),
        ("K e1 g1", "illegal", "-"),  # White's squares
        ("K e8 g8", "malformed", "-"),
        ("O-O-O", "illegal", "-"),
    ),
    _case(
        "long-castling-by-black",
        CASTLERS.format("w"),
        "h2h3 e8c8",
        ("O-O-O", "solved", "e8c8"),
        ("O-O", "wrong", "e8g8"),
    ),
    _case(
        "castling-by-white",
        CASTLERS.format("b"),
        "h7h6 e1g1",
        ("O-O", "solved", "e1g1"),
        ("O-O-O", "wrong", "e1c1"),
        ("K e1 f1", "wrong", "e1f1"),
    ),
    _case(
        "another-mate",
        TWO_MATES,
        "h8g8 a1a8",
        ("Q a1 a8 #", "solved", "a1a8"),
        ("R b1 b8 #", "solved", "b1b8"),
        ("Q a1 g7", "solved", "a1g7"),  # the sign does not say which move is meant
        ("Q a1 a2 +", "wrong", "a1a2"),
        ("Q a1 a2 #", "wrong", "a1a2"),
        ("<T> K g6 f6 <sep> Q a1 a2 + </T> R b1 b8 #", "solved", "b1b8"),
        ("<T> Q a1 a8 #", "malformed", "-"),
        ("<T> Q a1 a8 # </T>", "malformed", "-"),
        ("<T> Q a1 a8 # </T> K g6 f6", "wrong", "g6f6"),
        ("<T> K g6 f6 </T> K g6 f6 </T> Q a1 a8 #", "malformed", "-"),
        ("K g6 f6 <T> </T> Q a1 a8 #", "malformed", "-"),
        ("<bos> Q a1 a8 #", "malformed", "-"),
        ("Q a1 a8 # Q a1 a8 #", "malformed", "-"),
        ("", "malformed", "-"),
    ),
    _case(
        "no-mate-in-the-solution",
        TWO_MATES,
        "h8g8 a1a2",
        ("Q a1 a2 +", "solved", "a1a2"),
        ("R b1 b8 #", "wrong", "b1b8"),
    ),
    _case(
        "board-before-the-solver",
        PAWN,
        "e8d8 e2e4",
        ("P e2 e4", "solved", "e2e4"),
        ("K e8 d8", "illegal", "-"),  # the opponent's move
        ("K d8 e8", "illegal", "-"),  # the opponent's piece
        ("Q e2 e4", "malformed", "-"),
        ("P e2 x e4", "malformed", "-"),
        ("e2 e4", "malformed", "-"),
        ("P e2 e2", "malformed", "-"),
        ("P e2 e3", "wrong", "e2e3"),
    ),
    _case(
        "en-passant-by-white",
        "4k3/3p4/8/4P3/8/8/8/4K3 b - - 0 1",
        "d7d5 e5d6",
        ("P e5 x d6", "solved", "e5d6"),
        ("P e5 d6", "malformed", "-"),
        ("P e5 e6", "wrong", "e5e6"),
        ("P e5 x f6", "illegal", "-"),
    ),
    _case(
        "en-passant-by-black",
        "4k3/8/8/8/3p4/8/4P3/4K3 w - - 0 1",
        "e2e4 d4e3",
        ("P d4 x e3", "solved", "d4e3"),
        ("P d4 d3", "wrong", "d4d3"),
    ),
    _case(
        "promotion-to-a-knight",
        "1k6/8/8/8/8/8/4p3/6K1 w - - 0 1",
        "g1h1 e2e1n",
        ("P e2 e1 = N", "solved", "e2e1n"),
        ("P e2 e1 = Q +", "wrong", "e2e1q"),
        ("P e2 e1", "illegal", "-"),
        ("N e2 e1 = N", "malformed", "-"),
        ("P e2 e1 = K", "malformed", "-"),
    ),
    _case(
        "pinned-piece",
        "4r1k1/8/8/8/8/8/4N3/4K3 b - - 0 1",
        "g8h8 e1f2",
        ("K e1 f2", "solved", "e1f2"),
        ("N e2 c3", "illegal", "-"),
    ),
    _case(
        "seven-moves",
        "7k/8/8/8/8/2P5/2K5/R7 b - - 0 1",
        "h8g8 a1b1 g8h8 b1c1 h8g8 c1d1 g8h8 d1e1 h8g8 e1f1 g8h8 f1f2 h8g8 f2f3",
        (
            "R a1 b1 ; R b1 c1 ; R c1 d1 ; R d1 e1 ; R e1 f1 ; R f1 f2 ; R f2 f3",
            "solved",
            "a1b1 b1c1 c1d1 d1e1 e1f1 f1f2 f2f3",
        ),
        (
            "R a1 b1 ; R b1 c1 ; R c1 d1 ; R d1 e1 ; R e1 f1 ; R f1 f2 ; R f2 f4",
            "wrong",
            "a1b1 b1c1 c1d1 d1e1 e1f1 f1f2 f2f4",
        ),
    ),
)

FAULTY = (
    (_puzzle("solution-not-legal", PAWN, "e8d8 e1e3"), "P e2 e4"),
    (_puzzle("reply-not-legal", CASTLERS.format("b"), "h7h6 e1g1 h6h4 g1h1"), "O-O"),
)
"""Puzzles whose recorded line cannot be played, with an answer at which that has to raise."""
