"""What is over its goal is marked, what is far over it is red, and an explanation does not hide what gets worse."""

import pytest

from benchmarks.goals import GOALS, GROUPS, WORSE, Goal, Verdict, out_of_reach

AT_MOST = Goal(what="time", goal=2.0, limit=2.6)
AT_LEAST = Goal(what="rate", goal=0.7, limit=0.54, at_least=True)


@pytest.mark.parametrize(
    ("goal", "found", "verdict"),
    [
        (AT_MOST, 2.0, Verdict.MET),
        (AT_MOST, 2.01, Verdict.OVER),
        (AT_MOST, 2.6, Verdict.OVER),
        (AT_MOST, 2.61, Verdict.RED),
        (AT_LEAST, 0.7, Verdict.MET),
        (AT_LEAST, 0.6, Verdict.OVER),
        (AT_LEAST, 0.5, Verdict.RED),
        (Goal(what="memory", goal=70), 70.1, Verdict.RED),
        (Goal(what="a row"), 1e9, Verdict.NO_GOAL),
    ],
)
def test_verdicts(goal: Goal, found: float, verdict: Verdict) -> None:
    assert goal.verdict(found) is verdict


def test_an_explained_row_is_red_when_it_gets_worse() -> None:
    goal = out_of_reach(AT_MOST, 4.0, "because")
    assert goal.verdict(1.9) is Verdict.MET
    assert goal.verdict(4.0 * WORSE) is Verdict.EXPLAINED
    assert goal.verdict(4.0 * WORSE + 0.01) is Verdict.RED


def test_no_limit_is_stricter_than_its_goal_and_no_name_is_used_twice() -> None:
    assert len(GOALS) == sum(len(group.rows) for group in GROUPS)
    for goal in GOALS.values():
        if goal.goal is not None and goal.limit is not None:
            assert (goal.limit <= goal.goal) if goal.at_least else (goal.limit >= goal.goal)
