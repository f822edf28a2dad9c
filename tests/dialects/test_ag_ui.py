"""AG-UI's dialect: its route, replies and streams."""

import json
from typing import Any

from cursor_gateway.dialects.ag_ui import AgUiReply, ag_ui_dialect
from cursor_gateway.dialects.base import ContinueRun, ReplyStart, RunAction, StartRun
from cursor_gateway.errors import AgentMissing
from tests.dialects.runs import RUN, done, words
from tests.dialects.test_ag_ui_request import HI, entry
from tests.ui_streams import AgUiThread, frames_of

DIALECT = ag_ui_dialect(5)


def read(*messages: Any, **more: Any) -> RunAction:
    (route,) = DIALECT.routes
    return route.read(json.dumps({"threadId": "t", "runId": "r", "messages": messages, **more}).encode(), {})


def test_messages_start_a_run() -> None:
    before = {"id": "chat_0a1b-2", "role": "assistant", "content": "Hi."}
    props = {"model": "opus", "cursor": {"mayAsk": True}}
    asked = read(HI, before, HI, forwardedProps=props, context=[{"description": "a", "value": "b"}])
    assert isinstance(asked, StartRun)
    assert (asked.stream, asked.reply, asked.client_session) == (True, AgUiReply("t", "r"), "t")
    assert (asked.model, asked.may_be_asked, asked.instructions) == ("opus", True, "a: b")
    assert (asked.follows, asked.has_full_history, asked.attempt, asked.question_id) == (
        "chat_0a1b",
        True,
        "unknown",
        "t r",
    )


def test_a_conversation_that_is_named_is_continued() -> None:
    asked = read(HI, forwardedProps={"cursor": {"conversationId": "conv_1"}}, runId="")
    assert isinstance(asked, StartRun)
    assert (asked.follows, asked.has_full_history, asked.attempt, asked.question_id) == (None, False, "only", "")


def test_answers_to_interrupts_continue_their_run() -> None:
    asked = read(HI, resume=[entry("plan", payload={"approved": True})])
    assert isinstance(asked, ContinueRun)
    assert (asked.run_id, asked.stream, asked.reply) == ("chat_0a1b", True, AgUiReply("t", "r"))


def test_a_run_that_cannot_start_is_an_event() -> None:
    asked = read(HI)
    assert isinstance(asked, StartRun)
    assert asked.refused is not None
    (frame,) = frames_of(asked.refused(AgentMissing("Install it.").failure()))
    assert json.loads(frame) == {"type": "RUN_ERROR", "message": "Install it.", "code": "agent_missing"}
    assert asked.reply.streams_failures


def test_a_stream_is_resumed() -> None:
    (replay,) = DIALECT.replays
    encoder, first = replay.open(RUN, 0)
    assert first == 0
    events = [*words("Hi."), done()]
    assert AgUiThread().read(encoder.push_all(events)).text == "Hi."
    assert replay.reply is not None
    assert AgUiThread().read(replay.reply.stream(RUN, ReplyStart()).push_all(events)).text == "Hi."
