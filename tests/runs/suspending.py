"""A store that yields to the loop before and after everything it does, as one far away would."""

import asyncio
import inspect
from typing import Any, cast

from cursor_gateway.store.base import Store


class _Suspending:
    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if not inspect.iscoroutinefunction(method):
            return method

        async def call(*values: Any, **named: Any) -> Any:
            await asyncio.sleep(0)
            try:
                return await method(*values, **named)
            finally:
                await asyncio.sleep(0)

        return call


def suspending(store: Store) -> Store:
    return cast(Store, _Suspending(store))
