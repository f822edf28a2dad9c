"""Histories that a correct cluster could leave have no violation; each law finds those in which it is broken."""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from nemesis.history import (
    Accepted,
    Agent,
    Command,
    Facts,
    Head,
    History,
    Shown,
    Snapshot,
    State,
    StoredEvent,
    StoredRun,
    Takeover,
)
from nemesis.laws import LAWS, text_of, violations

pytestmark = pytest.mark.slow  # tests of a tool

# --- histories as a correct cluster leaves them -------------------------------------------------------


@st.composite
def _runs(draw: st.DrawFn, conversation: str, number: int) -> StoredRun:
    id = f"{conversation}-run{number}"
    count = draw(st.integers(4, 8))
    epochs = sorted(draw(st.lists(st.integers(1, 3), min_size=count, max_size=count)))
    hidden = draw(st.sets(st.integers(3, count - 2), max_size=2)) if count > 4 else set()
    said = f" result-of-{id}."
    events = tuple(
        StoredEvent(
            number=place,
            epoch=epochs[place - 1],
            data=b"" if place in hidden else _data(place, count, f"{id} {place}{said if place == 2 else ''}"),
            is_done=place == count,
            at=100.0,
        )
        for place in range(1, count + 1)
    )
    state: State = draw(st.sampled_from(["completed", "error"]))
    epoch = epochs[-1] + draw(st.integers(0, 1))
    known = Facts(count, text=id)
    return StoredRun(id, conversation, state, epoch, events, f"question-{id}", row=known, folded=known)


def _data(place: int, count: int, text: str) -> bytes:
    """A document that begins, grows and ends, and the end of the run."""
    if place == 1:
        return b'document_start {"id":"doc_001"}'
    if place == count - 1:
        return b'document_end {"documentId":"doc_001"}'
    return b"done {}" if place == count else _delta(text)


def _delta(text: str) -> bytes:
    return b"content_delta " + msgspec.json.encode({"documentId": "doc_001", "delta": text})


def _heads(run: StoredRun, steps: Sequence[int]) -> list[Head]:
    active = [Head(run.id, run.conversation, "queued", 0, 0)]
    for step in sorted(steps):
        if step < len(run.events):
            active.append(Head(run.id, run.conversation, "running", run.events[step].epoch, step))
    return [*active, Head(run.id, run.conversation, run.state, run.epoch, len(run.events))]


@st.composite
def _histories(draw: st.DrawFn) -> History:
    asked, accepted, readers, shown, finished, runs, agents = [], [], [], [], [], [], []
    snapshots: list[Snapshot] = []
    ended: list[Head] = []
    clock = 0.0
    for conversation in ("one", "two"):
        for number in range(draw(st.integers(2, 3))):
            run = draw(_runs(conversation, number))
            runs.append(run)
            asked.append(run.id)
            for reader in range(2, 2 + draw(st.integers(1, 2))):
                visible = [event for event in run.events if event.data]
                seen = len(visible) if reader == 2 else draw(st.integers(0, len(visible)))
                shown += [Shown(f"reader{reader}", run.id, event.number, event.data, 100.5) for event in visible[:seen]]
                if seen == len(visible):  # the others were ended by their clients
                    readers.append((f"reader{reader}", run.id))
                    finished.append((f"reader{reader}", run.id))
            command = Command(f"command-{run.id}", draw(st.integers(0, 2)), is_done=False)
            accepted.append(Accepted(run.id, "results", f"result-of-{run.id}."))
            heads = _heads(run, draw(st.lists(st.integers(0, 8), max_size=4)))
            snapshots += [Snapshot((*ended, head), (command,)) for head in heads[:-1]]
            snapshots.append(Snapshot((*ended, heads[-1]), (replace(command, is_done=True, outcome=b"ok"),)))
            ended.append(heads[-1])
            end = clock + draw(st.floats(0.1, 5))
            was_killed = draw(st.booleans())
            agents.append(Agent(f"/{conversation}", f"question-{run.id}", 7, clock, None if was_killed else end, True))
            clock = end + 0.1
    return History(
        asked=tuple(asked),
        accepted=tuple(accepted),
        readers=tuple(readers),
        shown=tuple(shown),
        finished=tuple(finished),
        snapshots=tuple(snapshots),
        runs=tuple(runs),
        agents=tuple(agents),
        said={run.question: text_of(run) for run in runs},
        takeovers=tuple(Takeover(run.id, "member", draw(st.floats(2, 9))) for run in runs if run.epoch > 1),
        lease=2.0,
    )


@given(_histories())
def test_a_correct_history_has_no_violation(history: History) -> None:
    assert violations(history) == []


def test_nothing_that_happened_is_no_violation() -> None:
    assert violations(History()) == []


# --- the same, with one law broken --------------------------------------------------------------------

Break = Callable[[st.DrawFn, History], History]


