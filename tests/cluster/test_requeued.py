"""Commands of a process that was considered dead, and was not: they are carried out once, by whoever has them now."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from cursor_gateway.cluster.runner import Runner
from cursor_gateway.errors import StoreUnavailable
from cursor_gateway.runs.run_service import Continued, RunRequest
from tests.cluster.nodes import ME, Running, asked, front, node, runner, stop_beating, until
from tests.cluster.test_resuming import _take_over
from tests.runs.scripted import STARTED, ScriptedSource, forever, say


def _hanging() -> ScriptedSource:
    return ScriptedSource([[STARTED, *say("Hello")], forever()])


def _front(database: str, folder: Path) -> AbstractAsyncContextManager[Running]:
    return node(database, folder, front())


def _runner(of: Running) -> Runner:
    assert of.node.runner is not None
    return of.node.runner


class Held:
    """What a runner is asked for, held up until it may go on."""

    def __init__(self, of: Running, go_on: Callable[[RunRequest], Awaitable[Continued]] | None = None) -> None:
        self.entered = 0
        self.may_go_on = asyncio.Semaphore(0)
        service = _runner(of)._service
        take = service.take

        async def held(request: RunRequest) -> Continued:
            self.entered += 1
            await self.may_go_on.acquire()
            return await (take if go_on is None else go_on)(request)

        service.take = held  # type: ignore[method-assign] # of this runner alone


def _freeze(lost: Running) -> None:
    """It claims nothing more, and its heartbeat stops."""
    for task in _runner(lost)._tasks:
        task.cancel()
    stop_beating(lost)


async def test_a_command_is_not_claimed_again_while_it_is_carried_out(database: str, tmp_path: Path) -> None:
    source = _hanging()
    async with node(database, tmp_path, runner("one"), source) as one, _front(database, tmp_path) as other:
        held = Held(one)
        asking = asyncio.create_task(other.node.front.take(asked()))
        await until(lambda: held.entered == 1)
        await _take_over(other, "one")  # its command is queued again
        await asyncio.sleep(0.3)
        assert held.entered == 1
        held.may_go_on.release()
        await until(lambda: held.entered == 2)
        held.may_go_on.release()
        run = (await asking).run
        await until(lambda: run.count >= 2)
        assert (held.entered, [turn.run_id for turn in source.turns]) == (2, [run.id])


async def test_a_command_that_fails_too_late_does_not_end_the_run_that_another_process_started(
    database: str, tmp_path: Path
) -> None:
    async def fails(request: RunRequest) -> Continued:
        raise StoreUnavailable("too slow")

    async with node(database, tmp_path, runner("one"), _hanging()) as one, node(database, tmp_path, front()) as other:
        held = Held(one, fails)
        asking = asyncio.create_task(other.node.front.take(asked()))
        await until(lambda: held.entered == 1)
        _freeze(one)
        async with node(database, tmp_path, runner("two"), _hanging()):
            await _take_over(other, "one")
            run = (await asking).run
            await until(lambda: run.count >= 2)
            held.may_go_on.release()
            await until(lambda: not _runner(one)._working)
            stored = await other.store.run(run.id, ME)
            assert stored is not None
            assert (stored.state, stored.instance) == ("running", "two")


async def test_an_outcome_that_comes_too_late_is_not_hinted(database: str, tmp_path: Path) -> None:
    async with node(database, tmp_path, runner("one"), _hanging()) as one, node(database, tmp_path, front()) as other:
        before = await other.node.front.start(asked())
        assert one.service is not None
        driven = one.service.runs.find(before.id, ME)
        assert driven is not None

        async def joins(request: RunRequest) -> Continued:
            return Continued(driven, 1)

        held = Held(one, joins)
        asking = asyncio.create_task(other.node.front.take(asked()))
        await until(lambda: held.entered == 1)
        _freeze(one)
        async with node(database, tmp_path, runner("two"), _hanging()) as two:
            taken = Held(two)
            await _take_over(other, "one")
            await until(lambda: taken.entered == 1)
            held.may_go_on.release()
            await until(lambda: not _runner(one)._working)
            await asyncio.sleep(0.1)  # for a hint
            assert not asking.done()
            taken.may_go_on.release()
            assert (await asking).run.id != before.id
