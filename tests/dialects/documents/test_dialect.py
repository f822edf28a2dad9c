"""The documents dialect: its routes, whole answers and streams."""

import json
from typing import Any

import pytest

from cursor_gateway.dialects.base import NDJSON, SSE, ContinueRun, ReplyStart, RunAction, StartRun, StreamForm
from cursor_gateway.dialects.documents.dialect import DocumentsReply, documents_dialect
from cursor_gateway.dialects.documents.encoder import NdjsonEncoder, SseEncoder
from cursor_gateway.dialects.errors import encode_error
from cursor_gateway.errors import AgentCrashed, InvalidRequest
from cursor_gateway.model.answers import Permission, PermissionDecisions, PlanDecision, QuestionAnswers, ToolResults
from cursor_gateway.model.messages import UserMessage
from tests.dialects.descriptions import described
from tests.dialects.runs import RUN, done, paused, words

DIALECT = documents_dialect(max_images=1)
PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ"
    "AAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def read(path: str, body: Any, **headers: str) -> RunAction:
    (route,) = [route for route in DIALECT.routes if route.path == path]
    return route.read(json.dumps(body).encode(), headers)


def start(body: Any, **headers: str) -> StartRun:
    asked = read("/v1/chat", body, **headers)
    assert isinstance(asked, StartRun)
    return asked


def continue_run(body: Any, **headers: str) -> ContinueRun:
    asked = read("/v1/chat/{id}/answer", body, **headers)
    assert isinstance(asked, ContinueRun)
    return asked


def test_a_message_starts_a_run() -> None:
    asked = start({"message": "Hi", "model": "opus", "stream": True, "include": ["raw"], "images": [PIXEL]})
    assert asked.messages == [UserMessage("Hi")]
    assert (asked.model, asked.stream, asked.include, len(asked.images)) == ("opus", True, {"raw"}, 1)
    assert (asked.reply, asked.responds_async, asked.when_client_leaves) == (DocumentsReply(SSE), False, None)


def test_images_are_limited() -> None:
    with pytest.raises(InvalidRequest):
        start({"message": "Hi", "images": [PIXEL, PIXEL]})


@pytest.mark.parametrize(
    "asked",
    [start({"message": "Hi"}, prefer="respond-async"), continue_run({"plan": "accept"}, prefer="respond-async")],
)
def test_who_wants_no_answer_leaves_a_run_that_finishes(asked: RunAction) -> None:
    assert (asked.responds_async, asked.when_client_leaves) == (True, "finish")


def test_the_form_of_the_stream_is_chosen_by_accept() -> None:
    assert start({"message": "Hi"}, accept="application/x-ndjson").reply == DocumentsReply(NDJSON)


def test_a_run_is_continued_with_what_it_waits_for() -> None:
    given = continue_run({"toolResults": [{"toolCallId": "k", "content": "7"}]}).given
    assert isinstance(given, ToolResults)
    assert given.results["k"].text == "7"
    answers = continue_run({"answers": [{"questionId": "q", "text": "yes"}]}).given
    assert isinstance(answers, QuestionAnswers)
    assert answers.answers[0].text == "yes"
    assert continue_run({"plan": "reject", "text": "Smaller."}).given == PlanDecision("reject", "Smaller.")
    allowed = continue_run({"permissions": [{"documentId": "doc_002", "decision": "once"}]})
    assert allowed.given == PermissionDecisions({"doc_002": Permission("once")})


@pytest.mark.parametrize(("form", "encoder"), [(SSE, SseEncoder), (NDJSON, NdjsonEncoder)])
def test_a_stream_ends_where_the_run_pauses(form: StreamForm, encoder: type[SseEncoder] | type[NdjsonEncoder]) -> None:
    events = [*words("Hi"), paused("k"), *words("more")]
    streamed = DocumentsReply(form).stream(RUN, ReplyStart(4))
    assert streamed.push_all(events) == encoder(4, until_pause=True).push_all(events)
    assert streamed.is_over
    assert (streamed.keep_alive(), DocumentsReply(form).headers(RUN)) == (form.keep_alive, {})


def test_a_reader_who_comes_back_is_not_stopped_by_a_pause() -> None:
    events = [*words("Hi"), paused("k"), done()]
    expected = [SseEncoder(2).push_all(events[2:]), NdjsonEncoder(2).push_all(events[2:])]
    resumed = [replay.open(RUN, 2) for replay in DIALECT.replays]
    assert [encoder.push_all(events[2:]) for encoder, _ in resumed] == expected
    assert [place for _, place in resumed] == [2, 2]


def test_the_whole_is_the_run_from_its_beginning() -> None:
    whole = DocumentsReply(SSE).whole(RUN, ReplyStart(4))
    states = []
    for event in [*words("Hi"), paused("k"), *words("more"), done()][:4]:
        whole.push(event)
        states.append(whole.is_over)
    assert states == [False] * 4  # the pause is the one before this reply
    whole.push(done())
    assert (whole.is_over, whole.failure) == (True, None)
    body = json.loads(whole.body())
    assert (body["status"], [document["content"] for document in body["documents"]]) == ("completed", ["Hi"])


def test_the_whole_ends_where_the_run_pauses() -> None:
    whole = DocumentsReply(SSE).whole(RUN, ReplyStart())
    for event in [*words("Hi"), paused("k")]:
        whole.push(event)
    assert whole.is_over
    assert json.loads(whole.body())["metadata"]["waitingFor"][0]["toolCallId"] == "k"


def test_what_had_arrived_stands_beside_the_error() -> None:
    failure = AgentCrashed("It crashed.").failure()
    whole, good = DocumentsReply(SSE).whole(RUN, ReplyStart()), DocumentsReply(SSE).whole(RUN, ReplyStart())
    for event in words("Hi"):
        whole.push(event)
        good.push(event)
    whole.push(done(failure))
    good.push(done())
    assert whole.failure == failure
    expected = {**json.loads(encode_error(failure)), **json.loads(good.body()), "status": "error"}
    assert json.loads(whole.error_body(failure)) == expected


def test_it_describes_its_own_api() -> None:
    assert "POST /v1/chat" in described(DIALECT).operations
