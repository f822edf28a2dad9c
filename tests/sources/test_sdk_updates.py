"""The SDK's objects as plain data: parsed by the SDK itself from what comes over the wire."""

from typing import Any

import pytest
from cursor_sdk import RunStreamEvent

from cursor_gateway.sources.sdk.updates import plain, size_of


def of(**wire: Any) -> Any:
    return plain(RunStreamEvent.from_json(wire))


@pytest.mark.parametrize(
    ("update", "meant"),
    [
        ({"type": "text-delta", "text": "a"}, {"type": "text-delta", "text": "a"}),
        ({"type": "weather", "sky": 1}, {"type": "weather", "update": {"type": "weather", "sky": 1}}),
        (
            {"type": "tool-call-started", "callId": "c", "modelCallId": "m", "toolCall": {"type": "read"}},
            {"type": "tool-call-started", "call_id": "c", "model_call_id": "m", "tool_call": {"type": "read"}},
        ),
        ({"type": "turn-ended"}, {"type": "turn-ended", "usage": None}),
    ],
)
def test_updates(update: dict[str, Any], meant: dict[str, Any]) -> None:
    assert of(interactionUpdate={"type": update["type"], "update": update}) == meant


def message(type: str, **fields: Any) -> Any:
    return of(sdkMessage={"type": type, "message": {"type": type, "agent_id": "a", "run_id": "r", **fields}})


def test_messages() -> None:
    user = message("user", message={"role": "user", "content": [{"type": "text", "text": "hi"}, {"type": "x"}]})
    assert user["message"] == {"role": "user", "content": [{"type": "text", "text": "hi"}, {"type": "x"}]}
    assert message("system", model={"id": "m"})["model"] == {"id": "m", "params": []}
    assert message("usage", usage={"inputTokens": "3"})["usage"]["input_tokens"] == 3
    assert message("weather", sky=1) == {"type": "weather", "agent_id": "a", "run_id": "r", "sky": 1}


@pytest.mark.parametrize("type", ["assistant", "thinking", "tool_call"])
def test_of_what_the_deltas_have_sent_only_the_kind_is_kept(type: str) -> None:
    assert message(type, text="long", args={"a": 1}) == {"type": type}


def test_results_and_the_rest() -> None:
    assert of(result={"status": "X", "errorCode": "e", "result": {"status": "Y"}}) == {"status": "Y", "errorCode": "e"}
    assert of(result={"status": "X"}) == {"status": "X"}
    assert of() == {}
    assert of(done={}) == {}


def test_an_update_is_as_large_as_what_it_says() -> None:
    delta = {"type": "text-delta", "text": "x" * 1000}
    assert size_of(of(interactionUpdate={"type": "text-delta", "update": delta})) in range(1000, 1100)
    nested: Any = "x" * 1000
    for _ in range(10_000):
        nested = [{"a": nested}]
    assert size_of({"result": nested, "count": 1}) in range(11_000, 11_100)
    content = {"role": "user", "content": [{"type": "text", "text": "x" * 1000}]}
    event = RunStreamEvent.from_json({"sdkMessage": {"type": "user", "message": {"type": "user", "message": content}}})
    assert size_of({"message": event.sdk_message}) in range(1000, 1200)
