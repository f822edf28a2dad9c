"""The local store: what is short is done at once, what may be long keeps nobody waiting."""

import asyncio
import inspect
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from cursor_gateway.errors import SettingsError
from cursor_gateway.model.document_events import ContentDelta
from cursor_gateway.store import batches
from cursor_gateway.store.base import HistoryLimits, IdempotentRun, Store, StoreUpkeep
from cursor_gateway.store.sqlite import maintenance
from cursor_gateway.store.sqlite.opening import FILE
from cursor_gateway.store.sqlite.store import SqliteStore
from tests.runs.scripted import at_once
from tests.store.blocking import Database, blocking
from tests.store.making import ME, deltas, lease, new_run, run_end, whole_run

Call = Callable[[SqliteStore], Coroutine[Any, Any, object]]

SHORT: dict[str, Call] = {
    "begin_run": lambda store: store.begin_run(new_run("other")),
    "begin_run, with events": lambda store: store.begin_run(new_run("other"), deltas(1)),
    "append": lambda store: store.append(lease("run"), 1, deltas(1)),
    "append, with the end": lambda store: store.append(lease("run"), 1, deltas(1), run_end()),
    "change_conversation": lambda store: store.change_conversation("conv", ME, title="t", is_pinned=True),
    "run": lambda store: store.run("run", ME),
    "run, in the queue": lambda store: store.queue.entry("run", ME),
    "run, that leaves the queue": lambda store: store.queue.release("run", 1),
    "runs_of": lambda store: store.runs_of("conv", ME),
    "conversation": lambda store: store.conversation("conv", ME),
    "conversations, with a fingerprint": lambda store: store.conversations(ME, fingerprint="f"),
    "find_by_link": lambda store: store.find_by_link("hash"),
    "claim_run": lambda store: store.claim_run("run", 1),
    "find_run_by_calls": lambda store: store.find_run_by_calls(ME, ["call"]),
    "find_run_by_idempotency": lambda store: store.find_run_by_idempotency(ME, "key"),
    "name_reply": lambda store: store.name_reply(ME, "key", IdempotentRun("run", "", 1), 1000),
    "usage": lambda store: store.usage(ME, "2026-01-01"),
}
LONG: dict[str, Call] = {
    "delete_conversation": lambda store: store.delete_conversation("conv", ME),
    "prune": lambda store: store.prune(HistoryLimits(), 0),
    "prune, by owner": lambda store: store.prune(HistoryLimits(max_bytes_per_owner=10**9), 0),
    "keep_request": lambda store: store.keep_request("run", ME, 0, b"{}" * 50_000),
    "kept_request": lambda store: store.kept_request("run", ME, 0),
    "keep_request, forgotten": lambda store: store.keep_request("run", ME, 0, None),
    "set_decided": lambda store: store.set_decided("run", ME),
    "recent_runs": lambda store: store.recent_runs(ME, 10),
    "unfinished_runs": lambda store: store.unfinished_runs(),
    "events": lambda store: store.events("run", ME),
    "conversations": lambda store: store.conversations(ME),
    "messages": lambda store: store.messages("conv", ME),
    "unknown_conversations": lambda store: store.unknown_conversations(["conv"]),
    "size": lambda store: store.size(),
    "probe": lambda store: store.probe(),
    "close": lambda store: store.close(),
}


@pytest.fixture
def local(tmp_path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(tmp_path)
    at_once(opened.begin_run(new_run()))
    yield opened
    blocking(opened).close()


def test_every_call_is_short_or_long() -> None:
    members = {**vars(Store), **vars(StoreUpkeep)}
    methods = {name for name, member in members.items() if inspect.iscoroutinefunction(member)}
    assert {name.partition(",")[0] for name in (*SHORT, *LONG)} == methods
    assert not SHORT.keys() & LONG.keys()


@pytest.mark.parametrize("name", SHORT)
def test_what_is_short_does_not_wait(local: SqliteStore, name: str) -> None:
    at_once(SHORT[name](local))


def test_a_short_request_is_kept_without_waiting(local: SqliteStore) -> None:
    at_once(local.keep_request("run", ME, 0, b"{}"))
    assert blocking(local).kept_request("run", ME, 0) == b"{}"


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", LONG)
def test_what_may_be_long_leaves_the_loop_to_others(
    local: SqliteStore, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Until the loop has gone on, the database does not answer."""
    with monkeypatch.context() as patch:
        goes_on_meanwhile(LONG[name], local, patch, local._connections, "reading", "writing", "write", "close")


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("name", SHORT)
def test_while_many_runs_are_moved_what_is_short_leaves_the_loop_to_others(
    local: SqliteStore, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(maintenance, "_GATHERING", 3600)
    for id in ("big", "large"):
        new, said = new_run(id, id), [ContentDelta("doc_001", "x" * 50_000)]
        at_once(local.begin_run(replace(new, is_first=True), said, run_end(id)))
    with monkeypatch.context() as patch:
        goes_on_meanwhile(SHORT[name], local, patch, batches, "compress")


def goes_on_meanwhile(call: Call, store: SqliteStore, patch: pytest.MonkeyPatch, owner: object, *methods: str) -> None:
    goes_on = threading.Event()

    def waiting(method: Callable[..., object]) -> Callable[..., object]:
        def answer(*values: object, **named: object) -> object:
            assert goes_on.wait(60)
            return method(*values, **named)

        return answer

    async def live() -> None:
        asyncio.get_running_loop().call_soon(goes_on.set)
        await call(store)

    for method in methods:
        patch.setattr(owner, method, waiting(getattr(owner, method)))
    asyncio.run(live())


def test_large_messages_do_not_slow_down_what_is_stored_beside_them(tmp_path: Path) -> None:
    """In CPU time; the best of three, because others may use the caches meanwhile."""
    store = Database(tmp_path)
    for number in range(9):
        whole_run(store, f"run{number}", f"conv{number}", "x" * 4_000_000 if number % 3 == 1 else "x")
    took = []
    for conversation in ("conv3", "conv5", "conv6"):
        began = time.thread_time()
        store.begin_run(new_run(f"in {conversation}", conversation, *["x"] * 9_000))
        took.append(time.thread_time() - began)
    store.close()
    assert min(took) < 0.25


async def test_opening_tells_what_the_database_tells(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    assert await store.open(0) is None
    await store.close()
    (tmp_path / FILE).write_bytes(b"no database" * 1000)
    damaged = SqliteStore(tmp_path)
    assert (await damaged.open(0) or "").startswith("The history")
    await damaged.close()
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError):
        await SqliteStore(tmp_path / "file").open(0)
