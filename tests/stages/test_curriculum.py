"""Which puzzles are practised: passes, retirement, and going on from a state."""

import dataclasses

import pytest
from handmade import MATE, episode

from chessrl.config import CurriculumConfig, InputError
from chessrl.stages.curriculum import Curriculum

PUZZLES = [dataclasses.replace(MATE, id=str(i)) for i in range(10)]
UNIFORM = CurriculumConfig()
RETIRING = CurriculumConfig(name="no-positive-resampling", threshold=0.75)


def taken(curriculum, count):
    return [group.puzzle.id for group in curriculum.take(count)]


def played(name, rewards):
    puzzle = PUZZLES[int(name)]
    return [dataclasses.replace(episode(4, 0, 0, r), puzzle=puzzle) for r in rewards]


def test_each_pass_takes_every_puzzle_once():
    curriculum = Curriculum(PUZZLES, 0, UNIFORM)
    names = [name for _ in range(5) for name in taken(curriculum, 4)]
    assert sorted(names[:10]) == sorted(names[10:]) == [str(i) for i in range(10)]
    assert names[:10] != names[10:]


def test_groups_are_numbered_through():
    curriculum = Curriculum(PUZZLES, 0, UNIFORM)
    groups = curriculum.take(7) + curriculum.take(8)
    assert [group.number for group in groups] == list(range(15))


def test_another_seed_is_another_order():
    assert taken(Curriculum(PUZZLES, 0, UNIFORM), 10) != taken(Curriculum(PUZZLES, 1, UNIFORM), 10)


def test_solved_puzzles_leave_from_the_next_pass_on():
    """Three of four is the threshold; two of four is not enough."""
    curriculum = Curriculum(PUZZLES, 0, RETIRING)
    assert "3" in taken(curriculum, 10)
    curriculum.learn(played("3", (1, 1, 1, 0)) + played("4", (1, 1, 0, 0)))
    again = taken(curriculum, 9)
    assert sorted(again) == [str(i) for i in range(10) if i != 3]
    assert "3" not in taken(curriculum, 27)


def test_a_puzzle_that_is_retired_within_a_pass_is_still_met_in_it():
    curriculum = Curriculum(PUZZLES, 0, RETIRING)
    first = taken(curriculum, 5)
    late = next(str(i) for i in range(10) if str(i) not in first)
    curriculum.learn(played(late, (1, 1, 1, 1)))
    assert late in taken(curriculum, 5)
    assert late not in taken(curriculum, 9)


def test_uniform_retires_nothing():
    curriculum = Curriculum(PUZZLES, 0, UNIFORM)
    for puzzle in PUZZLES:
        curriculum.learn(played(puzzle.id, (1, 1)))
    assert len(taken(curriculum, 30)) == 30 and not curriculum.retired


def test_nothing_left_is_an_error_that_says_what_to_do():
    curriculum = Curriculum(PUZZLES[:2], 0, RETIRING)
    curriculum.take(2)
    curriculum.learn(played("0", (1, 1)) + played("1", (1, 1)))
    with pytest.raises(InputError, match=r"rl\.max_rating"):
        curriculum.take(1)


def test_it_goes_on_from_its_state():
    whole, first = Curriculum(PUZZLES, 0, RETIRING), Curriculum(PUZZLES, 0, RETIRING)
    for curriculum in (whole, first):
        curriculum.take(13)
        curriculum.learn(played("3", (1, 1)))
    second = Curriculum(PUZZLES, 0, RETIRING)
    second.load(first.state())
    assert second.take(20) == whole.take(20)
