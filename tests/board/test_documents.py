"""Documents of games: every ply from the first cut on, once, after the position it is played in."""

import chess
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import HEAD, ingest_twice, san, unpacked, wild_game, wild_games

from chessrl.board import tokens
from chessrl.board.blocks import Block
from chessrl.board.documents import Documents, Form
from chessrl.board.tokens import decode, decode_board, read_move, split_moves


def documents_of(games: list[list[chess.Move]], form: Form) -> Documents:
    text = "".join(f"{HEAD}{san(moves)}\n\n" for moves in games)
    return ingest_twice(Block("f", 0, text.encode()), form=form).documents["train"]


def after_bos(ids: list[int]) -> tuple[chess.Board, list[int]]:
    """Board and the move tokens after it, for a document of either form."""
    assert ids[0] == tokens.BOS and ids.count(tokens.BOS) == 1
    if ids[1:2] != [tokens.BOARD]:
        return chess.Board(), ids[1:]
    side = next(i for i, token in enumerate(ids) if token in tokens.SIDE.values())
    return decode_board(ids[1 : side + 1]), ids[side + 1 :]


def play_tokens(board: chess.Board, ids: list[int]) -> list[chess.Move]:
    moves = []
    for piece in split_moves(ids):
        moves.append(read_move(board, decode(piece)))
        board.push(moves[-1])
    return moves


@settings(max_examples=20)
@given(games=st.lists(wild_games(60), min_size=1, max_size=3), plies=st.integers(1, 70))
def test_documents_with_boards_hold_each_ply_once_from_the_first_cut_on(games, plies):
    found = unpacked(documents_of(games, Form("board", plies)))
    for game, documents in zip(games, found, strict=True):
        read = []  # position and moves of each document
        for ids, targets in documents:
            shown, moves = after_bos(ids)
            assert targets == [False] * (len(ids) - len(moves)) + [True] * len(moves)
            last = len(read) == len(documents) - 1
            assert (moves[-1] == tokens.EOS) == last
            assert ids.count(tokens.EOS) == last
            read.append((shown.copy(), play_tokens(shown, moves[:-1] if last else moves)))
            assert 0 < len(read[-1][1]) <= plies
            assert len(read[-1][1]) == plies or last
        skipped = len(game) - sum(len(moves) for _, moves in read)
        assert 0 <= skipped < min(plies, len(game))
        board = chess.Board()
        for move in game[:skipped]:
            board.push(move)
        for shown, moves in read:
            assert (shown.board_fen(), shown.turn) == (board.board_fen(), board.turn)
            assert moves == game[board.ply() : board.ply() + len(moves)]
            for move in moves:
                board.push(move)


@settings(max_examples=20)
@given(game=wild_games(60))
def test_without_a_length_one_document_runs_from_a_ply_to_the_end(game):
    [[(ids, targets)]] = unpacked(documents_of([game], Form("board")))
    shown, moves = after_bos(ids)
    assert moves[-1] == tokens.EOS
    played = play_tokens(shown, moves[:-1])
    assert played and played == game[-len(played) :]
    assert sum(targets) == len(moves)


def test_a_game_as_history_is_one_document():
    game = [chess.Move.from_uci(uci) for uci in ("f2f3", "e7e5", "g2g4")]
    [[(ids, targets)]] = unpacked(documents_of([game], Form("history")))
    assert " ".join(tokens.TOKENS[i] for i in ids) == "<bos> P f2 f3 P e7 e5 P g2 g4 <eos>"
    assert targets == [False] + [True] * 10  # nine tokens of moves and <eos>


@given(
    plies=st.lists(st.integers(1, 200), min_size=1, max_size=6),
    cuts=st.lists(st.floats(0, 1, exclude_max=True), min_size=6, max_size=6),
    step=st.integers(0, 60),
)
def test_where_documents_begin(plies, cuts, step):
    lengths, cut = np.array(plies), np.array(cuts[: len(plies)])
    games, starts = Form("board", step).starts(lengths, cut)
    for number, (length, share) in enumerate(zip(plies, cut, strict=True)):
        first = int(share * (min(step, length) if step else length))
        expected = range(first, length, step) if step else [first]
        assert starts[games == number].tolist() == list(expected)
    assert games.tolist() == sorted(games.tolist())
    games, starts = Form("history", step).starts(lengths, cut)
    assert (games.tolist(), starts.tolist()) == ([*range(len(plies))], [0] * len(plies))


def test_first_cuts_fall_everywhere():
    games = [wild_game(seed, 24) for seed in range(160)]
    games = [game for game in games if len(game) == 24]
    read = []
    for documents in unpacked(documents_of(games, Form("board", 4))):
        told = sum(len(play_tokens(*split_end(ids))) for ids, _ in documents)
        read.append(24 - told)
    share = len(games) / 4
    deviation = (len(games) * 3 / 16) ** 0.5
    assert len(games) > 120
    assert all(abs(read.count(ply) - share) < 5 * deviation for ply in range(4))


def split_end(ids: list[int]) -> tuple[chess.Board, list[int]]:
    board, moves = after_bos(ids)
    return board, moves[:-1] if moves[-1] == tokens.EOS else moves


@pytest.mark.parametrize("form", [Form("history"), Form("board", 3)])
@settings(max_examples=10)
@given(data=st.data())
def test_games_are_taken_out_with_all_their_documents(form, data):
    games = [wild_game(seed, 20) for seed in range(5)]
    documents = documents_of(games, form)
    drop = np.array(data.draw(st.lists(st.booleans(), min_size=5, max_size=5)))
    left = documents.without(drop)
    stay = [number for number in range(5) if not drop[number]]
    whole = unpacked(documents)
    assert unpacked(left) == [whole[number] for number in stay]
    assert left.places[:, 0].tolist() == stay
    assert left.games["key"].tolist() == documents.games["key"][stay].tolist()
