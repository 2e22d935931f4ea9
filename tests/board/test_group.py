"""Episodes that share their positions: the verdicts are those of the plain path."""

import random
import re
from collections import Counter

import chess
from judging import CASTLING, CASTLING_LINE, ids, mates, puzzle, solver_texts

from chessrl.board import tokens
from chessrl.board.episodes import Outcome, Turn, group, play_turn, replay
from chessrl.board.puzzles import Puzzle
from chessrl.board.tokens import decode, encode_move


def judged_plainly(taken: Puzzle, answers: list[str]) -> Outcome:
    """The verdict from the list of all legal moves, written out anew at each turn."""
    board, turns = taken.board(), []
    for number, text in enumerate(answers):
        names = {re.sub("[+#]$", "", decode(encode_move(board, m))): m for m in board.legal_moves}
        move = names.get(re.sub("[+#]$", "", text))
        solution = chess.Move.from_uci(taken.solver_moves[number])
        if move is None:
            turns.append(Turn(text, None, False))
            squares = re.fullmatch("[KQRBNP](..)x?(..)(?:=([QRBN]))?[+#]?", text)
            if squares and set(squares[1] + squares[2]) <= set("abcdefgh12345678"):
                uci = "".join(squares.groups("")).lower()
                denied = uci[:2] == uci[2:4] or board.is_legal(chess.Move.from_uci(uci))
                return Outcome(0.0, number + 1, "malformed" if denied else "illegal", tuple(turns))
            castles = re.fullmatch("O-O(-O)?[+#]?", text)
            return Outcome(0.0, number + 1, "illegal" if castles else "malformed", tuple(turns))
        right = move == solution or (mates(board, solution) and mates(board, move))
        turns.append(Turn(text, move.uci(), right))
        if not right or number + 1 == len(taken.solver_moves):
            ended_by = "solved" if right else "wrong"
            return Outcome(float(right), number + 1, ended_by, tuple(turns))
        board.push(move)
        board.push_uci(taken.replies[number])
    return Outcome(0.0, len(turns), "unanswered", tuple(turns))


def scrawl(rng: random.Random, board: chess.Board, right: str) -> list[int]:
    """Tokens of an answer: right, legal, spoilt in one place, or anything."""
    turn = [tokens.ID[token] for token in re.findall("O-O-O|O-O|[a-h][1-8]|.", right)]
    kind = rng.randrange(8)
    if kind < 3:
        return turn
    if kind == 3:
        return encode_move(board, rng.choice(list(board.legal_moves)))
    if kind == 4:
        return [tokens.ID["O-O"] if rng.random() < 0.5 else tokens.ID["O-O-O"]]
    if kind == 5:
        return [rng.randrange(len(tokens.TOKENS)) for _ in range(rng.randrange(6))]
    place = rng.randrange(len(turn))
    turn[place] = rng.randrange(3, 77) if kind == 6 else rng.choice(turn)
    return turn


def test_episodes_that_share_positions_are_judged_as_those_that_do_not(starter):
    rng = random.Random(3)
    seen = Counter()
    for taken in starter[:150]:
        played = [taken.board()]
        for uci in taken.moves[1:]:
            played.append(played[-1].copy(stack=False))
            played[-1].push_uci(uci)
        asked = list(zip(played[::2], solver_texts(taken), strict=False))
        scripts = [[scrawl(rng, *each) for each in asked] for _ in range(8)]
        episodes = group(taken, 8)
        for number in range(len(asked)):  # by turns, as the sampler asks
            for episode, script in zip(episodes, scripts, strict=True):
                if not episode.over:
                    play_turn(episode, script[number])
        for episode, script in zip(episodes, scripts, strict=True):
            texts = [decode(turn) for turn in script]
            alone = replay(taken, texts)
            assert episode.outcome == alone
            if not any(turn[:1] == [tokens.THINK] for turn in script):
                assert alone == judged_plainly(taken, texts)
            seen[episode.outcome.ended_by] += 1
    assert min(seen[name] for name in ("solved", "wrong", "illegal", "malformed")) > 100


def test_what_episodes_share_cannot_be_changed_through_one_of_them():
    one, other = group(puzzle(CASTLING, CASTLING_LINE), 2)
    one.answer("O-O").clear()
    one.board.push_uci("f8a8")
    assert other.board.piece_at(chess.E8) == chess.Piece(chess.KING, chess.BLACK)
    assert other.answer("O-O") == ids("R a7 a1")
    assert other.answer("Rf8a8") is None and other.outcome.reward == 1.0
    assert not one.over
