"""Group commits: one transaction for all that is written in a turn; all of it is stored before any of it is shown."""

import asyncio
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from cursor_gateway.errors import StoreUnavailable
from cursor_gateway.store.base import Behind, Busy, Fenced, Lease, Stored
from cursor_gateway.store.sqlite import writing
from cursor_gateway.store.sqlite.group_commit import GroupCommit
from cursor_gateway.store.sqlite.store import SqliteStore
from tests.store.blocking import Database, blocking
from tests.store.making import ME, deltas, lease, new_run, run_end

ROOT = Path(__file__).parents[2]


def kill_at(folder: Path, every: int, first: int) -> int:
    command = [sys.executable, "-m", "tests.store.killed_commits", str(folder), str(every), str(first)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900, check=False)
    assert ran.returncode == 0, ran.stderr
    return int(ran.stdout)


def test_a_kill_within_a_group_commit_takes_back_nothing_that_was_shown(tmp_path: Path) -> None:
    assert kill_at(tmp_path, 97, 13) > 10


@pytest.mark.slow  # all points; the test above has some of them
def test_a_kill_at_any_point_of_a_group_commit_takes_back_nothing_that_was_shown(tmp_path: Path) -> None:
    """At every fourth; `python -m tests.store.killed_commits FOLDER 1 1` tries them all, in a few minutes."""
    assert kill_at(tmp_path, 4, 1) > 250


class Counted(GroupCommit):
    """Counts its group commits."""

    transactions = 0

    def apply_all(self, writes):  # type: ignore[no-untyped-def] # of a private type
        self.transactions += 1
        return super().apply_all(writes)


def counted(store: SqliteStore) -> Counted:
    store._group = Counted(store._connections, store._indexer, store._maintenance)
    return store._group


def test_what_is_written_in_one_turn_is_one_transaction(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)

    async def live() -> None:
        group = counted(store)
        begun = await asyncio.gather(*(group.add(partial(writing.begin, new=new_run(id, id))) for id in "abc"))
        assert begun == [lease(id) for id in "abc"]
        assert group.transactions == 1
        appended = group.add(partial(writing.append, lease=lease("a"), first_number=1, events=deltas(1)))
        assert blocking(store).events("a", ME).events == []
        assert isinstance(await appended, Stored)
        assert blocking(store).events("a", ME).events == deltas(1)

    asyncio.run(live())
    blocking(store).close()


def test_after_a_turn_with_one_write_the_next_is_committed_at_once(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    group = counted(store)

    async def append(id: str, number: int) -> None:
        assert isinstance(await store.append(lease(id), number, deltas(number)), Stored)

    async def live() -> None:
        for id in "abc":
            await store.begin_run(new_run(id, id))
            await asyncio.sleep(0)
        for id in "abc":  # each in a turn of its own
            await append(id, 1)
            await asyncio.sleep(0)
        assert group.transactions == 0
        await asyncio.gather(*(append(id, 2) for id in "abc"))  # the first could not know of the others
        assert group.transactions == 1
        await asyncio.gather(*(append(id, 3) for id in "abc"))  # the next can expect them
        assert group.transactions == 2
        await append("a", 4)
        assert group.transactions == 3
        await append("a", 5)
        assert group.transactions == 3
        await store.close()

    asyncio.run(live())


def test_a_run_that_was_refused_does_not_count_as_another_writer(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    group = counted(store)

    async def live() -> None:
        await store.begin_run(new_run("a", "a"))
        for id in "bc":
            assert await store.begin_run(new_run(id, "a")) == Busy("a")
        assert await store.begin_with(new_run("d", "a"), deltas(1), None) == Busy("a")
        await asyncio.sleep(0)
        before = group.transactions
        for number in (1, 2, 3):  # in one turn, and none of them waits for its end
            assert isinstance(await store.append(lease("a"), number, deltas(number)), Stored)
        assert group.transactions == before
        await store.close()

    asyncio.run(live())


def test_a_run_that_was_deleted_does_not_count_as_another_writer(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    group = counted(store)

    async def live() -> None:
        for id in "ab":
            await store.begin_run(new_run(id, id))
        assert await store.delete_conversation("b", ME)
        await store.prune(None, None, 0)  # to the last row
        assert await store.append(lease("b"), 1, deltas(1)) == Fenced("deleted")
        await asyncio.sleep(0)
        before = group.transactions
        for number in (1, 2, 3):
            assert isinstance(await store.append(lease("a"), number, deltas(number)), Stored)
        assert group.transactions == before
        await store.close()

    asyncio.run(live())


def test_a_run_begins_and_ends_in_one_transaction(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    stored = asyncio.run(store.begin_with(new_run("run", "conv", "Hello"), deltas(1, 2), run_end("run")))
    assert isinstance(stored, Stored)
    record = blocking(store).run("run", ME)
    assert record is not None
    assert (record.state, record.event_count) == ("completed", 2)
    assert [message.role for message in blocking(store).messages("conv", ME)][:1] == ["user"]
    again = asyncio.run(store.begin_with(new_run("run", "conv", "Hello"), deltas(1, 2), run_end("run")))
    assert again == Stored(0)  # as after a result that was lost
    blocking(store).close()


def test_one_mistake_does_not_cost_the_others(tmp_path: Path) -> None:
    database = Database(tmp_path)
    for id in "ab":
        database.begin_run(new_run(id, id))
    good = partial(writing.append, lease=lease("a"), first_number=1, events=deltas(1))
    other = partial(writing.append, lease=lease("a"), first_number=1, events=deltas(2))
    gap = partial(writing.append, lease=lease("b"), first_number=5, events=deltas(5))
    fenced = partial(writing.append, lease=Lease("a", 7), first_number=2, events=deltas(2))
    results = database._group.apply_all([good, other, gap, fenced])
    assert isinstance(results[0], Stored)
    assert isinstance(results[1], ValueError)
    assert results[2:] == [Behind(0), Fenced("claimed")]
    assert database.events("a", ME).events == deltas(1)
    assert database.events("b", ME).events == []
    database.close()


def test_a_store_that_cannot_be_written_refuses_all_of_them(tmp_path: Path) -> None:
    database = Database(tmp_path)
    database.begin_run(new_run("a", "a"))
    database.close()
    append = partial(writing.append, lease=lease("a"), first_number=1, events=deltas(1))
    assert [type(result) for result in database._group.apply_all([append, append])] == [StoreUnavailable] * 2


def test_a_write_is_done_although_nobody_waits_for_it(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)

    async def live() -> None:
        for id in "ab":
            await store.begin_run(new_run(id, id))
        store._group.add(partial(writing.append, lease=lease("b"), first_number=1, events=deltas(1)))  # so "a" waits
        left = asyncio.ensure_future(store.append(lease("a"), 1, deltas(1)))
        await asyncio.sleep(0)
        left.cancel()
        assert isinstance(await store.append(lease("a"), 1, deltas(1, 2)), Stored)
        assert blocking(store).events("a", ME).events == deltas(1, 2)
        await store.close()

    asyncio.run(live())


def test_the_loop_that_was_closed_keeps_nobody_waiting(tmp_path: Path) -> None:
    database = Database(tmp_path)
    group = database._group
    begin = partial(writing.begin, new=new_run("a", "a"))

    async def leave() -> None:
        group.add(begin)

    async def ask() -> object:
        return await group.add(begin)

    first = asyncio.new_event_loop()
    first.run_until_complete(leave())
    first.close()
    assert asyncio.run(ask()) == lease("a")
    database.close()
