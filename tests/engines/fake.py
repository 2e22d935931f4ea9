"""A UCI engine that looks two plies ahead and counts material; tests start copies of it.

MODE is replaced in a copy: `sound`, or how it fails. LOG, where it is not empty, is a file that
takes every command.
"""

import sys
import time

import chess

MODE = "sound"
LOG = ""
VALUES = {chess.PAWN: 100, chess.KNIGHT: 300, chess.BISHOP: 300, chess.ROOK: 500, chess.QUEEN: 900}


def material(board: chess.Board) -> int:
    """Centipawns for the side to move."""
    turn = board.turn
    return sum(
        value * (len(board.pieces(kind, turn)) - len(board.pieces(kind, not turn)))
        for kind, value in VALUES.items()
    )


def worth(board: chess.Board, move: chess.Move) -> tuple[int, chess.Move | None]:
    """Centipawns for the side that moves, after the best reply; 100,000 is mate."""
    board.push(move)
    best, reply = (100_000, None) if board.is_checkmate() else (material(board), None)
    replies = []
    for answer in board.legal_moves:
        board.push(answer)
        value = -100_000 if board.is_checkmate() else material(board)
        board.pop()
        replies.append((value, answer.uci(), answer))
    if replies:
        best, _, reply = min(replies)
    elif best < 100_000:
        best = 0
    board.pop()
    return best, reply


def search(board: chess.Board, lines: int) -> None:
    """Print the best moves and the choice."""
    moves = [(*worth(board, move), move) for move in board.legal_moves]
    moves.sort(key=lambda entry: (-entry[0], entry[2].uci()))
    for number, (value, reply, move) in enumerate(moves[:lines], 1):
        score = {100_000: "mate 1", -100_000: "mate -1"}.get(value, f"cp {value}")
        tail = f" {reply.uci()}" if reply else ""
        say(f"info depth 2 multipv {number} score {score} nodes 1 pv {move.uci()}{tail}")
    say(f"bestmove {moves[0][2].uci()}")


def say(line: str) -> None:
    """One line to whoever started this."""
    print(line, flush=True)


def main() -> None:
    """Answer until told to quit."""
    board, lines = chess.Board(), 1
    for line in sys.stdin:
        if LOG:
            with open(LOG, "a") as log:
                log.write(line)
        words = line.split() or [""]
        if words[0] == "uci" and MODE != "hang_at_start":
            say("id name Fake 1")
            say("option name Threads type spin default 8 min 1 max 64")
            say("option name Hash type spin default 16 min 1 max 1024")
            if MODE != "one_line":
                say("option name MultiPV type spin default 1 min 1 max 500")
            say("uciok")
        elif words[0] == "isready":
            say("readyok")
        elif line.startswith("setoption name MultiPV value"):
            lines = int(words[-1])
        elif words[0] == "position":
            board = chess.Board(" ".join(words[2:8])) if words[1] == "fen" else chess.Board()
        elif words[0] == "go" and MODE == "crash":
            sys.exit(3)
        elif words[0] == "go" and MODE == "hang":
            time.sleep(3600)
        elif words[0] == "go" and MODE == "mute":
            say("bestmove (none)")
        elif words[0] == "go":
            time.sleep(1.5 if MODE == "slow" else 0)
            search(board, lines)
        elif words[0] == "quit":
            return


main()