@st.composite
def _broken(draw: st.DrawFn, how: Break) -> History:
    return how(draw, draw(_histories()))


def _run(draw: st.DrawFn, history: History) -> StoredRun:
    return draw(st.sampled_from(history.runs))


def _with_run(history: History, run: StoredRun) -> History:
    return replace(history, runs=tuple(run if one.id == run.id else one for one in history.runs))


def _with_events(history: History, run: StoredRun, events: Sequence[StoredEvent]) -> History:
    return _with_run(history, replace(run, events=tuple(events)))


def _an_event_is_missing(draw: st.DrawFn, history: History) -> History:
    run = _run(draw, history)
    gone = draw(st.integers(0, len(run.events) - 2))
    return _with_events(history, run, [*run.events[:gone], *run.events[gone + 1 :]])


def _an_event_is_stored_twice(draw: st.DrawFn, history: History) -> History:
    run = _run(draw, history)
    twice = draw(st.integers(0, len(run.events) - 1))
    return _with_events(history, run, [*run.events[: twice + 1], *run.events[twice:]])


def _no_end(draw: st.DrawFn, history: History) -> History:
    run = _run(draw, history)
    return _with_events(history, run, [*run.events[:-1], replace(run.events[-1], is_done=False)])


def _two_ends(draw: st.DrawFn, history: History) -> History:
    run = _run(draw, history)
    early = draw(st.integers(0, len(run.events) - 2))
    events = list(run.events)
    events[early] = replace(events[early], is_done=True)
    return _with_events(history, run, events)


def _more_after_the_end(draw: st.DrawFn, history: History) -> History:
    run = _run(draw, history)
    last = run.events[-1]
    return _with_events(history, run, [*run.events, replace(last, number=last.number + 1, is_done=False)])


def _done_while_active(draw: st.DrawFn, history: History) -> History:
    return _with_run(history, replace(_run(draw, history), state="running"))


def _a_run_is_lost(draw: st.DrawFn, history: History) -> History:
    lost = _run(draw, history)
    return replace(history, runs=tuple(run for run in history.runs if run != lost))


def _a_run_never_ends(draw: st.DrawFn, history: History) -> History:
    return _with_run(history, replace(_run(draw, history), state=draw(st.sampled_from(["queued", "waiting"]))))


def _an_older_writer_writes_on(draw: st.DrawFn, history: History) -> History:
    run = _run(draw, history)
    at = draw(st.integers(1, len(run.events) - 1))
    events = list(run.events)
    events[at] = replace(events[at], epoch=events[at - 1].epoch - 1)
    return _with_events(history, run, events)


def _an_epoch_of_nobody(draw: st.DrawFn, history: History) -> History:
    run = _run(draw, history)
    return _with_run(history, replace(run, epoch=run.events[-1].epoch - 1))


def _with_heads(history: History, *heads: Head) -> History:
    return replace(history, snapshots=(*history.snapshots, *(Snapshot((head,), ()) for head in heads)))


def _last_head(run: StoredRun) -> Head:
    return Head(run.id, run.conversation, run.state, run.epoch, len(run.events))


def _an_epoch_falls(draw: st.DrawFn, history: History) -> History:
    head = _last_head(_run(draw, history))
    return _with_heads(history, replace(head, epoch=head.epoch - 1))


def _a_log_gets_shorter(draw: st.DrawFn, history: History) -> History:
    head = _last_head(_run(draw, history))
    return _with_heads(history, replace(head, last=draw(st.integers(0, head.last - 1))))


def _an_ended_run_goes_on(draw: st.DrawFn, history: History) -> History:
    return _with_heads(history, replace(_last_head(_run(draw, history)), state="running"))


def _two_runs_at_once(draw: st.DrawFn, history: History) -> History:
    heads = [replace(_last_head(run), state="running") for run in history.runs if run.conversation == "one"]
    return replace(history, snapshots=(*history.snapshots, Snapshot(tuple(heads[:2]), ())))


def _a_word_is_missing(draw: st.DrawFn, history: History) -> History:
    """The numbers are contiguous all the same."""
    run = _run(draw, history)
    silent = replace(run.events[1], data=_delta(""))
    return _with_run(history, replace(run, state="completed", events=(run.events[0], silent, *run.events[2:])))


def _a_living_member_loses_its_run(draw: st.DrawFn, history: History) -> History:
    taken = Takeover(_run(draw, history).id, "member", draw(st.floats(0, 1.99)))
    return replace(history, takeovers=(*history.takeovers, taken))


def _everything_is_late(draw: st.DrawFn, history: History) -> History:
    late = tuple(replace(shown, at=shown.at + 2) for shown in history.shown)
    return replace(history, shown=late, is_quiet=True)


