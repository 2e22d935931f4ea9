"""Faults that files of games have: each is told by its reason and place, and costs no neighbour.

Where python-chess alone would take something else than the file says, and report no error, the
table says what: this is why the text is not left to it.
"""

import io
from pathlib import Path

import chess.pgn
import pytest
import zstandard
from oracle import HEAD, ingest_twice, unpacked

from chessrl.board.blocks import read_blocks
from chessrl.board.tokens import decode

NEIGHBOUR = HEAD + "1. a3 a6 *\n\n"
BEFORE = "<bos>Pa2a3Pa7a6<eos>"
LINE = NEIGHBOUR.count("\n") + HEAD.count("\n") + 1  # of the movetext after one neighbour
ITALIAN = "1. e4 e5 2. Nf3 Nc6 3. Bc4 Bc5 4."
TAKES = "1. a4 b5 2. axb5 a6 3. bxa6 c6 4. a7 c5 5."
LOYD = (
    "1. e3 a5 2. Qh5 Ra6 3. Qxa5 h5 4. h4 Rah6 5. Qxc7 f6 6. Qxd7+ Kf7 7. Qxb7 Qd3 8. Qxb8 Qh7 "
    "9. Qxc8 Kg6 10. Qe6"
)
Told = tuple[list[str], list[tuple[str, str, int, int]]]


@pytest.fixture
def read(tmp_path):
    """Documents in a file, and reason, token, line and place of each skip."""

    def told(content: str | bytes) -> Told:
        path = tmp_path / "games.pgn"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return of_file(path)

    return told


def of_file(path: Path) -> Told:
    documents, skips, games = [], [], 0
    for block in read_blocks(path):
        done = ingest_twice(block)
        if "train" in done.documents:
            rows = unpacked(done.documents["train"])
            documents += [decode(ids) for game in rows for ids, _ in game]
        assert all(skip.file == str(path) for skip in done.skips)
        skips += [(s.reason, s.token, s.line, s.index + games) for s in done.skips]
        games += done.games
    return documents, skips


def oracle(text: str) -> str | None:
    """Moves that python-chess alone takes from the first game; None where it reports an error."""
    game = chess.pgn.read_game(io.StringIO(text))
    return None if game.errors else " ".join(move.uci() for move in game.mainline_moves())


