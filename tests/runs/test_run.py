"""Runs: whatever the source does, and whoever stops it when, readers see each event once, in order, and `Done` last."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.errors import AgentError, AgentOverloaded, GatewayError, RunCancelled, ShuttingDown
from cursor_gateway.model.agent_events import AgentEvent, RunFailed, RunFinished, RunStarted, TextDelta
from cursor_gateway.model.document_events import DocumentEvent, DocumentStarted, Done
from cursor_gateway.runs.machine import Timeouts
from cursor_gateway.runs.run import Run, RunContext, RunPlan
from cursor_gateway.sources.base import Turn
from cursor_gateway.sources.router import routed
from tests.runs.scripted import (
    ENDLESS,
    FINISHED,
    LOOPS,
    STARTED,
    Loop,
    ScriptedSource,
    Step,
    UnstoredLog,
    Until,
    Watcher,
    folded,
    forever,
    info,
    new_run,
    say,
    true,
    turn,
    turns_of_the_loop,
)

STOP = RunCancelled("Stopped.")


def begin(
    run: Run, source: ScriptedSource, *observers: Watcher, limits: Timeouts = ENDLESS, after: Run | None = None
) -> list[str]:
    """The list grows by one word when nothing is left of the run."""
    ended: list[str] = []
    first = turn(run.id, run.session_id)
    context = RunContext(routed(source), limits, observers)
    run.start(first, context, lambda: ended.append("ended"), after=after)
    return ended


def code(run: Run) -> str | None:
    """How it ended: the failure's code, or None. Well-formed, whatever happened."""
    assert [isinstance(event, Done) for event in run.log.events] == [False] * (len(run.log.events) - 1) + [True]
    assert run.done is run.log.events[-1]
    return run.done.failure.code if run.done.failure is not None else None


def texts(run: Run) -> str:
    response = folded(run)
    assert response is not None
    return "|".join(document.content or "" for document in response.documents)


# --- how runs end ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("loop", LOOPS)
async def test_a_run_says_what_its_source_says(loop: Loop) -> None:
    run, watcher = new_run(), Watcher()
    source = ScriptedSource([[STARTED], say("Hello "), say("you", "."), [FINISHED]])
    ended = begin(run, source, watcher)
    assert (run.done, folded(run), run.log.events) == (None, None, [])
    assert await run.finished() is run.done
    assert (code(run), texts(run)) == (None, "Hello you.")
    await run.gone()
    assert (ended, source.ended) == (["ended"], 1)
    assert watcher.seen == ["started", "first_event", "ended"]
    assert run.session_id == "session-1"
    assert run.first_event_seconds is not None
    assert 0 <= run.first_event_seconds <= run.seconds


class GroupedSource(ScriptedSource):
    """One that starts several programs at once, of which one fails."""

    async def events(self, turn: Turn) -> AsyncGenerator[Sequence[AgentEvent], None]:
        async def fail() -> None:
            await asyncio.sleep(0)
            raise AgentOverloaded("Full.")

        yield [STARTED]
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(fail())
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None


@pytest.mark.parametrize("loop", LOOPS)
async def test_a_task_group_that_fails_does_not_cancel_the_run(loop: Loop) -> None:
    run = new_run()
    begin(run, GroupedSource([]))
    await run.finished()
    assert code(run) == "agent_overloaded"
    await run.gone()


@pytest.mark.parametrize(
    ("script", "expected", "said"),
    [
        ([], "agent_crashed", None),
        ([[STARTED]], "agent_crashed", None),
        ([say("Half")], "agent_crashed", "Half"),
        ([AgentOverloaded("Full.")], "agent_overloaded", None),
        ([say("Half"), AgentOverloaded("Full.")], "agent_overloaded", "Half"),
        ([say("Half"), KeyError("a mistake")], "internal_error", "Half"),
        ([say("Half"), OSError(28, "No space left on device")], "internal_error", "Half"),
        ([asyncio.CancelledError()], "cancelled", None),  # by nobody that said why
        ([say("All"), [FINISHED], KeyError("too late to matter")], None, "All"),
        ([say("All"), [FINISHED], AgentOverloaded("Too late.")], None, "All"),
        ([say("All"), [FINISHED], say("more"), [FINISHED]], None, "All"),
    ],
)
async def test_whatever_happens_done_is_last_and_what_was_said_is_kept(
    script: list[Step], expected: str | None, said: str | None
) -> None:
    run = new_run()
    ended = begin(run, ScriptedSource(script))
    await run.gone()
    assert ended == ["ended"]
    assert code(run) == expected
    if said is not None:
        assert texts(run).startswith(said)


