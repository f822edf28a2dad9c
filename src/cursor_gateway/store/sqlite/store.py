"""The history in a local SQLite file, as a `Store`. Any number of processes may share it.

The events of a running run are in a file of its own, and move into the database when it has ended: see `run_files.py`
and `moving.py`. A batch is one write, and in the file before `append` returns: a process killed after that loses none
of it (a power failure may). In the database, the batches of a run are stored in order and without gaps, so the last row
says how many events there are, and a repeated `append` stores only what is missing.

A run is `running` until exactly one `append` ends it; after that, nothing can be appended. A run that another process
has claimed is not in a file any more: its batches are appended to the database, if the lease is valid. Deleting a
conversation first sets its owner to NULL, which hides it from every query in the same transaction; its rows are removed
in the background. So a deleted conversation never reappears, even after a crash halfway through.

Short calls run in the event loop's thread: storing a batch takes less time than passing it to another thread. Calls
that may be long run in a worker thread.
"""

import asyncio
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import time_ns
from typing import Any, TypeVar

from cursor_gateway.errors import HistoryDamaged, StoreUnavailable
from cursor_gateway.model.document_events import DocumentEvent, Paused
from cursor_gateway.stages import search_tokens
from cursor_gateway.stages.search_tokens import Query
from cursor_gateway.store import batches
from cursor_gateway.store.base import (
    Busy,
    Fenced,
    FoundConversation,
    KeyTaken,
    Lease,
    MakeNotices,
    NewRun,
    RunEnd,
    RunRecord,
    Stored,
    Superseded,
    Written,
    ended_record,
)
from cursor_gateway.store.sql import (
    DELETED_AT_ONCE,
    IS_RUNNING,
    MOST,
    OWN_RUN,
    START,
    ByRun,
    SqlStore,
    conversation_of,
    select_conversations,
    select_runs,
)
from cursor_gateway.store.sqlite import writing
from cursor_gateway.store.sqlite.connections import Connections
from cursor_gateway.store.sqlite.indexing import TEXT, Indexer, expression
from cursor_gateway.store.sqlite.maintenance import Maintenance
from cursor_gateway.store.sqlite.moving import RunFiles, is_alone
from cursor_gateway.store.sqlite.opening import FILE
from cursor_gateway.store.sqlite.queue import SqliteQueue
from cursor_gateway.store.sqlite.run_files import FOLDER
from cursor_gateway.store.sqlite.writing import EVENT_COUNT, NOW_MS, Change, Write
from cursor_gateway.store.texts import conversation_scope, owner_scope, snippet
from cursor_gateway.wire.surrogates import repair

_T = TypeVar("_T")

_CAUTION = 0.75  # delete this share of the estimated surplus, then measure again

# --- statements -------------------------------------------------------------------------------------

_OF_CALL = """
    JOIN calls ON calls.run = runs.key
    WHERE calls.owner = :owner AND calls.id = :id AND conversations.owner = :owner
"""
_CONVERSATIONS = select_conversations()
_EVENTS_AFTER = """
    SELECT place & 0xffffffff, data FROM events
    WHERE place >= coalesce(
        (SELECT max(place) FROM events WHERE place BETWEEN :run << 32 AND :run << 32 | :next), :run << 32
    ) AND place <= :run << 32 | 0xffffffff ORDER BY place
"""
_MATCHES = """
    SELECT runs.key, runs.conversation
    FROM search
        JOIN runs ON runs.key = -search.rowid
        JOIN conversations ON conversations.key = runs.conversation
    WHERE search MATCH ? AND search.rowid > -? AND conversations.owner = ? ORDER BY search.rowid
"""
_NEWER_MATCH = "SELECT 1 FROM search WHERE search MATCH ? AND rowid BETWEEN -? AND -? LIMIT 1"
_OLDEST = f"""
    SELECT key FROM conversations WHERE owner IS NOT NULL AND updated_ms <= ? AND NOT {IS_RUNNING}
    ORDER BY updated_ms LIMIT ?
"""


