"""The queue against a model: what may start next, in which order, and that each entry begins at most once."""

import asyncio
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec import Struct
from msgspec.structs import replace
from psycopg import AsyncConnection

from cursor_gateway.errors import Failure, QueueExpired, RunCancelled
from cursor_gateway.store.base import Busy, Claim, Idempotency, Stored, Superseded
from cursor_gateway.store.cluster import Member, NewCommand, Submitted
from cursor_gateway.store.postgres.cluster import PostgresCluster
from cursor_gateway.store.postgres.store import PostgresStore
from cursor_gateway.store.queue import About, Begun, Candidate, Entry, Full, NewEntry, Put, order
from cursor_gateway.store.sqlite.queue import SqliteQueue
from tests.store.blocking import Database, at_once
from tests.store.making import lease, new_run, run_end

ABOUT = About(created="2026-02-23T10:30:00Z", model="auto", mode="agent", fences="split", prompt="Hello")
OWNERS, CONVERSATIONS = ("ann", "bob", "eve"), ("one", "two", "")
TTL_MS, MOST = 10_000, 4
LATE, CANCELLED = QueueExpired("late").failure(), RunCancelled("stop").failure()


def new(run_id: str, owner: str, **more: object) -> NewEntry:
    entry = NewEntry(run_id=run_id, owner=owner, ttl_ms=TTL_MS, most=MOST, about=ABOUT, body=run_id.encode())
    return replace(entry, **more)


# --- the order ----------------------------------------------------------------------------------------


def slowly_ordered(candidates: list[Candidate], held: Counter[str]) -> list[str]:
    """As the rule says it: the next slot, one after the other."""
    left, held, found = list(candidates), Counter(held), list[str]()
    while left:
        first = min(left, key=lambda one: (-one.priority, held[one.owner], one.due_ms, candidates.index(one)))
        left.remove(first)
        held[first.owner] += 1
        found.append(first.run_id)
    return found


_CANDIDATES = st.lists(st.tuples(st.sampled_from(OWNERS), st.integers(-1, 1), st.integers(0, 3)), max_size=12).map(
    lambda rows: [Candidate(run_id=str(n), owner=o, priority=p, due_ms=d) for n, (o, p, d) in enumerate(rows)]
)


@given(_CANDIDATES, st.dictionaries(st.sampled_from(OWNERS), st.integers(0, 3)))
def test_the_order_is_by_priority_then_by_fair_share_then_by_age(
    candidates: list[Candidate], held: dict[str, int]
) -> None:
    assert order(candidates, held) == slowly_ordered(candidates, Counter(held))


# --- one machine --------------------------------------------------------------------------------------


class Waiting(Struct):
    """What the model knows of an entry."""

    run_id: str
    owner: str
    conversation: str
    key: str | None
    priority: int
    due: int
    number: int
    state: str = "waiting"
    epoch: int = 0
    instance: str | None = None
    ended: int = 0
    failure: Failure | None = None

    @property
    def place(self) -> tuple[int, int, int]:
        return -self.priority, self.due, self.number


