"""Tokens: the released order, and a notation that python-chess and the board agree with."""

import chess
import pytest

from chessrl.board import tokens
from chessrl.board.tokens import (
    Illegal,
    Unreadable,
    decode,
    decode_board,
    encode_board,
    encode_line,
    encode_move,
    push_encoded,
    read_move,
    split_moves,
)

# The 81 of the released study, written out by hand.
RELEASED = (
    "<bos> <eos> <unk> K Q R B N P "
    "a1 a2 a3 a4 a5 a6 a7 a8 b1 b2 b3 b4 b5 b6 b7 b8 c1 c2 c3 c4 c5 c6 c7 c8 "
    "d1 d2 d3 d4 d5 d6 d7 d8 e1 e2 e3 e4 e5 e6 e7 e8 f1 f2 f3 f4 f5 f6 f7 f8 "
    "g1 g2 g3 g4 g5 g6 g7 g8 h1 h2 h3 h4 h5 h6 h7 h8 "
    "x = + # O-O O-O-O . ..."
)
EN_PASSANT = "4k3/8/8/3pP3/8/8/8/4K3 w - d6 0 1"
PROMOTION = "3r1k2/4P3/8/8/8/8/8/4K3 w - - 0 1"


def encoded(fen: str, uci: str) -> str:
    return decode(encode_move(chess.Board(fen), chess.Move.from_uci(uci)))


def rendered_by_python_chess(board: chess.Board, move: chess.Move) -> str:
    """Long algebraic notation with the pawn's letter and without the dash."""
    lan = board.lan(move)
    if lan.startswith("O-O"):
        return lan
    return (lan if lan[0].isupper() else "P" + lan).replace("-", "")


def test_the_first_81_are_the_released_ones_in_their_order():
    assert tokens.TOKENS[:81] == tuple(RELEASED.split())
    assert tokens.TOKENS.index("a1") == 9  # 3 + 6
    assert tokens.TOKENS.index("h8") == 72
    assert tokens.TOKENS.index("...") == 80


def test_tokens_are_unique_and_special_ones_have_their_own_ids():
    assert len(set(tokens.TOKENS)) == len(tokens.TOKENS)
    special = [tokens.BOS, tokens.EOS, tokens.PAD, tokens.THINK, tokens.END_THINK, tokens.SEP,
               tokens.CALL_ENV, tokens.BOARD, *tokens.SIDE.values()]  # fmt: skip
    assert len(set(special)) == 10
    assert [tokens.TOKENS[i] for i in special] == [
        "<bos>", "<eos>", "<pad>", "<T>", "</T>", "<sep>", "<call_env>", "<board>", "<white>",
        "<black>",
    ]  # fmt: skip


def test_the_vocabulary_keeps_its_hash():
    # a change of this number makes every dataset and checkpoint unreadable: never by accident
    assert tokens.VOCABULARY_HASH == "98f00cf94a0c930b"


def test_every_legal_move_comes_back_from_its_text(positions):
    moves = 0
    for board in positions:
        before = board.fen()
        texts = set()
        for move in board.legal_moves:
            text = decode(encode_move(board, move))
            assert text == rendered_by_python_chess(board, move)
            assert read_move(board, text) == move
            assert read_move(board, text.rstrip("+#")) == move
            texts.add(text)
            moves += 1
        assert len(texts) == board.legal_moves.count()
        assert board.fen() == before
    assert moves > 4000


def test_pushing_and_encoding_agree(positions):
    for board in positions[::5]:
        for move in board.legal_moves:
            pushed = board.copy()
            assert push_encoded(pushed, move) == encode_move(board, move)
            board.push(move)
            assert pushed == board
            board.pop()


@pytest.mark.parametrize(
    ("fen", "uci", "text"),
    [
        (PROMOTION, "e7e8q", "Pe7e8=Q+"),
        (PROMOTION, "e7e8r", "Pe7e8=R+"),
        (PROMOTION, "e7e8b", "Pe7e8=B"),
        (PROMOTION, "e7d8n", "Pe7xd8=N"),
        ("k7/4P3/1K6/8/8/8/8/8 w - - 0 1", "e7e8q", "Pe7e8=Q#"),
        (EN_PASSANT, "e5d6", "Pe5xd6"),
        ("4k3/8/8/3p4/8/8/4P3/4K3 w - - 0 1", "e2e4", "Pe2e4"),
        ("r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 0 1", "e1g1", "O-O"),
        ("r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 0 1", "e1c1", "O-O-O"),
        ("r3k2r/8/8/8/8/8/8/R3K2R b KQkq - 0 1", "e8g8", "O-O"),
        ("r3k2r/8/8/8/8/8/8/R3K2R b KQkq - 0 1", "e8c8", "O-O-O"),
        ("5k2/8/8/8/8/8/8/4K2R w K - 0 1", "e1g1", "O-O+"),
        ("4k2r/8/8/8/8/8/8/5K2 b k - 0 1", "e8g8", "O-O+"),
        ("3k4/8/8/8/8/8/8/R3K3 w Q - 0 1", "e1c1", "O-O-O+"),
        ("r3k3/8/8/8/8/8/8/3K4 b q - 0 1", "e8c8", "O-O-O+"),
        # the king on d1 has c1, c2 (rook from c8), e1, e2 (rook e3) and d2 (rook d8) taken
        ("r3k3/8/8/8/8/2q1r3/8/3K4 b q - 0 1", "e8c8", "O-O-O#"),
    ],
)
def test_special_moves(fen, uci, text):
    assert encoded(fen, uci) == text
    assert read_move(chess.Board(fen), text).uci() == uci


