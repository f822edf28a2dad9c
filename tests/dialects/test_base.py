"""The registry of dialects."""

from cursor_gateway.dialects.base import SSE, Dialect, Replay, Route, RunAction, StartRun
from cursor_gateway.dialects.documents.dialect import DocumentsReply
from cursor_gateway.dialects.documents.encoder import SseEncoder
from cursor_gateway.dialects.errors import OPENAI_ERRORS
from cursor_gateway.model.answers import AnswerId
from cursor_gateway.server.runs import Dialects

ROUTE: Route[RunAction] = Route("/a", "a", lambda body, headers: StartRun(messages=[], reply=DocumentsReply(SSE)))
REPLAY = Replay("a", SSE, lambda run, after: (SseEncoder(after), after))

COMPUTED = Route("/size", "size", lambda body, headers: b"%d" % len(body))
IDS = {"answer-1": AnswerId("chat_1"), "answer-2": AnswerId("chat_1", 7)}


def test_each_dialect_translates_its_own_ids_and_others_stay() -> None:
    silent = Dialect(routes=[ROUTE], replays=[REPLAY], errors=OPENAI_ERRORS)
    with_ids = Dialect(routes=[], replays=[], errors=OPENAI_ERRORS, answer_id=IDS.get, computed=[COMPUTED])
    dialects = Dialects([silent, with_ids])
    assert [dialects.run_id(id) for id in ("answer-1", "chat_2", "conv_3")] == ["chat_1", "chat_2", "conv_3"]
    assert dialects.answer("answer-2") == AnswerId("chat_1", 7)
    assert (dialects.computed, dialects.answers) == ([(COMPUTED, OPENAI_ERRORS)], [])
    assert (dialects.routes, dialects.replays) == ([(ROUTE, OPENAI_ERRORS)], {"a": REPLAY})
