"""Mining as a stage: equal bytes with any workers, resumed where it stopped, used by prepare."""

import json
import sys
from pathlib import Path

import chess
import chess.pgn
import pytest

from chessrl.board.engine import program
from chessrl.board.puzzles import read_puzzles, validate
from chessrl.board.skips import SkipReport
from chessrl.board.splits import game_key, position_key
from chessrl.config import InputError
from chessrl.stages import mine as stage
from chessrl.stages.mine import mine
from chessrl.stages.prepare import prepare
from chessrl.stages.runs import folder

FAKE = Path(__file__).parents[1] / "engines" / "fake.py"
WITH_MATES = (62, 64, 118, 189)
"""Games of the starter in which mates were found."""


def write_games(path: Path, games) -> None:
    """UCI moves to PGN."""
    with open(path, "w") as file:
        for moves in games:
            game = chess.pgn.Game()
            game.add_line(map(chess.Move.from_uci, moves))
            print(game, file=file, end="\n\n")


@pytest.fixture(scope="module")
def pgn(tmp_path_factory, starter_games) -> Path:
    """Ten games, four with mates, the first of them twice; a broken and a short one."""
    path = tmp_path_factory.mktemp("games") / "some#games.pgn"
    chosen = [starter_games[number].moves for number in (1, 2, 3, *WITH_MATES, 62, 5, 6)]
    write_games(path, [*chosen, ("e2e4", "e7e5")])
    with open(path, "a") as file:
        file.write('[Result "*"]\n\n1. d4 d5 2. Qd4 *\n')
    return path


@pytest.fixture
def settings(configure, pgn, tmp_path):
    """A configuration that mines those games."""

    def made(*overrides: str, outputs: Path = tmp_path):
        return configure(
            "stage=mine", f"outputs={outputs}", f"data.paths=['{pgn}']", "data.workers=1",
            "mine.per_game=2", *overrides,
        )  # fmt: skip

    return made


@pytest.fixture
def fake(tmp_path):
    """Overrides that name a copy of the fake engine, which fails as told."""

    def made(mode: str = "sound") -> tuple[str, ...]:
        path = tmp_path / f"{mode}_engine"
        text = FAKE.read_text().replace('MODE = "sound"', f'MODE = "{mode}"')
        path.write_text(f"#!{sys.executable}\n{text}")
        path.chmod(0o755)
        return "engine=stockfish", "engine.name=fake", f"engine.path={path}", "engine.nodes=9"

    return made


def mined_file(run) -> bytes:
    return (folder(run, "mine").path / "puzzles.csv").read_bytes()


def test_puzzles_skips_and_counts(settings):
    run = settings()
    result = mine(run)
    out = folder(run, "mine")
    assert out.path.name == f"mine-{result.identity}"
    puzzles = read_puzzles(out.path / "puzzles.csv", SkipReport())
    assert all(validate(puzzle) is None for puzzle in puzzles)
    assert len({position_key(puzzle.board()) for puzzle in puzzles}) == len(puzzles)
    assert len({game_key(puzzle.game) for puzzle in puzzles}) == len(WITH_MATES)
    assert [puzzle.game.rpartition("/")[2] for puzzle in puzzles] == sorted(
        (puzzle.game.rpartition("/")[2] for puzzle in puzzles), key=int
    )
    assert puzzles[0].game.startswith("some_games.pgn/") and puzzles[0].game.endswith("/3")
    counts = out.manifest["counts"]
    assert result.measures == {name: float(count) for name, count in counts.items()}
    assert counts["games"] == 10
    assert counts["puzzles"] == len(puzzles)
    assert counts["puzzles"] == counts["puzzles_mateIn1"] + counts["puzzles_mateIn2"]
    assert counts["duplicates"] == sum(puzzle.game.endswith("/3") for puzzle in puzzles)
    assert 50 < counts["positions"] <= 120
    assert out.manifest["skipped"] == {"illegal_move": 1, "too_short": 1}
    lines = [json.loads(line) for line in (out.path / "skipped.jsonl").read_text().splitlines()]
    assert [(line["index"], line["reason"]) for line in lines] == [
        (10, "too_short"),
        (11, "illegal_move"),
    ]
    (source,) = out.manifest["sources"].values()
    assert source["sha256"][:8] in puzzles[0].game
    assert out.manifest["engine"] == "none"
    assert not (out.path / stage.JOURNAL).exists()
    assert mine(run) == result  # used again


def test_workers_change_no_byte(settings, tmp_path, fake):
    for name, overrides in (("exact", ()), ("engine", (*fake(), "mine.games=6"))):
        runs = [
            settings(*overrides, f"data.workers={workers}", outputs=tmp_path / f"{name}{workers}")
            for workers in (1, 2)
        ]
        results = [mine(run) for run in runs]
        assert results[0].identity == results[1].identity
        assert results[0].measures == results[1].measures
        assert mined_file(runs[0]) == mined_file(runs[1])


