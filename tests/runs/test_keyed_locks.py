"""Whoever holds a key keeps others with the same key waiting, and nobody else."""

import asyncio

import pytest

from cursor_gateway.runs.admission import KeyedLocks


def test_holders_of_a_key_take_turns() -> None:
    async def live() -> None:
        locks, inside, most = KeyedLocks(), 0, 0

        async def enter(key: str) -> None:
            nonlocal inside, most
            async with locks.holding(key):
                inside += 1
                most = max(most, inside)
                await asyncio.sleep(0)
                inside -= 1

        await asyncio.gather(*(enter("key") for _ in range(5)))
        assert most == 1
        await asyncio.gather(enter("key"), enter("other"))
        assert most == 2
        assert locks._locks == {}

    asyncio.run(live())


def test_one_that_fails_or_is_cancelled_leaves_nothing_behind() -> None:
    async def live() -> None:
        locks = KeyedLocks()

        async def hold() -> None:
            async with locks.holding("key"):
                pass

        async def fail() -> None:
            async with locks.holding("key"):
                await asyncio.sleep(0)
                raise ValueError("mistake")

        failing, waiting = asyncio.ensure_future(fail()), asyncio.ensure_future(hold())
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(ValueError, match="mistake"):
            await failing
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert locks._locks == {}
        await hold()

    asyncio.run(live())