def _a_document_does_not_begin(draw: st.DrawFn, history: History) -> History:
    run = _run(draw, history)
    return _with_events(history, run, [replace(run.events[0], data=b""), *run.events[1:]])


def _a_document_does_not_end(draw: st.DrawFn, history: History) -> History:
    run = _run(draw, history)
    return _with_events(history, run, [*run.events[:-2], replace(run.events[-2], data=b""), run.events[-1]])


def _shown_before_it_was_stored(draw: st.DrawFn, history: History) -> History:
    run = _run(draw, history)
    return replace(history, shown=(*history.shown, Shown("early", run.id, len(run.events) + 1, b"?")))


def _with_other_bytes(draw: st.DrawFn, history: History) -> History:
    at = draw(st.integers(0, len(history.shown) - 1))
    other = replace(history.shown[at], data=history.shown[at].data + b"!")
    return replace(history, shown=(*history.shown[:at], other, *history.shown[at + 1 :]))


def _two_readers_differ(draw: st.DrawFn, history: History) -> History:
    """And neither is what is stored."""
    run = _run(draw, history)
    one, other = (Shown(f"new{n}", run.id, 1, f"{n}".encode()) for n in range(2))
    return replace(history, shown=(*history.shown, one, other))


def _reader_of(draw: st.DrawFn, history: History) -> tuple[Shown, int]:
    """An event that a reader with all of its run's events was shown, but not the last one."""
    whole = [shown for shown in history.shown if shown.reader == "reader2"]
    ends = {run.id: len(run.events) for run in history.runs}
    chosen = draw(st.sampled_from([shown for shown in whole if shown.number < ends[shown.run]]))
    return chosen, history.shown.index(chosen)


def _a_reader_misses_one(draw: st.DrawFn, history: History) -> History:
    _, at = _reader_of(draw, history)
    return replace(history, shown=(*history.shown[:at], *history.shown[at + 1 :]))


def _a_reader_is_shown_one_twice(draw: st.DrawFn, history: History) -> History:
    chosen, at = _reader_of(draw, history)
    return replace(history, shown=(*history.shown[:at], chosen, *history.shown[at:]))


def _the_end_is_not_shown(draw: st.DrawFn, history: History) -> History:
    """Yet the stream ended."""
    run = _run(draw, history)
    last = [shown for shown in history.shown if shown.reader == "reader2" and shown.run == run.id][-1]
    return replace(history, shown=tuple(shown for shown in history.shown if shown != last))


def _a_reader_waits_for_ever(draw: st.DrawFn, history: History) -> History:
    return replace(history, readers=(*history.readers, ("late", _run(draw, history).id)))


def _a_reader_is_refused(draw: st.DrawFn, history: History) -> History:
    return replace(history, refused=(("reader2", _run(draw, history).id, "409 log_reset"),))


def _commands(history: History, *commands: Command) -> History:
    return replace(history, snapshots=(*history.snapshots, *(Snapshot((), (command,)) for command in commands)))


def _a_command_is_never_done(draw: st.DrawFn, history: History) -> History:
    return _commands(history, Command("other", draw(st.integers(0, 3)), is_done=False))


def _an_outcome_changes(draw: st.DrawFn, history: History) -> History:
    outcome = draw(st.sampled_from([b"other", None]))
    return _commands(history, Command(f"command-{_run(draw, history).id}", 3, is_done=True, outcome=outcome))


def _a_command_is_done_again(draw: st.DrawFn, history: History) -> History:
    return _commands(history, Command(f"command-{_run(draw, history).id}", 3, is_done=False))


def _an_older_claim_counts(draw: st.DrawFn, history: History) -> History:
    return _commands(history, Command("other", 2, is_done=False), Command("other", 1, is_done=True))


def _a_result_arrives_twice(draw: st.DrawFn, history: History) -> History:
    run = _run(draw, history)
    events = list(run.events)
    events[-1] = replace(events[-1], data=events[1].data)
    return _with_events(history, run, events)


def _a_result_is_lost(draw: st.DrawFn, history: History) -> History:
    run = _run(draw, history)
    other = replace(run.events[1], data=_delta("?"))
    return _with_run(history, replace(run, state="completed", events=(run.events[0], other, *run.events[2:])))


def _two_agents_at_once(draw: st.DrawFn, history: History) -> History:
    at = draw(st.integers(0, len(history.agents) - 1))
    second = replace(history.agents[at], question="", pid=8, alone=False)
    return replace(history, agents=(*history.agents, second))


def _two_agents_overlap(draw: st.DrawFn, history: History) -> History:
    first, second = history.agents[:2]
    long = replace(first, end=second.begin + draw(st.floats(0.001, 1)))
    return replace(history, agents=(long, *history.agents[1:]))


def _an_agent_is_left(draw: st.DrawFn, history: History) -> History:
    return replace(history, left=frozenset({draw(st.sampled_from(history.agents)).pid}))


