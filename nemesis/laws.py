"""A history in; every violation of the cluster's laws out.

Each law is a function of the history alone. What is stored is compared with what was shown, so a reader that saw an
event before its commit, or the same number with other bytes, is found even if every later reader agrees with the
database. Laws about order need no clock: they follow the numbers of events and the order of snapshots.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby, pairwise
from typing import TypeAlias

import msgspec
from msgspec import Struct

from nemesis.history import ACTIVE, Agent, Command, History, Shown, StoredRun

_DELTA = b"content_delta "  # how the data of an event with text begins
_SOON_SECONDS = 0.5  # half of them
_SHORT = 60  # characters of an event in a report


class Violation(Struct, frozen=True):
    law: str
    where: str  # a run, a conversation, a folder, or a command
    what: str

    def __str__(self) -> str:
        return f"{self.law}: {self.where}: {self.what}"


Law: TypeAlias = Callable[[History], Iterator[tuple[str, str]]]


def violations(history: History) -> list[Violation]:
    return [Violation(law, where, what) for law, check in LAWS.items() for where, what in check(history)]


# --- logs -------------------------------------------------------------------------------------------


def _contiguous(history: History) -> Iterator[tuple[str, str]]:
    """The numbers of a log are 1, 2, 3 …"""
    for run in history.runs:
        for expected, event in enumerate(run.events, 1):
            if event.number != expected:
                yield run.id, f"event {expected} is stored as number {event.number}"
                break


def _one_end(history: History) -> Iterator[tuple[str, str]]:
    """A run that has ended has one `done`, and it is the last event; one that has not ended has none."""
    for run in history.runs:
        ends = [event.number for event in run.events if event.is_done]
        if run.state in ACTIVE:
            if ends:
                yield run.id, f"is {run.state}, but event {ends[0]} is `done`"
        elif len(ends) != 1:
            yield run.id, f"is {run.state} and has {len(ends)} `done` events"
        elif not run.events[-1].is_done:
            yield run.id, f"event {run.events[-1].number} comes after `done`"


def _ended(history: History) -> Iterator[tuple[str, str]]:
    """In the end, every run that a client was told of is stored, or was not started and says why, and every stored run
    is over: but for one that waits for a client that gave up before it was told of it."""
    stored = {run.id for run in history.runs}
    for asked in history.asked:
        if asked not in stored and not history.unstarted.get(asked):
            yield asked, "was accepted and is not stored"
    for both in stored & history.unstarted.keys():
        yield both, "was started, and was given up in the queue"
    for run in history.runs:
        if run.state in ACTIVE and (run.id in history.asked or not _is_paused(run)):
            yield run.id, f"is still {run.state}"


def _is_paused(run: StoredRun) -> bool:
    """It waits for its client: that is a `done` of the stream, not of the run."""
    last = run.events[-1] if run.events else None
    return last is not None and not last.is_done and last.data.startswith(b"done ")


def _epochs(history: History) -> Iterator[tuple[str, str]]:
    """The epochs of a log's events never fall, and neither does a run's own."""
    for run in history.runs:
        for before, after in pairwise(run.events):
            if after.epoch < before.epoch:
                yield run.id, f"event {after.number} has epoch {after.epoch}, after one with epoch {before.epoch}"
                break
        if run.events and run.events[-1].epoch > run.epoch:
            yield run.id, f"has epoch {run.epoch}, and an event with epoch {run.events[-1].epoch}"
    seen: dict[str, int] = {}
    for snapshot in history.snapshots:
        for head in snapshot.heads:
            if head.epoch < seen.get(head.run, 0):
                yield head.run, f"its epoch fell from {seen[head.run]} to {head.epoch}"
            seen[head.run] = max(head.epoch, seen.get(head.run, 0))


def _grows(history: History) -> Iterator[tuple[str, str]]:
    """A log never gets shorter, and a run that has ended stays as it is."""
    lasts: dict[str, int] = {}
    ended: dict[str, str] = {}
    for snapshot in history.snapshots:
        for head in snapshot.heads:
            if head.last < lasts.get(head.run, 0):
                yield head.run, f"had {lasts[head.run]} events, then {head.last}"
            elif head.run in ended and (head.state != ended[head.run] or head.last != lasts[head.run]):
                yield head.run, f"was {ended[head.run]} with {lasts[head.run]} events, then {head.state}"
            lasts[head.run] = head.last
            if head.state not in ACTIVE:
                ended[head.run] = head.state


def _one_run(history: History) -> Iterator[tuple[str, str]]:
    """A conversation has at most one active run."""
    for snapshot in history.snapshots:
        active = Counter(head.conversation for head in snapshot.heads if head.state in ACTIVE)
        for conversation, count in active.items():
            if count > 1:
                yield conversation, f"has {count} active runs at once"


def _well_formed(history: History) -> Iterator[tuple[str, str]]:
    """Every document begins, then grows, then ends; and none is open at the end."""
    for run in history.runs:
        growing: set[str] = set()
        for event in run.events:
            name, _, data = event.data.partition(b" ")
            if name == b"document_start":
                growing.add(msgspec.json.decode(data, type=_Document).id)
            elif name and name != b"done":
                document = msgspec.json.decode(data, type=_Document).document_id
                if document not in growing:
                    yield run.id, f"event {event.number} is about {document or 'a document'}, which is not open"
                    break
                if name == b"document_end":
                    growing.remove(document)
            elif event.is_done and growing:
                yield run.id, f"{', '.join(sorted(growing))} never ended"


def _is_its_log(history: History) -> Iterator[tuple[str, str]]:
    """The row of a run that has ended is the fold of its events, whoever wrote them and whoever ended it."""
    for run in history.runs:
        if run.state not in ACTIVE and run.row != run.folded:
            yield run.id, f"its row says {run.row}, its events {run.folded}"


class _Document(Struct, rename="camel"):
    id: str = ""
    document_id: str = ""


def _all_is_said(history: History) -> Iterator[tuple[str, str]]:
    """The text of a run that was completed is what its agent said; after what the first one said, if there were two."""
    for run in history.runs:
        if run.state == "completed" and run.question in history.said:
            said, expected = text_of(run), history.said[run.question]
            if run.agents > 1 and run.epoch > 1 and said.endswith(expected):
                continue
            if said != expected:
                at = next((n for n, (a, b) in enumerate(zip(said, expected, strict=False)) if a != b), len(said))
                yield run.id, f"says {said[at : at + _SHORT]!r} where its agent said {expected[at : at + _SHORT]!r}"


def text_of(run: StoredRun) -> str:
    deltas = (event.data for event in run.events if event.data.startswith(_DELTA))
    return "".join(msgspec.json.decode(data[len(_DELTA) :], type=_Delta).delta for data in deltas)


class _Delta(Struct):
    delta: str


def _silence(history: History) -> Iterator[tuple[str, str]]:
    """A run is taken only from a member that was silent for a whole lease; a database that is away makes none.

    The next process on the same host knows at once that one has ended; the id of a member contains its process's.
    """
    for taken in history.takeovers:
        has_ended = any(f"-{pid}-" in taken.member for pid in history.ended)
        if taken.silence < history.lease and not has_ended:
            since = "the database has started" if taken.has_restarted else "its last beat"
            yield taken.run, f"was taken from {taken.member} {taken.silence:.2f} s after {since}"


# --- readers ----------------------------------------------------------------------------------------


def _shown_is_stored(history: History) -> Iterator[tuple[str, str]]:
    """Every event that anybody was shown is stored, with the same bytes."""
    stored = {(run.id, event.number): event.data for run in history.runs for event in run.events}
    for shown in history.shown:
        found = stored.get((shown.run, shown.number))
        if shown.run in history.unstarted:
            continue  # it is its error, which has no log
        if found is None:
            yield shown.run, f"{shown.reader} was shown event {shown.number}, which is not stored"
        elif found != shown.data:
            yield shown.run, f"event {shown.number}: {_differ(shown.reader, shown.data, 'the database', found)}"


def _readers_agree(history: History) -> Iterator[tuple[str, str]]:
    """Two readers never see different bytes under one number."""
    first: dict[tuple[str, int], Shown] = {}
    for shown in history.shown:
        before = first.setdefault((shown.run, shown.number), shown)
        if before.data != shown.data:
            differ = _differ(before.reader, before.data, shown.reader, shown.data)
            yield shown.run, f"event {shown.number}: {differ}"


def _nothing_missed(history: History) -> Iterator[tuple[str, str]]:
    """A reader sees every event once, in order, from the first one; and whoever reached the end saw all."""
    visible = {run.id: [event.number for event in run.events if event.data] for run in history.runs}
    finished = set(history.finished)
    for (reader, run), group in groupby(sorted(history.shown, key=_whose), _whose):
        numbers = [shown.number for shown in group]
        expected = visible.get(run, numbers if run in history.unstarted else [])
        if (reader, run) not in finished:
            expected = expected[: len(numbers)]
        if numbers != expected:
            at = next((n for n, (a, b) in enumerate(zip(numbers, expected, strict=False)) if a != b), None)
            if at is not None:
                yield run, f"{reader} was shown event {numbers[at]} where {expected[at]} comes next"
            else:
                yield run, f"{reader} was shown {len(numbers)} events of {len(expected)}"


def _shown_soon(history: History) -> Iterator[tuple[str, str]]:
    """If nothing is done to it, the end of a run is shown soon: a look without a hint takes up to two seconds."""
    if not history.is_quiet:
        return
    ends = {(run.id, event.number): event.at for run in history.runs for event in run.events if event.is_done}
    late = sorted(shown.at - ends[place] for shown in history.shown if (place := (shown.run, shown.number)) in ends)
    if late and late[len(late) // 2] > _SOON_SECONDS:
        yield "all runs", f"half of the ends were shown {late[len(late) // 2]:.1f} s after their commit"


def _readers_finish(history: History) -> Iterator[tuple[str, str]]:
    """Every reader reaches the end of its run, and is never refused."""
    for reader, run in sorted(set(history.readers) - set(history.finished)):
        yield run, f"{reader} did not reach the end"
    for reader, run, answer in history.refused:
        yield run, f"{reader} was refused: {answer}"


def _whose(shown: Shown) -> tuple[str, str]:
    return shown.reader, shown.run


def _differ(one: str, data: bytes, other: str, others: bytes) -> str:
    return f"{one} has {_short(data)}, {other} has {_short(others)}"


def _short(data: bytes) -> str:
    text = repr(data)[1:]
    return text if len(text) <= _SHORT else f"{text[:_SHORT]}… ({len(data)} bytes)"


# --- commands ---------------------------------------------------------------------------------------


def _one_outcome(history: History) -> Iterator[tuple[str, str]]:
    """In the end every command is done; its outcome never changes, and its epoch never falls."""
    latest: dict[str, Command] = {}
    for snapshot in history.snapshots:
        for command in snapshot.commands:
            before = latest.get(command.id, command)
            if before.is_done and (command.is_done, command.outcome) != (True, before.outcome):
                yield f"command {command.id}", f"was done ({_outcome(before)}), then {_outcome(command)}"
            if command.epoch < before.epoch:
                yield f"command {command.id}", f"its epoch fell from {before.epoch} to {command.epoch}"
            latest[command.id] = command
    if history.snapshots:
        for command in history.snapshots[-1].commands:
            if not command.is_done:
                yield f"command {command.id}", "was never done"


def _outcome(command: Command) -> str:
    return _short(command.outcome or b"") if command.is_done else "not done"


def _one_effect(history: History) -> Iterator[tuple[str, str]]:
    """What a client was told was accepted reaches the agent once; a run that failed may have ended before."""
    stored = {run.id: run for run in history.runs}
    for accepted in history.accepted:
        run = stored.get(accepted.run)
        if run is not None and accepted.effect:
            count = text_of(run).count(accepted.effect)
            if count > 1 or (count == 0 and run.state == "completed"):
                yield run.id, f"the {accepted.kind} had an effect {count} times"


# --- agents -----------------------------------------------------------------------------------------


def _one_agent(history: History) -> Iterator[tuple[str, str]]:
    """At most one agent works in a folder at a time."""
    for folder, agents in _by_folder(history.agents):
        for agent in agents:
            if not agent.alone:
                yield folder, f"agent {agent.pid} started while another one was there"
        for before, after in pairwise(agents):
            if before.end is not None and before.end > after.begin and after.alone:
                yield folder, f"agents {before.pid} and {after.pid} overlap by {before.end - after.begin:.3f} s"


def _none_left(history: History) -> Iterator[tuple[str, str]]:
    """No agent outlives its run: a runner on the same host ends those of one that died. A run that still waits for its
    client, which gave up, has its agent."""
    active = {run.question for run in history.runs if run.state in ACTIVE}
    for agent in history.agents:
        if agent.pid in history.left and agent.question not in active:
            yield agent.folder, f"agent {agent.pid} was still there after its run ({agent.question})"


def _by_folder(agents: Iterable[Agent]) -> Iterator[tuple[str, list[Agent]]]:
    found: defaultdict[str, list[Agent]] = defaultdict(list)
    for agent in sorted(agents, key=lambda agent: agent.begin):
        found[agent.folder].append(agent)
    yield from found.items()


def _asked_once(history: History) -> Iterator[tuple[str, str]]:
    """A run gives its question to one agent, unless its client allowed another one."""
    allowed = Counter[str]()
    for run in history.runs:
        allowed[run.question] += run.agents
    for question, count in Counter(agent.question for agent in history.agents if agent.question).items():
        if count > allowed[question]:
            yield question, f"{count} agents were started, where {allowed[question]} may be"


LAWS: dict[str, Law] = {
    "a log is contiguous": _contiguous,
    "one end, and it is last": _one_end,
    "documents begin, grow and end": _well_formed,
    "a run is its log": _is_its_log,
    "every accepted run ends": _ended,
    "epochs never fall": _epochs,
    "a log only grows": _grows,
    "one active run per conversation": _one_run,
    "what the agent said is stored": _all_is_said,
    "only a silent member loses its runs": _silence,
    "what was shown is stored": _shown_is_stored,
    "two readers never differ": _readers_agree,
    "a reader misses nothing": _nothing_missed,
    "events are shown soon": _shown_soon,
    "every reader reaches the end": _readers_finish,
    "one outcome per command": _one_outcome,
    "one effect per accepted command": _one_effect,
    "one agent per folder": _one_agent,
    "no agent outlives its run": _none_left,
    "a question is asked once": _asked_once,
}
