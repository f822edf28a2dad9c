"""The writes of one turn of the event loop in; one transaction with all of them out.

A turn is what the event loop does between two looks at its sockets and pipes: whatever arrived in the meantime, for any
run, is decoded in the same turn. No caller gets the result of its write before all of them are committed.

Whether more writes will follow in a turn is not known, so the last turn decides. After a turn with one write, the first
write of the next one does not wait: streams that rarely write at the same time are not delayed by each other. After a
turn with several, it waits for the others.
"""

import asyncio
from asyncio import _get_running_loop
from typing import Any, TypeVar

from cursor_gateway.store.sqlite.database import Database
from cursor_gateway.store.sqlite.writing import Write

_T = TypeVar("_T")


class GroupCommit:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._writes: list[tuple[Write[Any], asyncio.Future[Any]]] = []
        self._count = 0  # writes in this turn, with those that did not wait
        self._count_before = 0  # in the last turn that had any
        self._loop: asyncio.AbstractEventLoop | None = None

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
        results = self._database.apply_all([write for write, _ in writes])
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
