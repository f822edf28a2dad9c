"""The synthetic sessions are what is said of them: so many lines, tools and repetitions, and a known text."""

import json
from typing import Any

import pytest

from benchmarks.run import pieces, text_of
from benchmarks.sessions import Session, named_session

NAMES = ("100", "2k", "5k")


@pytest.fixture(scope="module")
def sessions() -> dict[str, Session]:
    return {name: named_session(name) for name in NAMES}


def _events(of: Session) -> list[dict[str, Any]]:
    return [json.loads(line) for line in of.lines]


@pytest.mark.parametrize("name", NAMES)
def test_the_text_is_what_the_deltas_say_and_what_the_pipeline_gives(sessions: dict[str, Session], name: str) -> None:
    events = _events(sessions[name])
    deltas = [event for event in events if event["type"] == "assistant" and _is_delta(event)]
    assert "".join(event["message"]["content"][0]["text"] for event in deltas) == sessions[name].text
    assert events[-1]["result"] == sessions[name].text
    assert text_of(pieces(sessions[name].data, 1000)) == sessions[name].text


def _is_delta(event: dict[str, Any]) -> bool:
    return "timestamp_ms" in event and "model_call_id" not in event
