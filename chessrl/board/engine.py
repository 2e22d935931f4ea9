"""A UCI engine as judge of positions: the best moves and what they are worth.

Each judgement starts from an empty hash table, on one thread, with a fixed number of nodes, so
that the same engine gives the same answer whatever was asked before.
"""

import asyncio
import concurrent.futures
import logging
import math
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import chess
import chess.engine

from chessrl.config import EngineConfig, InputError

PLACES = "/usr/games:/usr/local/games"
"""Where Debian keeps engines; PATH often lacks it."""
START_SECONDS = 10.0
"""Longest wait for an engine to start."""
SLOWEST = 2_000
"""Nodes per second below which an engine counts as hanging."""
_SLOPE = 0.00368208
_GONE = (
    chess.engine.EngineError,
    TimeoutError,  # that of asyncio and of futures, since Python 3.11
    concurrent.futures.CancelledError,
    OSError,
)


def win_probability(centipawns: float) -> float:
    """Chance to win, 0 to 1, of an evaluation, by the formula of Lichess.

    Source: lichess.org/page/accuracy, "Win%": 50 + 50 * (2 / (1 + exp(-0.00368208 * cp)) - 1).
    """
    return 1 / (1 + math.exp(-_SLOPE * max(-100_000, min(100_000, centipawns))))


@dataclass(frozen=True, slots=True)
class Judged:
    """A move and what it is worth to the side that plays it."""

    move: chess.Move
    win: float
    """Win probability, 0 to 1; a mate is 1, being mated 0."""
    centipawns: int | None
    """Evaluation; None where a mate was found."""


def program(path: str) -> str:
    """Full path of an engine, looked for in PATH and where Debian keeps games.

    Raises:
        InputError: there is none.
    """
    path = str(Path(path).expanduser()) if path.startswith("~") else path
    found = shutil.which(path) or shutil.which(path, path=PLACES)
    if found is None:
        raise InputError(
            f"engine {path}: no such program; `apt install stockfish` (Debian, Ubuntu), or give "
            "engine.path=/full/path/of/an/engine, or engine=none for exact mates alone"
        )
    return found


class Engine:
    """A running engine; a context manager, or `close` it: its thread keeps Python from ending.

    Args:
        config: program, nodes and memory.
        patience: seconds that a judgement may take, granted twice; None allows for `SLOWEST`.

    Raises:
        InputError: it is not there, does not start, or refuses what it is told.
    """

    def __init__(self, config: EngineConfig, patience: float | None = None) -> None:
        self._path = program(config.path)
        self._nodes = config.nodes
        self._patience = patience or START_SECONDS + config.nodes / SLOWEST
        self._fault = ""
        wait = min(START_SECONDS, self._patience)
        try:
            self._engine = chess.engine.SimpleEngine.popen_uci(
                self._path, timeout=wait, setpgrp=True, stderr=subprocess.DEVNULL
            )
        except _GONE as error:
            logging.getLogger("asyncio").addHandler(logging.NullHandler())  # one message is enough
            raise InputError(
                f"engine {self._path} did not start as a UCI engine ({_reason(error)}): "
                "mend engine.path"
            ) from error
        self.name = self._engine.id.get("name", config.name)
        """What it calls itself, with its version."""
        options = {"Threads": 1, "Hash": config.hash_mb}
        try:
            self._engine.configure(
                {name: value for name, value in options.items() if name in self._engine.options}
            )
        except _GONE as error:
            self._engine.close()
            raise InputError(
                f"engine {self._path} refused Threads=1, Hash={config.hash_mb} "
                f"({_reason(error)}): mend engine.hash_mb or engine.path"
            ) from error

    def judge(self, board: chess.Board, best: int = 2) -> list[Judged]:
        """The best moves, best first: as many as asked for, or all where fewer are legal.

        Args:
            board: with a legal move; the moves that led to it are not looked at.
            best: how many. The nodes are shared among them.

        Raises:
            InputError: the engine died, hung, or gave no usable answer.
        """
        if self._fault:
            raise InputError(self._fault)
        alone = board.copy(stack=False)
        try:
            infos = self._analyse(alone, best)
        except _GONE as error:
            self._fail(_reason(error), board)
        lines = [_judged(info, board.turn) for info in infos]
        if len(lines) != min(best, board.legal_moves.count()) or None in lines:
            self._fail("it did not give its best moves with scores: does it know MultiPV?", board)
        return lines

    def value(self, board: chess.Board) -> float:
        """Win probability of the side to move, 0 to 1; where the game is over, 1, 0.5 or 0.

        Raises:
            InputError: as `judge` does.
        """
        over = board.outcome()
        if over is None:
            return self.judge(board, best=1)[0].win
        return 0.5 if over.winner is None else float(over.winner == board.turn)

    def _analyse(self, board: chess.Board, best: int) -> list[chess.engine.InfoDict]:
        """`SimpleEngine.analyse`, which knows no time limit where the limit is one of nodes.

        It is not cancelled when its time is over (python-chess then waits for ever for the engine
        to end): the engine is killed instead.
        """
        protocol = self._engine.protocol
        work = protocol.analyse(
            board,
            chess.engine.Limit(nodes=self._nodes),
            multipv=best,
            game=object(),  # another game: the hash is cleared
            info=chess.engine.INFO_SCORE | chess.engine.INFO_PV,
        )
        try:
            future = asyncio.run_coroutine_threadsafe(work, protocol.loop)
        except RuntimeError as error:  # the loop has ended with the engine
            work.close()
            raise chess.engine.EngineTerminatedError("engine process died") from error
        try:
            return future.result(self._patience)
        except TimeoutError:  # the machine may have slept meanwhile: once more
            return future.result(self._patience)

    def _fail(self, reason: str, board: chess.Board) -> NoReturn:
        self._fault = (
            f"engine {self._path} failed at {board.fen()} ({reason}): try it by hand, or another "
            "engine.path"
        )
        self._engine.close()
        raise InputError(self._fault)

    def close(self) -> None:
        """End the engine's process; more than once does no harm."""
        self._engine.close()

    def __enter__(self) -> "Engine":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _judged(info: chess.engine.InfoDict, turn: chess.Color) -> Judged | None:
    if "score" not in info or not info.get("pv"):
        return None
    score = info["score"].pov(turn)
    centipawns = score.score()
    mates = 1.0 if score > chess.engine.Cp(0) else 0.0
    return Judged(
        move=info["pv"][0],
        win=mates if centipawns is None else win_probability(centipawns),
        centipawns=centipawns,
    )


def _reason(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return " ".join(str(error).split()) or type(error).__name__
