"""What is looked at before RL: the gate, and the puzzles that can teach."""

import csv
import dataclasses

import numpy as np
import pytest
from handmade import MATE

from chessrl.board.rewards import binary
from chessrl.config import InputError
from chessrl.stages import probe
from chessrl.stages.rollouts import Rules

RULES = Rules(form="board", copies=4, budget=12, temperature=1.0)
PUZZLES = [dataclasses.replace(MATE, id=name) for name in "abcd"]


@pytest.fixture
def earned(monkeypatch):
    """Rewards (puzzles, episodes) that the model is to earn; notes how often it was asked."""
    asked = []

    def pretend(rewards):
        def found(model, puzzles, rules, *_):
            asked.append(rules.copies)
            return np.array(rewards, float)

        monkeypatch.setattr(probe, "rewards_of", found)
        return asked

    return pretend


@pytest.mark.parametrize(
    ("rewards", "advice"),
    [([[0] * 4] * 3, r"train longer before.*rl\.max_rating"),
     ([[1] * 4] * 3, "take harder puzzles"),
     ([[0] * 4, [1] * 4, [0] * 4], "train longer")],
)  # fmt: skip
def test_where_no_group_disagrees_rl_does_not_begin(earned, rewards, advice):
    earned(rewards)
    with pytest.raises(InputError, match=advice) as error:
        probe.gate(None, PUZZLES[:3], RULES, 0, binary)
    assert "\n" not in str(error.value) and "12 episodes on 3 puzzles" in str(error.value)


def test_one_group_that_disagrees_is_enough(earned, capsys):
    earned([[0] * 4, [0, 0, 1, 0], [1] * 4, [0] * 4])
    probe.gate(None, PUZZLES, RULES, 0, binary)
    assert "25% of 4 groups disagree" in capsys.readouterr().err


def test_rewards_of_any_kind_may_disagree(earned):
    earned([[0.5, 0.5, 0.25, 0.5]])
    probe.gate(None, PUZZLES[:1], RULES, 0, binary)


def test_solvable_are_those_that_are_solved_sometimes(earned, tmp_path):
    asked = earned([[0] * 8, [1] + [0] * 7, [1] * 7 + [0], [1] * 8])
    file = tmp_path / "solvable.csv"
    for _ in range(2):
        kept = probe.solvable(None, PUZZLES, RULES, 0, 8, file)
        assert [puzzle.id for puzzle in kept] == ["b", "c"]
    assert asked == [8]  # the second time they were read
    with open(file, newline="") as table:
        rows = [(row["puzzle"], row["solved"]) for row in csv.DictReader(table)]
    assert rows == [("a", "0"), ("b", "1"), ("c", "7"), ("d", "8")]


def test_none_that_is_solvable_is_an_error(earned, tmp_path):
    earned([[0] * 4, [1] * 4, [0] * 4, [0] * 4])
    with pytest.raises(InputError, match=r"rl\.curriculum\.probe"):
        probe.solvable(None, PUZZLES, RULES, 0, 4, tmp_path / "solvable.csv")
