"""Datasets to describe: prepared ones that may be changed, and parts written by hand."""

import shutil

import chess
import numpy as np
import pytest

from chessrl.board import tokens
from chessrl.board.records import GAME, RESULTS
from chessrl.config.data import SPEEDS
from chessrl.stages.prepare import prepare
from chessrl.stages.runs import folder


@pytest.fixture(scope="session")
def prepared(tiny, tiny_files, tmp_path_factory):
    """The tiny dataset in the board form and in the history form, without tables of games."""
    found = {}
    for form, name in (("board", "puzzles"), ("history", "with_history")):
        out = tmp_path_factory.mktemp(form)
        puzzles = f"data.puzzles={tiny_files[name]}"
        run = tiny(out, "stage=prepare", f"prompt={form}", puzzles)
        prepare(run)
        found[form] = folder(run, "prepare").path
        for table in found[form].glob("*/*.games.npy"):
            table.unlink()
    return found


@pytest.fixture
def dataset(prepared, tmp_path):
    """A copy of the board form that a test may change."""
    return shutil.copytree(prepared["board"], tmp_path / "mine" / "prepare-0")


def row(white, black, year, result, speed, plies, line=""):
    """One game of a table, by its headers and the first moves in SAN."""
    board, codes = chess.Board(), []
    for san in line.split():
        move = board.push_san(san)
        codes.append(move.from_square | move.to_square << 6 | (move.promotion or 0) << 12)
    codes += [0] * (4 - len(codes))
    headers = white, black, year, RESULTS.index(result), SPEEDS.index(speed)
    return 0, *headers, plies, 1, codes


@pytest.fixture
def write_tables():
    """Tables of six games, four of them for training, in two shards."""
    najdorf, castles = "e4 c5 Nf3 d6", "e4 e5 Nf3 Nc6"
    shards = {
        "train/00000": [
            row(1500, 1601, 2013, "1-0", "blitz", 40, najdorf),
            row(1700, 0, 2013, "0-1", "bullet", 61, najdorf),
            row(1490, 1500, 0, "1/2-1/2", "blitz", 80, castles),
        ],
        "train/00001": [row(2000, 2100, 2015, "1-0", "unknown", 10, "e4")],
        "validation/00000": [
            row(0, 0, 2015, "*", "blitz", 100, najdorf),
            row(1599, 1600, 2015, "1-0", "rapid", 41, "d4 d5 c4 e6"),
        ],
    }

    def written(path):
        for name, rows in shards.items():
            np.save(path / f"{name}.games.npy", np.array(rows, GAME))

    return written


@pytest.fixture
def write_shard():
    """Writes documents given as texts of tokens; those after a `|` are to be predicted."""

    def written(path, documents, stem="00000"):
        path.mkdir(parents=True, exist_ok=True)
        ids, flags, offsets = [], [], [0]
        for text in documents:
            told, _, asked = text.partition("|")
            for part, flag in ((told, False), (asked, True)):
                ids += [tokens.ID[token] for token in part.split()]
                flags += [flag] * len(part.split())
            offsets.append(len(ids))
        np.save(path / f"{stem}.tokens.npy", np.array(ids, np.uint8))
        np.save(path / f"{stem}.targets.npy", np.array(flags, bool))
        np.save(path / f"{stem}.offsets.npy", np.array(offsets, np.int64))

    return written