async def test_a_mistake_is_reported_to_observers_and_not_to_readers() -> None:
    run, watcher = new_run(), Watcher()
    begin(run, ScriptedSource([KeyError("the secret")]), watcher)
    await run.gone()
    assert [repr(fault) for fault in watcher.faults] == ["KeyError('the secret')"]
    assert "the secret" not in str(run.log.events)


async def test_a_mistake_before_the_agent_starts_ends_the_run() -> None:
    class Mistaken:
        begun = 0

        async def begin(self) -> None:
            self.begun += 1
            if self.begun == 1:
                raise KeyError("in the watch")

        async def seen(self, batch: Sequence[AgentEvent]) -> Sequence[AgentEvent]:
            return batch

        def end(self) -> None: ...

    watch, watcher, source = Mistaken(), Watcher(), ScriptedSource([say("All"), [FINISHED]])
    run = Run(info(), UnstoredLog(), RunPlan(watch=watch))
    begin(run, source, watcher)
    await run.gone()
    assert (watch.begun, source.turns, code(run)) == (1, [], "internal_error")
    assert len(watcher.faults) == 1


async def test_a_mistake_after_the_answer_is_reported_too() -> None:
    run, watcher = new_run(), Watcher()
    begin(run, ScriptedSource([say("All"), [FINISHED]], last_step=OSError("in the cleanup")), watcher)
    await run.gone()
    assert code(run) is None
    assert len(watcher.faults) == 1


@pytest.mark.parametrize("place", ["started", "first_event", "fault", "ended"])
async def test_an_observer_that_fails_costs_nobody_the_answer_or_a_place(place: str) -> None:
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    run = new_run()
    source = ScriptedSource([say("All"), [FINISHED]], last_step=KeyError() if place == "fault" else None)
    ended = begin(run, source, Watcher(fails_in=place))
    await run.gone()
    assert ended == ["ended"]
    assert (code(run), texts(run), len(complaints)) == (None, "All", 1)


async def test_the_session_is_the_latest_that_was_named() -> None:
    run = new_run(session_id="before")
    begin(run, ScriptedSource([[RunStarted("", "Auto")], [FINISHED]]))
    await run.gone()
    assert run.session_id == "before"
    run = new_run(session_id="before")
    begin(run, ScriptedSource([[RunStarted("a", "Auto"), RunStarted("b", "Auto")], [FINISHED]]))
    await run.gone()
    assert run.session_id == "b"


async def test_events_without_words_for_readers_are_not_the_first() -> None:
    run, watcher = new_run(), Watcher()
    begin(run, ScriptedSource([[STARTED], [], forever()]), watcher)
    await turns_of_the_loop()
    assert (run.log.events, watcher.seen) == ([], ["started"])
    run.stop(STOP)
    await run.gone()
    assert watcher.seen == ["started", "ended"]


# --- stopping -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loop", LOOPS)
async def test_a_run_that_is_stopped_before_it_began_never_starts_an_agent(loop: Loop) -> None:
    run, source, watcher = new_run(), ScriptedSource([forever()]), Watcher()
    ended = begin(run, source, watcher)
    run.stop(STOP)
    assert (await run.finished()).failure == STOP.failure()
    await run.gone()
    assert (source.turns, ended, watcher.seen) == ([], ["ended"], ["started", "ended"])


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("turns", range(4))
async def test_a_run_can_be_stopped_at_any_moment(loop: Loop, turns: int) -> None:
    run, source = new_run(), ScriptedSource([[STARTED], say("Half"), forever()])
    ended = begin(run, source)
    await turns_of_the_loop(turns)
    run.stop(STOP)
    run.stop(ShuttingDown("Too late: the first reason stands."))
    await run.gone()
    assert code(run) == "cancelled"
    assert (ended, source.ended) == (["ended"], len(source.turns))


