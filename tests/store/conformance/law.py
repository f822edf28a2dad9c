"""What a law is, and what laws do with a store."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeAlias

from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.model.document_events import DocumentEvent, Done
from cursor_gateway.model.documents import Document
from cursor_gateway.store.base import ConversationRecord, RunRecord, Stored
from cursor_gateway.store.sql import SqlStore
from tests.laws.strategies import examples
from tests.store.making import ME, deltas, envelope, lease, new_run, run_end

Open: TypeAlias = Callable[[], Awaitable[SqlStore]]
Law: TypeAlias = Callable[[Open], Awaitable[None]]
LAWS: dict[str, Law] = {}


def law(test: Callable[[SqlStore], Awaitable[None]]) -> None:
    async def with_one(open: Open) -> None:
        await test(await open())

    LAWS[test.__name__] = with_one


def law_of_two(test: Callable[[SqlStore, SqlStore], Awaitable[None]]) -> None:
    async def with_two(open: Open) -> None:
        await test(await open(), await open())

    LAWS[test.__name__] = with_two


async def for_all(test: Callable[..., Coroutine[Any, Any, None]], number: int, *values: st.SearchStrategy[Any]) -> None:
    """Hypothesis calls from a thread; what it tries runs in the loop that the store belongs to."""
    loop = asyncio.get_running_loop()

    @given(st.tuples(*values))
    @examples(number)
    def try_it(drawn: tuple[Any, ...]) -> None:
        asyncio.run_coroutine_threadsafe(test(*drawn), loop).result()

    await asyncio.to_thread(try_it)


# --- what the laws do with a store ------------------------------------------------------------------


async def whole_run(
    store: SqlStore,
    id: str,
    conversation: str,
    *said: str,
    owner: str = ME,
    at: int = 1000,
    documents: Sequence[Document] = (),
    session_id: str | None = None,
    fingerprint: str | None = None,
) -> None:
    assert isinstance(await store.begin_run(new_run(id, conversation, *said, owner=owner, at=at)), Stored)
    assert isinstance(await store.append(lease(id), 1, deltas(1, 2, 3)), Stored)
    end = run_end(id, documents=documents, at=at, session_id=session_id, fingerprint=fingerprint)
    assert isinstance(await store.append(lease(id), 4, [Done(envelope(id))], end), Stored)


async def everything(store: SqlStore, run: str = "run", owner: str = ME) -> list[DocumentEvent]:
    return (await store.events(run, owner, max_bytes=10**9)).events


async def ids(store: SqlStore, owner: str = ME, query: str | None = None) -> list[str]:
    return [found.conversation.id for found in (await store.conversations(owner, query=query, limit=100)).found]


async def texts(store: SqlStore, conversation: str = "conv", owner: str = ME) -> list[str]:
    return [message.text for message in await store.messages(conversation, owner)]


async def pages(store: SqlStore, limit: int, query: str | None = None) -> AsyncIterator[list[str]]:
    before = None
    while True:
        page = await store.conversations(ME, limit=limit, before=before, query=query)
        yield [item.conversation.id for item in page.found]
        before = page.next
        if before is None:
            return


async def all_pages(store: SqlStore, limit: int, query: str | None = None) -> list[str]:
    found: list[str] = []
    async for page in pages(store, limit, query):
        assert len(page) <= limit
        found += page
    return found


async def the_run(store: SqlStore, id: str = "run") -> RunRecord:
    run = await store.run(id, ME)
    assert run is not None
    return run


async def the_conversation(store: SqlStore, id: str = "conv") -> ConversationRecord:
    conversation = await store.conversation(id, ME)
    assert conversation is not None
    return conversation
