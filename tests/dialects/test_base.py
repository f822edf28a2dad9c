"""The registry of dialects."""

from cursor_gateway.dialects.base import SSE, Dialect, Dialects, Replay, Route, StartRun
from cursor_gateway.dialects.documents.dialect import DocumentsReply
from cursor_gateway.dialects.documents.encoder import SseEncoder
from cursor_gateway.dialects.errors import OPENAI_ERRORS

ROUTE = Route("/a", "a", lambda body, headers: StartRun(messages=[], reply=DocumentsReply(SSE)))
REPLAY = Replay("a", SSE, lambda run, after: (SseEncoder(after), after))


def test_each_dialect_translates_its_own_ids_and_others_stay() -> None:
    silent = Dialect(routes=[ROUTE], replays=[REPLAY], errors=OPENAI_ERRORS)
    with_ids = Dialect(routes=[], replays=[], errors=OPENAI_ERRORS, run_id={"answer-1": "chat_1"}.get)
    dialects = Dialects([silent, with_ids])
    assert [dialects.run_id(id) for id in ("answer-1", "chat_2", "conv_3")] == ["chat_1", "chat_2", "conv_3"]
    assert (dialects.routes, dialects.replays) == ([(ROUTE, OPENAI_ERRORS)], {"a": REPLAY})
