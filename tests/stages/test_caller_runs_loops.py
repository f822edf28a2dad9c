"""Going round in circles: what is a repetition, when the model is told, and when it is a loop."""

from itertools import count

from cursor_gateway.stages.caller_runs import LoopGuard


def repeat(guard: LoopGuard, times: int, call: str = "look", result: str = "nothing") -> list[str]:
    return [guard.gave(call, result) for _ in range(times)]


def calls_until_a_loop(*calls: tuple[str, str]) -> int:
    """How often these, one after the other and all over again, may be made."""
    guard = LoopGuard()
    for number in count():
        if guard.is_loop:
            return number
        guard.gave(*calls[number % len(calls)])
    raise AssertionError


def test_the_model_is_warned_from_the_third_time_on() -> None:
    first, second, third, fourth = repeat(LoopGuard(), 4)
    assert first == second == ""
    assert "3 times" in third
    assert "4 times" in fourth


def test_another_result_is_no_repetition() -> None:
    """Whoever waits for a build asks the same, too."""
    guard = LoopGuard()
    assert [guard.gave("build", str(number)) for number in range(100)] == [""] * 100
    assert not guard.is_loop


def test_where_a_call_ends_and_its_result_begins_makes_a_difference() -> None:
    guard = LoopGuard()
    assert [guard.gave("ab", "c"), guard.gave("a", "bc"), guard.gave("abc", "")] == [""] * 3
    assert guard.gave("a", "bc") == ""


def test_a_row_of_repetitions_is_a_loop_whatever_it_is_made_of() -> None:
    assert calls_until_a_loop(("a", "1")) == 1 + 25
    assert calls_until_a_loop(("a", "1"), ("b", "2")) == 2 + 25
    assert calls_until_a_loop(("a", "1"), ("b", "2"), ("a", "2")) == 3 + 25


def test_anything_new_breaks_the_row_but_not_the_count_of_its_calls() -> None:
    guard = LoopGuard()
    repeat(guard, 25)
    assert not guard.is_loop
    assert guard.gave("look", "something") == ""
    assert "26 times" in repeat(guard, 1)[0]
    repeat(guard, 23)
    assert not guard.is_loop
    repeat(guard, 1)
    assert guard.is_loop


def test_half_a_character_is_no_crash() -> None:
    assert repeat(LoopGuard(), 2, "\ud800", "\udfff") == ["", ""]