class QueueMachine(RuleBasedStateMachine):
    """Entries are put, claimed, begun, ended and given up by processes that may die, while time passes."""

    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.now = 1_000_000
        self.database = Database(Path(self.folder.name))
        self.queue = SqliteQueue(self.database.store.queue._rows, self.database.store.queue._write, lambda: self.now)
        self.entries: dict[str, Waiting] = {}
        self.running: dict[str, str] = {}  # conversations, by owner and id, and their runs
        self.begun: Counter[str] = Counter()
        self.number = 0

    def teardown(self) -> None:
        self.database.close()
        self.folder.cleanup()

    # --- what the model says ----

    def of(self, *states: str) -> list[Waiting]:
        return [one for one in self.entries.values() if one.state in states]

    def blocked(self, one: Waiting) -> bool:
        if not one.conversation:
            return False
        others = [other for other in self.of("waiting", "claimed") if other is not one]
        same = [other for other in others if (other.owner, other.conversation) == (one.owner, one.conversation)]
        is_behind = any(other.state == "claimed" or (other.due, other.number) < (one.due, one.number) for other in same)
        return is_behind or f"{one.owner} {one.conversation}" in self.running

    def first(self, owner: str) -> Waiting | None:
        able = [one for one in self.of("waiting") if one.owner == owner and one.due <= self.now < one.due + TTL_MS]
        return min((one for one in able if not self.blocked(one)), key=lambda one: one.place, default=None)

    # --- what is done ----

    @rule(
        owner=st.sampled_from(OWNERS),
        conversation=st.sampled_from(CONVERSATIONS),
        key=st.sampled_from([None, "k"]),
        priority=st.integers(-1, 1),
        later=st.sampled_from([0, 0, 500, 3000]),
    )
    def put(self, owner: str, conversation: str, key: str | None, priority: int, later: int) -> None:
        self.number += 1
        entry = new(
            f"run{self.number}",
            owner,
            conversation_id=conversation,
            key=key,
            priority=priority,
            run_at_ms=self.now + later if later else None,
        )
        result = at_once(self.queue.put(entry))
        alike = [one for one in self.of("waiting", "claimed") if one.owner == owner and key and one.key == key]
        if alike:
            assert isinstance(result, Entry)
            assert result.run_id == alike[0].run_id
        elif sum(one.owner == owner for one in self.of("waiting")) >= MOST:
            assert result == Full()
        else:
            assert result == Put()
            due = self.now + later
            self.entries[entry.run_id] = Waiting(entry.run_id, owner, conversation, key, priority, due, self.number)

    @rule(ms=st.sampled_from([1, 400, 2000, 9000]))
    def pass_time(self, ms: int) -> None:
        self.now += ms

    @rule(owner=st.sampled_from(OWNERS), instance=st.sampled_from(["a", "b"]))
    def claim(self, owner: str, instance: str) -> None:
        expected = self.first(owner)
        claimed = at_once(self.queue.claim_entry(owner, instance))
        if expected is None:
            assert claimed is None
            return
        expected.state, expected.instance, expected.epoch = "claimed", instance, expected.epoch + 1
        assert claimed is not None
        assert (claimed.run_id, claimed.epoch, claimed.body) == (
            expected.run_id,
            expected.epoch,
            expected.run_id.encode(),
        )

    @rule(data=st.data(), behind=st.integers(0, 1))
    def start(self, data: st.DataObject, behind: int) -> None:
        """With its claim, or with an older one: its process has been taken for dead."""
        if not self.entries:
            return
        one = data.draw(st.sampled_from(sorted(self.entries.values(), key=lambda one: one.number)))
        run = replace(
            new_run(one.run_id, one.conversation or f"of {one.run_id}", owner=one.owner, at=self.now),
            claim=Claim(one.run_id, one.epoch - behind, one.run_id),
            is_first=not one.conversation,
        )
        result = self.database.begin_run(run)
        is_held = one.state in ("claimed", "begun") and behind == 0
        if not is_held:
            assert result == Superseded()
        elif one.state == "begun":
            assert result == Stored(0)  # the same call again
        elif f"{one.owner} {one.conversation}" in self.running:
            assert isinstance(result, Busy)
        else:
            assert result == Stored(0)
            one.state, one.ended = "begun", self.now
            self.begun[one.run_id] += 1
            if one.conversation:
                self.running[f"{one.owner} {one.conversation}"] = one.run_id

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        conversation = data.draw(st.sampled_from(sorted(self.running)))
        run = self.running.pop(conversation)
        assert isinstance(self.database.append(lease(run), 1, [], run_end(run)), Stored)

    @rule(instance=st.sampled_from(["a", "b"]))
    def kill(self, instance: str) -> None:
        lost = [one for one in self.of("claimed") if one.instance == instance]
        assert (instance in at_once(self.queue.claimants())) == bool(lost)
        assert at_once(self.queue.release_of([instance])) == len(lost)
        for one in lost:
            one.state, one.instance, one.epoch = "waiting", None, one.epoch + 1

    @precondition(lambda self: self.of("claimed"))
    @rule(data=st.data(), is_failed=st.booleans())
    def give_up(self, data: st.DataObject, is_failed: bool) -> None:
        one = data.draw(st.sampled_from(sorted(self.of("claimed"), key=lambda one: one.number)))
        at_once(self.queue.fail(one.run_id, one.epoch - 1, LATE))  # of somebody who does not have it any more
        if is_failed:
            at_once(self.queue.fail(one.run_id, one.epoch, CANCELLED))
            one.state, one.failure, one.ended = "failed", CANCELLED, self.now
        else:
            at_once(self.queue.release(one.run_id, one.epoch))
            one.state, one.instance, one.epoch = "waiting", None, one.epoch + 1

    @precondition(lambda self: self.entries)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        one = data.draw(st.sampled_from(sorted(self.entries.values(), key=lambda one: one.number)))
        assert not at_once(self.queue.cancel(one.run_id, "somebody else", CANCELLED))
        assert at_once(self.queue.cancel(one.run_id, one.owner, CANCELLED)) == (one.state == "waiting")
        if one.state == "waiting":
            one.state, one.failure, one.ended = "failed", CANCELLED, self.now

    @rule()
    def expire(self) -> None:
        late = [one for one in self.of("waiting") if one.due + TTL_MS <= self.now]
        assert at_once(self.queue.expire(LATE)) == len(late)
        for one in late:
            one.state, one.failure, one.ended = "failed", LATE, self.now

    @precondition(lambda self: self.entries)
    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        one = data.draw(st.sampled_from(sorted(self.entries.values(), key=lambda one: one.number)))
        assert at_once(self.queue.forget(one.run_id, one.owner)) == (one.state != "begun")
        if one.state != "begun":
            del self.entries[one.run_id]

    @precondition(lambda self: any(one.conversation for one in self.of("begun")))
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        known = sorted({(one.owner, one.conversation) for one in self.of("begun") if one.conversation})
        owner, conversation = data.draw(st.sampled_from(known))
        self.database.delete_conversation(conversation, owner)
        self.running.pop(f"{owner} {conversation}", None)
        self.entries = {
            id: one for id, one in self.entries.items() if (one.owner, one.conversation) != (owner, conversation)
        }

    # --- what holds ----

    @invariant()
    def entries_are_as_the_model_says(self) -> None:
        for one in self.entries.values():
            entry = at_once(self.queue.entry(one.run_id, one.owner))
            if one.state == "begun":
                assert entry is None
                continue
            assert entry is not None
            assert (entry.state, entry.failure, entry.priority) == (one.state, one.failure, one.priority)
            assert (entry.due_ms, entry.expires_ms) == (one.due, one.due + TTL_MS)
            assert entry.is_scheduled == (one.due > entry.created_ms)
        assert all(count == 1 for count in self.begun.values())

    @invariant()
    def candidates_are_the_first_of_each_owner(self) -> None:
        expected = {one.run_id for owner in OWNERS if (one := self.first(owner)) is not None}
        assert {one.run_id for one in at_once(self.queue.candidates())} == expected

    @invariant()
    def lists_have_the_order_of_the_queue(self) -> None:
        due = sorted((one for one in self.of("waiting") if one.due <= self.now), key=lambda one: one.number)
        held = Counter(key.partition(" ")[0] for key in self.running)
        held.update(one.owner for one in self.of("begun") if not one.conversation)
        waiting = [Candidate(run_id=one.run_id, owner=one.owner, priority=one.priority, due_ms=one.due) for one in due]
        ordered = slowly_ordered(waiting, held)
        listed = at_once(self.queue.entries(None, 99))
        assert [one.run_id for one in listed if one.state == "waiting" and one.age_seconds >= 0] == ordered
        assert len(listed) == len(self.of("waiting", "claimed"))
        for place, run_id in enumerate(ordered, 1):
            assert at_once(self.queue.position(run_id)) == place
        figures = at_once(self.queue.queue_figures())
        assert figures.length == len(due)
        assert figures.age_seconds == max(((self.now - one.due) / 1000 for one in due), default=0)
        for owner in OWNERS:
            mine = [one.run_id for one in listed if one.owner == owner]
            assert [one.run_id for one in at_once(self.queue.entries(owner, 99))] == mine


