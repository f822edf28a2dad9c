"""A history in; every violation of the cluster's laws out.

Each law is a function of the history alone. What is stored is compared with what was shown, so a reader that saw an
event before its commit, or the same number with other bytes, is found even if every later reader agrees with the
database. Laws about order need no clock: they follow the numbers of events and the order of snapshots.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby, pairwise
from typing import TypeAlias

from msgspec import Struct

from nemesis.history import ACTIVE, Agent, History, Shown

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
    """In the end, every run for which a client got a success is stored, and over."""
    stored = {run.id: run for run in history.runs}
    for asked in history.asked:
        run = stored.get(asked.run)
        if run is None:
            yield asked.run, "was accepted and is not stored"
        elif run.state in ACTIVE:
            yield asked.run, f"is still {run.state}"


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


# --- readers ----------------------------------------------------------------------------------------


def _shown_is_stored(history: History) -> Iterator[tuple[str, str]]:
    """Every event that anybody was shown is stored, with the same bytes."""
    stored = {(run.id, event.number): event.data for run in history.runs for event in run.events}
    for shown in history.shown:
        found = stored.get((shown.run, shown.number))
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
        expected = visible.get(run, [])
        if (reader, run) not in finished:
            expected = expected[: len(numbers)]
        if numbers != expected:
            at = next((n for n, (a, b) in enumerate(zip(numbers, expected, strict=False)) if a != b), None)
            if at is not None:
                yield run, f"{reader} was shown event {numbers[at]} where {expected[at]} comes next"
            else:
                yield run, f"{reader} was shown {len(numbers)} events of {len(expected)}"


def _whose(shown: Shown) -> tuple[str, str]:
    return shown.reader, shown.run


def _differ(one: str, data: bytes, other: str, others: bytes) -> str:
    return f"{one} has {_short(data)}, {other} has {_short(others)}"


def _short(data: bytes) -> str:
    text = repr(data)[1:]
    return text if len(text) <= _SHORT else f"{text[:_SHORT]}… ({len(data)} bytes)"


# --- commands ---------------------------------------------------------------------------------------


def _one_outcome(history: History) -> Iterator[tuple[str, str]]:
    """A command that was accepted has one row, and in the end one outcome, which never changes."""
    outcomes: dict[tuple[str, str], str] = {}
    for snapshot in history.snapshots:
        rows = Counter((command.run, command.key) for command in snapshot.commands)
        for (run, key), count in rows.items():
            if count > 1:
                yield _command(run, key), f"is stored {count} times"
        for command in snapshot.commands:
            place = (command.run, command.key)
            before = outcomes.get(place)
            if before is not None and command.outcome != before:
                yield _command(*place), f"its outcome changed from {before} to {command.outcome}"
            if command.outcome is not None:
                outcomes[place] = command.outcome
    for accepted in history.accepted:
        if (accepted.run, accepted.key) not in outcomes:
            yield _command(accepted.run, accepted.key), f"was accepted ({accepted.kind}) and has no outcome"


def _command(run: str, key: str) -> str:
    return f"{run} command {key}"


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


def _by_folder(agents: Iterable[Agent]) -> Iterator[tuple[str, list[Agent]]]:
    found: defaultdict[str, list[Agent]] = defaultdict(list)
    for agent in sorted(agents, key=lambda agent: agent.begin):
        found[agent.folder].append(agent)
    yield from found.items()


def _asked_once(history: History) -> Iterator[tuple[str, str]]:
    """A question is given to one agent, unless its client allowed another one."""
    may_repeat = {asked.question for asked in history.asked if asked.may_repeat}
    runs = {asked.question: asked.run for asked in history.asked}
    for question, count in Counter(agent.question for agent in history.agents if agent.question).items():
        if count > (2 if question in may_repeat else 1):
            yield runs.get(question, question), f"{count} agents were started for it"


LAWS: dict[str, Law] = {
    "a log is contiguous": _contiguous,
    "one end, and it is last": _one_end,
    "every accepted run ends": _ended,
    "epochs never fall": _epochs,
    "a log only grows": _grows,
    "one active run per conversation": _one_run,
    "what was shown is stored": _shown_is_stored,
    "two readers never differ": _readers_agree,
    "a reader misses nothing": _nothing_missed,
    "one outcome per accepted command": _one_outcome,
    "one agent per folder": _one_agent,
    "a question is asked once": _asked_once,
}
