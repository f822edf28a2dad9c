"""Conversations of another engine in; the same in the database, out.

Each conversation is one transaction: after an interruption, the copy is started again and continues with those that are
missing. Keys of runs are moved up by one offset, above all that the database has, so that runs keep their order.
"""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any, Literal, TypeAlias

from cursor_gateway.store import sql
from cursor_gateway.store.postgres import schema, searching
from cursor_gateway.store.postgres.connections import PostgresConnection

Restored: TypeAlias = Literal["copied", "known", "running"]

_OWNER = sql.CONVERSATION_COLUMNS.index("owner")
_FLAGS = ("pinned", "estimated", "needs_decision")  # SQLite has numbers for them
_SEQUENCE = "pg_get_serial_sequence('runs', 'key')"
_RESERVE = f"SELECT setval({_SEQUENCE}, nextval({_SEQUENCE}) + %s) - %s"
_COUNT = """
    UPDATE runs SET last = counted.last, bytes = counted.bytes
    FROM (SELECT sum(count) AS last, sum(octet_length(data)) AS bytes FROM events WHERE run = %(run)s) AS counted
    WHERE key = %(run)s AND counted.last IS NOT NULL
"""

_USE = """
    INSERT INTO token_usage AS used (owner, day, model, runs, prompt_tokens, completion_tokens, cached_tokens)
    SELECT %(owner)s, to_char(to_timestamp(ended_ms / 1000.0) AT TIME ZONE 'UTC', 'YYYY-MM-DD'), model, count(*),
        coalesce(sum(prompt_tokens), 0), coalesce(sum(completion_tokens), 0), sum(coalesce(cached_tokens, 0))
    FROM runs WHERE conversation = %(conversation)s AND ended_ms IS NOT NULL AND total_tokens IS NOT NULL GROUP BY 2, 3
    ON CONFLICT (owner, day, model) DO UPDATE SET runs = used.runs + excluded.runs,
        prompt_tokens = used.prompt_tokens + excluded.prompt_tokens,
        completion_tokens = used.completion_tokens + excluded.completion_tokens,
        cached_tokens = used.cached_tokens + excluded.cached_tokens
"""


@asynccontextmanager
async def open_restorer(url: str, last_run: int) -> AsyncIterator["Restorer"]:
    """With keys for so many runs. Raises `StoreUnavailable`, or `SettingsError` for a database of another version."""
    async with schema.connected(url) as connection:
        await schema.check(connection)
        await connection.execute("SET statement_timeout = 0")  # a conversation may have many megabytes
        row = await (await connection.execute(_RESERVE, [last_run, last_run])).fetchone()
        assert row is not None
        yield Restorer(connection, int(row[0]))


class Restorer:
    def __init__(self, connection: PostgresConnection, offset: int) -> None:
        self._connection, self._offset = connection, offset

    async def restore(self, conversation: sql.ArchivedConversation, owner: str) -> Restored:
        """As a conversation of this owner."""
        if conversation.is_running:
            return "running"
        row = [*conversation.row]
        row[_OWNER] = owner
        async with self._connection.transaction():
            insert = _insert("conversations", sql.CONVERSATION_COLUMNS)
            found = await self._connection.execute(
                f"{insert} ON CONFLICT (owner, id) DO NOTHING RETURNING key", _values(sql.CONVERSATION_COLUMNS, row)
            )
            if (added := await found.fetchone()) is None:
                return "known"
            for run in conversation.runs:
                await self._add_run(added[0], owner, run)
            await self._connection.execute(_USE, {"owner": owner, "conversation": added[0]})
            messages = [self._message(added[0], message) for message in conversation.messages]
            await _copy(self._connection, "messages", ("conversation", *sql.MESSAGE_COLUMNS), messages)
            return "copied"

    async def _add_run(self, conversation: int, owner: str, run: sql.ArchivedRun) -> None:
        key, connection = run.key + self._offset, self._connection
        columns = ("key", "conversation", *sql.RUN_COLUMNS)
        await connection.execute(
            _insert("runs", columns, "OVERRIDING SYSTEM VALUE"), _values(columns, [key, conversation, *run.row])
        )
        batches = ((key, *batch, 1) for batch in run.batches())
        await _copy(connection, "events", ("run", "first", "count", "data", "epoch"), batches)
        await connection.execute(_COUNT, {"run": key})
        for _, *reply in run.replies:
            insert = _insert("idempotency", ("run", *sql.REPLY_COLUMNS))
            await connection.execute(f"{insert} ON CONFLICT DO NOTHING", [key, owner, *reply])
        await _copy(connection, "requests", ("run", *sql.REQUEST_COLUMNS), ((key, *row) for row in run.requests))
        entry = await searching.entry_of([run.text])
        indexed = f"WITH run AS (SELECT %(key)s::bigint AS key) {searching.ADD}"
        await connection.execute(indexed, {"key": key, **entry.values(owner)})

    def _message(self, conversation: int, message: sql.Row) -> sql.Row:
        number, role, text, run, *others = message
        return (conversation, number, role, text, run + self._offset, *others)


def _insert(table: str, columns: Iterable[str], overriding: str = "") -> str:
    names = list(columns)
    return f"INSERT INTO {table} ({', '.join(names)}) {overriding} VALUES ({', '.join(['%s'] * len(names))})"


def _values(columns: Iterable[str], row: sql.Row) -> list[Any]:
    return [
        bool(value) if name in _FLAGS and value is not None else value for name, value in zip(columns, row, strict=True)
    ]


async def _copy(connection: PostgresConnection, table: str, columns: Iterable[str], rows: Iterable[sql.Row]) -> None:
    async with connection.cursor() as cursor, cursor.copy(f"COPY {table} ({', '.join(columns)}) FROM STDIN") as copy:
        for row in rows:
            await copy.write_row(row)
