"""Replies that nobody reads: one copy of what is the same, so much for each owner, and one whole answer at a time."""

import asyncio
from contextlib import ExitStack
from typing import Any, cast

import pytest
from starlette.requests import Request

from cursor_gateway.dialects.documents.dialect import documents_dialect
from cursor_gateway.errors import TooManyRequests
from cursor_gateway.model.document_events import ContentDelta, DocumentEvent
from cursor_gateway.server.bodies import UnreadReplies
from cursor_gateway.server.metrics import Metrics
from cursor_gateway.server.replies import RouteEndpoint
from cursor_gateway.server.streaming import Reading, _split
from cursor_gateway.settings import Settings

LARGE = b"x" * 100_000


def copied(data: bytes) -> bytes:
    return bytes(bytearray(data))


def test_equal_pieces_are_one_copy_while_they_are_sent() -> None:
    unread = UnreadReplies(most_bytes=len(LARGE))
    with unread.holding("me", LARGE) as first:
        for _ in range(3):
            with unread.holding("me", copied(LARGE)) as second:
                assert second is first
    other = copied(LARGE)
    with unread.holding("me", other) as third:
        assert third is other


def test_an_owner_has_so_many_bytes_and_others_have_theirs() -> None:
    unread = UnreadReplies(most_bytes=250_000)
    with ExitStack() as stack:
        for letter in b"ab":
            stack.enter_context(unread.holding("me", bytes([letter]) * 100_000))
        with pytest.raises(TooManyRequests, match="read or close them, then retry"), unread.holding("me", LARGE):
            pass
        stack.enter_context(unread.holding("you", LARGE))
        stack.enter_context(unread.holding("me", b"small"))
    with unread.holding("me", LARGE):
        pass


def test_one_answer_may_be_larger_than_the_limit_and_then_no_stream_is_opened() -> None:
    unread = UnreadReplies(most_bytes=50_000)
    with unread.holding("me", LARGE) as data:
        assert data is LARGE
        with pytest.raises(TooManyRequests):
            unread.opened("me")
        unread.opened("you")
    unread.opened("me")


def test_an_owner_has_so_many_streams() -> None:
    unread = UnreadReplies(most_streams=2)
    unread.opened("me")
    unread.opened("me")
    with pytest.raises(TooManyRequests, match="2 open streams"):
        unread.opened("me")
    unread.opened("you")
    unread.closed("me")
    unread.opened("me")
    with pytest.raises(TooManyRequests):
        unread.opened("me")


def test_no_run_starts_for_a_stream_that_cannot_be_opened() -> None:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b'{"message": "Hello", "stream": true}'}

    dialect = documents_dialect(max_images=1)
    reading = Reading(hold_seconds=1, keep_alive_seconds=1, metrics=Metrics(), unread=UnreadReplies(most_streams=0))
    nobody = cast(Any, None)  # a service that is asked to start a run would fail
    endpoint = RouteEndpoint(dialect.routes[0], dialect.errors, nobody, nobody, Settings(), reading)
    scope = {"type": "http", "method": "POST", "headers": [], "state": {"owner": "me", "request_id": "req_1"}}
    with pytest.raises(TooManyRequests, match="0 open streams"):
        asyncio.run(endpoint(Request(scope, receive)))


async def test_whole_answers_are_built_one_at_a_time_and_the_same_one_once() -> None:
    unread, built, running = UnreadReplies(), list[str](), 0

    async def work(name: str) -> str:
        nonlocal running
        running += 1
        assert running == 1
        await asyncio.sleep(0)
        running -= 1
        built.append(name)
        return name

    asked = [unread.build("me", name, lambda name=name: work(name)) for name in "aabba"]  # type: ignore[misc]
    assert await asyncio.gather(*asked) == [*"aabba"]
    assert built == ["a", "b"]
    assert await unread.build("me", "a", lambda: work("again")) == "again"


def test_events_that_wait_are_encoded_in_steps() -> None:
    events: list[DocumentEvent] = [ContentDelta("doc_001", "x" * 1000) for _ in range(1000)]
    assert _split(events) == (events[:263], events[263:])
    assert _split(events[:10]) == (events[:10], [])
    long = ContentDelta("doc_001", "x" * 10_000_000)
    assert _split([long, *events]) == ([long], events)
    assert _split([*events[:3], long]) == ([*events[:3], long], [])
    assert _split([]) == ([], [])
