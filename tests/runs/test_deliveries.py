"""When a question is a retry, and when it is asked again."""

import pytest

from cursor_gateway.runs import deliveries
from cursor_gateway.runs.deliveries import Deliveries


def test_a_question_is_asked_again_some_time_after_its_answer() -> None:
    now = [0.0]
    known = Deliveries(5, lambda: now[0])
    assert not known.is_asked_again("me", "key")
    known.note("me", "key")
    now[0] = 4
    assert not known.is_asked_again("me", "key")
    known.note("me", "key")  # the retry was answered, too
    now[0] = 8
    assert not known.is_asked_again("me", "key")
    now[0] = 9
    assert not known.is_asked_again("you", "key")
    assert not known.is_asked_again("me", "another")
    assert known.is_asked_again("me", "key")
    assert not known.is_asked_again("me", "key")  # its own retry


def test_only_so_many_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deliveries, "_MOST", 2)
    known = Deliveries(0, lambda: 0.0)
    for key in ("a", "b", "a", "c"):
        known.note("me", key)
    assert [key for key in ("a", "b", "c") if known.is_asked_again("me", key)] == ["a", "c"]
