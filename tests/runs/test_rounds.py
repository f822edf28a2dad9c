"""The calls of a run that is gone: which there were, and what the agent is told of them."""

from typing import Literal

from msgspec import UNSET

from cursor_gateway.model.caller_tools import ToolResult
from cursor_gateway.model.document_events import ContentDelta, DocumentEnded, DocumentEvent, Paused
from cursor_gateway.model.documents import (
    Envelope,
    ResponseMetadata,
    ToolCallMetadata,
    ToolCallResult,
    Usage,
    WaitingCall,
    make_document,
)
from cursor_gateway.model.messages import AssistantMessage, Call, ToolMessage
from cursor_gateway.runs.rounds import Rounds


def pause(*ids: str) -> Paused:
    waiting = [WaitingCall(tool_call_id=id, tool_name="t", arguments={}, document_id="d") for id in ids]
    metadata = ResponseMetadata(duration_ms=0, tool_call_count=0, turn_count=0, waiting_for=waiting)
    usage = Usage(prompt_tokens=0, completion_tokens=0, total_tokens=0)
    return Paused(
        Envelope(
            id="chat_1",
            conversation_id="conv_1",
            model="auto",
            mode="agent",
            created="",
            status="streaming",
            usage=usage,
            metadata=metadata,
        )
    )


def ended(id: str, data: object = None, *, ran_by: Literal["caller"] | None = "caller") -> DocumentEnded:
    """Without data it was never answered."""
    metadata = ToolCallMetadata(
        tool_name="t",
        tool_call_id=id,
        arguments={"n": id},
        result=ToolCallResult(status="success", data=data),
        duration_ms=0,
        state="interrupted" if data is None else UNSET,
        ran_by=ran_by or UNSET,
    )
    return DocumentEnded(make_document("d", 1, None, metadata))


EVENTS: list[DocumentEvent] = [
    ContentDelta("d", "I look. "),
    pause("a", "b"),  # 2
    ended("a", {"sky": "blue"}),
    ended("own", "x", ran_by=None),
    pause("b"),  # 5: the rest, asked for again
    ended("b", "two"),
    ContentDelta("d", "And now. "),
    pause("c"),  # 8
    ended("c"),
]


def results(*ids: str) -> dict[str, ToolResult]:
    return {id: ToolResult(text=f"now {id}") for id in ids}


def test_which_pause_waited_for_it() -> None:
    rounds = Rounds(EVENTS)
    assert [rounds.pause_before(results(id)) for id in ("a", "b", "c", "own", "x")] == [2, 5, 8, None, None]
    assert [rounds.are_missing(results(id)) for id in ("a", "b", "c", "x")] == [False, False, True, False]


def test_what_a_fresh_agent_is_given() -> None:
    result = Rounds(EVENTS).messages(results("a", "c"))
    assert result == [
        AssistantMessage("I look. ", (Call("a", "t", '{"n":"a"}'), Call("b", "t", '{"n":"b"}'))),
        ToolMessage('{"sky":"blue"}', "a", "t"),  # what it gave then, not what is said of it now
        ToolMessage("two", "b", "t"),
        AssistantMessage("And now. ", (Call("c", "t", '{"n":"c"}'),)),
        ToolMessage("now c", "c", "t"),
    ]
    assert Rounds(EVENTS).messages({})[-1] == ToolMessage("There is no result: the run was broken off.", "c", "t")
