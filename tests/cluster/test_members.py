"""What a process remembers of the others."""

import asyncio
from typing import cast

import psycopg
import pytest
from msgspec.structs import replace

from cursor_gateway.cluster import members as module
from cursor_gateway.cluster.members import Members, Timing
from cursor_gateway.errors import ConversationBusy
from cursor_gateway.sources.ledger import LostAgents
from cursor_gateway.store.base import Store
from cursor_gateway.store.cluster import ClusterStore, Figures, Member
from cursor_gateway.store.health import StoreHealth
from cursor_gateway.store.postgres.cluster import PostgresCluster
from cursor_gateway.store.postgres.store import PostgresStore
from tests.cluster.nodes import runner


class Listed:
    """A database that knows these members."""

    def __init__(self, *members: Member) -> None:
        self.found = list(members)

    async def figures(self) -> Figures:
        return replace(FIGURES, members=self.found)


class Joined(Listed):
    async def join(self, member: Member) -> None:
        self.found = [member]


class Beaten:
    """A heartbeat of this age."""

    def __init__(self, age: float) -> None:
        self.age = age

    def stop(self) -> None:
        pass


class Noted(LostAgents):
    def __init__(self) -> None:
        self.ended: list[str] = []
        self.times_joined = 0

    def joined(self) -> None:
        self.times_joined += 1

    async def end_of(self, member: str) -> None:
        self.ended.append(member)
        raise ConversationBusy("It sleeps; try again.")


def test_only_a_member_that_holds_its_runs_lets_its_agents_be_noted() -> None:
    own = _member("a", "a")
    listed, agents, timing = Listed(own), Noted(), Timing(beat_seconds=1, lease_seconds=5)
    members = Members(cast(ClusterStore, listed), cast(Store, None), own, timing, lambda: 0, agents=agents)
    asyncio.run(members.look())
    assert agents.times_joined == 1
    # It has just woken up, and others have not considered it dead when the database was asked.
    members.heartbeat = Beaten(6)
    asyncio.run(members.look())
    members.heartbeat, listed.found = Beaten(0), []
    asyncio.run(members.look())
    assert agents.times_joined == 1


def _member(id: str, *volumes: str) -> Member:
    return Member(id=id, role="runner", host=id, volumes=volumes, version="1")


def test_the_volume_of_a_runner_that_died_stays_known() -> None:
    """So a request that names it is told to retry, not that the folder does not exist."""
    own, other = _member("a", "a"), _member("b", "b", "shared")
    listed = Listed(own, other)
    timing = Timing(beat_seconds=1, lease_seconds=5)
    agents = Noted()
    members = Members(cast(ClusterStore, listed), cast(Store, None), own, timing, lambda: 0, agents=agents)
    asyncio.run(members.look())
    listed.found = [own]
    asyncio.run(members.look())
    assert agents.ended == ["b"]
    assert members.volumes == {"a", "b", "shared"}
    assert [member.id for member in members.runners("shared")] == []


def test_nobody_is_judged_while_the_database_takes_no_beats() -> None:
    """It can be read, and all beats stand still."""
    own, other = _member("a", "a"), _member("b", "b")
    listed = Listed(own, other)
    timing = Timing(beat_seconds=1, lease_seconds=0)  # a beat that is seen twice is too old
    members = Members(cast(ClusterStore, listed), cast(Store, None), own, timing, lambda: 0)
    asyncio.run(members.look())
    assert members._dead(["c"]) == {"b": 0, "c": None}
    members.heartbeat = Beaten(1.1)  # the next one is on its way
    assert members._dead(["c"]) == {"b": 0, "c": None}
    members.heartbeat = Beaten(2.0)
    assert members._dead(["c"]) == {}


class Healthy:
    """A store with nothing but its health."""

    def __init__(self) -> None:
        self.health = StoreHealth()


async def test_who_was_frozen_does_not_report_the_database_as_lost() -> None:
    """All its beats are late then. When others have removed it meanwhile, joining again is as good as a beat."""
    loop, store, timing = asyncio.get_running_loop(), Healthy(), Timing(beat_seconds=1, lease_seconds=5)
    members = Members(cast(ClusterStore, Joined()), cast(Store, store), _member("a", "a"), timing, lambda: 0)
    members.heartbeat, members._turned_at = Beaten(100), members._turned_at - 100
    members._tick(loop)
    assert not store.health.is_failing
    await members._rejoin()
    assert members.holds_its_runs
    members._tick(loop)
    assert not store.health.is_failing
    members._joined_at -= 100  # and no beat since then, although it turns
    members._tick(loop)
    assert store.health.is_failing


