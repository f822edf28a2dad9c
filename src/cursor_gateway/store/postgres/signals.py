"""What the processes of a cluster send each other besides commands: heartbeats and hints.

A thread increments a member's beat every few seconds, however busy the event loop and the agents are. It has a
connection of its own. It stops while the event loop is stuck: a process that no longer does anything should be
considered dead.

Hints are PostgreSQL's notifications.

A notification takes a lock of the whole database until its transaction has committed, so none is sent in a transaction
that does anything else: they are sent afterwards, by a connection of their own that does not wait for the disk. A hint
goes out at once if none did just before. Those that come while a statement is under way, or in the pause after it, go
out with the next one, each of them once. The slower the database is, the longer the pause, so the hints of all
processes take only a part of its capacity. Hints that fail are dropped. Few events go with the hint for them, so fronts
need not read them.
"""

import asyncio
import hashlib
import logging
import threading
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import aclosing, suppress
from time import monotonic
from typing import Any

import msgspec
import psycopg

from cursor_gateway.store.cluster import Hint, HintKind, NewEvents
from cursor_gateway.store.postgres.connections import LIVENESS, PostgresConnection, connect

_CONNECT_SECONDS = 5
_BEAT = "UPDATE members SET beat = beat + 1 WHERE id = %s"

_log = logging.getLogger(__name__)

_RUNNERS = "cursor_gateway_runners"
_LONGEST = 7000  # bytes of a payload; PostgreSQL's limit is 8000
_RECONNECT_SECONDS = 0.5
# After each statement, which wakes every listener of the database: this many times as long as it took, and within these
# bounds. An idle database takes 0.2 ms.
_PAUSE = 4
_SHORTEST_SECONDS, _LONGEST_SECONDS = 0.002, 0.05
_decode = msgspec.json.Decoder(Hint).decode


class PostgresHeartbeat:
    def __init__(
        self, url: str, member: str, seconds: float, turns: Callable[[], bool], missed: Callable[[], None]
    ) -> None:
        self._url, self._member, self._seconds = url, member, seconds
        self._turns, self._missed = turns, missed
        self._ended = threading.Event()
        self._connection: psycopg.Connection[Any] | None = None
        self._beat_at = monotonic()  # when the last beat was sent that the database took
        self._thread = threading.Thread(target=self._work, name="heartbeat", daemon=True)
        self._thread.start()

    @property
    def age(self) -> float:
        return monotonic() - self._beat_at

    def stop(self) -> None:
        self._ended.set()
        self._thread.join(timeout=_CONNECT_SECONDS)

    def _work(self) -> None:
        while not self._ended.wait(self._seconds):
            if self._turns():
                try:
                    self._beat()
                except psycopg.Error:
                    self._close()
        self._close()

    def _beat(self) -> None:
        now = monotonic()
        if self._connection is None:
            self._connection = psycopg.connect(
                self._url,
                autocommit=True,
                connect_timeout=_CONNECT_SECONDS,
                application_name="cursor-gateway heartbeat",
                options="-c statement_timeout=5s -c lock_timeout=5s",
                **LIVENESS,
            )
        if self._connection.execute(_BEAT, [self._member]).rowcount:
            self._beat_at = now
        else:
            self._missed()

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg.Error):
                connection.close()