async def test_a_stop_after_the_answer_changes_nothing() -> None:
    lingers = asyncio.Event()
    run, source = new_run(), ScriptedSource([say("All"), [FINISHED], Until(lingers)])
    ended = begin(run, source)
    await run.finished()
    run.stop(STOP)
    await turns_of_the_loop()
    assert (code(run), ended) == (None, [])  # the agent may take its time to go
    lingers.set()
    await run.gone()
    assert (code(run), ended) == (None, ["ended"])
    run.stop(STOP)


async def test_an_answer_and_a_stop_in_the_same_moment_give_one_end() -> None:
    finishes = asyncio.Event()
    run = new_run()
    begin(run, ScriptedSource([say("Half"), Until(finishes), [FINISHED]]))
    await turns_of_the_loop()
    finishes.set()
    run.stop(STOP)
    await run.gone()
    assert code(run) == "cancelled"


async def test_readers_are_sent_the_reason_even_when_the_agent_does_not_go_at_once() -> None:
    goes = asyncio.Event()
    run = new_run()
    ended = begin(run, ScriptedSource([say("Half"), forever()], last_step=Until(goes, is_deaf=True)))
    await turns_of_the_loop()
    run.stop(AgentOverloaded("Enough."))
    await turns_of_the_loop()
    run.stop(STOP)
    assert ended == []
    goes.set()
    await run.gone()
    assert code(run) == "agent_overloaded"


async def test_a_source_that_finishes_in_spite_of_a_stop_has_finished() -> None:
    goes_on = asyncio.Event()
    run = new_run()
    begin(run, ScriptedSource([say("Half"), Until(goes_on, is_deaf=True), say(" and all"), [FINISHED]]))
    await turns_of_the_loop()
    run.stop(STOP)
    await turns_of_the_loop()
    goes_on.set()
    await run.gone()
    assert (code(run), texts(run)) == (None, "Half and all")


@pytest.mark.parametrize("mistake", [KeyError("cleanup"), AgentOverloaded("Cleanup."), asyncio.CancelledError()])
async def test_the_reason_of_a_stop_outlives_a_failing_cleanup(mistake: BaseException) -> None:
    run = new_run()
    begin(run, ScriptedSource([say("Half"), forever()], last_step=mistake))
    await turns_of_the_loop()
    run.stop(STOP)
    await run.gone()
    assert code(run) == "cancelled"
    assert run.done is not None
    assert run.done.failure == STOP.failure()


async def test_a_lingering_agent_is_abandoned() -> None:
    run, source = new_run(), ScriptedSource([say("All"), [FINISHED], forever()])
    ended = begin(run, source)
    await run.finished()
    await asyncio.gather(run.abandon(), run.abandon())
    assert (code(run), ended, source.ended) == (None, ["ended"], 1)
    await run.abandon()


async def test_nothing_is_left_of_a_run_that_never_started() -> None:
    run = new_run()
    run.stop(STOP)
    await run.gone()
    await run.abandon()
    assert run.log.events == []


def test_a_loop_that_ends_takes_the_run_with_it() -> None:
    run, source = new_run(), ScriptedSource([say("Half"), forever()])

    async def live() -> None:
        begin(run, source)
        await turns_of_the_loop()

    asyncio.run(live())
    assert (code(run), source.ended) == ("cancelled", 1)


# --- one after the other --------------------------------------------------------------------------------


