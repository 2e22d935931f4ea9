"""The harvest of planted rollouts: exact counts, documents as SFT knows them, nothing unjudged."""

import dataclasses
import json

import pytest
import torch
from planting import as_document, documents, puzzles_of, solved, write

from chessrl.board import tokens
from chessrl.board.episodes import replay
from chessrl.board.prompts import puzzle_prompt
from chessrl.board.puzzles import Puzzle, read_puzzles
from chessrl.board.skips import SkipReport
from chessrl.config import InputError
from chessrl.policy.sampling import Sample
from chessrl.policy.weights import new_model
from chessrl.stages import contents
from chessrl.stages.harvest import Contaminated, documents_of, harvest
from chessrl.stages.replays import replayed, shows
from chessrl.stages.rollout_files import FOLDER
from chessrl.stages.rollouts import Rollout, Rules, play
from chessrl.stages.runs import folder, run_identity


def without_thought(rollout: Rollout) -> Rollout:
    """The same answer, given at once."""
    after = len(rollout.thought) + 2
    sample = rollout.sample
    cut = Sample(sample.tokens[after:], sample.logprobs[after:], sample.sampled[after:])
    return dataclasses.replace(rollout, sample=cut, thought=None)


def wrong(rollout: Rollout) -> Rollout:
    """A thought, and then a legal move that is not the right one."""
    board, puzzle = rollout.puzzle.board(), rollout.puzzle
    for move in board.legal_moves:
        text = tokens.encode_move(board, move)
        if (outcome := replay(puzzle, [tokens.decode(text)])).ended_by == "wrong":
            ids = [tokens.THINK, *rollout.thought, tokens.END_THINK, *text, tokens.CALL_ENV]
            sample = Sample(ids, [-1.0] * len(ids), [True] * len(ids))
            return dataclasses.replace(rollout, sample=sample, outcome=outcome)
    raise AssertionError


def truncated(rollout: Rollout) -> Rollout:
    """Cut within the first thought."""
    sample = Sample(rollout.sample.tokens[:3], [-1.0] * 3, [True] * 3, truncated=True)
    outcome = dataclasses.replace(replay(rollout.puzzle, []), ended_by="truncated")
    return dataclasses.replace(rollout, sample=sample, outcome=outcome, thought=None)


def test_planted_rollouts_are_harvested_to_the_document(work):
    run = work("stage=harvest", "harvest.per_puzzle=2")
    a, b, c = puzzles_of(run, "rl")[:3]
    test = puzzles_of(run, "test")[0]
    old, middle, new = (solved(a, first, run) for first in (1, 2, 3))
    other = solved(b, 2, run)
    write(
        folder(run, "rl").path / FOLDER,
        [old, old, wrong(middle), truncated(old)],
        [middle, other, solved(test, 1, run), without_thought(other)],
        [new, old, wrong(solved(c, 1, run)), solved(test, 2, run)],  # old again: later than middle
    )
    result = harvest(run)
    assert result.measures == {
        "episodes": 12,
        "documents": 3,
        "puzzles": 2,
        "tokens": sum(len(as_document(one)[0]) for one in (new, old, other)),
        "targets": sum(sum(one.sample.sampled) for one in (new, old, other)),
        "skipped_wrong": 2,
        "skipped_truncated": 1,
        "skipped_ill_formed": 1,
        "skipped_contaminated": 2,
        "skipped_duplicate": 2,  # old came three times
        "skipped_beyond_per_puzzle": 1,  # middle
    }
    assert result.tokens == {"rl": 5.0}
    assert (result.model, result.n_params) == ("own", 7)  # what the model was, not model=
    out = folder(run, "harvest")
    assert documents(out.path / "train") == [as_document(one) for one in (new, old, other)]
    manifest = json.loads((out.path / "manifest.json").read_text())
    assert (manifest["episodes"], manifest["kept"]) == (12, 3)
    assert manifest["skipped"] == {
        name.removeprefix("skipped_"): count
        for name, count in result.measures.items()
        if name.startswith("skipped_")
    }
    assert manifest["vocabulary"] == tokens.VOCABULARY_HASH
    assert harvest(run) == result  # finished before
    assert documents_of(run, str(out.path)) == out.path / "train"


