"""One lock per key, which exists while it is held or waited for."""

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager


class KeyedLocks:
    def __init__(self) -> None:
        self._locks: dict[Hashable, tuple[asyncio.Lock, int]] = {}  # and how many want it

    @asynccontextmanager
    async def holding(self, key: Hashable) -> AsyncIterator[None]:
        lock, wanted = self._locks.get(key, (asyncio.Lock(), 0))
        self._locks[key] = lock, wanted + 1
        try:
            async with lock:
                yield
        finally:
            _, wanted = self._locks[key]
            if wanted == 1:
                del self._locks[key]
            else:
                self._locks[key] = lock, wanted - 1
