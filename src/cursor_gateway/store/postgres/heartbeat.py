"""A thread that increments a member's beat every few seconds, however busy the event loop and the agents are.

It has a connection of its own. It stops while the event loop is stuck: a process that no longer does anything should be
considered dead.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Any

import psycopg

from cursor_gateway.store.postgres.connections import LIVENESS

_CONNECT_SECONDS = 5
_BEAT = "UPDATE members SET beat = beat + 1 WHERE id = %s"


class Heartbeat:
    def __init__(
        self, url: str, member: str, seconds: float, turns: Callable[[], bool], missed: Callable[[], None]
    ) -> None:
        self._url, self._member, self._seconds = url, member, seconds
        self._turns, self._missed = turns, missed
        self._ended = threading.Event()
        self._connection: psycopg.Connection[Any] | None = None
        self.beat_at = monotonic()  # when the last beat was sent that the database took
        self._thread = threading.Thread(target=self._work, name="heartbeat", daemon=True)

    def start(self) -> None:
        self._thread.start()

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
            self.beat_at = now
        else:
            self._missed()

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg.Error):
                connection.close()
