"""Threads that owners share: nobody waits behind another owner's work, and nothing is done for nobody."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeVar

import pytest

from cursor_gateway.fair_threads import FairExecutor, FairThreads, IsGone, NobodyWaits
from cursor_gateway.store.base import OWNER

T = TypeVar("T")


@asynccontextmanager
async def threads(count: int = 2) -> AsyncIterator[FairThreads]:
    made = FairThreads("test", count)
    try:
        yield made
    finally:
        made.close()


async def test_the_result_and_the_error_of_the_work_are_passed_on() -> None:
    def fail(_: IsGone) -> None:
        raise ValueError("no")

    async with threads() as pool:
        assert await pool.run("a", lambda _: 7) == 7
        with pytest.raises(ValueError, match="no"):
            await pool.run("a", fail)


async def test_forty_works_of_one_owner_do_not_delay_another_owner() -> None:
    begun: list[None] = []
    may_end = threading.Event()

    def wait(_: IsGone) -> bool:
        begun.append(None)
        return may_end.wait(60)

    async with threads(3) as pool:
        busy = [asyncio.ensure_future(pool.run("greedy", wait)) for _ in range(40)]
        while len(begun) < 2:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)  # in which the third thread would have begun another one
        assert len(begun) == 2
        assert await pool.run("other", lambda _: "done") == "done"
        assert not any(task.done() for task in busy)
        may_end.set()
        assert all(await asyncio.gather(*busy))


async def test_owners_take_turns() -> None:
    order: list[str] = []
    has_begun, may_go_on = threading.Event(), threading.Event()

    def wait(_: IsGone) -> None:
        has_begun.set()
        may_go_on.wait(60)

    def note(owner: str, _: IsGone) -> None:
        order.append(owner)

    async with threads(1) as pool:
        first = asyncio.ensure_future(pool.run("a", wait))
        assert await asyncio.to_thread(has_begun.wait, 60)
        rest = [asyncio.ensure_future(pool.run(owner, partial(note, owner))) for owner in "aaab"]
        await asyncio.sleep(0)
        may_go_on.set()
        await asyncio.gather(first, *rest)
    assert order == ["a", "b", "a", "a"]


async def test_work_that_nobody_waits_for_is_not_begun_and_learns_of_it() -> None:
    begun, noticed = threading.Event(), threading.Event()

    def work(is_gone: IsGone) -> None:
        begun.set()
        while not is_gone():
            pass
        noticed.set()

    async with threads(1) as pool:
        running = asyncio.ensure_future(pool.run("a", work))
        waiting = asyncio.ensure_future(pool.run("a", lambda _: begun.clear()))
        assert await asyncio.to_thread(begun.wait, 60)
        waiting.cancel()
        running.cancel()
        assert await asyncio.to_thread(noticed.wait, 60)
        with pytest.raises(NobodyWaits):
            await pool.run("a", lambda _: begun.clear(), lambda: True)
        assert begun.is_set()


async def test_closing_ends_work_that_looks() -> None:
    ended = threading.Event()

    def work(is_gone: IsGone) -> None:
        while not is_gone():
            pass
        ended.set()

    async with threads() as pool:
        running = asyncio.ensure_future(pool.run("a", work))
        await asyncio.sleep(0)
        await pool.run("b", lambda _: None)
    assert ended.wait(60)
    await running


# --- the event loop's pool ----------------------------------------------------------------------------


async def for_owner(owner: str, work: Callable[[], T]) -> T:
    """As a request of this owner would have it done."""
    OWNER.set(owner)
    return await asyncio.to_thread(work)


def with_fair_executor(live: Callable[[], Coroutine[None, None, None]], threads: int) -> None:
    async def within() -> None:
        asyncio.get_running_loop().set_default_executor(FairExecutor(threads, "test"))
        await live()

    asyncio.run(within())


def test_whatever_runs_in_a_thread_leaves_one_to_other_owners() -> None:
    begun: list[None] = []
    may_end = threading.Event()

    def wait() -> bool:
        begun.append(None)
        return may_end.wait(60)

    async def live() -> None:
        busy = [asyncio.ensure_future(for_owner("greedy", wait)) for _ in range(40)]
        while len(begun) < 2:
            await asyncio.sleep(0.01)
        try:
            async with asyncio.timeout(10):
                assert await asyncio.create_task(for_owner("other", lambda: "done")) == "done"
                assert await asyncio.to_thread(lambda: "done") == "done"  # the gateway's own
            assert (len(begun), any(task.done() for task in busy)) == (2, False)
        finally:
            may_end.set()
        assert all(await asyncio.gather(*busy))
        assert len(begun) == 40

    with_fair_executor(live, 3)


def test_owners_take_turns_in_the_event_loops_pool() -> None:
    order: list[str] = []
    has_begun, may_go_on = threading.Event(), threading.Event()

    def wait() -> None:
        has_begun.set()
        may_go_on.wait(60)

    async def live() -> None:
        tasks = [asyncio.ensure_future(for_owner("a", wait))]
        while not has_begun.is_set():
            await asyncio.sleep(0.01)
        tasks += [asyncio.ensure_future(for_owner(owner, partial(order.append, owner))) for owner in "aaab"]
        await asyncio.sleep(0.1)  # in which all are submitted
        may_go_on.set()
        await asyncio.gather(*tasks)

    with_fair_executor(live, 1)
    assert order == ["a", "b", "a", "a"]


def test_errors_and_cancelled_work_in_the_event_loops_pool() -> None:
    may_end = threading.Event()
    done: list[None] = []

    def fail() -> None:
        raise ValueError("no")

    async def live() -> None:
        with pytest.raises(ValueError, match="no"):
            await for_owner("a", fail)
        busy = asyncio.ensure_future(for_owner("a", partial(may_end.wait, 60)))
        left = asyncio.ensure_future(for_owner("a", partial(done.append, None)))
        await asyncio.sleep(0.05)
        left.cancel()
        with pytest.raises(asyncio.CancelledError):
            await left
        await asyncio.sleep(0)  # then the pool knows
        may_end.set()
        assert await busy
        assert await for_owner("a", lambda: "next") == "next"

    with_fair_executor(live, 1)
    assert not done
