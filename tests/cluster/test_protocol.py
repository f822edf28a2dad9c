"""The protocols of a cluster against a pure model: claims, takeovers, outcomes, the start and the log of a run.

Any call may be made twice, as when its answer was lost; and by a process that does not know that it was taken for dead,
with the epoch that it had then.
"""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any, TypeVar

import psycopg
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, rule, run_state_machine_as_test
from msgspec import Struct
from msgspec.structs import replace

from cursor_gateway.store.base import Claim, Fenced, Lease, Stored, Superseded
from cursor_gateway.store.cluster import Alike, Member, NewCommand, Submitted
from cursor_gateway.store.postgres.cluster import PostgresCluster
from cursor_gateway.store.postgres.store import PostgresStore
from tests.store.making import deltas, new_run

_T = TypeVar("_T")

MEMBERS = ["a", "b", "c"]
TWICE = st.booleans()


class Command(Struct):
    front: str
    dedupe: str | None
    state: str = "queued"
    epoch: int = 0
    runner: str | None = None


class Run(Struct):
    member: str
    epoch: int = 1
    last: int = 0


class Held(Struct, frozen=True):
    """A claim, as its process remembers it."""

    command: str
    epoch: int
    member: str


class Protocol(RuleBasedStateMachine):
    url = ""
    held = Bundle("held")

    def __init__(self) -> None:
        super().__init__()
        self.beside = psycopg.connect(self.url, autocommit=True)
        self.beside.execute("TRUNCATE conversations, members, commands, watchers CASCADE")
        self.loop = asyncio.new_event_loop()
        self.store = PostgresStore(self.url)
        self.cluster = PostgresCluster(self.store)
        self.members: dict[str, int] = {}
        self.commands: dict[str, Command] = {}
        self.runs: dict[str, Run] = {}
        self.numbers = count(1)

    def teardown(self) -> None:
        self.loop.run_until_complete(self.cluster.hints.close())
        self.loop.run_until_complete(self.store.close())
        self.loop.close()
        self.beside.close()

    def do(self, twice: bool, call: Callable[[], Awaitable[_T]]) -> _T:
        async def calling() -> _T:
            if twice:
                await call()
            return await call()

        return self.loop.run_until_complete(calling())

    # --- members ------------------------------------------------------------------------------------

    @rule(id=st.sampled_from(MEMBERS), twice=TWICE)
    def join(self, id: str, twice: bool) -> None:
        member = Member(id=id, role="all", host="host", volumes=["host"], version="1")
        self.do(twice, lambda: self.cluster.join(member))
        self.members.setdefault(id, 0)

    @rule(id=st.sampled_from(MEMBERS))
    def beat(self, id: str) -> None:
        self.beside.execute("UPDATE members SET beat = beat + 1 WHERE id = %s", [id])
        if id in self.members:
            self.members[id] += 1

    @rule(id=st.sampled_from(MEMBERS), old=st.integers(0, 1), is_absent=st.booleans(), twice=TWICE)
    def take_over(self, id: str, old: int, is_absent: bool, twice: bool) -> None:
        seen = None if is_absent else self.members.get(id, 0) - old
        runs = self.do(twice, lambda: self.cluster.take_over(id, seen, str.encode))
        if id in self.members and (seen is None or seen != self.members[id]):
            assert runs is None
            return
        self.members.pop(id, None)
        assert runs is not None
        assert {run.id for run in runs} == {run_id for run_id, run in self.runs.items() if run.member == id}
        for run in runs:
            self.runs[run.id].epoch += 1 + twice
            assert run.epoch == self.runs[run.id].epoch
        for name, command in self.commands.items():
            if command.state == "claimed" and command.runner == id:
                command.epoch += 1
                has_begun = f"run {name}" in self.runs
                command.state, command.runner = ("done", id) if has_begun else ("queued", None)
            if command.state == "queued" and command.front == id:
                command.state = "done"

    # --- commands -----------------------------------------------------------------------------------

    @rule(front=st.sampled_from(MEMBERS), dedupe=st.sampled_from([None, "x", "y"]), twice=TWICE)
    def submit(self, front: str, dedupe: str | None, twice: bool) -> None:
        name = f"command {next(self.numbers)}"
        new = NewCommand(
            id=name, owner="me", dedupe=dedupe, front=front, run_id=f"run {name}", takes_place=True, body=b"x"
        )
        submitted = self.do(twice, lambda: self.cluster.submit(new, 0))
        alike = [
            other
            for other, command in self.commands.items()
            if dedupe is not None and command.dedupe == dedupe and command.state != "done"
        ]
        if alike:
            assert submitted == Alike(alike[0])
        else:
            assert submitted == Submitted()
            self.commands[name] = Command(front, dedupe)

    @rule(target=held, id=st.sampled_from(MEMBERS), twice=TWICE)
    def claim(self, id: str, twice: bool) -> Any:
        """What it claimed before and does not remember is given again, so no claim is lost with its answer; and nothing
        else, for which there may be no room. Who is no member gets nothing more."""
        member = Member(id=id, role="all", host="host", volumes=["host"], version="1")
        claimed = self.do(twice, lambda: self.cluster.claim(member, has_room=True, most=1, known=[]))
        has_some = any(one.state == "claimed" and one.runner == id for one in self.commands.values())
        queued = [name for name, command in self.commands.items() if command.state == "queued"]
        for name in queued[: 0 if has_some or id not in self.members else 1]:
            command = self.commands[name]
            command.state, command.runner, command.epoch = "claimed", id, command.epoch + 1
        mine = {name: one for name, one in self.commands.items() if one.state == "claimed" and one.runner == id}
        assert {one.id: one.epoch for one in claimed} == {name: one.epoch for name, one in mine.items()}
        return multiple(*(Held(one.id, one.epoch, id) for one in claimed))

    def _holds(self, held: Held) -> bool:
        command = self.commands[held.command]
        return command.state == "claimed" and command.epoch == held.epoch

    @rule(held=held, twice=TWICE)
    def finish(self, held: Held, twice: bool) -> None:
        command = self.commands[held.command]
        is_done = self.do(twice, lambda: self.cluster.finish(held.command, held.epoch, b"done"))
        assert is_done == (self._holds(held) or (command.state == "done" and command.epoch == held.epoch))
        if self._holds(held):
            command.state = "done"

    @rule(held=held, twice=TWICE)
    def release(self, held: Held, twice: bool) -> None:
        self.do(twice, lambda: self.cluster.release(held.command, held.epoch))
        if self._holds(held):
            command = self.commands[held.command]
            command.state, command.runner, command.epoch = "queued", None, command.epoch + 1

    @rule(held=held, twice=TWICE)
    def withdraw(self, held: Held, twice: bool) -> None:
        command = self.commands[held.command]
        self.do(twice, lambda: self.cluster.withdraw(held.command))
        if command.state == "queued":
            command.state = "done"

    # --- runs ---------------------------------------------------------------------------------------

    @rule(held=held, outcome=st.sampled_from([b"", b"begun"]), twice=TWICE)
    def begin(self, held: Held, outcome: bytes, twice: bool) -> None:
        """Only while the claim holds: a process that froze before it starts nothing after a takeover. With an outcome,
        the command is done when the run has begun."""
        run_id = f"run {held.command}"
        new = replace(
            new_run(run_id, f"conversation {held.command}", "hello"),
            instance=held.member,
            claim=Claim(held.command, held.epoch, run_id, outcome=outcome),
        )
        begun = self.do(twice, lambda: self.store.begin_run(new))
        if (known := self.runs.get(run_id)) is not None:
            is_held = self.commands[held.command].epoch == held.epoch
            is_mine = is_held and (known.member, known.epoch) == (held.member, 1)
            assert begun == (Stored(0) if is_mine else Superseded())
        elif self._holds(held):
            assert begun == Stored(0)
            self.runs[run_id] = Run(held.member)
            if outcome:
                self.commands[held.command].state = "done"
        else:
            assert begun == Superseded()

    @rule(held=held, behind=st.integers(0, 1), twice=TWICE)
    def append(self, held: Held, behind: int, twice: bool) -> None:
        run_id = f"run {held.command}"
        if (run := self.runs.get(run_id)) is None:
            return
        lease = Lease(run_id, run.epoch - behind)
        written = self.do(twice, lambda: self.store.append(lease, run.last + 1, deltas(run.last + 1)))
        if behind:
            assert written == Fenced("claimed")
        else:
            assert isinstance(written, Stored)
            run.last += 1

    @invariant()
    def the_database_is_as_the_model_says(self) -> None:
        commands = self.beside.execute("SELECT id, state, epoch FROM commands").fetchall()
        runs = self.beside.execute("SELECT id, epoch, last FROM runs").fetchall()
        assert {id: tuple(rest) for id, *rest in commands} == {
            name: (one.state, one.epoch) for name, one in self.commands.items()
        }
        assert {id: tuple(rest) for id, *rest in runs} == {id: (run.epoch, run.last) for id, run in self.runs.items()}


@pytest.mark.parametrize("examples", [8, pytest.param(150, marks=pytest.mark.slow)])
def test_the_protocols_are_as_their_model(database: str, examples: int) -> None:
    machine = type("Machine", (Protocol,), {"url": database})
    run_state_machine_as_test(machine, settings=settings(max_examples=examples, stateful_step_count=30, deadline=None))