QueueMachine.TestCase.settings = settings(
    max_examples=40, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
test_the_queue_of_one_machine = QueueMachine.TestCase


# --- a cluster ----------------------------------------------------------------------------------------


MEMBER = Member(id="a", role="runner", host="a", volumes=["a"], capacity=99, version="1")


async def submit(cluster: PostgresCluster, entry: NewEntry, /, **more: object) -> None:
    assert await cluster.submit(replace(command_of(entry), **more), 0) == Submitted()


def command_of(entry: NewEntry) -> NewCommand:
    return NewCommand(
        id=f"cmd {entry.run_id}",
        owner=entry.owner,
        front="front",
        run_id=entry.run_id,
        takes_place=True,
        body=entry.body,
        priority=entry.priority,
        entry=entry,
    )


_REQUESTS = st.lists(st.tuples(st.sampled_from(OWNERS), st.integers(-1, 1)), min_size=1, max_size=8)


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(requests=_REQUESTS)
def test_a_cluster_starts_requests_in_the_order_of_the_queue(database: str, requests: list[tuple[str, int]]) -> None:
    """Of which some wait with a connection."""

    async def test() -> None:
        store = PostgresStore(database)
        cluster = PostgresCluster(store)
        try:
            await store.connections.execute("TRUNCATE conversations, runs, commands, members CASCADE")
            await cluster.join(MEMBER)
            expected: list[Candidate] = []
            for number, (owner, priority) in enumerate(requests):
                entry = new(str(number), owner, priority=priority, most=99)
                await submit(cluster, entry, entry=None if number % 3 == 2 else entry)
                expected.append(Candidate(run_id=str(number), owner=owner, priority=priority, due_ms=number))
            started = list[str]()
            while claimed := await cluster.claim(MEMBER, has_room=True, most=1, known=[]):
                ((one, *others),) = [claimed]
                assert not others
                run = replace(
                    new_run(one.run_id, f"of {one.run_id}", owner=one.owner),
                    claim=Claim(one.id, one.epoch, one.run_id, outcome=b"begun"),
                )
                assert await store.begin_run(run) == Stored(0)
                assert await store.begin_run(run) == Stored(0)  # the answer was lost
                started.append(one.run_id)
            assert started == slowly_ordered(expected, Counter())
            assert await cluster.queue.entries(None, 9) == []
        finally:
            await store.close()

    asyncio.run(test())


# What waits is limited in bytes, too: a key must not fill the disk with a thousand of the largest requests.
_LARGE = {"kept": b"k" * 60, "body": b"b" * 40}


def test_the_entries_of_one_owner_are_limited_in_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cursor_gateway.store.sqlite.queue.MOST_BYTES", 101)
    database = Database(tmp_path)
    queue = database.store.queue
    try:
        results = [at_once(queue.put(new(f"run{number}", "ann", **_LARGE))) for number in range(3)]
        assert results == [Put(), Put(), Full()]
        assert at_once(queue.put(new("other", "bob", **_LARGE))) == Put()
        assert at_once(queue.cancel("run0", "ann", CANCELLED))
        assert at_once(queue.put(new("next", "ann", **_LARGE))) == Put()
        assert [at_once(queue.kept_request("run0", owner)) for owner in ("ann", "bob")] == [_LARGE["kept"], None]
        assert at_once(queue.kept_request("none", "ann")) is None
    finally:
        database.close()


async def test_a_clusters_entries_of_one_owner_are_limited_in_bytes(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cursor_gateway.store.postgres.cluster.MOST_BYTES", 101)
    store = PostgresStore(database)
    cluster = PostgresCluster(store)
    try:
        await cluster.join(MEMBER)
        results = [await cluster.submit(command_of(new(f"run{number}", "ann", **_LARGE)), 0) for number in range(3)]
        assert results == [Submitted(), Submitted(), Full()]
        assert await cluster.submit(command_of(new("other", "bob", **_LARGE)), 0) == Submitted()
        kept = [await cluster.queue.kept_request("run0", owner) for owner in ("ann", "bob")]
        assert kept == [_LARGE["kept"], None]
        (first,) = await cluster.claim(MEMBER, has_room=True, most=1, known=[])
        run = replace(new_run(first.run_id, owner=first.owner), claim=Claim(first.id, first.epoch, first.run_id))
        assert await store.begin_run(run) == Stored(0)
        assert await cluster.queue.kept_request(first.run_id, first.owner) is None  # it is the run's now
    finally:
        await store.close()


# A request is refused because one like it waits, which is gone when that one is looked at.


def test_an_owner_has_room_while_an_entry_ends(tmp_path: Path) -> None:
    database = Database(tmp_path)

    async def write(sql: str, values: Mapping[str, object]) -> int:
        count = database.store._write(sql, values)
        if values.get("id") == "second" and not count:
            assert await queue.cancel("first", "ann", CANCELLED)
        return count

    queue = SqliteQueue(database.store.queue._rows, write, lambda: 1000)
    try:
        assert at_once(queue.put(new("first", "ann", key="k"))) == Put()
        assert at_once(queue.put(new("second", "ann", key="k"))) == Put()
        assert [one.run_id for one in at_once(queue.entries("ann", 9))] == ["second"]
    finally:
        database.close()


async def test_an_owner_has_room_in_a_cluster_while_an_entry_ends(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = PostgresStore(database)
    cluster = PostgresCluster(store)
    execute: Any = AsyncConnection.execute
    is_ended = False

    async def ending(self: AsyncConnection[Any], sql: str, *values: object, **named: object) -> object:
        nonlocal is_ended
        if "dedupe = %(dedupe)s AND state <> 'done'" in sql and not is_ended:
            is_ended = True
            assert await cluster.queue.cancel("first", "ann", CANCELLED)
        return await execute(self, sql, *values, **named)

    try:
        await cluster.join(MEMBER)
        await submit(cluster, new("first", "ann"), dedupe="k")
        monkeypatch.setattr(AsyncConnection, "execute", ending)
        await submit(cluster, new("second", "ann"), dedupe="k")
        assert is_ended
        assert [one.run_id for one in await cluster.queue.entries("ann", 9)] == ["second"]
    finally:
        await store.close()


def test_a_request_whose_run_has_begun_is_not_put(tmp_path: Path) -> None:
    database = Database(tmp_path)
    queue = database.store.queue
    try:
        database.begin_run(replace(new_run("begun", owner="ann"), idempotency=Idempotency("k", "hash")))
        assert at_once(queue.put(new("second", "ann", key="k", body_hash="hash"))) == Begun()
        assert at_once(queue.put(new("others", "bob", key="k", body_hash="hash"))) == Put()
        assert at_once(queue.put(new("again", "ann", key="k"))) == Put()  # not a caller's key
    finally:
        database.close()


async def test_a_lower_claim_does_not_begin_the_run_of_an_entry(database: str) -> None:
    store = PostgresStore(database)
    cluster = PostgresCluster(store)
    try:
        await cluster.join(MEMBER)
        await submit(cluster, new("run", "ann"))
        (first,) = await cluster.claim(MEMBER, has_room=True, most=9, known=[])
        await cluster.release(first.id, first.epoch)
        (second,) = await cluster.claim(MEMBER, has_room=True, most=9, known=[])
        late = replace(new_run("run", owner="ann"), claim=Claim(first.id, first.epoch, "run"))
        assert await store.begin_run(late) == Superseded()
        held = replace(late, claim=Claim(second.id, second.epoch, "run"))
        assert await store.begin_run(held) == Stored(0)
    finally:
        await store.close()


@pytest.mark.parametrize(
    "what", ["no room", "another volume", "a label", "draining", "a full key", "later", "too late"]
)
async def test_what_cannot_start_here_is_not_claimed(database: str, what: str) -> None:
    store = PostgresStore(database)
    cluster = PostgresCluster(store)
    member = replace(MEMBER, is_draining=what == "draining")
    try:
        await cluster.join(member)
        entry = new("run", "ann", ttl_ms=0 if what == "too late" else TTL_MS)
        if what == "later":
            entry = replace(entry, run_at_ms=4_000_000_000_000)
        await submit(
            cluster, entry, volume="b" if what == "another volume" else None, needs=["gpu"] if what == "a label" else []
        )
        limit = 0
        if what == "a full key":
            limit = 1
            assert await store.begin_run(new_run("other", owner="ann")) == Stored(0)
        claim = cluster.claim(member, has_room=what != "no room", most=9, known=[], max_active=limit)
        assert await claim == []
        assert await cluster.queue.expire(LATE) == (what == "too late")
    finally:
        await store.close()
