"""The writes of one turn of the event loop in; one transaction with all of them out.

A turn is what the event loop does between two looks at its sockets and pipes: whatever arrived in the meantime, for
any run, is decoded in the same turn. Nobody gets the result of a write before all of them are committed.
"""

import asyncio
from typing import Any, TypeVar

from cursor_gateway.store.sqlite.database import Database
from cursor_gateway.store.sqlite.writing import Write

_T = TypeVar("_T")


class GroupCommit:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._writes: list[tuple[Write[Any], asyncio.Future[Any]]] = []
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def has_writes(self) -> bool:
        return bool(self._writes)

    def add(self, write: Write[_T]) -> "asyncio.Future[_T]":
        """The result, when it is committed. A write is done even if nobody waits for it any more."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:  # another one, which was closed, will commit nothing
            self._writes.clear()
            self._loop = loop
        if not self._writes:
            loop.call_soon(self.commit)
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
