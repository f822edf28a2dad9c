"""Connections to the database: a few, opened on demand, and work that is repeated when one is lost.

`run` gives a piece of work a connection. When the connection is lost, it is unknown whether the work was committed, so
work must be repeatable: it first checks what is already stored. It is then repeated on another connection, a few times
within a second or so. There is no background task: connections are opened when needed, so a server can be used again as
soon as it answers.

Errors become `StoreUnavailable`, which never contain the URL: it may have a password.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import cache
from typing import Any, TypeAlias, TypeVar
from weakref import WeakValueDictionary

import psycopg
from psycopg import AsyncConnection, errors
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row
from psycopg.types.string import StrDumperUnknown

from cursor_gateway.errors import SettingsError, StoreUnavailable
from cursor_gateway.store.base import OWNER
from cursor_gateway.store.health import StoreHealth
from cursor_gateway.wire.surrogates import repair

PostgresConnection: TypeAlias = AsyncConnection[Any]
Values: TypeAlias = Sequence[Any] | Mapping[str, Any]

_T = TypeVar("_T")

MOST_CONNECTIONS = 4  # connections: each is a process in the server
_CONNECT_SECONDS = 5
# A server that was cut off is noticed within seconds, not after the quarter of an hour that TCP would take.
LIVENESS: dict[str, Any] = {
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,  # milliseconds
}
_CALL_SECONDS = 30.0  # for a call with all its retries; a server that is cut off never answers
_PAUSES = (0.0, 0.1, 0.5)  # seconds before each retry
_SETTINGS = {
    "statement_timeout": "10s",
    "lock_timeout": "5s",
    "idle_in_transaction_session_timeout": "30s",
    "application_name": "cursor-gateway",
    "TimeZone": "UTC",
}
_CLOSED = "The history is closed: the gateway is shutting down."
_SLOW = "The database did not answer in time; check its load and the network, then retry."

# What to do, by SQLSTATE or the beginning of one.
_WHY = {
    "08": "The connection to the database was lost; check that it is running, then retry.",
    "25006": "The database is read-only; connect to the primary server.",
    "42501": "The database refuses access to the history; grant the gateway's role its tables.",
    "42P01": "The database has no history yet; run `cursor-gateway migrate`.",
    "53100": "The disk of the database is full; free some space, or keep less history.",
    "53300": "The database has too many connections; raise `max_connections`, or close some.",
    "55P03": _SLOW,
    "57014": _SLOW,
    "57P": "The database is shutting down or starting; retry in a moment.",
}
_LOST = "08"  # the SQLSTATE of a lost connection
_LOSSES = (_LOST, "53", "57P")  # of one that was lost or could not be opened, or has no room to work
_UNREACHABLE = "The database cannot be reached; check that it is running, and the setting `store`."
_UNKNOWN = "The database reported an error; see its log."


class _Text(StrDumperUnknown):
    """PostgreSQL stores neither lone surrogates nor NUL. Lookups replace them in the same way."""

    def dump(self, obj: str) -> Any:
        return super().dump(repair(obj).replace("\0", ""))


async def connect(url: str) -> PostgresConnection:
    """Raises `psycopg.Error`, or `SettingsError` for an invalid URL."""
    try:
        conninfo_to_dict(url)
    except psycopg.Error:
        raise SettingsError(
            "the setting `store` is not a valid URL; write `postgresql://user@host/database`.", param="store"
        ) from None  # what was raised may hold the password
    connection = await AsyncConnection.connect(url, autocommit=True, connect_timeout=_CONNECT_SECONDS, **LIVENESS)
    connection.adapters.register_dumper(str, _Text)
    settings = ", ".join(f"set_config('{name}', '{value}', false)" for name, value in _SETTINGS.items())
    try:
        await connection.execute(f"SELECT {settings}")
    except BaseException:
        await connection.close()
        raise
    return connection


def why(error: psycopg.Error) -> StoreUnavailable:
    state = error.sqlstate or ""
    default = _UNKNOWN if state else _UNREACHABLE
    message = next((said for code, said in _WHY.items() if state.startswith(code)), default)
    return StoreUnavailable(message, details=str(error).strip())


class PostgresConnections:
    """Those of one event loop. No owner has all of them at once, so that nobody's searches delay the others."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.health = StoreHealth()
        self._idle: list[PostgresConnection] = []
        self._room = asyncio.Semaphore(MOST_CONNECTIONS)
        self._shares: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()  # by owner
        self._is_closed = False
        self.losses = 0  # times that the server was unavailable, even if a retry succeeded

    async def run(self, work: Callable[[PostgresConnection], Awaitable[_T]]) -> _T:
        """The result of the work, which may be done several times."""
        try:
            async with asyncio.timeout(_CALL_SECONDS):
                result = await self._with_retries(work)
        except TimeoutError:
            slow = StoreUnavailable(_SLOW)
            self.health.failed("write", slow)
            raise slow from None
        except StoreUnavailable as error:
            if not self._is_closed:
                self.health.failed("write", error)
            raise
        self.health.worked("write")
        return result

    async def transaction(self, work: Callable[[PostgresConnection], Awaitable[_T]]) -> _T:
        """The same in a transaction, which an exception rolls back."""

        async def begun(connection: PostgresConnection) -> _T:
            async with connection.transaction():
                return await work(connection)

        return await self.run(begun)

    async def select(self, sql: str, values: Values = ()) -> list[dict[str, Any]]:
        return await self.run(lambda connection: rows_of(connection, sql, values))

    async def execute(self, sql: str, values: Values = ()) -> int:
        """Returns the number of rows."""

        async def work(connection: PostgresConnection) -> int:
            return (await connection.execute(sql, values)).rowcount

        return await self.run(work)

    async def change(self, change: str, values: Values, changed: str, changed_values: Values) -> bool:
        """Whether the first statement changes a row now, or the second finds one that it has changed, because the
        answer to the first try was lost."""

        async def work(connection: PostgresConnection) -> bool:
            if (await connection.execute(change, values)).rowcount:
                return True
            return (await connection.execute(changed, changed_values)).rowcount > 0

        return await self.run(work)

    async def close(self) -> None:
        self._is_closed = True
        await self._drop_idle()

    async def _with_retries(self, work: Callable[[PostgresConnection], Awaitable[_T]]) -> _T:
        pauses = iter(_PAUSES)
        while True:
            try:
                async with self._one() as connection:
                    return await work(connection)
            except psycopg.Error as error:
                pause = next(pauses, None)
                if _is_bug(error):
                    raise
                self.losses += _is_loss(error)
                if pause is None or not _is_transient(error):
                    raise why(error) from error
                if not isinstance(error, errors.IntegrityError | errors.DeadlockDetected):
                    await self._drop_idle()  # they are lost, too
                await asyncio.sleep(pause)

    @asynccontextmanager
    async def _one(self) -> AsyncIterator[PostgresConnection]:
        share = self._shares.setdefault(OWNER.get(), asyncio.Semaphore(MOST_CONNECTIONS - 1))
        async with share, self._room:
            if self._is_closed:
                raise StoreUnavailable(_CLOSED)
            connection = self._idle.pop() if self._idle else await connect(self._url)
            try:
                yield connection
            finally:
                await self._put_back(connection)

    async def _put_back(self, connection: PostgresConnection) -> None:
        if self._is_closed or connection.info.transaction_status is not TransactionStatus.IDLE:
            await connection.close()
        else:
            self._idle.append(connection)

    async def _drop_idle(self) -> None:
        idle, self._idle = self._idle, []
        for connection in idle:
            with suppress(psycopg.Error):
                await connection.close()


