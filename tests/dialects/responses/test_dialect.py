"""The Responses API as a dialect."""

import json
from typing import Any

import msgspec
import pytest

from cursor_gateway.dialects.base import SSE, ReplyStart, StartRun
from cursor_gateway.dialects.checked import Check
from cursor_gateway.dialects.responses.conversation import unpack
from cursor_gateway.dialects.responses.dialect import ResponsesReply, responses_dialect
from cursor_gateway.dialects.responses.request import KeptRequest
from cursor_gateway.dialects.responses.shapes import answer_id
from cursor_gateway.errors import AgentUnauthenticated, InvalidRequest, WebSocketRefused
from cursor_gateway.model.messages import ToolMessage, UserMessage
from cursor_gateway.model.requests import NOT_STORED
from cursor_gateway.prompting.structured import JsonObject, instructions
from tests.dialects.descriptions import described
from tests.dialects.runs import RUN, USAGE, done, words
from tests.responses_shapes import read_response, read_stream, text_of

DIALECT = responses_dialect(5, lambda: 1_771_842_600.5)
CODEX = {"originator": "codex_cli_rs"}
JSON = {"format": {"type": "json_object"}}


def start(headers: dict[str, str] | None = None, **fields: Any) -> StartRun:
    (route,) = DIALECT.routes
    action = route.read(json.dumps({"input": "Hi", **fields}).encode(), headers or {})
    assert isinstance(action, StartRun)
    return action


def reply(asked: StartRun) -> ResponsesReply:
    assert isinstance(asked.reply, ResponsesReply)
    return asked.reply


def computed(path: str, **fields: Any) -> dict[str, Any]:
    (route,) = [route for route in DIALECT.computed if route.path.endswith(path)]
    found: dict[str, Any] = json.loads(route.read(json.dumps(fields).encode(), {}))
    return found


# --- requests ---------------------------------------------------------------------------------------


def test_a_request() -> None:
    asked = start(model="auto", cursor={"workspace": "/w", "include": ["thinking"]})
    assert asked.messages == (UserMessage("Hi"),)
    assert (asked.model, asked.workspace, asked.include) == ("auto", "/w", {"thinking"})
    assert (asked.has_full_history, asked.has_own_tools, asked.mode) == (True, False, None)
    assert (asked.attempt, asked.question_id) == ("only", "")
    assert msgspec.json.decode(asked.kept, type=KeptRequest) == reply(asked).asked
    assert start(store=False).kept == NOT_STORED


def test_a_conversation_that_goes_on() -> None:
    asked = start(previous_response_id="resp_1", instructions="Be brief.", text=JSON)
    assert (asked.follows, asked.has_full_history) == ("resp_1", False)
    assert asked.instructions == f"Be brief.\n\n{instructions(JsonObject())}"
    assert start(conversation="conv_1").conversation_id == "conv_1"
    assert start(cursor={"conversationId": "conv_2"}).conversation_id == "conv_2"


def test_an_answer_that_must_be_json_is_checked_unless_it_is_in_the_background() -> None:
    assert start(text=JSON, max_output_tokens=9).check == Check(JsonObject(), max_tokens=9, param="text.format")
    assert start(text=JSON, background=True).check is None
    assert start().check is None


def test_sdks_tell_their_retries() -> None:
    first, second = (start({"x-stainless-retry-count": count}) for count in ("0", "1"))
    assert (first.attempt, second.attempt) == ("first", "retry")


def test_codex() -> None:
    turn = json.dumps({"workspaces": {"/home/me": {}}, "turn_id": "t"})
    asked = start({**CODEX, "session-id": "s", "x-codex-turn-metadata": turn})
    assert (asked.client_session, asked.workspace, asked.workspace_if_allowed) == ("s", None, "/home/me")
    assert (asked.attempt, asked.question_id, asked.has_own_tools) == ("unknown", "t", True)
    codex = reply(asked)
    assert codex.streams_failures
    assert codex.headers(RUN) == {"x-codex-turn-state": "chat_0a1b"}
    assert b"keepalive" in codex.form.keep_alive
    other = reply(start({"session-id": "s"}))
    assert (other.streams_failures, other.is_resumable, other.headers(RUN), other.form) == (False, False, {}, SSE)


def test_it_describes_itself() -> None:
    assert described(responses_dialect(5, lambda: 0.0)).tag


