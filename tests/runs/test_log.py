"""A log: readers see every event once, in order, and only when it is stored, or kept until it can be; nothing is lost,
repeated, or stored twice."""

import asyncio
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.errors import AgentOverloaded, StoreUnavailable
from cursor_gateway.model.agent_events import AgentEvent, Question, RunFailed
from cursor_gateway.model.document_events import DocumentEvent, Done, Paused
from cursor_gateway.model.messages import UserMessage
from cursor_gateway.prompting.fingerprints import Scope
from cursor_gateway.runs.handle import RunHandle
from cursor_gateway.runs.log import LiveLog, Quoted
from cursor_gateway.runs.run import Run, RunPlan
from cursor_gateway.stages.assembler import Assembler
from cursor_gateway.stages.run_state import RunState
from cursor_gateway.store import batches
from cursor_gateway.store.base import (
    Busy,
    HistoryLimits,
    Idempotency,
    KeyTaken,
    Lease,
    NewRun,
    RunEnd,
    Superseded,
    Written,
)
from cursor_gateway.store.sqlite.opening import FILE
from cursor_gateway.store.sqlite.store import SqliteStore
from tests.runs.scripted import (
    FINISHED,
    STARTED,
    ScriptedSource,
    Step,
    UnstoredLog,
    Until,
    Watcher,
    at_once,
    driven_by,
    folded,
    info,
    say,
    true,
    turn,
    turns_of_the_loop,
    write,
)
from tests.runs.suspending import suspending
from tests.store.blocking import blocking
from tests.store.making import ME, envelope, new_run
from tests.strategies import examples


class Flaky(SqliteStore):
    """Refuses while it is told to, and counts how often it was asked."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.directory = directory
        self.refuses = False
        self.asked = 0
        self.mistake_after: int | None = None  # so many questions

    def _ask(self) -> None:
        self.asked += 1
        if self.mistake_after is not None and self.asked > self.mistake_after:
            raise KeyError("a mistake")
        if self.refuses:
            raise StoreUnavailable("Locked.")

    async def begin_run(
        self, new: NewRun, events: Sequence[DocumentEvent] = (), end: RunEnd | None = None
    ) -> KeyTaken | Busy | Superseded | Written:
        self._ask()
        return await super().begin_run(new, events, end)

    async def append(
        self, lease: Lease, first_number: int, events: Sequence[DocumentEvent], end: RunEnd | None = None
    ) -> Written:
        self._ask()
        return await super().append(lease, first_number, events, end)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Flaky]:
    made = Flaky(tmp_path)
    yield made
    blocking(made).close()


class Clock:
    now = 1000

    def __call__(self) -> int:
        return self.now


def log_of(
    store: Flaky, clock: Clock | None = None, idempotency: Idempotency | None = None, id: str = "run"
) -> LiveLog:
    return LiveLog(store, new_run(id, f"conv_{id}", idempotency=idempotency), clock or Clock())


def events(*agent: AgentEvent) -> list[DocumentEvent]:
    assembler = Assembler(info("run", "conv_run"))
    return [event for one in agent for event in assembler.push(one)]


SCOPE = Scope(owner=ME, workspace="/w", mode="agent")
SAID = events(*say("Hello ", "you", "."), FINISHED)


def test_what_readers_see_is_stored_before(store: Flaky) -> None:
    written = log_of(store)
    assert at_once(written.begin()) is None
    for number in range(len(SAID)):
        assert asyncio.run(write(written, [SAID[number]])) == [SAID[number]]
        assert blocking(store).events("run", ME).events == SAID[: number + 1]
        assert written.stored == number + 1
    assert written.is_complete
    stored = blocking(store).run("run", ME)
    assert stored is not None
    assert (stored.state, stored.event_count) == ("completed", len(SAID))
    assert [message.text for message in blocking(store).messages("conv_run", ME)] == ["Hello", "Hello you."]
    assert asyncio.run(written.after(1)) == SAID[1:]


async def test_what_is_added_between_two_turns_is_stored_together(
    store: Flaky, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless somebody waits for it."""
    written = LiveLog(store, new_run("run", "conv_run"), Clock(), must_store_seconds=60)
    assert await written.begin() is None
    written.add(SAID[:1])
    await written.flush(is_paced=True)
    assert (store.asked, written.count) == (2, 1)  # the first turn is at once
    written.add(SAID[1:2])
    flushing = asyncio.create_task(written.flush(is_paced=True))
    await asyncio.sleep(0)
    written.add(SAID[2:3])
    assert (store.asked, written.waiting) == (2, 2)
    await flushing
    assert (store.asked, written.count, written.waiting) == (3, 3, 0)
    monkeypatch.setattr(batches, "_PACE_SECONDS", 1000.0)
    written.add(SAID[3:4])
    await written.flush(is_paced=True)
    written.add(SAID[4:])
    flushing = asyncio.create_task(written.flush(is_paced=True))
    await asyncio.sleep(0)
    await written.flush()
    await flushing
    assert (store.asked, written.done) == (5, SAID[-1])

    assert blocking(store).events("run", ME).events == SAID