FIGURES = Figures(
    cluster_id="",
    members=(),
    volumes=(),
    absent=(),
    connections=1,
    max_connections=1,
    queue_seconds=0,
    queue_length=0,
    running=0,
    notification_queue=0,
    commits=0,
    batches=0,
    append_seconds=0,
    waiting_bytes=0,
    rewinds=0,
    reconnections=0,
    skipped_hints=0,
    server="1",
    losses=0,
)


def test_a_long_queue_is_reported_once_a_minute_by_fronts(monkeypatch: pytest.MonkeyPatch) -> None:
    said = list[str]()
    timing, long = Timing(beat_seconds=1, lease_seconds=5), replace(FIGURES, queue_seconds=12.3, queue_length=2)
    for own in (_member("a"), replace(_member("b"), role="front")):
        members = Members(cast(ClusterStore, Listed(own)), cast(Store, None), own, timing, lambda: 0, said.append)
        monkeypatch.setattr(module, "monotonic", lambda: 0.0)
        members._report_queue(replace(FIGURES, queue_seconds=9))
        for now in (0.0, 59.0, 60.0):
            monkeypatch.setattr(module, "monotonic", lambda now=now: now)
            members._report_queue(long)
    assert [line.partition(";")[0] for line in said] == [
        "2 requests wait for a runner, the first of them for 12 seconds"
    ] * 2


@pytest.mark.parametrize(
    "after", [replace(FIGURES, server="2"), replace(FIGURES, losses=1)], ids=["started again", "lost and retried"]
)
def test_a_database_that_was_away_between_two_looks_starts_all_times_again(
    after: Figures, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every look succeeds, since the store retries: but for a moment nobody could beat."""
    now = 0.0
    monkeypatch.setattr(module, "monotonic", lambda: now)
    own, other = _member("a", "a"), _member("b", "b")
    timing = Timing(beat_seconds=1, lease_seconds=5)
    members = Members(cast(ClusterStore, Listed(own, other)), cast(Store, None), own, timing, lambda: 0)
    asyncio.run(members.look())
    found = {}
    for now in range(14):
        members.stored = FIGURES if now < 4 else after
        found[now] = members._dead([])
    assert [now for now, dead in found.items() if dead] == [9, 10, 11, 12, 13]  # a lease after it was back


async def test_nobody_is_taken_over_by_who_saw_another_start_of_the_database(database: str) -> None:
    store = PostgresStore(database)
    cluster = PostgresCluster(store)
    try:
        await cluster.join(runner("one"))
        server = (await cluster.figures()).server
        assert await cluster.take_over("one", 0, str.encode, f"{server}1") is None
        assert [member.id for member in (await cluster.figures()).members] == ["one"]
        assert await cluster.take_over("one", 0, str.encode, server) == []
        assert await cluster.take_over("one", None, str.encode, f"{server}1") is None
    finally:
        await cluster.hints.close()
        await store.close()


async def test_a_lost_connection_is_counted_although_a_retry_hides_it(database: str) -> None:
    store = PostgresStore(database)
    cluster = PostgresCluster(store)
    try:
        assert (await cluster.figures()).losses == 0
        with psycopg.connect(database, autocommit=True) as beside:
            beside.execute(
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        assert (await cluster.figures()).members == []
        assert (await cluster.figures()).losses == 1
        with pytest.raises(psycopg.ProgrammingError):
            await store.connections.run(lambda connection: connection.execute("nonsense"))
        assert (await cluster.figures()).losses == 1
    finally:
        await cluster.hints.close()
        await store.close()


@pytest.mark.parametrize(("needed", "is_said"), [(97, False), (98, True)])
def test_a_database_that_allows_too_few_connections_is_reported(needed: int, is_said: bool) -> None:
    own, said = _member("a"), list[str]()
    timing = Timing(beat_seconds=1, lease_seconds=5)
    members = Members(cast(ClusterStore, Listed(own)), cast(Store, None), own, timing, lambda: 0, said.append)
    members._check_connections(replace(FIGURES, connections=needed, max_connections=97))
    assert bool(said) is is_said
    assert all("98 connections" in line and "allows 97" in line for line in said)


async def test_a_database_that_takes_no_beats_is_reported() -> None:
    """A call may hang for half a minute until it fails."""

    class Kept:
        health = StoreHealth()

    own, listed = _member("a"), Listed(_member("a"))
    timing = Timing(beat_seconds=1, lease_seconds=15)
    members = Members(cast(ClusterStore, listed), cast(Store, Kept), own, timing, lambda: 0)
    members.heartbeat = Beaten(2.9)
    members._tick(asyncio.get_running_loop())
    assert not Kept.health.problem
    members.heartbeat = Beaten(3.1)
    members._tick(asyncio.get_running_loop())
    assert "heartbeats" in Kept.health.problem