class PostgresHints:
    def __init__(self, url: str) -> None:
        self._url = url
        self.reconnections = -1  # the first is none
        self.skipped = 0  # notifications that are no hints, or of a kind that only newer versions know
        self.is_listening = True  # until an attempt fails
        # By channel and kind, and by what is new; of runs, with their events.
        self._waiting: dict[tuple[str, HintKind], dict[str, list[NewEvents]]] = {}
        self._task: asyncio.Task[None] | None = None
        self._connection: PostgresConnection | None = None

    def send(self, to: str, hint: Hint) -> None:
        waiting = self._waiting.setdefault((_channel(to), hint.kind), {})
        for value in hint.values:
            waiting.setdefault(value, []).extend(one for one in hint.events if one.run == value)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._work(), name="hints")

    async def close(self) -> None:
        if self._task is not None:
            await self._task
        if self._connection is not None:
            await self._connection.close()

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._waiting:
                waiting, self._waiting = self._waiting, {}
                payloads = [
                    (channel, text) for (channel, kind), values in waiting.items() for text in _texts(kind, values)
                ]
                began = loop.time()
                with suppress(psycopg.Error, OSError):
                    await self._send(payloads)
                await asyncio.sleep(pause_after(loop.time() - began))
        finally:
            self._task = None

    async def _send(self, payloads: list[tuple[str, str]]) -> None:
        try:
            if self._connection is None:
                self._connection = await connect(self._url)
                await self._connection.execute("SET synchronous_commit = off")
            channels, texts = zip(*payloads, strict=True)
            await self._connection.execute(
                "SELECT pg_notify(channel, text) FROM unnest(%s::text[], %s::text[]) AS given (channel, text)",
                [list(channels), list(texts)],
            )
        except BaseException:
            connection, self._connection = self._connection, None
            if connection is not None:
                await connection.close()
            raise

    # --- receiving ----------------------------------------------------------------------------------

    async def listen(self, member: str) -> AsyncGenerator[Hint, None]:
        while True:
            try:
                connection = await connect(self._url)
                self.reconnections += 1
                try:
                    for channel in (_channel(member), _RUNNERS):
                        await connection.execute(f"LISTEN {channel}")
                    self._set_listening()
                    yield Hint("all")
                    async with aclosing(_notifications(connection)) as payloads:
                        async for payload in payloads:
                            if (hint := self._hint(payload)) is not None:
                                yield hint
                finally:
                    await connection.close()
            except (psycopg.Error, OSError) as error:
                self._set_lost(error)
            finally:
                self.is_listening = False
            await asyncio.sleep(_RECONNECT_SECONDS)

    def _hint(self, payload: bytes) -> Hint | None:
        try:
            return _decode(payload)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            self.skipped += 1
            return None

    def _set_listening(self) -> None:
        self.is_listening = True
        if self.reconnections:
            _log.warning("Notifications of other processes arrive again.")

    def _set_lost(self, error: Exception) -> None:
        if self.is_listening:
            facts = {"details": str(error).strip()}
            _log.error("Notifications of other processes were lost; new events may be late.", extra={"facts": facts})


async def _notifications(connection: PostgresConnection) -> AsyncGenerator[bytes, None]:
    """The payloads that arrive. The event loop watches the socket all the time: psycopg's own generator starts to watch
    it again for each of them, and every tenth of a second, which takes most of the time of a notification.

    Raises `psycopg.OperationalError`.
    """
    loop, arrived, received = asyncio.get_running_loop(), asyncio.Event(), connection.pgconn
    socket = received.socket
    loop.add_reader(socket, arrived.set)
    try:
        while True:
            arrived.clear()
            received.consume_input()
            while (notification := received.notifies()) is not None:
                yield notification.extra
            await arrived.wait()
    finally:
        loop.remove_reader(socket)


def pause_after(seconds: float) -> float:
    """After a statement that took so long."""
    return min(max(_PAUSE * seconds, _SHORTEST_SECONDS), _LONGEST_SECONDS)


def _channel(member: str) -> str:
    return f"cursor_gateway_{hashlib.sha256(member.encode()).hexdigest()[:24]}" if member else _RUNNERS


def _texts(kind: HintKind, values: Mapping[str, list[NewEvents]]) -> Iterator[str]:
    """Payloads that are short enough. Of a run, all events or none."""
    hint, size = Hint(kind), 0
    for value, events in values.items():
        length = sum(len(one.data) + len(value) + 20 for one in events)
        if length > _LONGEST - 400:
            events, length = [], 0
        length += len(value) + 3
        if size and size + length > _LONGEST - 200:
            yield msgspec.json.encode(hint).decode()
            hint, size = Hint(kind), 0
        hint = Hint(kind, (*hint.values, value), (*hint.events, *events))
        size += length
    yield msgspec.json.encode(hint).decode()