def test_codex_is_told_in_a_stream_why_a_run_cannot_start() -> None:
    refused = start(CODEX, stream=True).refused
    assert refused is not None
    response = read_stream(refused(AgentUnauthenticated("Log in.").failure()))
    assert response.error is not None
    assert (response.status, response.error.code, response.error.message) == ("failed", "invalid_prompt", "Log in.")
    assert start(CODEX).refused is None
    assert start(stream=True).refused is None


def test_a_summary_is_written_beside_the_conversation_in_the_mode_that_changes_nothing() -> None:
    called = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    given = {"type": "function_call_output", "call_id": "c", "output": "x"}
    asked = start(input=[{"role": "user", "content": "Hi"}, called, given, {"type": "compaction_trigger"}])
    assert (asked.mode, asked.has_full_history, asked.client_session) == ("ask", False, " summary")
    assert [message.call_id for message in asked.messages if isinstance(message, ToolMessage)] == [""]
    turn = json.dumps({"request_kind": "compaction"})
    assert start({**CODEX, "x-codex-turn-metadata": turn}).mode == "ask"


# --- replies ----------------------------------------------------------------------------------------


def test_streamed_and_whole() -> None:
    asked = reply(start(model="auto", metadata={"a": "b"}))
    events = [*words("Hello"), done()]
    stream = read_stream(asked.stream(RUN, ReplyStart()).push_all(events))
    whole = asked.whole(RUN, ReplyStart())
    for event in events:
        whole.push(event)
    assert read_response(whole.body()) == stream
    assert (text_of(stream), stream.metadata, stream.id) == ("Hello", {"a": "b"}, "resp_0a1b")
    later = asked.whole(RUN, ReplyStart(7, USAGE))
    assert later.after == 7
    assert read_response(later.body()).id == "resp_0a1b_7"


def test_answers_that_are_looked_up() -> None:
    answers = DIALECT.answers
    assert answers is not None
    kept = start(metadata={"a": "b"}).kept
    reply, is_stream = answers.open(kept, {"stream": "true", "starting_after": "3"})
    assert is_stream
    assert isinstance(reply, ResponsesReply)
    assert reply.starting_after == 3
    assert not answers.open(kept, {})[1]
    assert json.loads(answers.items(kept, {}))["data"][0]["content"] == [{"type": "input_text", "text": "Hi"}]
    assert json.loads(answers.deleted("resp_1"))["deleted"]
    assert DIALECT.answer_id is answer_id


def test_readers_that_resume() -> None:
    (replay,) = DIALECT.replays
    encoder, after = replay.open(RUN, 0)
    assert (replay.name, after) == ("responses", 0)
    assert text_of(read_stream(encoder.push_all([*words("Hello"), done()]))) == "Hello"


# --- without an agent -------------------------------------------------------------------------------


def test_websockets_are_refused() -> None:
    with pytest.raises(WebSocketRefused):
        computed("/v1/responses")


def test_tokens_are_estimated() -> None:
    few = computed("/input_tokens", input="one two three")["input_tokens"]
    assert few == 3
    assert computed("/input_tokens", input="one two three", instructions="four")["input_tokens"] == 4
    assert (
        computed("/input_tokens", input="one two three", tools=[{"type": "function", "name": "f"}])["input_tokens"] > 3
    )
    assert computed("/input_tokens")["input_tokens"] == 0
    assert computed("/input_tokens", instructions="four")["input_tokens"] == 1


def test_a_conversation_is_packed() -> None:
    items = [{"role": "user", "content": "Hi"}]
    found = computed("/compact", model="auto", input=items)
    assert (found["object"], found["created_at"], found["usage"]["input_tokens"]) == (
        "response.compaction",
        1_771_842_600,
        1,
    )
    (item,) = found["output"]
    assert unpack(item["encrypted_content"]) == items
    with pytest.raises(InvalidRequest):
        computed("/compact", input=items)
    assert unpack(computed("/compact", model="auto")["output"][0]["encrypted_content"]) == []


def test_a_response_that_is_packed_is_followed_when_it_comes_back() -> None:
    found = computed("/compact", model="auto", previous_response_id="resp_1", input="Hi")
    asked = start(input=[*found["output"], {"role": "user", "content": "Go on."}])
    assert (asked.follows, asked.has_full_history) == ("resp_1", False)
    assert asked.messages == (UserMessage("Hi"), UserMessage("Go on."))
