"""A run of the store: read like one that goes on, whoever drives or drove it."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.errors import RunCancelled
from cursor_gateway.model.document_events import DocumentEvent
from cursor_gateway.runs import log as module
from cursor_gateway.runs.handle import StoredRun
from cursor_gateway.runs.log import LiveLog
from cursor_gateway.stages.assembler import Assembler
from cursor_gateway.store.sqlite.store import SqliteStore
from tests.runs.scripted import FINISHED, at_once, info, say, turns_of_the_loop
from tests.store.blocking import blocking
from tests.store.making import ME, new_run
from tests.strategies import examples

ASSEMBLER = Assembler(info("run", "conv"))
SAID = [event for one in [*say("Hello ", "you", "."), FINISHED] for event in ASSEMBLER.push(one)]


class Elsewhere:
    """A gateway of another process that drives a run."""

    def __init__(self, store: SqliteStore) -> None:
        self._log = LiveLog(store, new_run(), lambda: 0)
        assert at_once(self._log.begin()) is None

    def says(self, *events: DocumentEvent) -> None:
        self._log.add(events)
        assert at_once(self._log.try_again())


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    made = SqliteStore(tmp_path)
    yield made
    blocking(made).close()


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_POLL_SECONDS", 0.001)


async def found(store: SqliteStore) -> StoredRun:
    stored = await store.run("run", ME)
    assert stored is not None
    return await StoredRun.open(store, stored)


@pytest.mark.parametrize("after", range(len(SAID) + 2))
async def test_one_that_has_ended_is_read_from_any_place(store: SqliteStore, after: int) -> None:
    Elsewhere(store).says(*SAID)
    run = await found(store)
    assert (run.id, run.owner, run.count) == ("run", ME, len(SAID))
    assert run.done == SAID[-1]
    seen: list[DocumentEvent] = []
    with run.reader(after) as reader:
        assert run.log.readers == 1
        while not reader.at_end:
            seen += await reader.next()
        assert await reader.next() == []
    assert seen == SAID[after:]
    assert run.log.readers == 0
    run.stop(RunCancelled("It has ended."))
    assert run.done == SAID[-1]


@examples(30)
@given(sizes=st.lists(st.integers(1, 3), min_size=1, max_size=5), joins=st.lists(st.integers(0, 6), max_size=3))
def test_one_that_another_gateway_drives_is_followed_to_its_end(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], joins: list[int]
) -> None:
    store = SqliteStore(tmp_path_factory.mktemp("store"))
    elsewhere = Elsewhere(store)

    async def read(after: int) -> list[DocumentEvent]:
        run = await found(store)
        seen = [event async for events in run.reader(after) for event in events]
        assert run.done == SAID[-1]
        return seen

    async def live() -> None:
        readers = [asyncio.ensure_future(read(after)) for after in [0, *joins]]
        await asyncio.sleep(0.005)
        rest = SAID
        for size in sizes:
            batch, rest = rest[:size], rest[size:]
            if batch and rest:
                elsewhere.says(*batch)
                await asyncio.sleep(0.002)
            else:
                rest = [*batch, *rest]
        elsewhere.says(*rest)
        for reading, after in zip(readers, [0, *joins], strict=True):
            assert await reading == SAID[after:]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_POLL_SECONDS", 0.001)
        asyncio.run(live())
    blocking(store).close()


async def test_who_waits_no_longer_than_so_long_gets_nothing(store: SqliteStore) -> None:
    elsewhere = Elsewhere(store)
    run = await found(store)
    reader = run.reader()
    assert await reader.next(0) == []
    assert await reader.next(0.01) == []
    assert (reader.at_end, run.done) == (False, None)
    elsewhere.says(*SAID[:2])
    assert await reader.next(0) == SAID[:2]


async def test_who_leaves_is_woken(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_POLL_SECONDS", 1e6)
    Elsewhere(store)
    reader = (await found(store)).reader()
    waits = asyncio.ensure_future(reader.next())
    await asyncio.sleep(0.02)
    assert not waits.done()
    reader.leave()
    assert await waits == []
    assert (reader.has_left, reader.at_end) == (True, False)
    assert await reader.next() == []


@pytest.mark.parametrize("is_over", [True, False])
async def test_one_that_is_deleted_keeps_nobody_waiting(store: SqliteStore, is_over: bool) -> None:
    elsewhere = Elsewhere(store)
    elsewhere.says(*(SAID if is_over else SAID[:2]))

    run = await found(store)
    reader = run.reader()
    assert await store.delete_conversation("conv", ME)
    while not reader.has_left:
        assert await reader.next() == []
        await turns_of_the_loop()