LOUD = None  # python-chess says that something is wrong
FAULTS = [
    # movetext, reason, token, what python-chess silently makes of it
    ("1. d4 d5 2. Nf3 Nf6 3. Qd4 g6 4. g3 *", "illegal_move", "Qd4", LOUD),
    ("1. Nf3 d5 2. Nd4 e5 3. Nc3 a6 4. Nb5 *", "illegal_move", "Nb5", LOUD),  # ambiguous
    ("1. d4 d5 2. c4 c4 *", "illegal_move", "c4", LOUD),  # not for dxc4
    ("1... e5 2. e4 *", "illegal_move", "e5", LOUD),
    ("1. e4 2. d4 *", "illegal_move", "d4", LOUD),  # Black's move is missing
    ("1. c4 -- 2. g3 e5 *", "null_move", "--", "c2c4 0000 g2g3 e7e5"),
    ("1. c4 Z0 2. g3 e5 *", "null_move", "Z0", "c2c4 0000 g2g3 e7e5"),
    ("1. c4 0000 *", "null_move", "0000", "c2c4 0000"),
    ("1. d4 d5 2. Lf4 Lf5 *", "malformed_token", "Lf4", "d2d4 d7d5 f2f4 f7f5"),
    ("1. Sf3 Sf6 *", "malformed_token", "Sf3", "f2f3 f7f6"),
    ("1. ♘f3 ♞f6 *", "malformed_token", "♘f3", "f2f3 f7f6"),
    ("1. nf3 nf6 *", "malformed_token", "nf3", "f2f3 f7f6"),
    ("1. E4 *", "malformed_token", "E4", ""),
    ("1. e4 D e5 *", "malformed_token", "D", "e2e4 e7e5"),
    ("1. e4 e5 [%clk 0:01:00] *", "malformed_token", "[%clk", "e2e4 e7e5"),
    ("1. e4 e5 +- *", "malformed_token", "+-", "e2e4 e7e5"),
    ("1. e4!!! e5 *", "malformed_token", "!!!", "e2e4 e7e5"),
    ("1. e4 d5 2. e:d5 *", "malformed_token", "e:d5", LOUD),
    ("1. Nf3Nc6 2. e4 *", "malformed_token", "Nf3Nc6", LOUD),
    ("1. e4e5 2. d4 *", "illegal_move", "e4e5", LOUD),
    (f"{ITALIAN} o-o *", "malformed_token", "o-o", "e2e4 e7e5 g1f3 b8c6 f1c4 f8c5"),
    (f"{TAKES} axb8 Nf6 *", "illegal_move", "axb8", LOUD),
    (f"{TAKES} axb8=K *", "malformed_token", "axb8=K", LOUD),
    (f"{TAKES} axb8=P *", "malformed_token", "axb8=P", LOUD),
    (f"{TAKES} axb8/Q *", "malformed_token", "axb8/Q", LOUD),
    ("1. e4 e5 2. Nf3=Q *", "illegal_move", "Nf3=Q", LOUD),
    ("1. d4 a6 2. d5 e5 3. dxe6ep *", "malformed_token", "dxe6ep", "d2d4 a7a6 d4d5 e7e5 d5e6"),
    ("1. d4 {a {b} c} d5 *", "malformed_token", "c", "d2d4 d7d5"),
    ("1. d4 ) d5 *", "malformed_token", ")", "d2d4 d7d5"),
    ("1. d4 {open d5 2. c4 *", "unclosed_comment", "{open d5 2. c4 *", "d2d4"),
    ("1. d4 (1. e4 d5 2. c4 *", "unclosed_variation", "(1. e4 d5 2. c4 *", LOUD),
    ("1. f3 e5 2. g4 Qh4# 3. a3 *", "moves_after_end", "a3", LOUD),
    (f"{LOYD} Kh7 *", "moves_after_end", "Kh7", LOUD),
    ("1. d4 d5 1-0 2. c4 *", "text_after_result", "2.", "d2d4 d7d5 c2c4"),
    ("1. d4 d5 1-0 0-1", "text_after_result", "0-1", "d2d4 d7d5"),
    ("1. d4 d5 1:0", "malformed_token", "1:0", "d2d4 d7d5"),
    ("1. d4 d5 1/2", "malformed_token", "1/2", "d2d4 d7d5"),
    ("1. d4 d5 ½-½", "malformed_token", "½-½", "d2d4 d7d5"),
    ("1. d4 d5 1 - 0", "malformed_token", "-", "d2d4 d7d5"),
    ("1. d4 d5 0-0", "illegal_move", "0-0", LOUD),
    ("1. e4 e5 99999. d4 *", "malformed_token", "99999.", "e2e4 e7e5 d2d4"),
    # a second game that has lost its header never becomes a part of this one
    ("1. c4 c5\n\n1. d4 d5 *", "wrong_move_number", "1.", "c2c4 c7c5"),
    ("1. c4 c5\n \n1. d4 d5 *", "wrong_move_number", "1.", "c2c4 c7c5"),
    ("1. c4 c5\n\nd4 d5 *", "wrong_move_number", "d4", "c2c4 c7c5"),
    ("*", "no_moves", "", ""),
    ("", "no_moves", "", ""),
    ("{nothing} (1. e4) *", "no_moves", "", "e2e4"),
    ("1. e4 \0 e5 *", "undecodable", "", "e2e4 e7e5"),
    ("1. e4 {\0} e5 *", "undecodable", "", "e2e4 e7e5"),
]  # fmt: skip


