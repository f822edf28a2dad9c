"""Each check of an epoch or a number, alone: a writer that was taken over, or that is elsewhere than it believes.

`tools/mutations` removes one check after the other, and expects one of these to fail. The nemesis finds the same with
random faults, in minutes; here it takes seconds.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import psycopg
from msgspec.structs import replace

from cursor_gateway.model.document_events import DocumentEvent, Done
from cursor_gateway.store.base import Behind, Claim, Fenced, Lease, Stored, Superseded
from cursor_gateway.store.cluster import ClaimedCommand, CommandDone, NewCommand, Queued
from cursor_gateway.store.postgres.cluster import PostgresCluster
from cursor_gateway.store.postgres.store import PostgresStore
from tests.cluster.nodes import front, runner
from tests.store.making import ME, deltas, envelope, lease, new_run, run_end

COMMAND = NewCommand(id="cmd", owner=ME, front="front", volume=None, run_id="run", takes_place=True, body=b"body")
END: Sequence[DocumentEvent] = [Done(envelope())]


@asynccontextmanager
async def living(database: str) -> AsyncIterator[tuple[PostgresStore, PostgresCluster]]:
    store = PostgresStore(database)
    cluster = PostgresCluster(store)
    try:
        for member in (front(), runner("one"), runner("two")):
            await cluster.join(member)
        yield store, cluster
    finally:
        await cluster.hints.close()
        await store.close()


def stored(database: str) -> tuple[int, int, list[tuple[int, int]]]:
    """The epoch of the run, the number of its last event, and the numbers and epochs of its batches."""
    with psycopg.connect(database) as connection:
        row = connection.execute("SELECT epoch, last FROM runs WHERE id = 'run'").fetchone()
        assert row is not None
        batches = connection.execute("SELECT first, epoch FROM events ORDER BY first").fetchall()
        return row[0], row[1], [(first, epoch) for first, epoch in batches]


async def claimed(cluster: PostgresCluster, by: str) -> ClaimedCommand:
    (found,) = await cluster.claim(runner(by), has_room=True, most=1, known=[])
    return found


async def taken_over(cluster: PostgresCluster, id: str) -> None:
    beat = next(member.beat for member in (await cluster.figures()).members if member.id == id)
    assert await cluster.take_over(id, beat, str.encode) is not None


# --- events -------------------------------------------------------------------------------------------


async def test_an_old_writer_appends_nothing(database: str) -> None:
    async with living(database) as (store, _):
        await store.begin_run(new_run())
        assert await store.claim_run("run", 1) == lease("run", 2)
        assert await store.append(lease("run"), 1, deltas(1)) == Fenced("claimed")
        assert isinstance(await store.append(lease("run", 2), 1, deltas(2)), Stored)
        assert await store.append(lease("run"), 2, deltas(3)) == Fenced("claimed")

    assert stored(database) == (2, 1, [(1, 2)])


async def test_an_old_writer_ends_nothing(database: str) -> None:
    async with living(database) as (store, _):
        await store.begin_run(new_run())
        assert await store.claim_run("run", 1) == lease("run", 2)
        assert await store.append(lease("run"), 1, END, run_end()) == Fenced("claimed")
        found = await store.run("run", ME)
        assert found is not None
        assert found.state == "running"

    assert stored(database) == (2, 0, [])


async def test_events_are_appended_where_the_log_ends_and_nowhere_else(database: str) -> None:
    async with living(database) as (store, _):
        await store.begin_run(new_run())
        assert await store.append(lease("run"), 2, deltas(2)) == Behind(0)
        assert isinstance(await store.append(lease("run"), 1, deltas(1)), Stored)
        assert await store.append(lease("run"), 1, deltas(1)) == Stored(0)
        assert await store.append(lease("run"), 3, deltas(3)) == Behind(1)

    assert stored(database) == (1, 1, [(1, 1)])


async def test_a_run_ends_where_its_log_ends_and_nowhere_else(database: str) -> None:
    async with living(database) as (store, _):
        await store.begin_run(new_run())
        assert await store.append(lease("run"), 2, END, run_end()) == Behind(0)
        await store.append(lease("run"), 1, deltas(1))
        assert await store.append(lease("run"), 3, END, run_end()) == Behind(1)
        assert isinstance(await store.append(lease("run"), 1, [*deltas(1), *END], run_end()), Stored)
        assert (await store.events("run", ME)).events == [*deltas(1), *END]

    assert stored(database) == (1, 2, [(1, 1), (2, 1)])


async def test_only_the_epoch_that_was_seen_is_claimed(database: str) -> None:
    async with living(database) as (store, _):
        await store.begin_run(new_run())
        assert await store.claim_run("run", 1) == lease("run", 2)
        assert await store.claim_run("run", 1) is None
        assert isinstance(await store.append(lease("run", 2), 1, deltas(1)), Stored)

    assert stored(database) == (2, 1, [(1, 2)])


async def test_a_takeover_ends_the_lease_of_the_one_before(database: str) -> None:
    async with living(database) as (store, cluster):
        await store.begin_run(replace(new_run(), instance="one"))
        await taken_over(cluster, "one")
        assert await store.append(lease("run"), 1, deltas(1)) == Fenced("claimed")

    assert stored(database) == (2, 0, [])


# --- commands -----------------------------------------------------------------------------------------


async def test_who_was_removed_claims_nothing_until_it_has_joined_again(database: str) -> None:
    """It may not know it yet: only its beats were lost."""
    async with living(database) as (_, cluster):
        await taken_over(cluster, "one")
        await cluster.submit(COMMAND, 0)
        assert await cluster.claim(runner("one"), has_room=True, most=1, known=[]) == []
        await cluster.join(runner("one"))
        assert (await claimed(cluster, "one")).id == "cmd"


async def test_an_old_claim_finishes_and_releases_nothing(database: str) -> None:
    async with living(database) as (_, cluster):
        await cluster.submit(COMMAND, 0)
        old = await claimed(cluster, "one")
        await taken_over(cluster, "one")
        new = await claimed(cluster, "two")
        assert new.epoch > old.epoch
        assert not await cluster.finish("cmd", old.epoch, b"old")
        await cluster.release("cmd", old.epoch)
        assert await cluster.outcomes(["cmd"]) == {"cmd": Queued(is_claimed=True)}
        assert await cluster.finish("cmd", new.epoch, b"new")
        assert await cluster.outcomes(["cmd"]) == {"cmd": CommandDone(b"new")}


async def test_an_old_claim_begins_no_run(database: str) -> None:
    async with living(database) as (store, cluster):
        await cluster.submit(COMMAND, 0)
        old = await claimed(cluster, "one")
        await taken_over(cluster, "one")
        new = await claimed(cluster, "two")
        late = replace(new_run(), instance="one", claim=Claim("cmd", old.epoch, "run"))
        assert await store.begin_run(late) == Superseded()
        assert await store.run("run", ME) is None
        assert await store.begin_run(replace(late, instance="two", claim=Claim("cmd", new.epoch, "run"))) == Stored(0)


async def test_an_old_claim_resumes_no_run(database: str) -> None:
    async with living(database) as (store, cluster):
        await store.begin_run(replace(new_run(), instance="gone (taken over)"))
        await cluster.submit(COMMAND, 0)
        old = await claimed(cluster, "one")
        with psycopg.connect(database) as beside:  # a takeover, before the run was known
            beside.execute("UPDATE commands SET epoch = epoch + 1, runner = 'two'")
        assert await cluster.resume_run(Claim("cmd", old.epoch, "run"), "one") is None
        resumed = await cluster.resume_run(Claim("cmd", old.epoch + 1, "run"), "two")
        assert resumed is not None
        assert Lease(resumed.id, resumed.epoch) == lease("run", 2)


# --- members ------------------------------------------------------------------------------------------


async def test_a_member_that_has_beaten_again_is_not_removed(database: str) -> None:
    async with living(database) as (store, cluster):
        await store.begin_run(replace(new_run(), instance="one"))
        with psycopg.connect(database) as beside:
            beside.execute("UPDATE members SET beat = beat + 1 WHERE id = 'one'")
        assert await cluster.take_over("one", 0, str.encode) is None
        assert isinstance(await store.append(lease("run"), 1, deltas(1)), Stored)

    assert stored(database) == (1, 1, [(1, 1)])
