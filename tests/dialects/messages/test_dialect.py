"""Anthropic's Messages API as a dialect: its routes, ids, whole messages and streams."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from cursor_gateway.dialects.base import ReplyStart, RunView, StartRun
from cursor_gateway.dialects.deltas import ActionDisplay
from cursor_gateway.dialects.messages.dialect import CHEAPEST, MessagesReply, messages_dialect
from cursor_gateway.dialects.messages.encoder import PING, Display
from cursor_gateway.errors import AgentCrashed, InvalidRequest
from cursor_gateway.model.answers import AnswerId
from cursor_gateway.model.document_events import DocumentEvent, Reasoning
from cursor_gateway.model.messages import ToolMessage
from cursor_gateway.stages.tokens import estimate_tokens_by_sample
from tests.anthropic_shapes import Message, Text, Thinking, events_of, fold, read_message
from tests.dialects.descriptions import described
from tests.dialects.runs import RUN, USAGE, done, paused, words

THINKING = {"type": "enabled", "budget_tokens": 1024}
LOOK = {"name": "look", "input_schema": {"type": "object"}}
SEARCH = {"type": "web_search_20250305", "name": "web_search"}
FORMAT = {"format": {"type": "json_schema", "schema": {"type": "object"}}}
CLAUDE_CODE = {"user-agent": "claude-cli/2.1.325", "x-claude-code-session-id": "s", "x-stainless-retry-count": "0"}
EVENTS: list[DocumentEvent] = [Reasoning("Hm", opens=True), *words("one two three"), done()]


def read(body: dict[str, Any], headers: dict[str, str] | None = None, actions: ActionDisplay = "thinking") -> StartRun:
    (route,) = messages_dialect(50, actions).routes
    body = {"model": "claude-opus-5-5", "max_tokens": 128_000, "messages": [{"role": "user", "content": "Hi"}], **body}
    asked = route.read(json.dumps(body).encode(), headers or {})
    assert isinstance(asked, StartRun)
    return asked


def reply_to(body: dict[str, Any], headers: dict[str, str] | None = None, actions: ActionDisplay = "thinking") -> Any:
    return read(body, headers, actions).reply


def test_it_describes_itself() -> None:
    assert described(messages_dialect(50, "thinking")).tag


# --- requests ---------------------------------------------------------------------------------------


def test_a_body_is_a_run_and_how_it_is_answered() -> None:
    asked = read({"stream": True, "stop_sequences": ["x"], "max_tokens": 9, "thinking": THINKING})
    assert (asked.model, asked.stream, asked.has_full_history) == ("claude-opus-5-5", True, True)
    display = Display(thinking=True, actions="thinking")
    assert asked.reply == MessagesReply(model="claude-opus-5-5", display=display, stop=("x",), max_tokens=9)
    assert (asked.attempt, asked.question_id, asked.has_own_tools) == ("only", "", False)


def test_an_answer_in_a_format_is_checked() -> None:
    asked = read({"output_config": FORMAT, "stop_sequences": ["x"], "max_tokens": 9})
    assert asked.check is not None
    assert (asked.check.stop, asked.check.max_tokens) == (("x",), 9)
    assert "JSON Schema" in asked.instructions
    assert read({}).check is None


@pytest.mark.parametrize("actions", ["text", "native", "none"])
def test_nothing_is_inserted_into_an_answer_in_a_format(actions: ActionDisplay) -> None:
    asked = read({"output_config": FORMAT, "thinking": THINKING, "cursor": {"text": "readable"}}, actions=actions)
    assert isinstance(asked.reply, MessagesReply)
    assert asked.reply.display == Display(thinking=True)


@pytest.mark.parametrize(
    ("body", "actions", "expected"),
    [
        ({}, "thinking", "none"),
        ({}, "native", "none"),
        ({}, "text", "text"),
        ({"tools": [LOOK]}, "native", "native"),
        ({"thinking": THINKING}, "native", "native"),
        ({"thinking": THINKING}, "none", "none"),
        ({"thinking": THINKING, "cursor": {"actions": "text"}}, "none", "text"),
    ],
)
def test_blocks_other_than_text_need_thinking_or_tools(
    body: dict[str, Any], actions: ActionDisplay, expected: str
) -> None:
    assert reply_to(body, actions=actions).display.actions == expected


def test_headers_stand_for_options() -> None:
    asked = read(
        {"thinking": THINKING}, {"x-cursor-actions": "text", "x-cursor-mode": "plan", "x-cursor-include": "raw"}
    )
    assert isinstance(asked.reply, MessagesReply)
    assert (asked.reply.display.actions, asked.mode, asked.include) == ("text", "plan", {"raw"})
    assert not read({"cursor": {"conversationId": "conv_1"}}).has_full_history


def test_an_sdk_says_which_of_its_requests_are_retries() -> None:
    tries = [read({}, {"x-stainless-retry-count": count}) for count in ("0", "1")]
    assert [asked.attempt for asked in tries] == ["first", "retry"]


# --- Claude Code ------------------------------------------------------------------------------------


def test_its_turns_join_retries_within_its_session() -> None:
    environment = {"role": "system", "content": "Primary working directory: /home/me/app"}
    messages = [{"role": "user", "content": "Hi"}, environment]
    asked = read({"tools": [LOOK], "messages": messages}, {**CLAUDE_CODE, "x-claude-code-agent-id": "a"})
    assert (asked.attempt, asked.question_id) == ("unknown", "")
    assert (asked.client_session, asked.has_own_tools, asked.mode) == ("s a", True, None)
    assert (asked.workspace, asked.workspace_if_allowed) == (None, "/home/me/app")
    assert read({"tools": [LOOK], "messages": messages}).workspace_if_allowed is None


@pytest.mark.parametrize(
    ("body", "session", "model"),
    [
        ({}, "s title", "claude-opus-5-5"),
        ({"output_config": FORMAT}, "s title", CHEAPEST),
        ({"tools": [SEARCH]}, "s search", CHEAPEST),
        (
            {
                "tools": [LOOK],
                "thinking": THINKING,
                "messages": [
                    {"role": "assistant", "content": [{"type": "tool_use", "id": "call_1", "name": "look"}]},
                    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call_1", "content": "ok"}]},
                    {"role": "user", "content": "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools."},
                ],
            },
            "s summary",
            "claude-opus-5-5",
        ),
    ],
)
def test_what_it_asks_beside_a_turn_is_apart_from_it(body: dict[str, Any], session: str, model: str) -> None:
    asked = read(body, CLAUDE_CODE)
    assert (asked.client_session, asked.model, asked.mode, asked.offer) == (session, model, "ask", None)
    assert (asked.has_full_history, asked.conversation_id, asked.attempt) == (False, None, "unknown")
    assert [message.call_id for message in asked.messages if isinstance(message, ToolMessage)] in ([], [""])
    assert read(body).mode is None


def test_only_its_searches_show_what_was_found() -> None:
    assert reply_to({"tools": [SEARCH]}, CLAUDE_CODE).display == Display(actions="search")
    assert reply_to({"thinking": THINKING}, CLAUDE_CODE, "text").display == Display()


def test_a_turn_that_brings_results_is_a_turn() -> None:
    result = {"type": "tool_result", "tool_use_id": "call_1", "content": "CRITICAL: Respond with TEXT ONLY"}
    asked = read({"tools": [LOOK], "messages": [{"role": "user", "content": [result]}]}, CLAUDE_CODE)
    assert asked.mode is None


# --- ids --------------------------------------------------------------------------------------------


def test_ids_of_messages_lead_to_their_runs() -> None:
    dialect = messages_dialect(50, "none")
    assert dialect.answer_id("msg_0a1b-7") == AnswerId("chat_0a1b", 7)
    assert dialect.answer_id("chatcmpl-0a1b") is None


# --- replies ----------------------------------------------------------------------------------------

REPLY = MessagesReply(model="claude-x", display=Display(thinking=True, actions="thinking"))


def whole(events: list[DocumentEvent], reply: MessagesReply = REPLY, start: ReplyStart = ReplyStart()) -> Any:  # noqa: B008
    found = reply.whole(RUN, start)
    for event in events:
        found.push(event)
    return found


def test_the_stream_folds_to_the_whole() -> None:
    stream = REPLY.stream(RUN, ReplyStart())
    assert stream.keep_alive().endswith(PING)
    assert (REPLY.form.keep_alive, REPLY.headers(RUN), REPLY.streams_failures) == (PING, {}, False)
    found = REPLY.stream(RUN, ReplyStart()).push_all(EVENTS)
    message = whole(EVENTS)
    assert (message.is_over, message.is_cut, message.failure, message.after) == (True, False, None, 0)
    assert fold(events_of(found)) == read_message(message.body())
    assert read_message(message.body()).content == [
        Thinking(thinking="Hm", signature="chat_0a1b"),
        Text(text="one two three"),
    ]


def test_a_reply_after_a_pause_has_its_own_id_and_the_context_before_it() -> None:
    message = read_message(whole(EVENTS[1:2], start=ReplyStart(7, USAGE)).body())
    assert (message.id, message.usage.input_tokens) == ("msg_0a1b-7", USAGE.total_tokens)
    first = read_message(whole([]).body())
    assert first.usage.input_tokens == 7 + estimate_tokens_by_sample(RUN.prompt)


def test_a_limit_cuts() -> None:
    cut = whole(EVENTS, MessagesReply(model="x", display=Display(), max_tokens=2))
    assert cut.is_cut
    assert read_message(cut.body()).stop_reason == "max_tokens"
    stopped = whole(EVENTS, MessagesReply(model="x", display=Display(), stop=("two",)))
    assert read_message(stopped.body()).stop_sequence == "two"


def test_a_run_that_failed_is_an_error() -> None:
    failure = AgentCrashed("It crashed.").failure()
    failed = whole([done(failure), done(failure)])
    assert failed.failure == failure
    assert failed.error_body(failure) is None


# --- resuming ---------------------------------------------------------------------------------------


def test_a_stream_can_be_resumed_after_any_of_its_events() -> None:
    events = [*EVENTS[:-1], paused("call_1"), *words("There."), done()]
    (replay,) = messages_dialect(50, "thinking").replays
    assert (replay.name, replay.form.keep_alive) == ("messages", PING)

    def resumed(after: int) -> list[bytes]:
        encoder, first = replay.open(RUN, after)
        assert first == 0
        return [encoder.push_all([event]) for event in events]

    for after in range(5):
        assert resumed(after)[after:] == resumed(0)[after:]
        assert not any(resumed(after)[:after])
    message = fold(events_of(b"".join(resumed(5))))
    assert isinstance(message, Message)
    assert (message.id, message.model) == ("msg_0a1b-5", "auto")


def test_a_run_without_a_model_has_an_empty_one() -> None:
    (replay,) = messages_dialect(50, "thinking").replays
    encoder, _ = replay.open(RunView(replace(RUN.info, model=None), 0, ""), 0)
    message = fold(events_of(encoder.push_all(EVENTS)))
    assert isinstance(message, Message)
    assert message.model == ""


# --- counting ---------------------------------------------------------------------------------------


def test_tokens_are_counted() -> None:
    (route,) = messages_dialect(50, "none").computed
    assert (route.method, route.path) == ("POST", "/v1/messages/count_tokens")
    counted = json.loads(route.read(b'{"model":"x","messages":[{"role":"user","content":"foo bar"}]}', {}))
    assert counted == {"input_tokens": 2}
    with pytest.raises(InvalidRequest):
        route.read(b"{}", {})
