"""The registry of dialects."""

from cursor_gateway.dialects.base import (
    SSE,
    Dialect,
    Replay,
    ReplyStart,
    Route,
    RunAction,
    RunView,
    StartRun,
)
from cursor_gateway.dialects.documents.dialect import DocumentsReply
from cursor_gateway.dialects.documents.encoder import SseEncoder
from cursor_gateway.dialects.errors import OPENAI_ERRORS
from cursor_gateway.dialects.replies import (
    JsonReply,
    context_tokens,
)
from cursor_gateway.model.answers import (
    AnswerId,
)
from cursor_gateway.model.documents import Usage
from cursor_gateway.model.requests import RunInfo
from cursor_gateway.server.runs import (
    Dialects,
)
from cursor_gateway.stages.tokens import estimate_tokens_by_sample
from tests.dialects.descriptions import SAMPLE

ROUTE: Route[RunAction] = Route("/a", "a", lambda body, headers: StartRun(messages=[], reply=DocumentsReply(SSE)))
REPLAY = Replay("a", SSE, lambda run, after: (SseEncoder(after), after))

COMPUTED = Route("/size", "size", lambda body, headers: b"%d" % len(body))
IDS = {"answer-1": AnswerId("chat_1"), "answer-2": AnswerId("chat_1", 7)}


def test_a_replys_context_is_that_of_the_prompt_or_of_the_reply_before() -> None:
    run = RunView(RunInfo(id="chat_1", created="2026-01-01T00:00:00Z", known_tokens=7), 0, "x" * 12)
    assert context_tokens(run, ReplyStart()) == 7 + estimate_tokens_by_sample("x" * 12)
    usage = Usage(prompt_tokens=10, completion_tokens=5, total_tokens=15)
    assert context_tokens(run, ReplyStart(3, usage)) == 15


def test_an_encoder_takes_several_events_at_once() -> None:
    encoder = SseEncoder()
    one_by_one = b"".join(map(encoder.push, SAMPLE.events))
    assert SseEncoder().push_all(SAMPLE.events) == one_by_one
    assert encoder.keep_alive() == SSE.keep_alive


def test_each_dialect_translates_its_own_ids_and_others_stay() -> None:
    silent = Dialect(routes=[ROUTE], replays=[REPLAY], errors=OPENAI_ERRORS)
    with_ids = Dialect(routes=[], replays=[], errors=OPENAI_ERRORS, answer_id=IDS.get, computed=[COMPUTED])
    dialects = Dialects([silent, with_ids])
    assert [dialects.run_id(id) for id in ("answer-1", "chat_2", "conv_3")] == ["chat_1", "chat_2", "conv_3"]
    assert dialects.answer("answer-2") == AnswerId("chat_1", 7)
    assert (dialects.computed, dialects.answers) == ([(COMPUTED, OPENAI_ERRORS)], [])
    assert (dialects.routes, dialects.replays) == ([(ROUTE, OPENAI_ERRORS)], {"a": REPLAY})


def test_most_replies_have_no_headers_of_their_own() -> None:
    run = RunView(RunInfo(id="chat_1", created="2026-01-01T00:00:00Z"), 0, "")
    assert JsonReply().headers(run) == {}
