"""What PostgreSQL's store counts while it appends, for the metrics."""

from cursor_gateway.store.base import Behind
from cursor_gateway.store.postgres.store import PostgresStore
from tests.store.making import deltas, lease, new_run, run_end


async def test_what_a_database_has_lost_is_counted(database: str) -> None:
    store = PostgresStore(database)
    try:
        await store.begin_run(new_run())
        await store.append(lease("run"), 1, deltas(1))
        assert store.appender.rewinds == 0
        assert await store.append(lease("run"), 4, deltas(4)) == Behind(1)
        assert await store.append(lease("run"), 4, deltas(4), run_end()) == Behind(1)
        assert (store.appender.rewinds, store.appender.batches) == (2, 2)
    finally:
        await store.close()