async def test_a_run_waits_until_nothing_is_left_of_the_one_before() -> None:
    goes = asyncio.Event()
    source = ScriptedSource([say("one"), [FINISHED], Until(goes)], [say("two"), [FINISHED]])
    first, second = new_run("chat_1"), new_run("chat_2")
    begin(first, source)
    await first.finished()
    begin(second, source, after=first)
    await turns_of_the_loop()
    assert [asked.run_id for asked in source.turns] == ["chat_1"]
    goes.set()
    await second.gone()
    assert (texts(first), texts(second), source.ended) == ("one", "two", 2)


async def test_a_run_that_waits_for_another_can_be_stopped() -> None:
    source = ScriptedSource([say("one"), [FINISHED], forever()])
    first, second = new_run("chat_1"), new_run("chat_2")
    begin(first, source)
    await first.finished()
    begin(second, source, after=first)
    await turns_of_the_loop()
    second.stop(STOP)
    await second.gone()
    assert (code(second), len(source.turns)) == ("cancelled", 1)
    await first.abandon()


# --- time limits ----------------------------------------------------------------------------------------


def limits(**seconds: float) -> Timeouts:
    return Timeouts(**{"first_event_seconds": 1e6, "idle_seconds": 1e6, "run_seconds": 1e6, **seconds})


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize(
    ("script", "limit", "expected"),
    [
        ([], "first_event_seconds", "sent nothing within 0.001 s"),
        ([say("Half")], "idle_seconds", "sent nothing for 0.001 s"),
        ([[STARTED]], "idle_seconds", "sent nothing for 0.001 s"),
        ([], "run_seconds", "took longer than 0.001 s"),
        ([say("Half")], "run_seconds", "took longer than 0.001 s"),
    ],
)
async def test_each_limit_ends_a_run_that_would_never_end(
    loop: Loop, script: list[Step], limit: str, expected: str
) -> None:
    run = new_run()
    begin(run, ScriptedSource([*script, forever()]), limits=limits(**{limit: 0.001}))
    await run.gone()
    assert code(run) == "agent_timed_out"
    assert run.done is not None
    assert run.done.failure is not None
    assert expected in run.done.failure.message
    assert run.done.envelope.metadata.duration_ms >= 1


@pytest.mark.parametrize("loop", LOOPS)
async def test_a_limit_of_no_time_at_all_ends_a_run(loop: Loop) -> None:
    """A loop may call back at once instead of setting a timer."""
    run = new_run()
    begin(run, ScriptedSource([forever()]), limits=limits(first_event_seconds=0.0))
    await run.gone()
    assert code(run) == "agent_timed_out"


@pytest.mark.parametrize(
    "end", [[RunFinished()], [RunFailed(failure=AgentOverloaded("busy").failure())], AgentOverloaded("busy"), None]
)
async def test_how_long_a_run_took_is_measured_where_its_agent_does_not_say(
    end: Sequence[AgentEvent] | AgentOverloaded | None,
) -> None:
    run, ready = new_run(), asyncio.Event()
    begin(run, ScriptedSource([say("Half"), Until(ready), end if end is not None else forever()]))
    await asyncio.sleep(0.005)
    ready.set()
    if end is None:
        run.stop(RunCancelled("Enough."))
    await run.gone()
    assert run.done is not None
    assert run.done.envelope.metadata.duration_ms >= 5


async def test_the_limit_of_silence_does_not_count_before_the_first_event() -> None:
    begins = asyncio.Event()
    run = new_run()
    begin(run, ScriptedSource([Until(begins), say("All"), [FINISHED]]), limits=limits(idle_seconds=0.001))
    await asyncio.sleep(0.01)
    assert run.done is None
    begins.set()
    await run.gone()
    assert code(run) is None


async def test_no_limit_counts_after_the_answer() -> None:
    goes = asyncio.Event()
    run = new_run()
    tight = limits(first_event_seconds=1e6, idle_seconds=0.001)
    ended = begin(run, ScriptedSource([[*say("All"), FINISHED], Until(goes)]), limits=tight)
    await run.finished()
    await asyncio.sleep(0.01)
    assert ended == []
    goes.set()
    await run.gone()
    assert code(run) is None


