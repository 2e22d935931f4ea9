"""Pretraining documents of many games: where they begin, and their tokens in a row."""

from dataclasses import dataclass

import numpy as np

from chessrl.board import tokens
from chessrl.board.encoding import board_tokens
from chessrl.board.positions import Lines


@dataclass
class Documents:
    """Documents of some games, in the order of the games."""

    games: np.ndarray
    """(G,) rows of `records.GAME`."""
    places: np.ndarray
    """(G, 2) int64: index in its block and line of its file of each game."""
    lengths: np.ndarray
    """(D,) tokens of each document."""
    ids: np.ndarray
    """uint8 tokens of all documents in a row."""
    targets: np.ndarray
    """bool for each token: it is to be predicted."""

    def without(self, drop: np.ndarray) -> "Documents":
        """The same without the games for which `drop`, (G,) bool, is True."""
        documents = np.repeat(~drop, self.games["documents"])
        kept = np.repeat(documents, self.lengths)
        return Documents(
            self.games[~drop],
            self.places[~drop],
            self.lengths[documents],
            self.ids[kept],
            self.targets[kept],
        )


@dataclass(frozen=True)
class Form:
    """How a game becomes documents.

    `history`: the whole game is one. `board`: the game is cut every `plies` plies, from a first cut
    that depends on its moves alone, and each piece opens with its position; `plies` 0 makes one
    document, from a ply of the game to its end. The document that reaches the end of the game
    closes with `<eos>`, but for games that were cut short.
    """

    name: str
    plies: int = 0

    def starts(self, plies: np.ndarray, cut: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where the documents of games begin.

        Args:
            plies: (G,) plies of each game, at least 1.
            cut: (G,) number in [0, 1) that places the first cut of each.

        Returns:
            (D,) game and (D,) ply of each document, in order.
        """
        if self.name == "history":
            return np.arange(len(plies)), np.zeros(len(plies), np.int64)
        step = np.minimum(self.plies, plies) if self.plies else plies
        first = (cut * step).astype(np.int64)
        count = -(-(plies - first) // self.plies) if self.plies else np.ones_like(plies)
        game = np.repeat(np.arange(len(plies)), count)
        number = np.arange(len(game)) - np.repeat(np.cumsum(count) - count, count)
        return game, first[game] + number * self.plies


def write_documents(
    form: Form,
    lines: Lines,
    moves: tuple[np.ndarray, np.ndarray],
    games: np.ndarray,
    plies: np.ndarray,
    cut: np.ndarray,
    rows: np.ndarray,
    places: np.ndarray,
) -> Documents:
    """The documents of some of the games of a block.

    Args:
        form: how they are cut.
        lines: all games of the block.
        moves: `encoding.move_tokens` of them.
        games: (G,) which games, in the order wanted.
        plies: (G,) plies of each that are written; `<eos>` follows where these are all.
        cut: (G,) number in [0, 1) of each, for `Form.starts`.
        rows: (G,) rows of `records.GAME`; their `documents` is filled in.
        places: (G, 2), kept as it is.
    """
    of, start = form.starts(plies, cut)
    end = plies[of]
    if form.name == "board" and form.plies:
        end = np.minimum(end, start + form.plies)
    rows["documents"] = np.bincount(of, minlength=len(games))
    written, at = moves
    first_move = lines.offsets[games][of]
    body_from, body_to = at[first_move + start], at[first_move + end]
    body = body_to - body_from
    closed = (end == lines.lengths[games][of]).astype(np.int64)
    if form.name == "board":
        positions = lines.first_position[games][of] + start
        prompts, edges = board_tokens(lines, positions, start % 2 == 0)
    else:
        prompts, edges = np.full(len(of), tokens.BOS, np.uint8), np.arange(len(of) + 1)
    prompt = np.diff(edges)
    lengths = prompt + body + closed
    begin = np.cumsum(lengths) - lengths
    ids = np.empty(lengths.sum(), np.uint8)
    targets = np.zeros(len(ids), bool)
    ids[_spread(begin, prompt)] = prompts
    place = _spread(begin + prompt, body)
    ids[place] = written[_spread(body_from, body)]
    targets[place] = True
    last = (begin + lengths - 1)[closed == 1]
    ids[last], targets[last] = tokens.EOS, True
    return Documents(rows, places, lengths, ids, targets)


def _spread(begin: np.ndarray, count: np.ndarray) -> np.ndarray:
    """`begin[0], begin[0] + 1, ...` for `count[0]` numbers, then the same of the next."""
    shift = begin - (np.cumsum(count) - count)
    return np.repeat(shift, count) + np.arange(count.sum())
