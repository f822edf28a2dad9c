"""A log: readers see every event once, in order, and only when it is stored, wherever a writer is interrupted."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.model.document_events import DocumentEvent, Done, Paused
from cursor_gateway.runs.event_log import EventLog
from cursor_gateway.runs.journal import Journal
from cursor_gateway.runs.readers import Readers
from cursor_gateway.stages.assembler import Assembler
from cursor_gateway.stages.run_state import RunState
from cursor_gateway.store.base import Lease
from cursor_gateway.store.sqlite.store import SqliteStore
from tests.runs.scripted import FINISHED, UnstoredJournal, info, say, turns_of_the_loop
from tests.runs.suspending import suspending
from tests.store.blocking import blocking
from tests.store.making import ME, envelope, new_run
from tests.strategies import examples

ASSEMBLER = Assembler(info("run", "conv_run"))
SAID: list[DocumentEvent] = [
    event for one in [*say(*(f"{number} " for number in range(8))), FINISHED] for event in ASSEMBLER.push(one)
]


@pytest.mark.parametrize("is_far_away", [False, True])
@examples(30)
@given(
    sizes=st.lists(st.integers(1, 4), max_size=6),
    patience=st.lists(st.integers(0, 6), min_size=8, max_size=8),
)
def test_a_flush_can_be_cancelled_at_any_point(
    tmp_path_factory: pytest.TempPathFactory, is_far_away: bool, sizes: list[int], patience: list[int]
) -> None:
    """As when a run is stopped while its last words are being stored."""
    local = SqliteStore(tmp_path_factory.mktemp("store"))

    async def live() -> None:
        store: Any = suspending(local) if is_far_away else local
        journal = Journal(store, new_run("run", "conv_run"), lambda: 1000)
        log, rest = EventLog(journal), SAID
        for number, size in enumerate([*sizes, len(SAID)]):
            batch, rest = rest[:size], rest[size:]
            log.add(batch)
            flushing = asyncio.get_running_loop().create_task(log.flush())
            await turns_of_the_loop(patience[number])
            flushing.cancel()
            with suppress(asyncio.CancelledError):
                await flushing
            assert log.events == SAID[: log.count]
            assert len(blocking(local).events("run", ME).events) >= log.count
        await log.flush()
        assert log.events == SAID
        assert isinstance(log.done, Done)
        assert journal.is_complete
        assert blocking(local).events("run", ME).events == SAID

    asyncio.run(live())
    blocking(local).close()


def test_a_reader_that_is_ahead_waits_until_its_events_are_visible() -> None:
    """The store may have events, and other processes may show them, before this process knows that it has."""

    async def live() -> None:
        log = EventLog(UnstoredJournal())
        log.add(SAID)
        assert (log.count, log.state.count) == (0, len(SAID))
        reader = Readers(log).reader(after=3)
        reading = asyncio.get_running_loop().create_task(reader.next())
        await turns_of_the_loop(3)
        assert not reading.done()
        await log.flush()
        assert await reading == SAID[3:]

    asyncio.run(live())


def test_the_log_of_a_resumed_run_knows_what_is_stored_of_it() -> None:
    journal, paused = UnstoredJournal(), Paused(envelope())
    stored = RunState().push_all([*SAID[:2], paused, *SAID[2:-1]])
    journal.resume(Lease("run", 2), stored, None)
    log = EventLog(journal)
    assert (log.count, log.state, journal.stored) == (len(SAID), stored, len(SAID))
    assert (log.state.documents, log.state.paused_at) == (1, 3)