# --- readers --------------------------------------------------------------------------------------------


async def test_waiting_for_the_end_is_not_reading() -> None:
    run = new_run()
    begin(run, ScriptedSource([say("Half"), forever()]))
    waits = asyncio.ensure_future(run.finished())
    await turns_of_the_loop()
    assert run.log.readers == 0
    run.stop(STOP)
    assert (await waits).failure == STOP.failure()


async def test_the_last_reader_that_leaves_stops_the_run_unless_it_needs_none() -> None:
    for needs_readers in (True, False):
        run = new_run()
        run.set_when_client_leaves("cancel" if needs_readers else "finish")
        begin(run, ScriptedSource([say("Half"), forever()]))
        with run.reader(), run.reader():
            await turns_of_the_loop()
        assert run.is_ending == needs_readers
        await run.abandon()


async def test_a_reader_among_others_stops_nothing() -> None:
    run = new_run()
    begin(run, ScriptedSource([say("Half"), forever()]))
    with run.reader():
        with run.reader():
            pass
        await turns_of_the_loop()
        assert run.done is None
    assert (await run.finished()).failure is not None


async def test_a_reader_that_leaves_is_woken_and_counted_out() -> None:
    run = new_run()
    begin(run, ScriptedSource([forever()]))
    with run.reader() as reader:
        assert run.log.readers == 1
        reads = asyncio.ensure_future(reader.next())
        await turns_of_the_loop()
        reader.leave()
        assert await reads == []
        assert await reader.next() == []  # and does not wait again
        assert not reader.at_end
    assert (run.log.readers, run.log._waiting) == (0, {})
    await run.abandon()


async def test_a_reader_waits_as_long_as_it_is_told_however_long_it_waited_before() -> None:
    """One timer serves many waits."""
    loop, run = asyncio.get_running_loop(), new_run()
    begin(run, ScriptedSource([forever()]))
    with run.reader() as reader:
        loop.call_soon(run.log.wake_readers)
        assert await reader.next(600) == []
        assert await reader.next(0.02) == []  # although the timer was set for later
        loop.call_soon(run.log.wake_readers)
        assert await reader.next(0.02) == []
        began = loop.time()
        assert await reader.next(0.1) == []  # although it fires earlier
        assert loop.time() >= began + 0.09
    await run.abandon()


async def test_a_reader_that_leaves_while_events_arrive_misses_none_that_were_there() -> None:
    speaks = asyncio.Event()
    run = new_run()
    begin(run, ScriptedSource([Until(speaks), say("Hello"), forever()]))
    reader = run.reader()
    reads = asyncio.ensure_future(reader.next())
    await turns_of_the_loop()
    speaks.set()
    await true(lambda: run.log.events)
    reader.leave()
    assert await reads == run.log.events
    await run.abandon()


async def test_a_reader_that_is_cancelled_leaves_nothing_behind() -> None:
    run = new_run()
    begin(run, ScriptedSource([forever()]))
    reads = asyncio.ensure_future(run.reader().next(1e6))
    await turns_of_the_loop()
    assert len(run.log._waiting) == 1
    reads.cancel()
    await asyncio.wait([reads])
    assert run.log._waiting == {}
    await run.abandon()


async def test_a_reader_waits_no_longer_than_it_wants_to() -> None:
    run = new_run()
    begin(run, ScriptedSource([forever()]))
    assert await run.reader().next(0.001) == []
    assert run.log._waiting == {}
    await run.abandon()


async def test_documents_are_counted() -> None:
    run = new_run()
    begin(run, ScriptedSource([say("a\n```py\nb\n```\nc"), [FINISHED]]))
    await run.gone()
    assert texts(run) == "a|b|c"
    assert run.log.state.sequence == 3


