"""Folding replaces the rows of ended runs, and nothing that a reader can see."""

import asyncio
import random
from collections.abc import Sequence

import psycopg

from cursor_gateway.model.document_events import ContentDelta, DocumentEvent, Done
from cursor_gateway.store.base import Stored
from cursor_gateway.store.postgres import events as event_rows
from cursor_gateway.store.postgres.connections import PostgresConnections
from cursor_gateway.store.postgres.store import PostgresStore
from tests.store.making import EVERY_EVENT, ME, deltas, envelope, lease, new_run, run_end


async def _run(
    store: PostgresStore, id: str, reads: Sequence[Sequence[DocumentEvent]], *, is_ended: bool = True
) -> int:
    """Returns the number of its events."""
    await store.begin_run(new_run(id, id))
    number = 1
    for events in reads:
        assert isinstance(await store.append(lease(id), number, events), Stored)
        number += len(events)
    if is_ended:
        assert isinstance(await store.append(lease(id), number, [Done(envelope(id))], run_end(id)), Stored)
    return number if is_ended else number - 1


async def _fold_all(url: str) -> int:
    connections = PostgresConnections(url)
    try:
        folded = 0
        while await event_rows.fold_next(connections):
            folded += 1
        return folded
    finally:
        await connections.close()


async def _pages(store: PostgresStore, id: str, max_bytes: int) -> list[DocumentEvent]:
    found: list[DocumentEvent] = []
    while page := (await store.events(id, ME, after=len(found), max_bytes=max_bytes)).events:
        found += page
    return found


def _rows(url: str) -> list[tuple[str, int, int]]:
    """Of each run: how many rows, and their bytes."""
    select = """
        SELECT runs.id, count(*), sum(octet_length(data))::bigint
        FROM events JOIN runs ON runs.key = events.run GROUP BY runs.id ORDER BY runs.id
    """
    with psycopg.connect(url) as connection:
        return [(str(id), int(count), int(size)) for id, count, size in connection.execute(select).fetchall()]


async def test_every_reader_sees_the_same_before_and_after(database: str) -> None:
    noise = random.Random(1)
    words = ["".join(noise.choices("abcdefgh", k=5)) for _ in range(50)]
    said = [[ContentDelta("doc_001", " ".join(noise.choices(words, k=1500)))] for _ in range(60)]
    store = PostgresStore(database)
    try:
        counts = {
            "every": await _run(store, "every", [[event] for event in EVERY_EVENT[:-1]] + [deltas(1, 2)]),
            "long": await _run(store, "long", said),
            "short": await _run(store, "short", [deltas(1)]),
            "active": await _run(store, "active", [deltas(1), deltas(2)], is_ended=False),
        }
        before = {id: await _pages(store, id, 1) for id in counts}
        rows = _rows(database)
        assert await _fold_all(database) == 3
        for id, count in counts.items():
            for max_bytes in (1, 1_000_000):
                assert await _pages(store, id, max_bytes) == before[id]
            assert len(before[id]) == count
            for after in (0, 1, count - 1, count, count + 5):
                page = await store.events(id, ME, after=after, max_bytes=1_000_000)
                assert page.events == before[id][after:]
        assert await _fold_all(database) == 0
        after_folding = {id: (count, size) for id, count, size in _rows(database)}
        assert after_folding["active"] == next((count, size) for id, count, size in rows if id == "active")
        assert after_folding["every"][0] == after_folding["short"][0] == 1
        was = next(size for id, _, size in rows if id == "long")
        assert after_folding["long"][0] == -(-was // event_rows.ROW_BYTES)
        assert after_folding["long"][1] < was / 2
    finally:
        await store.close()


async def test_several_processes_fold_each_run_once(database: str) -> None:
    store = PostgresStore(database)
    try:
        for number in range(8):
            await _run(store, f"run{number}", [deltas(1), deltas(2), deltas(3)])
        assert sum(await asyncio.gather(*(_fold_all(database) for _ in range(3)))) == 8
        for number in range(8):
            assert len(await _pages(store, f"run{number}", 1)) == 4
    finally:
        await store.close()