def test_a_key_that_is_another_runs_begins_nothing(store: Flaky) -> None:
    key = Idempotency("key", "hash")
    assert at_once(log_of(store, idempotency=key).begin()) is None
    other = log_of(store, idempotency=key, id="other")
    assert other.run.idempotency == key
    assert at_once(other.begin()) == KeyTaken()
    assert blocking(store).run("other", ME) is None


def test_while_the_store_refuses_it_is_not_asked_each_time(store: Flaky) -> None:
    """Each try may wait for somebody else's lock, and with it everybody."""
    clock = Clock()
    written = log_of(store, clock)
    store.refuses = True
    assert at_once(written.begin()) is None
    for event in SAID[:3]:
        assert asyncio.run(write(written, [event])) == [event]
    assert (store.asked, written.stored) == (1, 0)
    clock.now += 1000
    asyncio.run(write(written, [SAID[3]]))
    assert (store.asked, written.stored) == (2, 0)
    store.refuses = False
    clock.now += 999
    asyncio.run(write(written, [SAID[4]]))
    assert written.stored == 0
    clock.now += 1
    asyncio.run(write(written, [SAID[5]]))
    assert written.is_complete
    assert blocking(store).events("run", ME).events == SAID[:6]


def test_an_answer_that_is_not_stored_says_so_and_is_stored_in_the_same_words(store: Flaky) -> None:
    written = log_of(store)
    assert at_once(written.begin()) is None
    asyncio.run(write(written, SAID[:2]))
    store.refuses = True
    *before, done = asyncio.run(write(written, SAID[2:]))
    assert before == SAID[2:-1]
    assert isinstance(done, Done)
    assert done.envelope.metadata.stored is False
    assert (written.is_complete, at_once(written.try_again())) == (False, False)
    assert blocking(store).events("run", ME).events == SAID[:2]
    store.refuses = False
    assert at_once(written.try_again())
    assert written.is_complete
    assert blocking(store).events("run", ME).events == [*SAID[:-1], done]
    assert [message.text for message in blocking(store).messages("conv_run", ME)] == ["Hello", "Hello you."]
    assert at_once(written.try_again())  # and once more changes nothing
    assert blocking(store).events("run", ME).events == [*SAID[:-1], done]


def test_a_run_that_was_deleted_meanwhile_is_over_for_the_store(store: Flaky) -> None:
    written = log_of(store)
    assert at_once(written.begin()) is None
    before_that = asyncio.run(write(written, SAID[:2]))
    assert blocking(store).delete_conversation("conv_run", ME)
    blocking(store).prune(HistoryLimits(), 0)  # to the last row, and not behind our back
    *before, done = asyncio.run(write(written, SAID[2:]))
    assert before == SAID[2:-1]
    assert isinstance(done, Done)
    assert done.envelope.metadata.stored is False
    asked = store.asked
    assert (written.is_complete, at_once(written.try_again()), store.asked) == (True, True, asked)  # nobody tries again
    assert (asyncio.run(written.after(0)), written.stored) == ([*before_that, *before, done], 2)


def test_a_history_that_is_taken_away_is_not_taken_for_one_that_has_it(store: Flaky, tmp_path: Path) -> None:
    written = log_of(store)
    assert at_once(written.begin()) is None
    asyncio.run(write(written, SAID[:2]))
    for file in tmp_path.glob(f"{FILE}*"):
        file.unlink()
    rmtree(tmp_path / "runs")
    done = asyncio.run(write(written, SAID[2:]))[-1]
    assert isinstance(done, Done)
    assert done.envelope.metadata.stored is False


@pytest.mark.parametrize("at", [0, 2, 5])
async def test_a_mistake_in_the_store_costs_the_history_and_not_the_answer(store: Flaky, at: int) -> None:
    """It is told to observers; readers, and whoever waits for the run's place, must not wait for ever."""
    written, watcher, ended = log_of(store), Watcher(), list[str]()
    assert await written.begin() is None
    store.mistake_after = store.asked + at
    run = Run(info("run", "conv_run"), written)
    script: list[Step] = [[STARTED], *([word] for word in say(*"abcdefg")), [FINISHED]]
    run.start(turn("run"), driven_by(ScriptedSource(script), watcher), lambda: ended.append("ended"))
    done = await run.finished()
    await run.gone()
    assert (done.failure, done.envelope.metadata.stored, ended) == (None, False, ["ended"])
    assert [repr(fault) for fault in watcher.faults] == ["KeyError('a mistake')"]
    response = folded(run)
    assert response is not None
    assert [document.content for document in response.documents] == ["abcdefg"]
    assert run.log.is_complete  # there is nothing to try again


