"""OpenAI's chat completions as a dialect: its route, ids, whole answers and streams."""

import json
import re
from typing import Any

import pytest

from cursor_gateway.dialects.base import ReplyStart, RunView, StartRun
from cursor_gateway.dialects.chat.dialect import ChatReply, answer_id, chat_dialect, completion_head
from cursor_gateway.dialects.chat.encoder import ChunkEncoder, CompletionFold, encode_completion
from cursor_gateway.dialects.checked import Check
from cursor_gateway.dialects.deltas import AgentTools
from cursor_gateway.errors import InvalidRequest
from cursor_gateway.model.answers import AnswerId
from cursor_gateway.model.document_events import DocumentEvent
from cursor_gateway.prompting.structured import JsonObject
from cursor_gateway.stages.tokens import estimate_tokens_by_sample
from tests.dialects.descriptions import described
from tests.dialects.runs import RUN, USAGE, done, paused, words

EVENTS: list[DocumentEvent] = [*words("one two three"), done()]
WEATHER = {"type": "function", "function": {"name": "weather"}}


def read(body: Any, agent_tools: AgentTools = "reasoning", **headers: str) -> StartRun:
    (route,) = chat_dialect(50, agent_tools).routes
    body = {"messages": [{"role": "user", "content": "Hi"}], **body}
    asked = route.read(json.dumps(body).encode(), {name.replace("_", "-"): value for name, value in headers.items()})
    assert isinstance(asked, StartRun)
    return asked


# --- requests ---------------------------------------------------------------------------------------


def test_a_body_is_a_run_and_how_it_is_answered() -> None:
    asked = read(
        {"model": "opus", "stream": True, "stop": "x", "max_tokens": 9, "stream_options": {"include_usage": True}}
    )
    assert (asked.model, asked.stream, asked.has_full_history) == ("opus", True, True)
    assert asked.reply == ChatReply(agent_tools="reasoning", include_usage=True, stop=("x",), max_tokens=9)


def test_an_answer_in_a_format_is_checked() -> None:
    asked = read({"response_format": {"type": "json_object"}, "stop": "x", "max_tokens": 9})
    assert asked.check == Check(JsonObject(), ("x",), 9)
    assert asked.reply == ChatReply(agent_tools="reasoning", stop=("x",), max_tokens=9, has_ids=False)
    assert asked.instructions
    assert read({}).check is None


def test_text_is_readable_for_those_who_say_so_or_by_the_setting() -> None:
    assert read({"cursor": {"text": "readable"}}).reply == ChatReply(agent_tools="reasoning", text="readable")
    assert read({}, x_cursor_text="readable").reply == ChatReply(agent_tools="reasoning", text="readable")
    (route,) = chat_dialect(50, "none", "readable").routes
    body = {"messages": [{"role": "user", "content": "Hi"}]}
    asked = route.read(json.dumps(body).encode(), {})
    assert isinstance(asked, StartRun)
    assert asked.reply == ChatReply(agent_tools="none", text="readable")
    asked = route.read(json.dumps({**body, "cursor": {"text": "exact"}}).encode(), {})
    assert isinstance(asked, StartRun)
    assert asked.reply == ChatReply(agent_tools="none")


def test_nothing_is_inserted_into_an_answer_in_a_format() -> None:
    asked = read({"response_format": {"type": "json_object"}, "cursor": {"text": "readable"}})
    assert asked.reply == ChatReply(agent_tools="reasoning", has_ids=False)


def test_an_answer_whose_events_are_not_those_of_the_run_has_no_ids() -> None:
    sent = ChatReply(agent_tools="none", has_ids=False).stream(RUN, ReplyStart()).push_all(EVENTS)
    with_ids = ChatReply(agent_tools="none").stream(RUN, ReplyStart()).push_all(EVENTS)
    assert b"id: " in with_ids
    assert sent == re.sub(rb"(?m)^id: \d+\n", b"", with_ids)


def test_tools_are_refused_where_the_agents_own_are_shown_as_calls() -> None:
    assert read({"tools": [WEATHER]}).offer is not None
    with pytest.raises(InvalidRequest, match="run them again"):
        read({"tools": [WEATHER]}, "tool_calls")


def test_a_client_that_names_its_session_runs_tools_itself() -> None:
    asked = read({}, x_session_id="s")
    assert (asked.client_session, asked.has_own_tools) == ("s", True)
    assert not read({}, "tool_calls", x_session_id="s").has_own_tools


def test_headers_stand_for_fields_and_the_bodys_own_come_first() -> None:
    asked = read(
        {"cursor": {"mode": "ask"}}, x_cursor_mode="plan", x_cursor_include="raw, thinking", x_cursor_source="acp"
    )
    assert (asked.mode, asked.include, asked.source) == ("ask", {"raw", "thinking"}, "acp")
    with pytest.raises(InvalidRequest, match="x-cursor-mode"):
        read({}, x_cursor_mode="quick")


# --- ids --------------------------------------------------------------------------------------------


def test_ids_of_completions_lead_to_their_runs() -> None:
    assert completion_head(RUN).id == "chatcmpl-0a1b"
    assert completion_head(RUN, 7).id == "chatcmpl-0a1b-7"
    assert answer_id("chatcmpl-0a1b") == answer_id("chatcmpl-0a1b-x") == AnswerId("chat_0a1b")
    assert (answer_id("chatcmpl-0a1b-7"), answer_id("chat_0a1b")) == (AnswerId("chat_0a1b", 7), None)


# --- replies ----------------------------------------------------------------------------------------


def test_the_whole_is_a_completion() -> None:
    whole, fold = ChatReply(agent_tools="none").whole(RUN, ReplyStart(3)), CompletionFold(completion_head(RUN, 3))
    with pytest.raises(ValueError, match="not over"):
        whole.body()
    assert (whole.after, whole.is_over, whole.failure) == (3, False, None)
    for event in EVENTS:
        whole.push(event)
        fold.push(event)
    completion = fold.completion()
    assert completion is not None
    assert (whole.body(), whole.is_over, whole.is_cut) == (encode_completion(completion), True, False)


@pytest.mark.parametrize(
    ("start", "tokens"),
    [(ReplyStart(), 7 + estimate_tokens_by_sample("x" * 12)), (ReplyStart(3, USAGE), 15)],
    ids=["of the prompt", "of the reply before"],
)
def test_the_context_of_a_cut_answer_is_estimated(start: ReplyStart, tokens: int) -> None:
    reply = ChatReply(agent_tools="none", stop=("two",), include_usage=True)
    run = RunView(RUN.info, RUN.created, "x" * 12)
    whole, stream = reply.whole(run, start), reply.stream(run, start)
    for event in EVENTS:
        whole.push(event)
    assert whole.is_cut
    assert json.loads(whole.body())["usage"]["prompt_tokens"] == tokens
    assert b'"prompt_tokens":%d,' % tokens in stream.push_all(EVENTS)


def test_a_reader_who_comes_back_gets_the_rest_of_the_reply() -> None:
    (replay,) = chat_dialect(50, "none").replays
    events = [*words("Hi"), paused("k"), *words("more"), done()]
    encoder, place = replay.open(RUN, 4)
    assert place == 0
    later = ChunkEncoder(completion_head(RUN, 4), include_usage=True, agent_tools="none", after=4)
    assert encoder.push_all(events) == later.push_all(events[4:])


def test_it_describes_its_own_api() -> None:
    assert "POST /v1/chat/completions" in described(chat_dialect(50, "reasoning")).operations
