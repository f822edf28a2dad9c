"""Events as rows: appended while a run is running, folded when it has ended.

**Appending.** Batches of events in; one statement for all that arrived during the previous one, out.

A commit waits for the disk, and one that stores the batches of many runs takes hardly longer than one for a single run.
The statement compares the epoch and the number of the last event of each run, and stores a batch only if both match
what its writer expects. A batch that is not stored is a special case, which its writer handles.

**Folding.** Runs that have ended in; the same events in few compressed rows, out.

One row per read of the agent suits a run while it is written and followed. Afterwards, it takes eight times the
necessary space. So the rows of an ended run are replaced, in one transaction, by rows of about 256 kB, deflated;
readers see the old rows or the new ones, with the same events under the same numbers. Any number of processes may do
this at once: each takes a run that no other one has.
"""

import asyncio
import zlib
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress

import msgspec
from msgspec import Struct

from cursor_gateway.errors import StoreUnavailable
from cursor_gateway.model.document_events import DocumentEvent
from cursor_gateway.store import batches
from cursor_gateway.store.base import OWNER
from cursor_gateway.store.postgres.connections import PostgresConnection, PostgresConnections

# --- appending --------------------------------------------------------------------------------------

_MOST = 256  # batches in a statement

# One value in JSON, with its bytes in base64: arrays of PostgreSQL's take longer to encode.
_APPEND = """
    WITH given AS (
        SELECT run_id AS id, epoch, first, count, decode(data, 'base64') AS data
        FROM json_to_recordset(%s) AS one (run_id text, epoch bigint, first integer, count integer, data text)
    ), mine AS (
        UPDATE runs SET last = runs.last + given.count, bytes = runs.bytes + octet_length(given.data),
            waiting = false
        FROM given
        WHERE runs.id = given.id AND runs.epoch = given.epoch AND runs.last = given.first - 1 AND state = 'running'
        RETURNING runs.key, given.*
    ), added AS (
        INSERT INTO events (run, first, count, epoch, data) SELECT key, first, count, epoch, data FROM mine
    )
    SELECT id FROM mine
"""


class AppendBatch(Struct, frozen=True):
    run_id: str
    epoch: int
    first: int
    count: int
    data: bytes


class Appender:
    def __init__(self, connections: PostgresConnections) -> None:
        self._connections = connections
        self._waiting: list[tuple[AppendBatch, asyncio.Future[bool]]] = []
        self._task: asyncio.Task[None] | None = None
        self.commits = self.batches = 0
        self.rewinds = 0  # times that the database had lost events, which are then sent again
        self.seconds = 0.0

    async def append(self, batch: AppendBatch) -> bool:
        """Whether it was stored now."""
        loop = asyncio.get_running_loop()
        stored: asyncio.Future[bool] = loop.create_future()
        self._waiting.append((batch, stored))
        if self._task is None:
            self._task = loop.create_task(self._work())
        return await stored

    @property
    def waiting_bytes(self) -> int:
        return sum(len(batch.data) for batch, _ in self._waiting)

    async def close(self) -> None:
        if self._task is not None:
            await self._task

    async def _work(self) -> None:
        OWNER.set("")  # not for the owner of the batch that came first: all others are stored with it
        try:
            while self._waiting:
                await self._send(self._next())
        finally:
            self._task = None

    def _next(self) -> dict[str, tuple[AppendBatch, asyncio.Future[bool]]]:
        """At most one batch of each run: a second one starts where the first ends."""
        taken: dict[str, tuple[AppendBatch, asyncio.Future[bool]]] = {}
        left = []
        for batch, stored in self._waiting:
            if batch.run_id in taken or len(taken) == _MOST:
                left.append((batch, stored))
            else:
                taken[batch.run_id] = (batch, stored)
        self._waiting = left
        return taken

    async def _send(self, taken: dict[str, tuple[AppendBatch, asyncio.Future[bool]]]) -> None:
        rows = msgspec.json.encode([batch for batch, _ in taken.values()]).decode()

        async def work(connection: PostgresConnection) -> set[str]:
            found = await connection.execute(_APPEND, [rows])
            return {id for (id,) in await found.fetchall()}

        began = asyncio.get_running_loop().time()
        try:
            ids = await self._connections.run(work)
        except Exception as error:  # noqa: BLE001 -- raised where the batches came from
            for _, stored in taken.values():
                if not stored.done():
                    stored.set_exception(error)
        else:
            self.commits += 1
            self.batches += len(taken)
            self.seconds += asyncio.get_running_loop().time() - began
            for id, (_, stored) in taken.items():
                if not stored.done():
                    stored.set_result(id in ids)


# --- folding ----------------------------------------------------------------------------------------

ROW_BYTES = 256 * 1024  # before compression
_LEVEL = 6
_PAUSE_SECONDS = 60.0

_NEXT = """
    SELECT key FROM runs WHERE state <> 'running' AND NOT folded ORDER BY key LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED
"""
_ROWS = "SELECT first, count, epoch, data FROM events WHERE run = %s ORDER BY first"
_ADD = "INSERT INTO events (run, first, count, epoch, data, deflated) VALUES (%s, %s, %s, %s, %s, true)"
_FOLDED = "UPDATE runs SET folded = true, bytes = %s WHERE key = %s"


class _Row(Struct, frozen=True):
    first: int
    count: int
    epoch: int
    data: bytes


def decode(data: bytes, skip: int = 0, *, is_deflated: bool) -> list[DocumentEvent]:
    return batches.decode(zlib.decompress(data) if is_deflated else data, skip)


class Folding:
    """Folds in the background, as long as it is open."""

    def __init__(self, connections: PostgresConnections) -> None:
        self._connections = connections
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._work())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _work(self) -> None:
        while True:
            with suppress(StoreUnavailable):  # later
                while await fold_next(self._connections):
                    pass
            await asyncio.sleep(_PAUSE_SECONDS)


async def fold_next(connections: PostgresConnections) -> bool:
    """Folds one run. False: there is none to fold."""
    return await connections.transaction(_fold_next)


async def _fold_next(connection: PostgresConnection) -> bool:
    found = await (await connection.execute(_NEXT)).fetchone()
    if found is None:
        return False
    (run,) = found
    folded = [row async for row in _folded(connection, run)]
    await connection.execute("DELETE FROM events WHERE run = %s", [run])
    async with connection.pipeline():
        for row in folded:
            await connection.execute(_ADD, [run, row.first, row.count, row.epoch, row.data])
    await connection.execute(_FOLDED, [sum(len(row.data) for row in folded), run])
    return True


async def _folded(connection: PostgresConnection, run: int) -> AsyncIterator[_Row]:
    """Reads a few rows at a time: a run may have hundreds of megabytes."""
    group: list[_Row] = []
    size = 0
    async with connection.cursor(name="rows") as cursor:
        await cursor.execute(_ROWS, [run])
        async for row in cursor:
            group.append(_Row(*row))
            size += len(group[-1].data)
            if size >= ROW_BYTES:
                yield await asyncio.to_thread(_fold, group)
                group, size = [], 0
    if group:
        yield await asyncio.to_thread(_fold, group)


def _fold(rows: Sequence[_Row]) -> _Row:
    events = [event for row in rows for event in batches.decode(row.data)]
    data = zlib.compress(batches.encode(events), _LEVEL)
    return _Row(rows[0].first, sum(row.count for row in rows), max(row.epoch for row in rows), data)