def _asked_again(draw: st.DrawFn, history: History) -> History:
    again = replace(draw(st.sampled_from(history.agents)), begin=1e6, end=None)
    return replace(history, agents=(*history.agents, again))


def _a_row_differs_from_the_fold(draw: st.DrawFn, history: History) -> History:
    run = _run(draw, history)
    return _with_run(history, replace(run, row=replace(run.row, text="something else")))  # type: ignore[type-var]


BROKEN: dict[str, tuple[Break, ...]] = {
    "a log is contiguous": (_an_event_is_missing, _an_event_is_stored_twice),
    "one end, and it is last": (_no_end, _two_ends, _more_after_the_end, _done_while_active),
    "documents begin, grow and end": (_a_document_does_not_begin, _a_document_does_not_end),
    "a run is its log": (_a_row_differs_from_the_fold,),
    "every accepted run ends": (_a_run_is_lost, _a_run_never_ends),
    "epochs never fall": (_an_older_writer_writes_on, _an_epoch_of_nobody, _an_epoch_falls),
    "a log only grows": (_a_log_gets_shorter, _an_ended_run_goes_on),
    "one active run per conversation": (_two_runs_at_once,),
    "what the agent said is stored": (_a_word_is_missing,),
    "only a silent member loses its runs": (_a_living_member_loses_its_run,),
    "what was shown is stored": (_shown_before_it_was_stored, _with_other_bytes),
    "two readers never differ": (_two_readers_differ,),
    "a reader misses nothing": (_a_reader_misses_one, _a_reader_is_shown_one_twice, _the_end_is_not_shown),
    "events are shown soon": (_everything_is_late,),
    "every reader reaches the end": (_a_reader_waits_for_ever, _a_reader_is_refused),
    "one outcome per command": (
        _a_command_is_never_done,
        _an_outcome_changes,
        _a_command_is_done_again,
        _an_older_claim_counts,
    ),
    "one effect per accepted command": (_a_result_arrives_twice, _a_result_is_lost),
    "one agent per folder": (_two_agents_at_once, _two_agents_overlap),
    "no agent outlives its run": (_an_agent_is_left,),
    "a question is asked once": (_asked_again,),
}


def test_every_law_has_a_history_that_breaks_it() -> None:
    assert list(BROKEN) == list(LAWS)


@pytest.mark.quick_cases(6)
@pytest.mark.parametrize(
    ("law", "broken"),
    [pytest.param(law, one, id=one.__name__.strip("_")) for law, ways in BROKEN.items() for one in ways],
)
@settings(max_examples=15)
@given(data=st.data())
def test_a_broken_law_is_found(law: str, broken: Break, data: st.DataObject) -> None:
    found = violations(data.draw(_broken(broken)))
    assert law in {one.law for one in found}, found
    assert all(str(one) for one in found)


def test_a_question_may_be_asked_twice_if_its_client_said_so() -> None:
    agents = tuple(Agent("/one", "word", pid, pid, pid + 0.5, True) for pid in range(3))
    run = StoredRun("run", "one", "completed", 2, (StoredEvent(1, 1, b"done {}", is_done=True),), "word", agents=2)
    assert violations(History(runs=(run,), agents=agents[:2])) == []
    (found,) = violations(History(runs=(run,), agents=agents))
    assert found.law == "a question is asked once"


@given(_histories())
def test_a_history_can_be_kept_in_a_file(history: History) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "history"
        history.write(file)
        assert History.read(file) == history


def test_a_run_may_wait_for_a_client_that_does_not_know_of_it() -> None:
    paused = StoredEvent(number=1, epoch=1, data=b'done {"metadata":{"waitingFor":[]}}', is_done=False, at=1.0)
    run = StoredRun("run", "conversation", "running", 1, (paused,), "")
    assert [one.law for one in violations(History(runs=(run,)))] == []
    assert [one.law for one in violations(History(runs=(run,), asked=("run",)))] == ["every accepted run ends"]


def test_what_was_accepted_and_not_started_must_say_why() -> None:
    shown = [Shown(reader, "queued", 1, b"done {}", 1.0) for reader in ("one", "two")]
    history = History(asked=("queued",), shown=tuple(shown))
    law = "every accepted run ends"
    assert [one.law for one in violations(replace(history, shown=()))] == [law]
    assert [one.law for one in violations(replace(history, shown=(), unstarted={"queued": ""}))] == [law]
    said = replace(history, unstarted={"queued": "cancelled"})
    assert violations(said) == []
    differing = replace(said, shown=(shown[0], replace(shown[1], data=b"done {1}")))
    assert [one.law for one in violations(differing)] == ["two readers never differ"]
    run = StoredRun("queued", "c", "error", 1, (StoredEvent(1, 1, b"done {}", True),))
    assert law in [one.law for one in violations(replace(said, runs=(run,)))]