def test_an_engine_finds_what_exact_search_does_not(settings, fake):
    run = settings(*fake(), "mine.last_plies=16", "mine.games=5", "mine.margin=0.2")
    result = mine(run)
    kinds = {name for name, count in result.measures.items() if name.startswith("puzzles_")}
    assert kinds & {"puzzles_advantage", "puzzles_crushing"}
    assert result.measures["games"] == 5
    manifest = folder(run, "mine").manifest
    assert (manifest["engine"], manifest["nodes"]) == ("Fake 1", 9)
    for puzzle in read_puzzles(folder(run, "mine").path / "puzzles.csv", SkipReport()):
        assert len(puzzle.moves) % 2 == 0


@pytest.mark.parametrize("workers", [1, 2])
def test_a_failing_engine_ends_the_run(workers, settings, fake):
    run = settings(*fake("crash"), f"data.workers={workers}")
    with pytest.raises(InputError, match=r"crash_engine failed at .*died"):
        mine(run)
    assert folder(run, "mine").result.status == "failed"


def test_a_missing_engine_ends_the_run_before_any_game(settings, monkeypatch):
    monkeypatch.setattr(stage, "read_raw", None)
    with pytest.raises(InputError, match="apt install stockfish"):
        mine(settings("engine=stockfish", "engine.path=/nowhere/engine"))


def test_nothing_to_search_with_is_refused(settings):
    run = settings("mine.mates=0")
    with pytest.raises(InputError, match="give engine=stockfish"):
        mine(run)
    assert not folder(run, "mine").path.exists()


def test_no_puzzle_is_an_error_that_says_what_to_do(settings, tmp_path, pgn):
    run = settings("mine.games=3")
    with pytest.raises(InputError, match=r"no puzzle in 3 games .*mine.last_plies") as refused:
        mine(run)
    assert str(pgn) in str(refused.value)
    assert folder(run, "mine").finished is None


def test_a_run_that_was_broken_off_goes_on(settings, tmp_path, monkeypatch, capsys):
    whole = settings(outputs=tmp_path / "whole")
    mine(whole)
    run = settings(outputs=tmp_path / "broken")
    add = stage.Journal.add
    written = []

    def stops(journal, entry):
        if len(written) == 5:
            raise KeyboardInterrupt
        written.append(entry)
        add(journal, entry)

    with monkeypatch.context() as patch:
        patch.setattr(stage.Journal, "add", stops)
        with pytest.raises(KeyboardInterrupt):
            mine(run)
    journal = folder(run, "mine").path / stage.JOURNAL
    with open(journal, "a") as file:
        file.write('{"positions": 1')  # cut short
    capsys.readouterr()
    mine(run)
    assert "goes on after 5 games" in capsys.readouterr().err
    assert mined_file(run) == mined_file(whole)
    measures = [folder(one, "mine").finished.measures for one in (run, whole)]
    assert measures[0] == measures[1]


def test_a_journal_of_another_engine_is_not_used(tmp_path):
    path = tmp_path / "journal.jsonl"
    for made_with, expected in (("a", []), ("a", [1, 2]), ("b", [])):
        with stage.Journal(path, {"engine": made_with}) as journal:
            assert list(journal.known()) == expected
            if not expected:
                journal.add(1)
                journal.add(2)


def test_what_decides_the_outcome_names_the_run(settings):
    def name(*overrides):
        return folder(settings(*overrides), "mine").identity

    assert name() == name("data.workers=2", "data.validation=0.3", "seed=7")
    names = [
        name(*overrides)
        for overrides in (
            (), ("mine.last_plies=8",), ("engine=stockfish",),
            ("engine=stockfish", "engine.nodes=7"), ("data.filter.min_plies=20",),
        )
    ]  # fmt: skip
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("form", ["board", "history"])
def test_prepare_takes_what_was_mined(form, settings, tiny, tmp_path, tiny_files):
    run = settings()
    mine(run)
    path = folder(run, "mine").path / "puzzles.csv"
    prepared = tiny(tmp_path, "stage=prepare", f"prompt={form}", f"data.puzzles={path}")
    prepare(prepared)
    manifest = folder(prepared, "prepare").manifest
    counts = manifest["counts"]
    puzzles = sum(counts[f"puzzles_{name}"] for name in ("sft", "rl", "test"))
    assert puzzles == len(read_puzzles(path, SkipReport()))
    assert manifest["skipped_puzzles"] == {}


def stockfish() -> bool:
    try:
        return bool(program("stockfish"))
    except InputError:
        return False


@pytest.mark.slow
@pytest.mark.skipif(not stockfish(), reason="stockfish is not installed")
def test_stockfish_mines_the_same_puzzles_twice(settings, tmp_path):
    overrides = ("engine=stockfish", "engine.nodes=5000", "mine.last_plies=30", "mine.games=7")
    runs = [
        settings(*overrides, f"data.workers={workers}", outputs=tmp_path / str(workers))
        for workers in (1, 2)
    ]
    assert mine(runs[0]).measures["puzzles"] > 0
    mine(runs[1])
    assert mined_file(runs[0]) == mined_file(runs[1])