def test_a_move_is_a_few_tokens():
    board = chess.Board(PROMOTION)
    ids = encode_move(board, chess.Move.from_uci("e7d8q"))
    assert [tokens.TOKENS[i] for i in ids] == ["P", "e7", "x", "d8", "=", "Q", "+"]
    assert [tokens.TOKENS[i] for i in encode_move(chess.Board(), chess.Move.from_uci("g1f3"))] == [
        "N", "g1", "f3",
    ]  # fmt: skip


MATE = "6k1/8/6K1/8/8/8/8/QR6 w - - 0 1"


@pytest.mark.parametrize("sign", ["#", "", "+"])
def test_the_check_sign_may_be_missing_or_wrong(sign):
    assert read_move(chess.Board(MATE), "Qa1a8" + sign).uci() == "a1a8"
    assert read_move(chess.Board(), "Pe2e4" + sign).uci() == "e2e4"


@pytest.mark.parametrize(
    ("fen", "text"),
    [
        (chess.STARTING_FEN, "Qe2e4"),  # wrong piece letter
        (chess.STARTING_FEN, "e2e4"),
        (chess.STARTING_FEN, "pe2e4"),
        (chess.STARTING_FEN, "Pe2e4+#"),  # one sign at most
        (chess.STARTING_FEN, "Pe2xe4"),  # takes nothing
        (chess.STARTING_FEN, "Pe2e2"),
        (chess.STARTING_FEN, "Pe2e4 "),
        (chess.STARTING_FEN, " Pe2e4"),
        (chess.STARTING_FEN, "Pe2e4\n"),
        (chess.STARTING_FEN, "Pe2e4Pe7e5"),
        (chess.STARTING_FEN, "Pe2e4<eos>"),
        (chess.STARTING_FEN, "<T>Pe2e4"),
        (chess.STARTING_FEN, ""),
        (chess.STARTING_FEN, "Pe2e9"),
        (EN_PASSANT, "Pe5d6"),  # a capture without x
        (PROMOTION, "Pe7e8=K"),
        (PROMOTION, "Pe7e8=P"),
        (PROMOTION, "Pe7e8Q"),
        (PROMOTION, "Pe7d8=Q+"),
        ("r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 0 1", "Ke1g1"),
        ("r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 0 1", "Ke1h1"),
        ("r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 0 1", "0-0"),
        ("r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 0 1", "O-O-O-O"),
    ],
)
def test_a_text_that_denies_the_board_is_unreadable(fen, text):
    with pytest.raises(Unreadable):
        read_move(chess.Board(fen), text)


@pytest.mark.parametrize(
    ("fen", "text"),
    [
        (chess.STARTING_FEN, "Pe2e5"),
        (chess.STARTING_FEN, "Pe7e5"),  # Black's
        (chess.STARTING_FEN, "Pe4e5"),  # nothing stands there
        (chess.STARTING_FEN, "O-O"),
        ("r3k2r/8/8/8/8/8/8/R3K2R w kq - 0 1", "O-O-O"),  # no right to it
        ("r3k2r/8/8/8/8/8/6r1/R3K2R w KQkq - 0 1", "O-O"),  # over a square that is attacked
        (PROMOTION, "Pe7e8"),  # to nothing
        (chess.STARTING_FEN, "Pe2e4=Q"),
        ("4k3/8/8/8/8/8/4r3/4K3 w - - 0 1", "Ke1d2"),  # stays in check
    ],
)
def test_a_move_that_may_not_be_played_is_illegal(fen, text):
    with pytest.raises(Illegal):
        read_move(chess.Board(fen), text)


def test_only_legal_moves_are_encoded():
    with pytest.raises(Illegal, match="e2e5 is not legal in rnbqkbnr/"):
        encode_move(chess.Board(), chess.Move.from_uci("e2e5"))
    line = [chess.Move.from_uci(uci) for uci in ("e2e4", "e7e5", "e4e5")]
    with pytest.raises(Illegal, match="e4e5"):
        encode_line(chess.Board(), line)