class SqliteStore(SqlStore):
    _runs = select_runs(EVENT_COUNT)
    _conversations = _CONVERSATIONS
    _is_pinned = "pinned = 1"
    _sizes = """
        SELECT conversations.key, conversations.owner, coalesce(sum(length(events.data)), 0) AS size
        FROM conversations
            LEFT JOIN runs ON runs.conversation = conversations.key
            LEFT JOIN events ON events.place BETWEEN runs.key << 32 AND runs.key << 32 | 0xffffffff
        WHERE conversations.owner IS NOT NULL
        GROUP BY conversations.key ORDER BY conversations.updated_ms DESC
    """

    _now_ms, _locked = NOW_MS, ""

    def __init__(self, directory: Path, make_notices: MakeNotices | None = None) -> None:
        self._make_notices = make_notices
        self._connections = Connections(directory / FILE)
        self.health = self._connections.health
        self._indexer = Indexer(self._connections)
        self._files = RunFiles(directory / FOLDER, self._connections, self._indexer, make_notices)
        self._maintenance = Maintenance(self._connections, self._indexer, self._files)
        rows, write = partial(self._select, is_short=True), partial(self._execute, is_short=True)
        self.queue = SqliteQueue(rows, write, lambda: time_ns() // 1_000_000)

    async def open(self, now_ms: int) -> str | None:
        """Returns a warning if a damaged file was set aside. Optional: every call opens the file if needed.

        Raises `SettingsError` for what only the operator can fix, `StoreUnavailable` for what may be temporary.
        """
        warning = await asyncio.to_thread(self._connections.open, now_ms)
        damages: list[str] = []
        with suppress(StoreUnavailable):  # whoever asks for these runs tries again
            damages = await asyncio.to_thread(self._files.recover)
        await asyncio.to_thread(self._files.remove_spares)
        self._maintenance.clean_up_soon()
        return " ".join([warning, *damages] if warning else damages) or None

    async def close(self) -> None:
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._files.is_closed = True
        self._maintenance.close()
        self._files.close()
        self._connections.close()

    # --- runs, in the event loop --------------------------------------------------------------------

    async def begin_run(
        self, new: NewRun, events: Sequence[DocumentEvent] = (), end: RunEnd | None = None
    ) -> KeyTaken | Busy | Superseded | Written:
        if is_alone(new) and Paused not in map(type, events):
            written = self._begin_file(new, events, end)
            if written is not None:
                return written
        await self._settled()
        begun = self._apply(partial(self._files.enter, new=new)).result
        if not isinstance(begun, Lease):
            return begun
        return await self.append(begun, 1, events, end) if events or end is not None else Stored(0)

    def _begin_file(self, new: NewRun, events: Sequence[DocumentEvent], end: RunEnd | None) -> Written | None:
        """None if there is such a file already, which is not of this process."""
        written = self._files.append(self._files.begin(new, is_entered=False), 1, events, end)
        if written is None:
            self._files.leave(new.id)
        self._maintenance.has_files()
        return written

    async def append(
        self, lease: Lease, first_number: int, events: Sequence[DocumentEvent], end: RunEnd | None = None
    ) -> Written:
        """If the file is not as it was left, the database knows whether the run was claimed or deleted. If only the
        file is gone, the writer sends its events again. From then on, they are appended to the database."""
        if (file := self._files.of(lease)) is not None:
            if end is None and Paused in map(type, events):
                fenced = await self._add_calls(lease, first_number, events)
                if fenced is not None:
                    return fenced
            if (written := self._files.append(file, first_number, events, end)) is not None:
                if end is not None:
                    self._maintenance.has_files()
                return written
            self._files.leave(lease.run_id)
        self._files.take(lease.run_id)
        make = self._make_notices
        return self._apply(lambda connection: writing.append(connection, lease, first_number, events, end, make)).result

    async def _add_calls(self, lease: Lease, first_number: int, events: Sequence[DocumentEvent]) -> Fenced | None:
        """Before the events: a call that is not shown yet can be found, but not the other way round."""
        await self._settled()
        make = self._make_notices
        return self._apply(lambda connection: writing.add_calls(connection, lease, first_number, events, make)).result

    def _apply(self, write: Write[_T]) -> Change[_T]:
        """In one transaction."""
        with self._connections.writing() as connection:
            change = write(connection)
        if change.note is not None:
            self._indexer.note(change.run, change.note)
        if change.size or change.note is not None:
            self._maintenance.wrote(change.size)
        return change

    async def _settled(self) -> None:
        """In a thread, if there is much: to compress it may take half a second."""
        if self._files.has_much:
            await asyncio.to_thread(self._settle)
        self._settle()

    def _settle(self) -> None:
        """Before a call that could notice that the database does not have everything yet."""
        if written := self._files.settle():
            self._maintenance.wrote(written)

    def _settle_to_read(self, ids: Iterable[object] = ()) -> None:
        """The rest can be read even if nothing can be written."""
        try:
            self._settle()
        except StoreUnavailable:
            if self._files.lacks(ids):
                raise

    async def claim_run(self, run_id: str, epoch: int) -> Lease | None:
        await self._settled()
        lease = Lease(run_id, epoch + 1)
        return lease if self._files.claim(lease) else None

    async def find_run_by_calls(self, owner: str, call_ids: Iterable[str]) -> RunRecord | None:
        for id in call_ids:
            if found := await self._select(f"{self._runs} {_OF_CALL}", {"owner": owner, "id": id}, is_short=True):
                return self._all(self._run_of, found)[0]
        return None

    # --- reading ------------------------------------------------------------------------------------

    def _found_damage(self, error: Exception) -> HistoryDamaged:
        self._connections.found_damage(str(error))
        return super()._found_damage(error)

    def _run_of(self, row: dict[str, Any]) -> RunRecord:
        if row["state"] == "running" and not row["event_count"]:
            row["event_count"] = self._files.count(row["id"])
        return super()._run_of(row)

    async def run(self, id: str, owner: str) -> RunRecord | None:
        """A run that could not be moved yet is read from its file."""
        try:
            return await super().run(id, owner)
        except StoreUnavailable:
            if (file := self._files.own(id, owner)) is None or file.end is None:
                raise
            return ended_record(file.new, file.end, file.count)

    async def kept_request(self, run_id: str, owner: str, after: int) -> bytes | None:
        try:
            return await super().kept_request(run_id, owner, after)
        except StoreUnavailable:
            if (file := self._files.own(run_id, owner)) is None or after or not file.new.request:
                raise
            return file.new.request

    async def unfinished_runs(self, instance: str | None = None) -> list[RunRecord]:
        await asyncio.to_thread(self._files.recover)
        return await super().unfinished_runs(instance)

    async def _events(self, run_id: str, owner: str, next: int, max_bytes: int) -> list[DocumentEvent]:
        def in_file() -> list[DocumentEvent]:
            found = self._files.read(run_id, next, max_bytes)
            return _up_to(((batch.first, batch.data) for batch in found), next, max_bytes)

        def read() -> list[DocumentEvent]:
            try:
                self._settle_to_read((run_id,))
            except StoreUnavailable:
                if self._files.own(run_id, owner) is None:
                    raise
                return in_file()
            with self._connections.reading() as connection:
                found = connection.execute(OWN_RUN, {"id": repair(run_id), "owner": owner}).fetchone()
                if found is None:
                    return []
                rows = connection.execute(_EVENTS_AFTER, {"run": found[0], "next": next})
                return _up_to(rows, next, max_bytes) or in_file()

        return await asyncio.to_thread(read) or await asyncio.to_thread(read)  # its file may have moved in between

    async def unknown_conversations(self, ids: Sequence[str]) -> list[str]:
        def read() -> list[str]:
            self._settle_to_read(ids)
            with self._connections.reading() as connection:
                known = "SELECT 1 FROM conversations WHERE id = ? AND owner IS NOT NULL"
                return [id for id in ids if connection.execute(known, (repair(id),)).fetchone() is None]

        return await asyncio.to_thread(read)

    async def _matches(
        self, owner: str, words: list[str], place: ByRun, limit: int
    ) -> tuple[list[int], list[FoundConversation]]:
        """The index returns runs by key, newest first, and lazily, so a page costs the same however many matches there
        are."""
        query = search_tokens.query(words)
        match = expression(query, owner_scope(owner))
        page: dict[int, int] = {}  # conversations, and their runs
        shown: set[int] = set()

        def search() -> list[FoundConversation]:
            self._settle_to_read()
            self._indexer.catch_up()
            with self._connections.reading() as connection:
                for run, conversation in connection.execute(_MATCHES, (match, place.last, owner)):
                    if conversation in page or conversation in shown:
                        continue
                    if place is not START and _was_shown(connection, conversation, query, place):
                        shown.add(conversation)
                        continue
                    page[conversation] = run
                    if len(page) > limit:
                        break
                shown_now = list(page.items())[:limit]
                return self._readable(lambda found: _found(connection, found[0], found[1], words), shown_now)

        found = await asyncio.to_thread(search)
        return list(page.values()), found

    # --- deleting -----------------------------------------------------------------------------------

    async def delete_conversation(self, id: str, owner: str) -> bool:
        which = "SELECT key FROM conversations WHERE owner = ? AND id = ?"
        if not await asyncio.to_thread(self._hide, which, (owner, repair(id))):
            return False
        self._maintenance.sweep_soon()
        return True

    async def _delete_row(self, sql: str, values: Mapping[str, object]) -> bool:
        return await self._execute(sql, values) > 0

    async def _delete_idle(self, keys: Sequence[int]) -> int:
        marks = ", ".join("?" * len(keys))
        which = f"SELECT key FROM conversations WHERE key IN ({marks}) AND NOT {IS_RUNNING}"
        return await asyncio.to_thread(self._hide, which, keys)

    async def _delete_oldest(self, until_ms: int) -> int:
        return await asyncio.to_thread(self._hide, _OLDEST, (until_ms, DELETED_AT_ONCE))

    async def _shrink(self, max_bytes: int | None, file_sizes: Mapping[str, int]) -> int:
        await asyncio.to_thread(self._maintenance.sweep)
        deleted = 0
        while max_bytes is not None:
            surplus = await asyncio.to_thread(self._surplus, max_bytes, await self._size_of_files(file_sizes))
            some = await asyncio.to_thread(self._hide, _OLDEST, (MOST, surplus))
            if not some:
                break
            deleted += some
            await asyncio.to_thread(self._maintenance.sweep)  # words of deleted runs take space until then
        return deleted

    def _hide(self, which: str, values: Sequence[object]) -> int:
        """Hides the conversations whose keys this statement selects from every query. Returns how many they are. Their
        rows are removed later. Their files go first: one that is left could bring its conversation back."""
        self._settle()
        with self._connections.writing() as connection:
            keys = connection.execute(which, values).fetchall()
            for (key,) in keys:
                found = connection.execute("SELECT id FROM runs WHERE conversation = ?", (key,))
                self._files.remove(id for (id,) in found)
            for table in ("idempotency", "requests", "calls"):
                of_runs = "WHERE run IN (SELECT key FROM runs WHERE conversation = ?)"
                connection.executemany(f"DELETE FROM {table} {of_runs}", keys)
            for (key,) in keys:
                named = connection.execute("SELECT owner, id FROM conversations WHERE key = ?", (key,)).fetchone()
                connection.execute("DELETE FROM queue WHERE owner = ? AND conversation = ?", named)
            connection.executemany(
                "UPDATE conversations SET owner = NULL, title = '', workspace = '', session_id = NULL,"
                " fingerprint = NULL, link_hash = NULL, linked_ms = NULL WHERE key = ?",
                keys,
            )
        return len(keys)

    def _surplus(self, max_bytes: int, other_bytes: int) -> int:
        """How many conversations to delete next, assuming equal sizes; the caller repeats until it returns 0."""
        page, pages, free = self._figures("page_size", "page_count", "freelist_count")
        used = (pages - free) * page + other_bytes
        if used <= max_bytes:
            return 0
        (found,) = self._rows("SELECT count(*) AS count FROM conversations WHERE owner IS NOT NULL", {})
        return max(1, int(found["count"] * (1 - max_bytes / used) * _CAUTION))

    async def size(self) -> int:
        page, pages = await asyncio.to_thread(self._figures, "page_size", "page_count")
        try:
            log = self._connections.path.with_name(f"{FILE}-wal").stat().st_size
        except FileNotFoundError:
            log = 0
        return pages * page + log + await asyncio.to_thread(self._files.size)

    async def probe(self) -> None:
        await asyncio.to_thread(self._files.probe)
        await self._select("SELECT merges FROM upkeep", {})
        await self._execute("UPDATE upkeep SET merges = merges", {})

    def _figures(self, *pragmas: str) -> list[int]:
        with self._connections.reading() as connection:
            return [int(connection.execute(f"PRAGMA {pragma}").fetchone()[0]) for pragma in pragmas]

    # --- statements ---------------------------------------------------------------------------------

    async def _select(self, sql: str, values: Mapping[str, object], *, is_short: bool = False) -> list[dict[str, Any]]:
        is_short = is_short and not self._files.has_much
        return self._rows(sql, values) if is_short else await asyncio.to_thread(self._rows, sql, values)

    async def _execute(self, sql: str, values: Mapping[str, object], *, is_short: bool = False) -> int:
        is_short = is_short and not self._files.has_much
        return self._write(sql, values) if is_short else await asyncio.to_thread(self._write, sql, values)

    async def _change(self, sql: str, values: Mapping[str, object]) -> list[dict[str, Any]]:
        return await asyncio.to_thread(self._changed, sql, values)

    def _changed(self, sql: str, values: Mapping[str, object]) -> list[dict[str, Any]]:
        with self._connections.writing() as connection:
            return _named(connection.execute(sql, _repaired(values)))

    def _rows(self, sql: str, values: Mapping[str, object]) -> list[dict[str, Any]]:
        self._settle_to_read(values.values())
        with self._connections.reading() as connection:
            return _named(connection.execute(sql, _repaired(values)))

    def _write(self, sql: str, values: Mapping[str, object]) -> int:
        self._settle()
        count = self._connections.write(sql, _repaired(values))
        self._maintenance.wrote(sum(len(value) for value in values.values() if isinstance(value, bytes)))
        return count


def _repaired(values: Mapping[str, object]) -> dict[str, object]:
    return {name: repair(value) if isinstance(value, str) else value for name, value in values.items()}


def _named(cursor: sqlite3.Cursor) -> list[dict[str, Any]]:
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor]


def _up_to(rows: Iterable[tuple[int, bytes]], next: int, max_bytes: int) -> list[DocumentEvent]:
    """From the event `next` on. `rows` are batches, each with the number of its first event."""
    found, size = list[DocumentEvent](), 0
    for first, stored in rows:
        data = batches.decompress(stored)
        found += batches.decode(data, max(0, next - first))
        size += len(data)
        if size >= max_bytes:
            break
    return found


def _was_shown(connection: sqlite3.Connection, conversation: int, query: Query, place: ByRun) -> bool:
    """Whether it is on an earlier page: then it has a newer matching run."""
    match = expression(query, conversation_scope(conversation))
    return connection.execute(_NEWER_MATCH, (match, place.top, place.last)).fetchone() is not None


def _found(connection: sqlite3.Connection, key: int, run: int, words: list[str]) -> FoundConversation:
    (row,) = _named(connection.execute(f"{_CONVERSATIONS} WHERE key = ?", (key,)))
    (text,) = connection.execute(TEXT, (run,)).fetchone()
    return FoundConversation(conversation_of(row), snippet(text, words))
