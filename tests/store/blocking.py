"""A store whose calls wait for their results, for tests that are not asynchronous."""

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar, cast

from cursor_gateway.store.sqlite.store import SqliteStore

_Result = TypeVar("_Result")

WRITES = {"begin_run", "append"}  # which wait for nobody where no event loop runs


class Database:
    def __init__(self, directory: Path) -> None:
        self.store = SqliteStore(directory)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.store, name)
        if not inspect.iscoroutinefunction(found):
            return found

        def call(*values: Any, **named: Any) -> Any:
            is_quick = name in WRITES and not self.store._files.has_much
            drive: Callable[[Coroutine[Any, Any, Any]], Any] = at_once if is_quick else asyncio.run
            if asyncio._get_running_loop() is None:
                return drive(found(*values, **named))
            with ThreadPoolExecutor(1) as thread:
                return thread.submit(lambda: drive(found(*values, **named))).result()

        return call


def at_once(coroutine: Coroutine[Any, Any, _Result]) -> _Result:
    """What a coroutine gives that has nothing to wait for, as those of the local store have."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return cast(_Result, end.value)
    raise AssertionError("it waits")


def blocking(store: SqliteStore) -> Database:
    database = Database.__new__(Database)
    database.store = store
    return database


_LATER: list[SqliteStore] = []


def closed_later(store: SqliteStore) -> SqliteStore:
    """Closed when its test has ended."""
    _LATER.append(store)
    return store


def close_all() -> None:
    while _LATER:
        blocking(_LATER.pop()).close()