async def rows_of(connection: PostgresConnection, sql: str, values: Values) -> list[dict[str, Any]]:
    async with connection.cursor(row_factory=dict_row, binary=True) as cursor:
        await cursor.execute(sql, values)
        return await cursor.fetchall()


def _is_bug(error: psycopg.Error) -> bool:
    """A statement is wrong. Without tables or rights, it is not."""
    match error:
        case errors.UndefinedTable() | errors.InsufficientPrivilege():
            return False
        case _:
            return isinstance(error, psycopg.ProgrammingError | psycopg.DataError | psycopg.NotSupportedError)


def _is_loss(error: psycopg.Error) -> bool:
    """The server is unavailable or out of resources, for everyone."""
    is_connection = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    return is_connection and (error.sqlstate or _LOST).startswith(_LOSSES)


def _is_transient(error: psycopg.Error) -> bool:
    """The connection was lost, or another transaction got in the way: repeat the work."""
    match error:
        case errors.UniqueViolation() | errors.ForeignKeyViolation():
            return True
        case errors.DeadlockDetected() | errors.SerializationFailure():
            return True
        case errors.QueryCanceled() | errors.LockNotAvailable() | errors.DiskFull() | errors.InsufficientPrivilege():
            return False
        case psycopg.OperationalError() | psycopg.InterfaceError():
            return True
        case _:
            return False


@cache
def named(sql: str) -> str:
    """With the values named as psycopg names them; `::` is a cast."""
    return re.sub(r"(?<!:):(\w+)", r"%(\1)s", sql)