def test_prompts_are_checked_in_either_form(tiny_files):
    """Its prompts are moves: a prompt that leads elsewhere is told."""
    puzzle, other = read_puzzles(tiny_files["with_history"], SkipReport())[:2]
    prompt = puzzle_prompt(puzzle, "history")
    assert shows(prompt, puzzle, "history")
    assert not shows(prompt, other, "history") and not shows(prompt[:-3], puzzle, "history")
    assert not shows(prompt + [tokens.EOS], puzzle, "history")
    assert shows(puzzle_prompt(puzzle, "board"), puzzle, "board")
    assert not shows(prompt, puzzle, "board")
    assert not shows(puzzle_prompt(other, "board"), puzzle, "board")


def test_a_puzzle_is_known_to_the_test_at_any_turn():
    moves = ("h8g8", "a1a7", "g8h8", "b1b8")
    two = Puzzle("two", "7k/8/6K1/8/8/8/8/QR6 b - - 0 1", moves, 900)
    board = two.board()
    board.push_uci("a1a7")
    same_later = Puzzle("later", board.fen(), ("g8h8", "a7a8"), 900)
    elsewhere = Puzzle("else", board.fen(), ("g8f8", "a7a8"), 900)
    clock = dataclasses.replace(two, id="clock", fen=two.fen.replace("0 1", "9 40"))
    assert Contaminated([same_later]).has(two) and Contaminated([clock]).has(two)
    assert not Contaminated([elsewhere]).has(two) and not Contaminated([two]).has(same_later)


def test_real_rollouts_replay_to_what_was_recorded(work):
    """Whatever a model writes, its tokens alone tell the outcome, but for what cut it short."""
    run = work()
    torch.manual_seed(0)
    model = new_model(run.model, len(tokens.TOKENS), 0)
    model.head.weight.data[[tokens.CALL_ENV, tokens.END_THINK, tokens.THINK]] *= 8
    rollouts = play(
        model,
        puzzles_of(run, "rl")[:8],
        Rules(form="board", copies=8, budget=40, temperature=1.0),
        0,
    )
    assert len({r.outcome.ended_by for r in rollouts}) >= 2
    for rollout in [*rollouts, *(solved(p, 2, run) for p in puzzles_of(run, "rl"))]:
        sample = rollout.sample
        outcome, thought, agreed = replayed(rollout.puzzle, sample.tokens, sample.sampled)
        assert agreed
        if sample.truncated:
            assert (outcome.ended_by, rollout.outcome.ended_by) == ("unanswered", "truncated")
        else:
            assert outcome == rollout.outcome
            assert thought == rollout.thought


def test_a_thought_that_was_closed_by_force_is_harvested(work):
    """Its end is in the document, and is not to be predicted."""
    run = work("stage=harvest")
    rollout = solved(puzzles_of(run, "rl")[0], 2, run)
    place = rollout.sample.tokens.index(tokens.END_THINK)
    rollout.sample.sampled[place] = False
    write(folder(run, "rl").path / FOLDER, [rollout])
    harvest(run)
    assert documents(folder(run, "harvest").path / "train") == [as_document(rollout)]


