"""A run of the store in; something that is read like a run that is driven here, out."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress

from cursor_gateway.errors import GatewayError, NotFound
from cursor_gateway.model.caller_tools import Offer, ToolResult
from cursor_gateway.model.document_events import DocumentEvent, Done, Paused
from cursor_gateway.model.documents import ClarificationAnswer, Envelope
from cursor_gateway.model.messages import Message
from cursor_gateway.model.permissions import Permission
from cursor_gateway.model.run_info import RunInfo, WhenClientLeaves
from cursor_gateway.runs.readers import Reader, Readers
from cursor_gateway.runs.recovery import run_info
from cursor_gateway.store.base import RunRecord, Store

_POLL_SECONDS = 0.25  # a run that another gateway drives


class StoredLog:
    """The events of a run in the store; it may still grow."""

    def __init__(self, store: Store, stored: RunRecord) -> None:
        self.stored = stored
        self.done: Done | None = None
        self.is_deleted = False  # with its conversation
        self._store = store

    @property
    def count(self) -> int:
        return self.stored.event_count

    async def after(self, number: int) -> list[DocumentEvent]:
        return (await self._store.events(self.stored.id, self.stored.owner, after=number)).events

    async def look(self) -> None:
        """How far it is."""
        found = await self._store.run(self.stored.id, self.stored.owner)
        self.is_deleted = found is None
        self.stored = found or self.stored
        if self.stored.state != "running":
            last = (await self.after(self.stored.event_count - 1))[-1:]
            self.done = last[0] if last and isinstance(last[0], Done) else None

    async def more(self, woken: "asyncio.Future[None]", seconds: float | None = None) -> None:
        loop, count = asyncio.get_running_loop(), self.count
        until = None if seconds is None else loop.time() + seconds
        while not woken.done() and self.count == count and self.done is None and not self.is_deleted:
            left = _POLL_SECONDS if until is None else min(_POLL_SECONDS, until - loop.time())
            await self.look()
            if left <= 0:
                return
            if self.count == count and self.done is None:
                with suppress(TimeoutError):
                    await asyncio.wait_for(asyncio.shield(woken), left)


class StoredRun:
    """One that has ended, or that another gateway drives. It can be read, and nothing else."""

    source: str | None = None  # not stored
    source_name = "history"
    fallback: str | None = None
    session_id: str | None = None
    prompt = ""
    awaited = ""

    def __init__(self, store: Store, stored: RunRecord) -> None:
        self.log = StoredLog(store, stored)
        self.readers = Readers(self.log)
        self.owner = stored.owner
        self.info: RunInfo = run_info(stored)

    @property
    def id(self) -> str:
        return self.info.id

    @property
    def count(self) -> int:
        return self.log.count

    @property
    def added(self) -> int:
        return self.count  # also where a subclass reads another log

    @property
    def done(self) -> Done | None:
        return self.log.done

    @property
    def is_ending(self) -> bool:
        return self.log.done is not None

    async def look(self) -> None:
        """How far it is."""
        await self.log.look()

    async def entered(self) -> None:
        pass  # it is stored

    def reader(self, after: int = 0) -> Reader:
        return self.readers.reader(after)

    async def pause(self, number: int) -> Paused | None:
        match await self.log.after(number - 1) if number else []:
            case [Paused() as paused, *_]:
                return paused
            case _:
                return None

    async def ended(self) -> Done | None:
        return self.log.done

    def stop(self, why: GatewayError) -> None:
        """There is nothing here to stop."""

    async def cancel(self, why: GatewayError) -> Envelope:
        if self.log.done is None:
            raise NotFound("This run belongs to another gateway; cancel it there.", param="id")
        return self.log.done.envelope

    def knows_calls(self, results: Mapping[str, ToolResult]) -> bool | None:
        return None

    def answer_calls(
        self, results: Mapping[str, ToolResult], also: Sequence[Message] = (), offer: Offer | None = None
    ) -> int:
        raise NotFound("This run no longer accepts results; send them with the whole conversation.", param="id")

    def answer_questions(self, answers: Sequence[ClarificationAnswer]) -> int | None:
        return None

    def holds_permission(self, question_id: str) -> bool:
        return False

    def answer_permissions(self, decided: Mapping[str, Permission]) -> int:
        raise NotFound("This run no longer waits for a decision.", param="id")

    def decide_plan(self, is_accepted: bool, text: str) -> int | None:
        return None

    def set_when_client_leaves(self, when: WhenClientLeaves | None) -> None:
        """Its readers change nothing."""