async def test_nobody_waits_for_the_pace_at_the_end_of_an_answer_and_at_a_question(
    store: Flaky, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where somebody waits: for the whole answer, although the agent has not exited, or to be asked."""
    monkeypatch.setattr(batches, "_PACE_SECONDS", 1000.0)

    more, ends, exits = asyncio.Event(), asyncio.Event(), asyncio.Event()
    a, b, c, d = ([word] for word in say(*"abcd"))
    script: list[Step] = [[STARTED], a, b, Until(more), c, Until(ends), d, [FINISHED], Until(exits)]
    written = LiveLog(store, new_run("run", "conv_run"), Clock(), must_store_seconds=60)
    assert await written.begin() is None
    run = Run(info("run", "conv_run"), written, RunPlan(asks_others=True))
    run.start(turn("run"), driven_by(ScriptedSource(script)))
    await true(lambda: run.added and run.count == run.added)
    more.set()
    await true(lambda: run.count < run.added)  # the rest waits for its turn
    asked = asyncio.create_task(run.answer("call", Question(tool="ask", title="", questions=[])))
    await true(lambda: run.is_waiting and run.count == run.added)
    asked.cancel()
    ends.set()
    assert (await run.finished()).failure is None
    exits.set()
    await run.gone()


@pytest.mark.parametrize("fails", [False, True])
def test_only_an_answer_that_the_caller_has_whole_is_known_by_it(store: Flaky, fails: bool) -> None:
    written = log_of(store)
    assert at_once(written.begin()) is None
    written.session_id = "session-1"
    written.quoted = Quoted(SCOPE, [UserMessage("Hi.")])
    end: AgentEvent = RunFailed(failure=AgentOverloaded("Full.").failure()) if fails else FINISHED
    asyncio.run(write(written, events(*say("Hello"), end)))
    assert [
        found.conversation.session_id
        for found in blocking(store).conversations(ME, fingerprint=written.quoted.fingerprint("Hello")).found
    ] == ([] if fails else ["session-1"])
    stored = blocking(store).conversation("conv_run", ME)
    assert stored is not None
    assert stored.session_id == "session-1"  # by its id it goes on all the same


@examples(50)
@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=8),
    refusals=st.lists(st.booleans(), min_size=12, max_size=12),
    steps=st.lists(st.integers(0, 1500), min_size=12, max_size=12),
)
def test_whenever_the_store_refuses_all_is_there_in_the_end(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], refusals: list[bool], steps: list[int]
) -> None:
    store, clock = Flaky(tmp_path_factory.mktemp("store")), Clock()
    written = log_of(store, clock)
    said = events(*say(*(f"{number} " for number in range(sum(sizes)))), FINISHED)
    result: list[DocumentEvent] = []
    store.refuses = refusals[-1]
    assert at_once(written.begin()) is None
    rest = said
    for number, size in enumerate([*sizes, len(said)]):
        batch, rest = rest[:size], rest[size:]
        if not batch:
            break
        store.refuses, clock.now = refusals[number], clock.now + steps[number]
        result += asyncio.run(write(written, batch))
        store.refuses = False
        assert blocking(store).events("run", ME).events == result[: written.stored]
    assert at_once(written.try_again())
    assert written.is_complete
    assert blocking(store).events("run", ME).events == result
    assert result[:-1] == said[:-1]
    blocking(store).close()


async def test_a_run_whose_events_are_not_stored_keeps_them(store: Flaky, monkeypatch: pytest.MonkeyPatch) -> None:
    """What only it has must not be dropped, however much it is."""
    monkeypatch.setattr("cursor_gateway.runs.log._KEPT_EVENTS", 2)
    store.refuses = True
    written = log_of(store)
    assert await written.begin() is None
    run = Run(info("run", "conv_run"), written)
    words = say(*(f"{number} " for number in range(50)))
    run.start(turn("run"), driven_by(ScriptedSource([[STARTED], *([word] for word in words), [FINISHED]])))
    await run.gone()
    assert (run.log.dropped, run.log.is_complete, len(run.log.events)) == (0, False, run.count)
    assert not await run.log.try_again()
    store.refuses = False
    assert await run.log.try_again()
    assert run.log.is_complete
    assert blocking(store).events("run", ME).events == run.log.events


def _forget(store: Flaky, last: int) -> None:
    """As a standby that lagged when it took over."""
    store._files.take("run")  # so that its events are in the database
    kept = blocking(store).events("run", ME).events[:last]
    with closing(sqlite3.connect(store.directory / FILE, isolation_level=None)) as connection:
        if kept:
            connection.execute("UPDATE events SET count = ?, data = ?", (last, batches.encode(kept)))
        else:
            connection.execute("DELETE FROM events")


@pytest.mark.parametrize("forgotten", [1, 2, 3])
async def test_what_the_store_has_forgotten_is_sent_again(store: Flaky, forgotten: int) -> None:
    log = log_of(store)
    for event in SAID[:3]:
        await write(log, [event])
    _forget(store, 3 - forgotten)
    await write(log, SAID[3:])
    assert log.events == SAID

    assert blocking(store).events("run", ME).events == SAID
    stored = blocking(store).run("run", ME)
    assert stored is not None
    assert (stored.state, stored.event_count) == ("completed", len(SAID))


async def test_what_it_has_forgotten_is_sent_again_with_what_it_has_refused(store: Flaky) -> None:
    """Which readers have seen, too."""
    log = log_of(store)
    for event in SAID[:2]:
        await write(log, [event])
    store.refuses = True
    await write(log, SAID[2:3])
    store.refuses = False
    _forget(store, 1)
    await write(log, SAID[3:])
    assert log.events == SAID

    assert blocking(store).events("run", ME).events == SAID


async def test_what_is_not_kept_any_more_is_lost(store: Flaky, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cursor_gateway.runs.log._KEPT_EVENTS", 1)
    written = log_of(store)
    for event in SAID[:4]:
        await write(written, [event])
    _forget(store, 1)
    await write(written, SAID[4:])
    assert isinstance(written.news[0], ValueError)
    assert "forgotten all after event 1" in str(written.news[0])
    assert written.is_complete


@pytest.mark.parametrize("forgets", range(4, 9))
async def test_however_much_is_dropped_the_latest_is_kept(
    store: Flaky, monkeypatch: pytest.MonkeyPatch, forgets: int
) -> None:
    """So what a standby lacks can be sent again at any time, and a reader that is a little late finds it here."""
    monkeypatch.setattr("cursor_gateway.runs.log._KEPT_EVENTS", 4)
    written = log_of(store)
    for number, event in enumerate(WORDS):
        if number == forgets:
            _forget(store, number - 2)
        await write(written, [event])
        assert min(2, written.stored) <= written.stored - written.dropped <= 8
        assert written.events == WORDS[written.dropped : number + 1]
    assert written.is_stored
    assert written.dropped


# --- what is visible ------------------------------------------------------------------------------------


WORDS = events(*say(*(f"{number} " for number in range(8))), FINISHED)


@pytest.mark.parametrize("is_far_away", [False, True])
@examples(30)
@given(sizes=st.lists(st.integers(1, 4), max_size=6), patience=st.lists(st.integers(0, 6), min_size=8, max_size=8))
def test_a_flush_can_be_cancelled_at_any_point(
    tmp_path_factory: pytest.TempPathFactory, is_far_away: bool, sizes: list[int], patience: list[int]
) -> None:
    """As when a run is stopped while its last words are being stored."""
    local = SqliteStore(tmp_path_factory.mktemp("store"))

    async def live() -> None:
        store: Any = suspending(local) if is_far_away else local
        log, rest = LiveLog(store, new_run("run", "conv_run"), lambda: 1000), WORDS
        for number, size in enumerate([*sizes, len(WORDS)]):
            batch, rest = rest[:size], rest[size:]
            log.add(batch)
            flushing = asyncio.get_running_loop().create_task(log.flush())
            await turns_of_the_loop(patience[number])
            flushing.cancel()
            with suppress(asyncio.CancelledError):
                await flushing
            assert await log.after(0) == WORDS[: log.count]
            assert len(blocking(local).events("run", ME).events) >= log.count
        await log.flush()
        assert log.events == WORDS
        assert isinstance(log.done, Done)
        assert log.is_complete
        assert blocking(local).events("run", ME).events == WORDS

    asyncio.run(live())
    blocking(local).close()


async def test_a_reader_that_is_ahead_waits_until_its_events_are_visible() -> None:
    """The store may have events, and other processes may show them, before this process knows that it has."""
    log = UnstoredLog()
    log.add(WORDS)
    assert (log.count, log.state.count) == (0, len(WORDS))
    reader = RunHandle(info(), log).reader(after=3)
    reading = asyncio.get_running_loop().create_task(reader.next())
    await turns_of_the_loop(3)
    assert not reading.done()
    await log.flush()
    assert await reading == WORDS[3:]


def test_the_log_of_a_resumed_run_knows_what_is_stored_of_it() -> None:
    log, paused = UnstoredLog(), Paused(envelope())
    stored = RunState().push_all([*WORDS[:2], paused, *WORDS[2:-1]])
    log.resume(Lease("run", 2), stored, None)
    assert (log.count, log.state, log.stored) == (len(WORDS), stored, len(WORDS))
    assert (log.state.sequence, log.state.paused_at) == (1, 3)