@pytest.mark.parametrize(("movetext", "reason", "token", "silent"), FAULTS)
def test_a_fault_in_the_moves(read, movetext, reason, token, silent):
    documents, [skip] = read(f"{NEIGHBOUR}{HEAD}{movetext}\n\n{NEIGHBOUR}")
    assert documents == [BEFORE, BEFORE]
    assert (skip[:2], skip[3]) == ((reason, token), 1)
    # where no token is to blame, the game is told by its first line
    at = movetext.rindex(token) if reason == "wrong_move_number" else 0
    assert skip[2] == (LINE + movetext[:at].count("\n") if token else 6)
    assert oracle(HEAD + movetext) == silent


PLAY = "<bos>Pe2e4Pe7e5Ng1f3Nb8c6Bf1c4Bf8c5O-O<eos>"
ACCEPTED = [
    (f"{ITALIAN} 0-0 *", PLAY),
    ("e2e4 e7e5 g1f3 b8c6 f1c4 f8c5 e1g1 *", PLAY),  # UCI
    ("1. e2-e4 e7-e5 2. Ng1-f3 Nb8-c6 3. Bf1-c4 Bf8-c5 4. O-O *", PLAY),
    ("1.e4 e5 2.Nf3 Nc6 3.Bc4 Bc5 4.O-O *", PLAY),
    ("1. e4+ e5# 2. Nxf3 Nc6+ 3. Bc4++ Bc5 4. O-O# *", PLAY),  # signs are written anew
    ("1. e4 e5 2. Nf3 {1. d4 *} Nc6 (2... d6 3. -- (3. Lf4)) 3. Bc4 $1 Bc5 ; {\n4. O-O *", PLAY),
    ("1. e4 e5\n\n2. Nf3 Nc6\n3. Bc4 Bc5\n\n4. O-O *", PLAY),  # one game, never two
    ("1. e4 {" + "long " * 300_000 + "} e5 *", "<bos>Pe2e4Pe7e5<eos>"),
    ("1. e4 e5 2. Qh5 Nc6 3. Bc4 Nf6 4. Qxf7 *",
     "<bos>Pe2e4Pe7e5Qd1h5Nb8c6Bf1c4Ng8f6Qh5xf7#<eos>"),
    ("1. e4 d5 2. ed5 Nf6 3. Bb5 *", "<bos>Pe2e4Pd7d5Pe4xd5Ng8f6Bf1b5+<eos>"),
    ("1. d4 a6 2. d5 e5 3. dxe6 e.p. *", "<bos>Pd2d4Pa7a6Pd4d5Pe7e5Pd5xe6<eos>"),
    (f"{TAKES} axb8Q *", "<bos>Pa2a4Pb7b5Pa4xb5Pa7a6Pb5xa6Pc7c6Pa6a7Pc6c5Pa7xb8=Q<eos>"),
    ("1. f3 e5 2. g4 Qh4 0-1", "<bos>Pf2f3Pe7e5Pg2g4Qd8h4#<eos>"),
    (f"{LOYD} *", None),
    ("1. e4 e5 2", "<bos>Pe2e4Pe7e5<eos>"),  # cut by a server
]  # fmt: skip


@pytest.mark.parametrize(("movetext", "document"), ACCEPTED)
def test_what_is_clear_is_taken_and_written_anew(read, movetext, document):
    documents, skips = read(f"{NEIGHBOUR}{HEAD}{movetext}\n\n{NEIGHBOUR}")
    assert skips == []
    assert documents[::2] == [BEFORE, BEFORE]
    assert documents[1] == document or (document is None and documents[1].endswith("Qc8e6<eos>"))


