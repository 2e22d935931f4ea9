"""Alarms: each rings on its sign, once, and not on what looks like it."""

import pytest

from chessrl.stages.alarms import Alarms

SOUND = {
    "reward": 0.5, "solved": 256.0, "thought_closed": 0.99, "ended_truncated": 0.02,
    "entropy": 1.0, "ratio_mean": 1.0,
}  # fmt: skip


def told(rows, alarms=None):
    alarms = alarms or Alarms("32-true")
    return [(step, text) for step, row in enumerate(rows) for text in alarms.look(step, row)]


def rows(**changes):
    """Thirty updates, of which the last ten differ."""
    return [SOUND] * 20 + [SOUND | changes] * 10


def test_a_sound_run_is_quiet():
    assert told(rows()) == []


def test_a_reward_that_halves_while_the_format_is_good():
    found = told(rows(reward=0.06, solved=30.0))
    assert len(found) == 1 and "reward fell from 0.500" in found[0][1]
    assert 20 < found[0][0] < 25  # within a window
    assert told(rows(reward=0.06, thought_closed=0.5)) == []
    assert told(rows(reward=0.3)) == []


def test_a_handful_of_solved_episodes_may_halve_by_chance():
    few = SOUND | {"reward": 0.01, "solved": 5.0}
    assert told([few] * 20 + [few | {"reward": 0.0, "solved": 0.0}] * 10) == []


def test_a_reward_that_sank_long_ago_rings_no_more():
    alarms = Alarms("32-true")
    assert len(told([SOUND] * 5 + [SOUND | {"reward": 0.2}] * 60, alarms)) == 1
    assert alarms.ringing == set()


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"entropy": 0.2}, "entropy fell"), ({"ended_truncated": 0.3}, "run out of tokens")],
)
def test_collapse_and_truncation(changes, words):
    found = told(rows(**changes))
    assert len(found) == 1 and words in found[0][1]


@pytest.mark.parametrize(
    ("precision", "ratio", "rings"),
    [("32-true", 1.0005, False), ("32-true", 1.01, True), ("32-true", 0.99, True),
     ("bf16-mixed", 1.01, False), ("bf16-mixed", 1.5, True)],
)  # fmt: skip
def test_the_first_ratio(precision, ratio, rings):
    first = SOUND | {"ratio_mean": ratio}
    assert bool(told([first], Alarms(precision))) == rings
    assert told([SOUND, first], Alarms(precision)) == []


def test_it_remembers_over_a_resume():
    whole, first = Alarms("32-true"), Alarms("32-true")
    table = rows(reward=0.06, solved=30.0)
    told(table[:21], first)
    second = Alarms("32-true")
    second.load(first.state())
    expected = told(table, whole)
    assert [
        (step, text) for step in range(21, 30) for text in second.look(step, table[step])
    ] == expected


def test_an_update_without_gradient_is_looked_at_too():
    table = [{k: v for k, v in SOUND.items() if k != "ratio_mean"}] * 10
    assert told(table) == []
