"""Databases for tests: one server for a session, an empty one or a new history for each test."""

import asyncio
import itertools
from collections.abc import Iterator
from contextlib import contextmanager

from cursor_gateway.store.postgres.schema import migrate
from tools.postgres import Server, running

_TEMPLATE = "history"


class Databases:
    def __init__(self, server: Server) -> None:
        self.server = server
        self._numbers = itertools.count(1)
        asyncio.run(migrate(server.create_database(_TEMPLATE)))

    @contextmanager
    def history(self) -> Iterator[str]:
        """The URL of a database with the newest tables."""
        with self._new(_TEMPLATE) as url:
            yield url

    @contextmanager
    def empty(self) -> Iterator[str]:
        with self._new("template1") as url:
            yield url

    @contextmanager
    def _new(self, template: str) -> Iterator[str]:
        name = f"test{next(self._numbers)}"
        yield self.server.create_database(name, template)
        self.server.drop_database(name)


@contextmanager
def databases() -> Iterator[Databases]:
    with running() as server:
        yield Databases(server)