def test_a_line_is_cut_into_its_moves():
    board = chess.Board("4k2r/1P6/8/8/8/8/6K1/R7 w k - 0 1")
    line = [chess.Move.from_uci(uci) for uci in ("b7b8q", "e8e7", "a1a7", "e7f6")]
    ids = encode_line(board, line)
    assert decode(ids) == "Pb7b8=Q+Ke8e7Ra1a7+Ke7f6"
    assert [decode(move) for move in split_moves(ids)] == ["Pb7b8=Q+", "Ke8e7", "Ra1a7+", "Ke7f6"]
    assert board.fen().startswith("4k2r/1P6")  # left as it was
    assert list(split_moves([])) == []
    castled = encode_line(
        chess.Board("r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 0 1"),
        [chess.Move.from_uci("e1g1"), chess.Move.from_uci("e8c8")],
    )
    assert [decode(move) for move in split_moves(castled)] == ["O-O", "O-O-O"]


def test_every_line_of_a_game_is_cut_at_its_moves(starter):
    for puzzle in starter[:100]:
        line = [chess.Move.from_uci(uci) for uci in puzzle.moves[1:]]
        pieces = list(split_moves(encode_line(puzzle.board(), line)))
        assert len(pieces) == len(line)


def test_a_board_comes_back_from_its_tokens(positions):
    for board in positions:
        ids = encode_board(board)
        assert len(ids) <= 72
        back = decode_board(ids)
        assert back.board_fen() == board.board_fen()
        assert back.turn == board.turn
        assert back.castling_rights == board.clean_castling_rights()
        expected = board.ep_square if board.has_legal_en_passant() else None
        assert back.ep_square == expected
        assert set(back.legal_moves) == set(board.legal_moves)


def test_the_rendering_of_a_board_by_hand():
    board = chess.Board("r3k3/8/8/3pP3/8/8/8/4K2R w Kq d6 0 1")
    text = " ".join(tokens.TOKENS[i] for i in encode_board(board))
    assert text == "<board> K e1 R h1 p d5 P e5 r a8 k e8 K q x d6 <white>"
    board.ep_square = None
    board.turn = chess.BLACK
    text = " ".join(tokens.TOKENS[i] for i in encode_board(board))
    assert text == "<board> K e1 R h1 p d5 P e5 r a8 k e8 K q <black>"


def test_an_en_passant_square_without_a_legal_capture_is_left_out():
    # Black's pawn on d5 just moved, but taking it uncovers the rook on h5 towards the king on a5
    pinned = chess.Board("4k3/8/8/K2pP2r/8/8/8/8 w - d6 0 1")
    assert tokens.ID["x"] not in encode_board(pinned)


def test_rights_without_a_rook_or_king_in_place_are_left_out():
    board = chess.Board("4k3/8/8/8/8/8/8/R3K3 w KQkq - 0 1")
    text = " ".join(tokens.TOKENS[i] for i in encode_board(board))
    assert text == "<board> R a1 K e1 k e8 Q <white>"


def test_the_longest_board_has_72_tokens():
    # 1 + 32 pieces x 2 + 4 rights + x and its square + side = 72: all pieces and a legal capture
    board = chess.Board("rnbqkbnr/ppp1pppp/8/3pP3/8/8/PPPP1PPP/RNBQKBNR w KQkq d6 0 3")
    assert len(encode_board(board)) == 72


BOARD_WITHOUT_SIDE = [tokens.BOARD, tokens.ID["K"], tokens.ID["e1"]]


@pytest.mark.parametrize(
    "ids",
    [
        [],
        [tokens.BOARD],
        BOARD_WITHOUT_SIDE,
        [*BOARD_WITHOUT_SIDE[1:], tokens.SIDE[chess.WHITE]],
        [tokens.BOS, *encode_board(chess.Board())],
        [*encode_board(chess.Board()), tokens.EOS],
        [tokens.BOARD, tokens.ID["e1"], tokens.ID["e2"], tokens.SIDE[chess.WHITE]],
        [tokens.BOARD, tokens.ID["e1"], tokens.SIDE[chess.WHITE]],
        [tokens.BOARD, tokens.ID["P"], tokens.SIDE[chess.WHITE]],
        [tokens.BOARD, tokens.ID["x"], tokens.SIDE[chess.WHITE]],
        [tokens.BOARD, tokens.ID["<unk>"], tokens.ID["e2"], tokens.SIDE[chess.WHITE]],
        [tokens.BOARD, tokens.SIDE[chess.BLACK], tokens.SIDE[chess.WHITE]],
    ],
)
def test_what_is_no_rendered_board_is_refused(ids):
    with pytest.raises(ValueError):
        decode_board(ids)
