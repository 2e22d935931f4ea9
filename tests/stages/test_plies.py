"""Plies among the targets of a batch, counted by hand and by the moves of real games."""

import chess
import torch

from chessrl.board import tokens
from chessrl.stages.plies import moves_begun


def ids(*names: str) -> list[int]:
    return [tokens.ID[name] for name in names]


def test_a_promoted_piece_begins_no_move():
    row = ids("<bos>", "P", "e7", "e8", "=", "Q", "+", "K", "d8", "e8", "<eos>")
    rows = torch.tensor([row])
    every = torch.ones(1, len(row) - 1, dtype=torch.bool)
    assert moves_begun(rows[:, :-1], rows[:, 1:], every) == 2
    later = every.clone()
    later[0, 0] = False  # the pawn's letter is no target
    assert moves_begun(rows[:, :-1], rows[:, 1:], later) == 1
    assert moves_begun(rows[:, :-1], rows[:, 1:], ~every) == 0


def test_as_many_as_the_games_have_moves(starter_games):
    games = starter_games[:20]
    for game in games:
        board = chess.Board()
        line = tokens.encode_line(board, [chess.Move.from_uci(uci) for uci in game.moves])
        row = torch.tensor([[tokens.BOS, *line, tokens.EOS]])
        mask = torch.ones(1, row.shape[1] - 1, dtype=torch.bool)
        assert moves_begun(row[:, :-1], row[:, 1:], mask) == len(game.moves)