@pytest.mark.parametrize(
    ("tags", "reason", "token"),
    [
        ('[Variant "Atomic"]', "variant", "Atomic"),
        ('[Variant "Écarté"]', "variant", "Écarté"),
        ('[Variant "Chess960"]\n[FEN "nrbqkbrn/pppppppp/8/8/8/8/PPPPPPPP/NRBQKBRN w GBgb - 0 1"]',
         "variant", "Chess960"),
        ('[SetUp "1"]\n[FEN "nrbqkbrn/pppppppp/8/8/8/8/PPPPPPPP/NRBQKBRN w GBgb - 0 1"]',
         "fen_start", "nrbqkbrn/pppppppp/8/8/8/8/PPPPPPPP/NRBQKBRN w GBgb - 0 1"),
        ('[FEN "4k3/8/8/8/8/8/4P3/4K3 w - - 0 1"]', "fen_start",
         "4k3/8/8/8/8/8/4P3/4K3 w - - 0 1"),
        ('[White "unclosed', "malformed_tag", '[White "unclosed'),
        ('[White unquoted]', "malformed_tag", "[White unquoted]"),
        ('[White "nul \0"]', "undecodable", ""),
    ],
)  # fmt: skip
def test_a_game_that_its_tags_rule_out(read, tags, reason, token):
    documents, [skip] = read(f'{NEIGHBOUR}[Event "x"]\n{tags}\n\n1. e4 e5 *\n\n{NEIGHBOUR}')
    assert documents == [BEFORE, BEFORE]
    line = 7 if reason == "malformed_tag" else 6
    assert skip == (reason, token, line, 1)


@pytest.mark.parametrize(
    ("text", "documents", "skips"),
    [
        ("", [], []),
        ("\n \n\r\n", [], []),
        (HEAD, [], [("no_moves", "", 1, 0)]),
        (HEAD + NEIGHBOUR, [BEFORE], [("no_moves", "", 1, 0)]),
        ("1. d4 d5 *\n\n" + NEIGHBOUR, [BEFORE], [("no_headers", "1. d4 d5 *", 1, 0)]),
        (f"{NEIGHBOUR}1. d4 d5 *\n\n{NEIGHBOUR}", [BEFORE] * 2,
         [("no_headers", "1. d4 d5 *", 6, 1)]),
        # a header and text in a comment that never closes, and in one that does
        (HEAD + '1. d4 {\n[Event "B"]\n\n1. c4 c5 *\n\n' + NEIGHBOUR,
         ["<bos>Pc2c4Pc7c5<eos>", BEFORE], [("unclosed_comment", "{", 4, 0)]),
        (HEAD + '1. d4 {\n[Event "B"]\n\n1. c4 c5 *\n} d5 *\n\n' + NEIGHBOUR,
         ["<bos>Pd2d4Pd7d5<eos>", BEFORE], []),
        ("<html>\n<body class=\"x\">\n<p>1. e4 e5 1-0</p>\n</body>\n</html>\n", [],
         [("no_headers", "<html>", 1, 0)]),
        (NEIGHBOUR.encode("utf-16"), [], [("undecodable", "", 1, 0)]),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", [], [("undecodable", "", 1, 0)]),
    ],
)  # fmt: skip
def test_whole_files(read, text, documents, skips):
    assert read(text) == (documents, skips)


@pytest.mark.parametrize("codec", ["utf-8-sig", "utf-8", "latin-1"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_files_of_every_origin(read, codec, end):
    text = (
        f'[White "Muñoz"]\n{NEIGHBOUR}{HEAD}1. e4 {{Zürich}}\ne5 *\n\n{HEAD}1. Lf4 *\n\n{NEIGHBOUR}'
    )
    documents, skips = read(text.replace("\n", end).encode(codec))
    assert documents == [BEFORE, "<bos>Pe2e4Pe7e5<eos>", BEFORE]
    assert skips == [("malformed_token", "Lf4", 16, 2)]


def test_a_cut_file_is_told_where_it_breaks(tmp_path):
    path = tmp_path / "cut.pgn.zst"
    writer = zstandard.ZstdCompressor().compressobj()
    data = writer.compress((NEIGHBOUR * 3 + HEAD + "1. d4").encode())
    path.write_bytes(data + writer.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK))
    assert of_file(path) == ([BEFORE] * 3, [("truncated_stream", "", 16, 3)])
    path.write_bytes(path.read_bytes()[:6])
    assert of_file(path) == ([], [("truncated_stream", "", 1, 0)])


def test_a_long_token_is_shortened(read):
    _, [skip] = read(f"{HEAD}1. e4 {'x' * 1000} *\n")
    assert skip == ("malformed_token", "x" * 80, 4, 0)