def spoilt(how: str, rollout: Rollout, other: Puzzle) -> Rollout:
    sample = dataclasses.replace(
        rollout.sample, tokens=[*rollout.sample.tokens], sampled=[*rollout.sample.sampled]
    )
    if how == "reply":
        place = sample.sampled.index(False)
        sample.tokens[place] = tokens.ID["K"] if sample.tokens[place] != tokens.ID["K"] else 4
    elif how == "mask":
        sample.sampled[sample.sampled.index(False)] = True
    elif how == "answer":
        sample.tokens[-2] = tokens.ID["<unk>"]
    elif how == "thought":
        sample.tokens[1] = tokens.ID["<unk>"]
    elif how == "more":
        sample.tokens.append(tokens.CALL_ENV)
        sample.sampled.append(True)
        sample.logprobs = [*sample.logprobs, -1.0]
    elif how == "prompt":
        return dataclasses.replace(rollout, prompt=puzzle_prompt(other, "board"))
    elif how == "puzzle":
        broken = dataclasses.replace(rollout.puzzle, moves=("a1a1", *rollout.puzzle.moves[1:]))
        return dataclasses.replace(rollout, puzzle=broken)
    return dataclasses.replace(rollout, sample=sample)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("reply", "replies or length are not"),
        ("mask", "replies or length are not"),
        ("answer", "the judge finds"),
        ("thought", r"the judge finds \('solved', 2, False\)"),
        ("more", "replies or length are not"),
        ("prompt", "its prompt is not that of prompt.form=board"),
        ("puzzle", "but invalid uci .*'a1a1'"),
    ],
)
def test_what_the_judge_denies_stops_the_stage(how, said, work, monkeypatch):
    run = work("stage=harvest")
    one, other = [p for p in puzzles_of(run, "rl") if len(p.solver_moves) == 2][:2]
    fine = solved(one, 1, run)
    with monkeypatch.context() as patch:  # what is recorded, true or not
        patch.setattr(Rollout, "well_formed", True)
        write(folder(run, "rl").path / FOLDER, [fine, spoilt(how, fine, other)])
    with pytest.raises(InputError, match=said) as refused:
        harvest(run)
    assert one.id in str(refused.value) and "step 0" in str(refused.value)
    assert "\n" not in str(refused.value)
    assert folder(run, "harvest").result.status == "failed"


def test_where_nothing_can_be_harvested_it_says_why(work):
    run = work("stage=harvest")
    with pytest.raises(InputError, match="no episodes in"):
        harvest(run)
    one = solved(puzzles_of(run, "rl")[0], 1, run)
    write(folder(run, "rl").path / FOLDER, [wrong(one), without_thought(one)])
    contents.rollout_files.cache_clear()
    with pytest.raises(InputError, match=r"none of 2 episodes .*: 1 ill_formed, 1 wrong"):
        harvest(run)


def test_files_of_other_runs_by_their_content_wherever_they_lie(work, tmp_path):
    run = work()
    a, b = puzzles_of(run, "rl")[:2]
    for name in ("x", "y"):
        write(tmp_path / name / "rl-1" / FOLDER, [solved(a, 1, run)], [solved(b, 1, run)])
    write(tmp_path / "x" / "rl-2" / FOLDER, [solved(a, 2, run)])
    write(tmp_path / "z" / FOLDER, [solved(a, 2, run)])

    def made(pattern):
        return work("stage=harvest", f"harvest.rollouts='{tmp_path}/{pattern}'")

    both = made("x/rl-*")
    assert harvest(both).measures["documents"] == 3
    assert set(folder(both, "harvest").finished.parents) == {"prepare"}
    same, moved = made("x/rl-1"), made(f"y/rl-1/{FOLDER}/*.parquet")
    assert run_identity(same, "harvest") == run_identity(moved, "harvest")
    assert len({run_identity(made(p), "harvest") for p in ("x/rl-*", "x/rl-1", "z")}) == 3
    with pytest.raises(InputError, match="no episodes in"):
        run_identity(made("nowhere"), "harvest")


def test_a_harvest_is_used_only_where_it_was_cleared(work, tmp_path):
    run = work("stage=harvest")
    write(folder(run, "rl").path / FOLDER, [solved(puzzles_of(run, "rl")[0], 1, run)])
    harvest(run)
    place = folder(run, "harvest").path
    manifest = json.loads((place / "manifest.json").read_text())
    for key, said in (("vocabulary", "vocabulary"), ("prompt", "prompt form"), ("test", "test")):
        (place / "manifest.json").write_text(json.dumps(manifest | {key: "0" * 64}))
        with pytest.raises(InputError, match=f"was made for {said}.* 0{{16}}, this run has"):
            documents_of(run, str(place))
    (place / "manifest.json").write_text(json.dumps(manifest | {"stage": "traces"}))
    for other in (place, tmp_path):
        with pytest.raises(InputError, match="no finished harvest"):
            documents_of(run, str(other))
