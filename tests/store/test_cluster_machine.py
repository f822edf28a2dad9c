"""The protocols of a cluster against a pure model, with connections lost before and after any commit.

Members join, claim commands, begin runs, append, end, finish, and are taken over; those that were taken over go on as
if nothing had happened. After every step, the tables must be what the model says.

A call whose connection is lost is repeated by the store. If it is lost too often, the call fails, and its caller
repeats it: the outcome must be the same as if it had succeeded at once.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, TypeVar

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from msgspec import Struct
from msgspec.structs import replace

from cursor_gateway.errors import StoreUnavailable
from cursor_gateway.model.document_events import Done as DoneEvent
from cursor_gateway.store.base import Busy, Claim, Fenced, Lease, Stored, Superseded, Written
from cursor_gateway.store.cluster import Member, NewCommand, Submitted
from cursor_gateway.store.postgres import connections
from cursor_gateway.store.postgres.cluster import PostgresCluster
from cursor_gateway.store.postgres.store import PostgresStore
from nemesis.link import Link, Loss
from tests.postgres import Databases
from tests.store.making import ME, deltas, envelope, new_run, run_end

T = TypeVar("T")

# What fails is short enough to be read; to look for something shorter takes minutes.
_SETTINGS = settings(phases=[Phase.generate], suppress_health_check=list(HealthCheck))
_CONVERSATIONS = ("one", "two")
_TABLES = "conversations, runs, messages, events, members, commands, watchers"
_TAKEN = " (taken over)"
_OUTCOME, _BEGUN = b"outcome", b"begun "
_OUTCOMES = st.sampled_from([b"", _OUTCOME])  # that are stored with the beginning of a run
# Up to three losses are hidden by the store's own retries; after more, the call fails.
_LOSSES = st.just(list[Loss]()) | st.lists(
    st.builds(Loss, st.integers(0, 6), st.sampled_from(["before", "after"])), max_size=6
)


class _Command(Struct):
    """A row of the model, and who believes to have it."""

    id: str
    run: str
    state: Literal["queued", "claimed", "done"] = "queued"
    epoch: int = 0
    runner: str | None = None
    outcome: bytes | None = None


class _Run(Struct):
    id: str
    conversation: str
    instance: str
    epoch: int = 1
    last: int = 0
    is_running: bool = True  # if not, its last event is `done`


class _Claimed(Struct, frozen=True):
    """What a member believes, for ever."""

    member: str
    command: str
    epoch: int


class _Writer(Struct):
    lease: Lease
    sent: int = 0  # it believes that so many are stored


class Cluster(RuleBasedStateMachine):
    databases: Databases  # set by the test

    def __init__(self) -> None:
        super().__init__()
        self._runner = asyncio.Runner()
        self._numbers = iter(range(1, 10_000))
        self.members: dict[str, int] = {}  # by id: the beat
        self.removed: list[str] = []
        self.commands: dict[str, _Command] = {}
        self.runs: dict[str, _Run] = {}
        self.claims: list[_Claimed] = []
        self.writers: list[_Writer] = []

    @initialize()
    def connect(self) -> None:
        server = self.databases.server
        server.execute("machine", f"TRUNCATE {_TABLES} CASCADE")
        self._rows = psycopg.connect(server.url("machine"), autocommit=True)

        async def opened() -> tuple[Link, PostgresStore]:
            link = Link(server.socket)
            port = await link.start()
            url = f"postgresql://postgres@127.0.0.1:{port}/machine?sslmode=disable&gssencmode=disable"
            return link, PostgresStore(url)

        self._link, self._store = self._runner.run(opened())
        self._cluster = PostgresCluster(self._store)
        for conversation in _CONVERSATIONS:
            self.join([])
            self.submit([])
            self._claim(max(self.members), [], 1)
            self._begin(self.claims[-1], [], conversation)

    def teardown(self) -> None:
        if hasattr(self, "_link"):

            async def closed() -> None:
                await self._cluster.hints.close()
                await self._store.close()
                await self._link.close()

            self._runner.run(closed())
            self._rows.close()
        self._runner.close()

    def _call(self, losses: list[Loss], call: Callable[[], Awaitable[T]]) -> T:
        """Its result, whatever is lost on the way."""

        async def tried() -> T:
            self._link.losses.extend(losses)
            try:
                return await call()
            except StoreUnavailable:
                assert len(losses) > 3, "the store gave up too early"
                self._link.losses.clear()
                return await call()
            finally:
                self._link.losses.clear()

        return self._runner.run(asyncio.wait_for(tried(), 60))

    def _member(self, id: str) -> Member:
        return Member(id=id, role="runner", host="host", volumes=["volume"], capacity=4, version="1")

    # --- members ------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.members) < 3)
    @rule(losses=_LOSSES)
    def join(self, losses: list[Loss]) -> None:
        id = f"member{next(self._numbers):04}"
        self._call(losses, lambda: self._cluster.join(self._member(id)))
        self.members[id] = 0

    @precondition(lambda self: self.members)
    @rule(data=st.data())
    def beat(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(sorted(self.members)))
        self._rows.execute("UPDATE members SET beat = beat + 1 WHERE id = %s", [id])
        self.members[id] += 1

    @precondition(lambda self: self.members or self.removed)
    @rule(data=st.data(), losses=_LOSSES, is_stale=st.booleans(), has_restarted=st.sampled_from([False, False, True]))
    def take_over(self, data: st.DataObject, losses: list[Loss], is_stale: bool, has_restarted: bool) -> None:
        left = {run.instance for run in self.runs.values() if run.is_running} - set(self.members) - set(self.removed)
        id = data.draw(st.sampled_from(sorted(self.members) + self.removed + sorted(left)))
        beat = self.members[id] - is_stale if id in self.members else None
        server = "" if not has_restarted else "an earlier one"
        found = self._call(losses, lambda: self._cluster.take_over(id, beat, lambda run: _BEGUN + run.encode(), server))
        if has_restarted or (id in self.members and is_stale):
            assert found is None
            return
        assert found is not None
        if self.members.pop(id, None) is not None:
            self.removed.append(id)
        taken = {record.id: record.epoch for record in found}
        whose = {id, id.removesuffix(_TAKEN) + _TAKEN}  # also those that nobody has ended since
        assert set(taken) == {run.id for run in self.runs.values() if run.is_running and run.instance in whose}
        for run, epoch in taken.items():
            assert epoch > self.runs[run].epoch
            self.runs[run].epoch = epoch
            self.runs[run].instance = id.removesuffix(_TAKEN) + _TAKEN
            self.writers.append(_Writer(Lease(run, epoch), self.runs[run].last))
        for command in self.commands.values():
            if command.state == "claimed" and command.runner == id:
                command.epoch += 1
                if command.run in self.runs:
                    command.state, command.outcome = "done", _BEGUN + command.run.encode()
                else:
                    command.state, command.runner = "queued", None

    # --- commands -----------------------------------------------------------------------------------

    @precondition(lambda self: sum(command.state == "queued" for command in self.commands.values()) < 3)
    @rule(losses=_LOSSES)
    def submit(self, losses: list[Loss]) -> None:
        number = next(self._numbers)
        id, run = f"command{number}", f"run{number}"
        new = NewCommand(id=id, owner=ME, front="front", run_id=run, takes_place=True, body=b"body")
        assert self._call(losses, lambda: self._cluster.submit(new, 0)) == Submitted()
        assert self._call([], lambda: self._cluster.submit(new, 0)) == Submitted()  # again: nothing new
        self.commands[id] = _Command(id, run)

    @precondition(lambda self: self.members or self.removed)
    @rule(data=st.data(), losses=_LOSSES, most=st.integers(1, 3))
    def claim(self, data: st.DataObject, losses: list[Loss], most: int) -> None:
        """Also by a member that was taken for dead: it does not know."""
        self._claim(data.draw(st.sampled_from(sorted(self.members) + self.removed)), losses, most)

    def _claim(self, id: str, losses: list[Loss], most: int) -> None:
        known = [one.id for one in self.commands.values() if one.state == "claimed" and one.runner == id]
        member = self._member(id)
        claimed = self._call(losses, lambda: self._cluster.claim(member, has_room=True, most=most, known=known))
        queued = [command for command in self.commands.values() if command.state == "queued"]
        # Not more, although an answer was lost; and nothing, if others have removed it.
        assert len(claimed) == (min(most, len(queued)) if id in self.members else 0)
        for one in claimed:
            command = self.commands[one.id]
            assert (command.state, one.run_id) == ("queued", command.run)
            assert one.epoch > command.epoch
            command.state, command.runner, command.epoch = "claimed", id, one.epoch
            self.claims.append(_Claimed(id, one.id, one.epoch))

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), losses=_LOSSES)
    def finish(self, data: st.DataObject, losses: list[Loss]) -> None:
        claimed = data.draw(st.sampled_from(self.claims))
        command = self.commands[claimed.command]
        is_mine = command.epoch == claimed.epoch and command.state != "queued"
        finished = self._call(losses, lambda: self._cluster.finish(command.id, claimed.epoch, _OUTCOME))
        assert finished == is_mine
        if is_mine and command.state == "claimed":
            command.state, command.outcome = "done", _OUTCOME

    @precondition(lambda self: self.commands)
    @rule(data=st.data(), losses=_LOSSES)
    def withdraw(self, data: st.DataObject, losses: list[Loss]) -> None:
        command = data.draw(st.sampled_from(list(self.commands.values())))
        withdrawn = self._call(losses, lambda: self._cluster.withdraw(command.id))
        assert withdrawn == (command.state == "queued" or (command.state == "done" and command.outcome is None))
        if withdrawn:
            command.state = "done"

    # --- runs ---------------------------------------------------------------------------------------

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), losses=_LOSSES, conversation=st.sampled_from(_CONVERSATIONS), outcome=_OUTCOMES)
    def begin(self, data: st.DataObject, losses: list[Loss], conversation: str, outcome: bytes) -> None:
        self._begin(data.draw(st.sampled_from(self.claims)), losses, conversation, outcome)

    def _begin(self, claimed: _Claimed, losses: list[Loss], conversation: str, outcome: bytes = b"") -> None:
        """With an outcome, the command is done when the run has begun."""
        command = self.commands[claimed.command]
        claim = Claim(command.id, claimed.epoch, command.run, outcome=outcome)
        new = replace(new_run(command.run, conversation), instance=claimed.member, volume="volume", claim=claim)
        begun = self._call(losses, lambda: self._store.begin_run(new))
        if (known := self.runs.get(command.run)) is not None:
            is_mine = known.instance == claimed.member and known.epoch == 1 and known.is_running
            is_mine = is_mine and command.epoch == claimed.epoch
            assert begun == (Stored(0) if is_mine else Superseded())
        elif command.state != "claimed" or command.epoch != claimed.epoch:
            assert begun == Superseded()
        elif busy := [run for run in self.runs.values() if run.conversation == conversation and run.is_running]:
            assert begun == Busy(busy[0].id)
        else:
            assert begun == Stored(0)
            self.runs[command.run] = _Run(command.run, conversation, claimed.member)
            self.writers.append(_Writer(Lease(command.run, 1)))
            if outcome:
                command.state, command.outcome = "done", outcome

    @precondition(lambda self: self.writers)
    @rule(data=st.data(), losses=_LOSSES, count=st.integers(1, 3), again=st.integers(0, 2))
    def append(self, data: st.DataObject, losses: list[Loss], count: int, again: int) -> None:
        """The last events that were sent may be sent once more."""
        writer = data.draw(st.sampled_from(self.writers))
        run = self.runs[writer.lease.run_id]
        first = max(writer.sent - again, 0) + 1
        last = writer.sent + count
        events = deltas(*range(first, last + 1))
        written = self._written(losses, lambda: self._store.append(writer.lease, first, events))
        if run.epoch != writer.lease.epoch:
            assert written == Fenced("claimed")
        elif not run.is_running and first <= run.last <= last:
            assert written == "other events are stored"
        elif last > run.last and not run.is_running:
            assert written == Fenced("ended")
        else:
            assert isinstance(written, Stored)
            run.last = writer.sent = max(last, run.last)

    def _written(self, losses: list[Loss], call: Callable[[], Awaitable[Written]]) -> Written | str:
        try:
            return self._call(losses, call)
        except ValueError:
            return "other events are stored"

    @precondition(lambda self: self.writers)
    @rule(data=st.data(), losses=_LOSSES, forgotten=st.sampled_from([0, 0, 0, 1, 2]))
    def end(self, data: st.DataObject, losses: list[Loss], forgotten: int) -> None:
        """A writer that has forgotten what it sent must not leave out the end."""
        writer = data.draw(st.sampled_from(self.writers))
        run = self.runs[writer.lease.run_id]
        done = DoneEvent(replace(envelope(run.id), conversation_id=run.conversation))
        number = max(writer.sent - forgotten, 0) + 1
        written = self._written(losses, lambda: self._store.append(writer.lease, number, [done], run_end(run.id)))
        if run.epoch != writer.lease.epoch:
            assert written == Fenced("claimed")
        elif number > run.last and run.is_running:
            assert isinstance(written, Stored)
            run.last = number
            run.is_running = False
        elif not run.is_running and number == run.last:
            assert written == Stored(0)  # the same end again
        else:
            assert written == ("other events are stored" if number <= run.last else Fenced("ended"))

    # --- what is there ------------------------------------------------------------------------------

    @invariant()
    def the_tables_are_as_the_model_says(self) -> None:
        if not hasattr(self, "_rows"):
            return
        assert dict(self._all("SELECT id, beat FROM members")) == self.members
        commands = self._all("SELECT id, run_id, state, epoch, runner, outcome FROM commands WHERE state <> 'done'")
        assert {row[0]: row for row in commands} == {
            one.id: (one.id, one.run, one.state, one.epoch, one.runner, one.outcome)
            for one in self.commands.values()
            if one.state != "done"
        }
        done = dict(self._all("SELECT id, outcome FROM commands WHERE state = 'done'"))
        assert done == {one.id: one.outcome for one in self.commands.values() if one.state == "done"}
        runs = self._all("SELECT id, instance, epoch, last, state = 'running' FROM runs")
        assert {row[0]: row for row in runs} == {
            run.id: (run.id, run.instance, run.epoch, run.last, run.is_running) for run in self.runs.values()
        }

    @invariant()
    def every_log_is_contiguous_and_its_epochs_never_fall(self) -> None:
        if not hasattr(self, "_rows"):
            return
        found: dict[str, tuple[int, int]] = {}
        events = "SELECT runs.id, first, count, events.epoch FROM events JOIN runs ON key = run ORDER BY runs.id, first"
        for run, first, count, epoch in self._all(events):
            last, before = found.get(run, (0, 0))
            assert first == last + 1
            assert epoch >= before
            found[run] = (first + count - 1, epoch)
        assert {run: last for run, (last, _) in found.items()} == {
            run.id: run.last for run in self.runs.values() if run.last
        }

    def _all(self, query: str) -> list[tuple[Any, ...]]:
        return self._rows.execute(query).fetchall()


@contextmanager
def _machine(databases: Databases, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Cluster]]:
    monkeypatch.setattr(connections, "_PAUSES", (0.0, 0.0, 0.0))
    databases.server.create_database("machine", "history")
    Cluster.databases = databases
    yield Cluster
    databases.server.drop_database("machine")


def test_any_order_of_calls_and_losses(postgres: Databases, monkeypatch: pytest.MonkeyPatch) -> None:
    few = settings(_SETTINGS, max_examples=6, stateful_step_count=25)
    with _machine(postgres, monkeypatch) as machine:
        run_state_machine_as_test(machine, settings=few)


@pytest.mark.slow  # more of them than in the test above
def test_many_orders_of_calls_and_losses(postgres: Databases, monkeypatch: pytest.MonkeyPatch) -> None:
    many = settings(_SETTINGS, max_examples=60, stateful_step_count=40)
    with _machine(postgres, monkeypatch) as machine:
        run_state_machine_as_test(machine, settings=many)
