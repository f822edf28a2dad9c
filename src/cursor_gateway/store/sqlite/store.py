"""The history in an SQLite file, as a `Store`.

Short calls run in the event loop's thread: storing a batch takes less time than passing it to another thread. Calls
that may be long run in a worker thread.

What several runs write in the same turn of the event loop is committed together, at the end of the turn: one
transaction for all of them costs little more than one for each. A single writer does not wait for that.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from cursor_gateway.model.document_events import DocumentEvent
from cursor_gateway.store.base import (
    Begun,
    Busy,
    ConversationPage,
    ConversationRecord,
    EventPage,
    IdempotentRun,
    KeyTaken,
    Lease,
    MessageRecord,
    NewRun,
    RunEnd,
    RunRecord,
    Written,
)
from cursor_gateway.store.sqlite import writing
from cursor_gateway.store.sqlite.database import Database
from cursor_gateway.store.sqlite.group_commit import GroupCommit

_SHORT = 64 * 1024  # bytes that are written in less time than passing them to another thread takes


class SqliteStore:
    def __init__(self, directory: Path) -> None:
        self.database = Database(directory)
        self._group = GroupCommit(self.database)
        self._running: set[str] = set()  # runs that have begun here, and not ended

    async def open(self, now_ms: int) -> str | None:
        """Returns a warning if a damaged file was set aside. Optional: every call opens the file if needed.

        Raises `SettingsError` for what only the operator can fix, `StoreUnavailable` for what may be temporary.
        """
        return await asyncio.to_thread(self.database.open, now_ms)

    async def close(self) -> None:
        self._group.commit()
        await asyncio.to_thread(self.database.close)

    # --- in the event loop --------------------------------------------------------------------------

    async def begin_run(self, new: NewRun) -> Begun:
        self._running.add(new.id)
        if self._is_alone():
            return self.database.begin_run(new)
        return await self._group.add(partial(writing.begin, new=new))

    async def begin_with(
        self, new: NewRun, events: Sequence[DocumentEvent], end: RunEnd | None
    ) -> KeyTaken | Busy | Written:
        self._running.add(new.id)
        is_alone = self._is_alone()
        if end is not None:
            self._running.discard(new.id)
        if is_alone:
            return self.database.begin_with(new, events, end)
        return await self._group.add(partial(writing.begin_with, new=new, events=events, run_end=end))

    async def claim_run(self, run_id: str, epoch: int) -> Lease | None:
        return self.database.claim_run(run_id, epoch)

    async def append(self, lease: Lease, first_number: int, events: Sequence[DocumentEvent]) -> Written:
        if self._is_alone():
            return self.database.append(lease, first_number, events)
        write = partial(writing.append, lease=lease, first_number=first_number, events=events)
        return await self._group.add(write)

    async def end_run(self, lease: Lease, first_number: int, events: Sequence[DocumentEvent], end: RunEnd) -> Written:
        is_alone = self._is_alone()
        self._running.discard(lease.run_id)
        if is_alone:
            return self.database.end_run(lease, first_number, events, end)
        write = partial(writing.end, lease=lease, first_number=first_number, events=events, run_end=end)
        return await self._group.add(write)

    def _is_alone(self) -> bool:
        """Nothing else is written in this turn, as far as is known."""
        return (len(self._running) < 2 and not self._group.has_writes) or self._group.is_at_once()

    async def set_session(
        self, conversation_id: str, owner: str, session_id: str | None, fingerprint: str | None
    ) -> None:
        self.database.set_session(conversation_id, owner, session_id, fingerprint)

    async def run(self, id: str, owner: str) -> RunRecord | None:
        return self.database.run(id, owner)

    async def runs_of(self, conversation_id: str, owner: str) -> list[RunRecord]:
        return self.database.runs_of(conversation_id, owner)

    async def conversation(self, id: str, owner: str) -> ConversationRecord | None:
        return self.database.conversation(id, owner)

    async def find_by_fingerprint(self, owner: str, fingerprint: str) -> list[ConversationRecord]:
        return self.database.find_by_fingerprint(owner, fingerprint)

    async def find_run_by_calls(self, owner: str, call_ids: Iterable[str]) -> RunRecord | None:
        return self.database.find_run_by_calls(owner, call_ids)

    async def find_run_by_idempotency(self, owner: str, key: str) -> IdempotentRun | None:
        return self.database.find_run_by_idempotency(owner, key)

    async def name_reply(self, owner: str, key: str, reply: IdempotentRun, now_ms: int) -> None:
        self.database.name_reply(owner, key, reply, now_ms)

    async def keep_request(self, run_id: str, owner: str, after: int, data: bytes) -> None:
        if len(data) <= _SHORT:
            self.database.keep_request(run_id, owner, after, data)
        else:
            await asyncio.to_thread(self.database.keep_request, run_id, owner, after, data)

    # --- in a thread --------------------------------------------------------------------------------

    async def delete_conversation(self, id: str, owner: str) -> bool:
        return await asyncio.to_thread(self.database.delete_conversation, id, owner)

    async def prune(
        self,
        max_age_seconds: float | None,
        max_bytes: int | None,
        now_ms: int,
        file_sizes: Mapping[str, int] | None = None,
    ) -> int:
        return await asyncio.to_thread(self.database.prune, max_age_seconds, max_bytes, now_ms, file_sizes)

    async def prune_owners(self, max_bytes: int) -> int:
        return await asyncio.to_thread(self.database.prune_owners, max_bytes)

    async def kept_request(self, run_id: str, owner: str, after: int) -> bytes | None:
        return await asyncio.to_thread(self.database.kept_request, run_id, owner, after)

    async def forget_request(self, run_id: str, owner: str, after: int) -> bool:
        return await asyncio.to_thread(self.database.forget_request, run_id, owner, after)

    async def set_decided(self, run_id: str, owner: str) -> None:
        await asyncio.to_thread(self.database.set_decided, run_id, owner)

    async def change_conversation(self, id: str, owner: str, title: str | None, is_pinned: bool | None) -> bool:
        return await asyncio.to_thread(self.database.change_conversation, id, owner, title, is_pinned)

    async def pinned_conversations(self, owner: str) -> list[ConversationRecord]:
        return await asyncio.to_thread(self.database.pinned_conversations, owner)

    async def recent_runs(self, owner: str, limit: int) -> list[tuple[RunRecord, str, str]]:
        return await asyncio.to_thread(self.database.recent_runs, owner, limit)

    async def unfinished_runs(self) -> list[RunRecord]:
        return await asyncio.to_thread(self.database.unfinished_runs)

    async def events(self, run_id: str, owner: str, *, after: int = 0, max_bytes: int = 1_000_000) -> EventPage:
        return await asyncio.to_thread(self.database.events, run_id, owner, after=after, max_bytes=max_bytes)

    async def conversations(
        self, owner: str, *, limit: int = 20, before: str | None = None, query: str | None = None
    ) -> ConversationPage:
        return await asyncio.to_thread(self.database.conversations, owner, limit=limit, before=before, query=query)

    async def messages(self, conversation_id: str, owner: str) -> list[MessageRecord]:
        return await asyncio.to_thread(self.database.messages, conversation_id, owner)

    async def unknown_conversations(self, ids: Sequence[str]) -> list[str]:
        return await asyncio.to_thread(self.database.unknown_conversations, ids)

    async def size(self) -> int:
        return await asyncio.to_thread(self.database.size)
