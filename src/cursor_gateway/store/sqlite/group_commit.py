"""The writes of one turn of the event loop in; one transaction with all of them out.

A turn is what the event loop does between two looks at its sockets and pipes: whatever arrived in the meantime, for any
run, is decoded in the same turn. No caller gets the result of its write before all of them are committed.

Whether more writes will follow in a turn is not known, so the last turn decides. After a turn with one write, the first
write of the next one does not wait: streams that rarely write at the same time are not delayed by each other. After a
turn with several, it waits for the others.
"""

import asyncio
from asyncio import _get_running_loop
from collections.abc import Sequence
from typing import Any, TypeVar

from cursor_gateway.errors import StoreUnavailable
from cursor_gateway.store.sqlite.connections import Connections
from cursor_gateway.store.sqlite.indexing import Indexer
from cursor_gateway.store.sqlite.maintenance import Maintenance
from cursor_gateway.store.sqlite.writing import Change, Write

_T = TypeVar("_T")


class GroupCommit:
    def __init__(self, connections: Connections, indexer: Indexer, maintenance: Maintenance) -> None:
        self._connections, self._indexer, self._maintenance = connections, indexer, maintenance
        self._writes: list[tuple[Write[Any], asyncio.Future[Any]]] = []
        self._count = 0  # writes in this turn, with those that did not wait
        self._count_before = 0  # in the last turn that had any
        self._loop: asyncio.AbstractEventLoop | None = None

    def apply(self, write: Write[_T]) -> _T:
        """In a transaction of its own, now."""
        with self._connections.writing() as connection:
            change = write(connection)
        return self._applied(change)

    def apply_all(self, writes: Sequence[Write[_T]]) -> list[_T | Exception]:
        """All of them in one transaction. If one fails because of a bug, each in its own, so that the others are not
        lost.
        """
        try:
            with self._connections.writing() as connection:
                changes = [write(connection) for write in writes]
        except StoreUnavailable as error:
            return [error] * len(writes)
        except Exception:  # noqa: BLE001 -- tried again, and reported to the caller that waits
            return [self._try(write) for write in writes]
        return [self._applied(change) for change in changes]

    def _try(self, write: Write[_T]) -> _T | Exception:
        try:
            return self.apply(write)
        except Exception as error:  # noqa: BLE001 -- reported to the caller that waits
            return error

    def _applied(self, change: Change[_T]) -> _T:
        if change.note is not None:
            self._indexer.note(change.run, change.note)
        if change.size or change.note is not None:
            self._maintenance.wrote(change.size)
        return change.result

    @property
    def has_writes(self) -> bool:
        return bool(self._writes)

    def is_at_once(self) -> bool:
        """Whether the caller commits its write itself, now. If not, it must `add` it."""
        loop = _get_running_loop()
        if loop is None:
            return True
        if loop is self._loop and (self._count or self._count_before > 1):
            return False
        self._begin_turn(loop)
        self._count = 1
        return True

    def add(self, write: Write[_T]) -> "asyncio.Future[_T]":
        """The result, when it is committed. A write is done even if nobody waits for it any more."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop or not self._count:
            self._begin_turn(loop)
        self._count += 1
        future: asyncio.Future[_T] = loop.create_future()
        self._writes.append((write, future))
        return future

    def commit(self) -> None:
        writes, self._writes = self._writes, []
        if not writes:
            return
        results = self.apply_all([write for write, _ in writes])
        for (_, future), result in zip(writes, results, strict=True):
            if future.done():  # cancelled
                continue
            if isinstance(result, Exception):
                future.set_exception(result)
            else:
                future.set_result(result)

    def _begin_turn(self, loop: asyncio.AbstractEventLoop) -> None:
        if loop is not self._loop:  # another one, which was closed, will commit nothing
            self._writes.clear()
            self._loop, self._count = loop, 0
        loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        self._count_before, self._count = self._count, 0
        self.commit()
