"""When hints go out: at once, and those of the pause after that together."""

import asyncio
from contextlib import aclosing

import msgspec
import psycopg
import pytest
from msgspec import Raw
from psycopg import AsyncConnection

from cursor_gateway.store.cluster import Hint, NewEvents
from cursor_gateway.store.postgres import signals
from cursor_gateway.store.postgres.connections import PostgresConnection
from cursor_gateway.store.postgres.signals import PostgresHints, pause_after


class _Sender(PostgresHints):
    """Its statements wait until they may end."""

    def __init__(self) -> None:
        super().__init__("")
        self.sent: list[list[str]] = []
        self.may_end = asyncio.Event()

    async def _send(self, payloads: list[tuple[str, str]]) -> None:
        self.sent.append([text for _, text in payloads])
        await self.may_end.wait()


async def test_the_first_goes_out_at_once_and_the_others_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals, "_SHORTEST_SECONDS", 0.0)
    monkeypatch.setattr(signals, "_LONGEST_SECONDS", 0.0)
    sender = _Sender()
    sender.send("front", Hint("run", ["one"]))
    await asyncio.sleep(0)
    assert sender.sent == [['{"kind":"run","values":["one"]}']]
    for run in ("two", "three", "two"):
        sender.send("front", Hint("run", [run]))
    sender.send("front", Hint("outcome", ["command"]))
    sender.may_end.set()
    await sender.close()
    assert sender.sent[1:] == [['{"kind":"run","values":["two","three"]}', '{"kind":"outcome","values":["command"]}']]


async def test_events_go_with_their_hint_unless_they_are_too_long() -> None:
    def events(run: str, first: int, size: int) -> Hint:
        return Hint("run", [run], [NewEvents(run, first, Raw(b'["%b"]' % (b"x" * size)))])

    sender = _Sender()
    sender.may_end.set()
    for hint in (events("one", 1, 9), events("two", 1, 4000), events("long", 7, 4000), events("three", 1, 4000)):
        sender.send("front", hint)
    sender.send("front", events("one", 2, 9))
    sender.send("front", events("long", 8, 4000))
    await sender.close()
    (texts,) = sender.sent
    assert max(map(len, texts)) < 8000
    hints = [msgspec.json.decode(text, type=Hint) for text in texts]
    assert [hint.values for hint in hints] == [["one", "two", "long"], ["three"]]
    assert [[(one.run, one.first) for one in hint.events] for hint in hints] == [
        [("one", 1), ("one", 2), ("two", 1)],
        [("three", 1)],
    ]


def test_a_slow_database_is_asked_less_often() -> None:
    assert [pause_after(seconds) for seconds in (0.0, 0.0002, 0.001, 1.0)] == [0.002, 0.002, 0.004, 0.05]


@pytest.mark.parametrize(
    "payload",
    ['{"kind":"of a newer version","values":["x"]}', "not JSON", "[]", '{"kind":"run","values":7}', "[" * 5000, ""],
)
async def test_what_is_no_hint_is_skipped_and_counted(database: str, payload: str) -> None:
    listener = PostgresHints(database)
    async with aclosing(listener.listen("front")) as found, asyncio.timeout(60):
        assert await anext(found) == Hint("all")
        assert listener.is_listening
        with psycopg.connect(database, autocommit=True) as beside:
            for text in (payload, '{"kind":"queue","values":[],"added":1}'):
                beside.execute("SELECT pg_notify('cursor_gateway_runners', %s)", [text])
        assert await anext(found) == Hint("queue", [])
        assert (listener.skipped, listener.reconnections) == (1, 0)


async def test_a_lost_connection_is_reported_and_opened_again(database: str, caplog: pytest.LogCaptureFixture) -> None:
    listener = PostgresHints(database)
    async with aclosing(listener.listen("front")) as found, asyncio.timeout(60):
        await anext(found)
        with psycopg.connect(database, autocommit=True) as beside:
            listens = "query LIKE 'LISTEN %' AND datname = current_database()"
            beside.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {listens}")
        assert await anext(found) == Hint("all")
        assert (listener.is_listening, listener.reconnections) == (True, 1)
    assert not listener.is_listening
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]


async def test_a_listener_that_is_closed_watches_no_socket(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its number may soon be that of another socket."""
    loop, close, done = asyncio.get_running_loop(), AsyncConnection.close, list[str]()

    async def closed(connection: PostgresConnection) -> None:
        fd = connection.fileno()
        done.append("watched" if loop.remove_reader(fd) else "not watched")
        await close(connection)

    async with aclosing(PostgresHints(database).listen("front")) as found, asyncio.timeout(60):
        await anext(found)
        with psycopg.connect(database, autocommit=True) as beside:
            beside.execute('SELECT pg_notify(\'cursor_gateway_runners\', \'{"kind":"queue","values":[]}\')')
        await anext(found)
        monkeypatch.setattr(AsyncConnection, "close", closed)
    assert done == ["not watched"]
