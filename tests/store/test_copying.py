"""A history that is copied from a file to a database is the same there."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
from click.testing import CliRunner

from cursor_gateway.cli.commands.operations import history
from cursor_gateway.store.base import Idempotency, IdempotentRun, Stored
from cursor_gateway.store.postgres.store import PostgresStore
from cursor_gateway.store.sql import SqlStore
from cursor_gateway.store.sqlite.store import SqliteStore
from tests.store.blocking import Database
from tests.store.making import (
    EVERY_DOCUMENT,
    EVERY_EVENT,
    ME,
    YOU,
    by_fingerprint,
    deltas,
    lease,
    new_run,
    rejected_command,
    run_end,
    whole_run,
)

LOCAL = "local"


def _fill(directory: Path) -> None:
    database = Database(directory)
    try:
        for number in range(
            12
        ):  # runs of two conversations take turns, so their order is not that of the conversations
            owner = ME if number % 2 else YOU
            whole_run(
                database, f"run{number}", f"conv{number % 2}", f"word{number} shared", owner=owner, at=1000 + number
            )
        every = new_run("every", "rich", "Héllo wörld \ud83d", at=5000, idempotency=Idempotency("key", "hash"))
        database.begin_run(every)
        assert isinstance(database.append(lease("every"), 1, EVERY_EVENT), Stored)
        end = run_end("every", documents=EVERY_DOCUMENT, at=6000, session_id="session", fingerprint="print")
        assert isinstance(database.append(lease("every"), len(EVERY_EVENT) + 1, deltas(1), end), Stored)
        database.name_reply(ME, "reply", IdempotentRun("every", "other", 3), 6001)
        database.keep_request("every", ME, 0, b"\0\xffkept")
        database.change_conversation("rich", ME, title="A title", is_pinned=True)
        whole_run(database, "unkeyed", "mine", "Said without a key", owner=LOCAL, documents=[rejected_command()])
        database.begin_run(new_run("active", "active"))
        database.append(lease("active"), 1, deltas(1))
    finally:
        database.close()


async def _everything(store: SqlStore, owner: str) -> Any:
    """All that the protocol tells about an owner's history, in its order."""
    listed = await store.conversations(owner, limit=100)
    found: list[Any] = [
        [one.conversation for one in listed.found],
        [(record.id, title, prompt) for record, title, prompt in await store.recent_runs(owner, 100)],
        (await store.conversations(owner, is_pinned=True)).found,
    ]
    for one in listed.found:
        found.append(await store.messages(one.conversation.id, owner))
        for run in await store.runs_of(one.conversation.id, owner):
            found.append((run, (await store.events(run.id, owner)).events, await store.kept_request(run.id, owner, 0)))
    for query in ("shared", "word7", "Said", "hello", "needle", "wor"):
        page = await store.conversations(owner, limit=100, query=query)
        found.append((query, [(one.conversation.id, one.snippet) for one in page.found]))
    for key in ("key", "reply"):
        found.append(await store.find_run_by_idempotency(owner, key))
    found.append(await by_fingerprint(store, owner, "print"))
    return found


def _all(store: SqlStore, *owners: str) -> list[Any]:
    async def live() -> list[Any]:
        try:
            return [await _everything(store, owner) for owner in owners]
        finally:
            await store.close()

    return asyncio.run(live())


def _comparable(found: list[Any]) -> Any:
    """PostgreSQL stores neither NUL nor halves of surrogate pairs."""
    text = msgspec.json.encode(found, enc_hook=list).decode()
    return msgspec.json.decode(text.replace("\\u0000", "").replace("�", ""))


def _copy(directory: Path, database: str, *options: str) -> tuple[int, str]:
    environ = {"CURSOR_GATEWAY_STORE": database, "CURSOR_GATEWAY_DATA_DIR": str(directory)}
    result = CliRunner(env=environ).invoke(history, ["copy", *options], standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return result.return_value, result.stderr


def test_all_but_active_runs_are_copied_once_in_order(tmp_path: Path, database: str) -> None:
    _fill(tmp_path)
    assert _copy(tmp_path, database, "--as", "alice") == (
        1,
        "Copied 4 conversations. Skipped 1 conversation with an active run; run the command again when it has ended.\n",
    )
    ended = Database(tmp_path)
    assert isinstance(ended.append(lease("active"), 2, deltas(2), run_end("active", at=9000)), Stored)
    ended.close()
    assert _copy(tmp_path, database, "--as", "alice") == (
        0,
        "Copied 1 conversation. The database already had 4 of them.\n",
    )
    copied = _all(PostgresStore(database), ME, YOU, "alice", LOCAL)
    original = _all(SqliteStore(tmp_path), ME, YOU, LOCAL, "nobody")
    expected = msgspec.json.decode(
        msgspec.json.encode(_comparable(original)).replace(b'"owner":"local"', b'"owner":"alice"')
    )
    for mine, theirs in zip(_comparable(copied), expected, strict=True):
        assert mine == theirs


def test_runs_that_start_after_a_copy_are_newer(tmp_path: Path, database: str) -> None:
    _fill(tmp_path)
    _copy(tmp_path, database)

    async def live() -> list[str]:
        store = PostgresStore(database)
        try:
            await store.begin_run(new_run("later", "later", at=1))
            return [record.id for record, _, _ in await store.recent_runs(ME, 2)]
        finally:
            await store.close()

    assert asyncio.run(live()) == ["later", "every"]
