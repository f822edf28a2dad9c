"""Databases for tests: one server for a session; an empty one, a new history or an emptied one for each test."""

import asyncio
import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import psycopg

from cursor_gateway.store.postgres.schema import migrate
from tools.postgres import Server, running

_TEMPLATE = "history"


class Databases:
    def __init__(self, server: Server) -> None:
        self.server = server
        self._numbers = itertools.count(1)
        self._shared = self._emptying = ""
        template = server.create_database(_TEMPLATE)
        with ThreadPoolExecutor(1) as thread:  # a browser that is open in this thread has its own event loop
            thread.submit(asyncio.run, migrate(template)).result()

    @contextmanager
    def history(self) -> Iterator[str]:
        """The URL of a database with the newest tables."""
        with self._new(_TEMPLATE) as url:
            yield url

    def emptied(self) -> str:
        """The URL of a history that many tests use in turn, without what the one before has left in its tables.

        This takes a fraction of the time that a new database takes. A test that changes the tables themselves, or that
        other connections outlive, needs one of its own.
        """
        with psycopg.connect(self._shared or self._share(), autocommit=True) as connection:
            connection.execute(self._emptying.encode())
        return self._shared

    def _share(self) -> str:
        """With a copy of the rows that a new history has, in a schema of its own."""
        self._shared = self.server.create_database("shared", _TEMPLATE)
        with psycopg.connect(self._shared, autocommit=True) as connection:
            connection.execute("CREATE SCHEMA kept")
            for name in _tables(connection):
                if connection.execute(f"SELECT 1 FROM {name} LIMIT 1".encode()).fetchone():
                    connection.execute(f"CREATE TABLE kept.{name} AS SELECT * FROM public.{name}".encode())
            sequences = connection.execute("SELECT sequencename FROM pg_sequences WHERE schemaname = 'public'")
            self._emptying = "; ".join(
                [
                    "SET session_replication_role = replica",  # foreign keys would want an order
                    *(f"DELETE FROM {name}" for name in _tables(connection)),
                    *(f"INSERT INTO {name} SELECT * FROM kept.{name}" for name in _tables(connection, "kept")),
                    *(f"ALTER SEQUENCE {name} RESTART" for (name,) in sequences),
                ]
            )
        return self._shared

    @contextmanager
    def empty(self) -> Iterator[str]:
        with self._new("template1") as url:
            yield url

    @contextmanager
    def _new(self, template: str) -> Iterator[str]:
        name = f"test{next(self._numbers)}"
        yield self.server.create_database(name, template)
        self.server.drop_database(name)


def _tables(connection: psycopg.Connection[tuple[Any, ...]], schema: str = "public") -> list[str]:
    found = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", [schema])
    return [name for (name,) in found]


@contextmanager
def databases() -> Iterator[Databases]:
    with running() as server:
        yield Databases(server)
