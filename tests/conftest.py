"""Small real data: games and puzzles cut from the starter, and configurations that use them."""

import bz2
import csv
from itertools import islice
from pathlib import Path

import chess
import pytest
import torch
from hydra import compose, initialize_config_dir
from hypothesis import settings
from naming import made

from chessrl.board.games import Game, read_games
from chessrl.board.puzzles import Puzzle, write_puzzles
from chessrl.board.skips import SkipReport
from chessrl.config import Run, parse

settings.register_profile("steady", deadline=None, derandomize=True)  # the same on any machine
settings.load_profile("steady")

ROOT = Path(__file__).parent.parent
CONF = ROOT / "conf"
GAMES = ROOT / "data" / "starter" / "games.pgn.bz2"
PUZZLES = ROOT / "data" / "starter" / "puzzles.csv"

TINY = (
    "model=100k",
    "pretrain.tokens=3e4",
    "pretrain.batch_tokens=2048",
    "pretrain.context=128",
    "pretrain.checkpoint_every=5",
    "pretrain.log_every=1",
    "sft.batch_tokens=2048",
    "sft.epochs=2",
    "sft.checkpoint_every=2",
    "sft.log_every=1",
    "rl.steps=5",
    "rl.prompts=4",
    "rl.group_size=4",
    "rl.max_new_tokens=40",
    "rl.checkpoint_every=2",
    "rl.kl.estimator=k3",
    "rl.kl.weight=0.01",
    "rl.gate=0",
    "rl.curve.points=3",
    "rl.curve.puzzles=4",
    "rl.curve.samples=2",
    "evaluate.samples=2",
    "evaluate.max_new_tokens=40",
    "evaluate.game_tokens=2e3",
    "data.selection.test_per_bin=4",
    "data.validation=0.1",
    "data.workers=1",
    "trainer.precision=32-true",
    "trainer.compile=off",
)


@pytest.fixture(autouse=True)
def one_thread():
    """Tests share their machine: two idle-spinning threads cost more than they give."""
    torch.set_num_threads(1)


@pytest.fixture
def home(tmp_path, monkeypatch):
    """The current folder and home, with a puzzle file."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    made("puzzles.csv")
    return tmp_path


@pytest.fixture(scope="session")
def starter_games() -> list[Game]:
    """The first 200 games of the starter."""
    return list(islice(read_games(GAMES, SkipReport()), 200))


@pytest.fixture(scope="session")
def tiny_files(tmp_path_factory, starter_games) -> dict[str, Path]:
    """120 games, 90 puzzles over all bins, and 16 puzzles that come with their games."""
    folder = tmp_path_factory.mktemp("tiny")
    pgn = folder / "games.pgn"
    with bz2.open(GAMES, "rt", encoding="utf-8") as source, open(pgn, "w") as target:
        left = 121
        for line in source:
            left -= line.startswith("[Date")
            if left <= 0:
                break
            target.write(line)
    with open(PUZZLES, newline="") as file:
        rows = list(csv.reader(file))
    short = [row for row in rows[1:] if len(row[2].split()) <= 4]
    by_rating = sorted(short, key=lambda row: int(row[3]))
    with open(folder / "puzzles.csv", "w", newline="") as file:
        csv.writer(file).writerows([rows[0], *by_rating[:: len(by_rating) // 90]])
    write_puzzles(folder / "with_history.csv", _endings(starter_games[120:]))
    return {
        "games": pgn,
        "puzzles": folder / "puzzles.csv",
        "with_history": folder / "with_history.csv",
    }


def _endings(games: list[Game]) -> list[Puzzle]:
    """The last two moves of games as puzzles: the loser's last move, then the winner's."""
    puzzles = []
    for number, game in enumerate(games[:64]):
        before, last = game.moves[:-2], game.moves[-2:]
        board = chess.Board()
        for uci in before:
            board.push_uci(uci)
        puzzles.append(
            Puzzle(
                id=f"ending{number}",
                fen=board.fen(),
                moves=last,
                rating=700 + 40 * number,
                history=before,
            )
        )
    return puzzles


@pytest.fixture(scope="session")
def configure():
    """A configuration from overrides, through the same files and checks as the command line."""

    def made(*overrides: str) -> Run:
        with initialize_config_dir(str(CONF), version_base="1.3"):
            return parse(compose("config", list(overrides)))

    return made


@pytest.fixture(scope="session")
def tiny_settings(tiny_files) -> tuple[str, ...]:
    """Overrides that make a stage run in seconds."""
    files = (f"data.paths=[{tiny_files['games']}]", f"data.puzzles={tiny_files['puzzles']}")
    return (*files, *TINY)


@pytest.fixture(scope="session")
def tiny(configure, tiny_settings):
    """A configuration that runs a stage in seconds, given an output folder and overrides."""

    def made(outputs: Path, *overrides: str) -> Run:
        return configure(f"outputs={outputs}", *tiny_settings, *overrides)

    return made