class Reading:
    """A reader at work, and what it has seen."""

    def __init__(self, run: Run, after: int, seconds: float | None, *, reads: bool) -> None:
        self.after, self.seen = after, list[DocumentEvent]()
        self.reader = run.reader(after)
        self._seconds = seconds
        self.task = asyncio.ensure_future(self._read() if reads else self._look_in())

    async def _read(self) -> None:
        with self.reader:
            while not self.reader.at_end and not self.reader.has_left:
                self.seen += await self.reader.next(self._seconds)

    async def _look_in(self) -> None:
        """Slower than the run: takes what is there, does something else, looks again."""
        with self.reader:
            while not self.reader.at_end and not self.reader.has_left:
                await turns_of_the_loop(3)
                self.seen += await self.reader.next(0)


JOIN = st.tuples(st.just("join"), st.integers(0, 12), st.sampled_from([None, 0.0, 0.001, 1e6]), st.booleans())
MOMENTS = st.lists(
    st.one_of(
        st.tuples(st.just("say"), st.integers(0, 4)),
        JOIN,
        st.tuples(st.just("leave"), st.integers(0, 5)),
        st.tuples(st.just("pass"), st.integers(1, 4)),
    ),
    max_size=20,
)


@pytest.mark.parametrize("loop", LOOPS)
@given(moments=MOMENTS, end=st.sampled_from(["finish", "stop", "fail", "break off"]))
def test_every_reader_sees_each_event_from_its_place_on_once_and_in_order(
    loop: Loop, moments: list[tuple[Any, ...]], end: str
) -> None:
    async def live() -> None:
        script: asyncio.Queue[Sequence[AgentEvent] | Exception | None] = asyncio.Queue()
        run = new_run()
        run.set_when_client_leaves("finish")
        begin(run, _Queued(script))
        readings: list[Reading] = []
        for number, moment in enumerate(moments):
            match moment:
                case ("say", int(count)):
                    script.put_nowait([TextDelta(f"{number}.{nth} ") for nth in range(count)])
                case ("join", int(after), seconds, bool(reads)):
                    readings.append(Reading(run, after, seconds, reads=reads))
                case ("leave", int(which)) if which < len(readings):
                    readings[which].reader.leave()
                case ("pass", int(turns)):
                    await turns_of_the_loop(turns)
                case _:  # nobody of that number is there to leave
                    pass
        if end == "finish":
            script.put_nowait([FINISHED])
        elif end == "fail":
            script.put_nowait(AgentOverloaded("Full."))
        elif end == "stop":
            run.stop(STOP)
        script.put_nowait(None)
        late = Reading(run, 0, None, reads=True)
        await asyncio.gather(*(reading.task for reading in [*readings, late]))
        await run.gone()
        latest = Reading(run, 0, None, reads=True)
        await latest.task

        expected = {"finish": None, "stop": "cancelled", "fail": "agent_overloaded", "break off": "agent_crashed"}
        assert code(run) == expected[end]
        assert late.seen == latest.seen == run.log.events
        for reading in readings:
            rest = run.log.events[reading.after :]
            assert reading.seen == (rest[: len(reading.seen)] if reading.reader.has_left else rest)
        assert (run.log.readers, run.log._waiting) == (0, {})

    loop(live())


class _Queued(ScriptedSource):
    """Says what a queue brings; None breaks it off."""

    def __init__(self, script: "asyncio.Queue[Sequence[AgentEvent] | Exception | None]") -> None:
        super().__init__([])
        self._script = script

    async def events(self, turn: object) -> Any:
        while (step := await self._script.get()) is not None:
            if isinstance(step, Exception):
                raise step
            yield step


def test_errors_of_the_gateway_and_of_the_agent_are_distinguished() -> None:
    async def live(error: GatewayError) -> str:
        run = new_run()
        begin(run, ScriptedSource([error]))
        done = await run.finished()
        assert done.failure is not None
        assert isinstance(run.log.events[0], DocumentStarted)
        assert run.log.events[0].type == "error"
        return done.failure.source

    assert asyncio.run(live(ShuttingDown("Bye."))) == "gateway"
    assert asyncio.run(live(AgentOverloaded("Full."))) == AgentError.source == "agent"
