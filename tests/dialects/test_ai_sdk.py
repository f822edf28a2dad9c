"""The AI SDK's dialect: its route, replies and streams."""

import json
from typing import Any

from cursor_gateway.dialects.ai_sdk import UiReply, ai_sdk_dialect
from cursor_gateway.dialects.base import ContinueRun, ReplyStart, RunAction, StartRun
from cursor_gateway.errors import AgentCrashed
from tests.dialects.runs import RUN, done, paused, words
from tests.dialects.test_ai_sdk_request import HI, STEP, approval, said
from tests.ui_streams import AiSdkMessage

DIALECT = ai_sdk_dialect(5)


def read(*messages: Any, headers: dict[str, str] | None = None, **more: Any) -> RunAction:
    (route,) = DIALECT.routes
    return route.read(json.dumps({"id": "c1", "messages": messages, **more}).encode(), headers or {})


def test_a_message_starts_a_run_whose_stream_has_the_chats_name() -> None:
    tools = [{"name": "look", "parameters": {"type": "object"}}]
    asked = read(HI, said(), HI, model="opus", tools=tools, cursor={"mode": "ask"})
    assert isinstance(asked, StartRun)
    assert (asked.stream, asked.stream_name, asked.client_session) == (True, "c1", "c1")
    assert (asked.model, asked.mode, asked.may_be_asked) == ("opus", "ask", False)
    assert (asked.follows, asked.has_full_history) == ("chat_0a1b", True)
    assert (asked.attempt, asked.question_id) == ("unknown", "c1 m1")
    assert asked.offer is not None


def test_another_answer_is_another_attempt() -> None:
    asked = read(HI, trigger="regenerate-message")
    assert isinstance(asked, StartRun)
    assert (asked.attempt, asked.question_id) == ("only", "")


def test_a_conversation_that_is_named_is_continued() -> None:
    asked = read(HI, said(), HI, headers={"x-cursor-conversation-id": "conv_1"})
    assert isinstance(asked, StartRun)
    assert (asked.conversation_id, asked.follows, asked.has_full_history) == ("conv_1", None, False)


def test_a_decision_continues_its_run() -> None:
    asked = read(HI, said(STEP, approval("accept_plan", True)), cursor={"whenClientLeaves": "finish"})
    assert isinstance(asked, ContinueRun)
    assert (asked.run_id, asked.stream, asked.stream_name, asked.when_client_leaves) == (
        "chat_0a1b",
        True,
        "c1",
        "finish",
    )
    assert asked.reply == UiReply("chat_0a1b")


def test_the_stream_has_its_version() -> None:
    reply = UiReply("m1")
    assert reply.headers(RUN) == {"x-vercel-ai-ui-message-stream": "v1"}
    assert AiSdkMessage().read(reply.stream(RUN, ReplyStart()).push_all([*words("Hi."), done()])).id == "m1"


def test_a_stream_is_resumed_or_read_again() -> None:
    events = [*words("I look."), paused("c1"), *words(" Rain."), done()]
    (replay,) = DIALECT.replays
    encoder, first = replay.open(RUN, 0)
    assert first == 0
    assert AiSdkMessage().read(encoder.push_all(events)).text == "I look."
    assert DIALECT.named is not None
    assert AiSdkMessage().read(DIALECT.named.open(RUN, 4).push_all(events)).text == "I look. Rain."


def test_an_error_is_its_message() -> None:
    assert DIALECT.errors.encode(AgentCrashed("It fell over.").failure(), "r") == b"It fell over."
