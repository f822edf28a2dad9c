"""The history and permissions of this machine's user, read from their files, as a gateway's client would return them.

So a command that lists, shows or deletes has one implementation, whether a gateway runs or not. No agent is started,
and no file is created.
"""

import asyncio
import os
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from msgspec import UNSET

from cursor_gateway.cli.assembly.local_socket import url_of
from cursor_gateway.cli.assembly.remote import GatewayChoice, open_gateway
from cursor_gateway.cli.assembly.stores import OpenableStore, database_url, store_of
from cursor_gateway.cli.configuration import data_dir
from cursor_gateway.cli.output import Trouble
from cursor_gateway.errors import NotFound, StoreUnavailable
from cursor_gateway.keys import LOCAL_OWNER, owner_of
from cursor_gateway.model.answers import PermissionList
from cursor_gateway.model.changes import (
    CommitRequest,
    CommitResult,
    ConversationChanges,
    KeepRequest,
    KeptFiles,
    LineTrace,
    ListedChanges,
    ListRequest,
    Patch,
    PatchRequest,
    RevertedFiles,
    RevertRequest,
    ReviewRequest,
    TraceRecord,
    TraceRequest,
)
from cursor_gateway.model.documents import ChatResponse
from cursor_gateway.model.history import ConversationDetail, ConversationEntry
from cursor_gateway.settings import Settings

if TYPE_CHECKING:
    from cursor_gateway.client.asynchronous import AsyncClient
    from cursor_gateway.store.base import ConversationRecord
    from cursor_gateway.workspace.change_log import ChangeLog
    from cursor_gateway.workspace.permissions import Permissions

_Done = TypeVar("_Done")
AnyClient: TypeAlias = "AsyncClient | LocalClient"

_PAGE = 100  # conversations that are read at once


@asynccontextmanager
async def open_client(place: GatewayChoice, *, needs_history: bool = True) -> "AsyncIterator[tuple[AnyClient, str]]":
    """Of the gateway that `chat` would talk to; if none runs, of this machine. And where the history is."""
    settings = place.settings
    async with open_gateway(settings, place.url, direct=place.direct) as remote:
        if remote is not None:
            yield remote.client, f"History of the gateway at {remote.url}"
            return
    in_database = bool(database_url(settings))
    directory = data_dir(settings)
    if not needs_history or (not in_database and not _is_there(directory)):
        why = "" if settings.history else ": the setting `history` is off"
        yield LocalClient(settings), f"No history in {directory}{why}"
        return
    store = store_of(settings, directory)
    client = LocalClient(settings, store)
    try:
        if not in_database:  # a gateway on another machine may drive them
            await client.end_interrupted_runs()
        yield client, f"History in {'the database of the setting `store`' if in_database else directory}"
    finally:
        await store.close()


def _is_there(directory: Path) -> bool:
    """Does not create a file."""
    from cursor_gateway.store.sqlite.opening import FILE

    try:
        return (directory / FILE).exists()
    except OSError as error:
        raise Trouble(f"the history in {directory} cannot be read: {error.strerror}; check its permissions.") from None


class LocalClient:
    """Any number of processes may read the history. A file is not repaired here; processes that write to it do that.

    Each call may raise `NotFound` and `StoreUnavailable`.
    """

    def __init__(self, settings: Settings, store: OpenableStore | None = None) -> None:
        """Without `store`, there is no history."""
        known = owner_of(settings.api_key, settings.api_keys) if settings.api_key else None
        self._owner, self._directory = known or LOCAL_OWNER, data_dir(settings)
        self._settings, self._store = settings, store

    # --- the history ----------------------------------------------------------------------------------

    async def conversations(
        self, query: str | None = None, limit: int | None = None
    ) -> AsyncIterator[ConversationEntry]:
        from cursor_gateway.store.entries import entry_of

        left, before = limit, None
        while self._store is not None and (left is None or left > 0):
            size = _PAGE if left is None else min(left, _PAGE)
            page = await self._store.conversations(self._owner, limit=size, before=before, query=query)
            for found in page.found:
                yield entry_of(found)
            before = page.next
            if before is None:
                return
            left = None if left is None else left - len(page.found)

    async def conversation(self, id: str) -> ConversationDetail:
        from cursor_gateway.store.entries import detail_of

        store, found = await self._found(id)
        return await detail_of(store, found)

    async def response(self, id: str) -> ChatResponse:
        from cursor_gateway.runs.handle import StoredRun, response_of

        run = None if self._store is None else await self._store.run(id, self._owner)
        if run is None or self._store is None:
            raise NotFound(f"There is no run {id}.")
        return await response_of(await StoredRun.open(self._store, run))

    async def delete_conversation(self, id: str) -> None:
        from cursor_gateway.sources.leftovers import remove_offline
        from cursor_gateway.store.base import HistoryLimits
        from cursor_gateway.workspace.permissions import Permissions

        store, found = await self._found(id)
        if found.is_running:  # its agent still needs its folder
            raise Trouble(f"{id} has an active run in another process; wait until it has ended, or cancel it there.")
        if await store.delete_conversation(id, self._owner):
            folder = (self._directory / "conversations").resolve() / id
            await asyncio.to_thread(remove_offline, folder, self._directory, os.environ)
            with suppress(OSError):
                Permissions(self._directory, lambda: 0).forget_conversation(id)
            with suppress(OSError):
                await asyncio.to_thread(self._change_log(id).remove)
        with suppress(StoreUnavailable):
            await store.prune(HistoryLimits(), 0)  # what is deleted leaves the file before this process ends

    async def end_interrupted_runs(self) -> None:
        """As a starting gateway does: runs of a crashed gateway are no longer active."""
        from cursor_gateway.runs.handle import end_interrupted_runs
        from cursor_gateway.sources.ledger import Ledger

        assert self._store is not None
        with suppress(StoreUnavailable):  # reading will report why
            is_alive = Ledger(self._directory / "instances").is_alive
            await end_interrupted_runs(self._store, is_alive, time.time_ns() // 1_000_000)

    async def _found(self, id: str) -> "tuple[OpenableStore, ConversationRecord]":
        found = None if self._store is None else await self._store.conversation(id, self._owner)
        if found is None or self._store is None:
            raise NotFound(f"There is no conversation {id}.")
        return self._store, found

    # --- what was changed -----------------------------------------------------------------------------

    async def changes(self, id: str, chat_id: str | None = None) -> ConversationChanges:
        done, folder = await self._reviewed(id, ListRequest(chat_id), ListedChanges)
        return ConversationChanges(done.files, sorted(set(done.problems.values())), folder, done.undo or UNSET)

    async def patch(self, id: str, chat_id: str | None = None, path: str | None = None) -> bytes:
        return (await self._reviewed(id, PatchRequest(chat_id, path), Patch))[0].data

    async def trace(self, id: str) -> TraceRecord:
        from cursor_gateway.workspace.line_authors import trace_record

        (done, _), (store, found) = await self._reviewed(id, TraceRequest(), LineTrace), await self._found(id)
        models = {run.id: run.model for run in await store.runs_of(id, self._owner)}
        url = self._settings.page_url or url_of(self._settings.host, self._settings.port)
        return trace_record(done, id, found.updated_ms, models, url)

    async def revert(self, id: str, request: RevertRequest) -> RevertedFiles:
        return (await self._reviewed(id, request, RevertedFiles))[0]

    async def keep(self, id: str, request: KeepRequest) -> KeptFiles:
        return (await self._reviewed(id, request, KeptFiles))[0]

    async def commit(self, id: str, request: CommitRequest) -> CommitResult:
        return (await self._reviewed(id, request, CommitResult))[0]

    async def _reviewed(self, id: str, request: ReviewRequest, result: type[_Done]) -> tuple[_Done, str]:
        """The result, and the conversation's folder."""
        from cursor_gateway.workspace.review import Review

        store, found = await self._found(id)
        if found.is_running and not isinstance(request, ListRequest | PatchRequest | TraceRequest):
            raise Trouble("the agent is still working in this conversation; try again when it is done.")
        runs = [run.id for run in await store.runs_of(id, self._owner)]
        review = Review(found.workspace, self._change_log(id), found.title, runs)
        done = await asyncio.to_thread(review.perform, request)
        assert isinstance(done, result)
        return done, found.workspace

    def _change_log(self, id: str) -> "ChangeLog":
        from cursor_gateway.workspace.change_log import ChangeLog

        return ChangeLog(str(self._directory), id)

    # --- permissions ----------------------------------------------------------------------------------

    async def permissions(self) -> PermissionList:
        found = self._permissions()
        return PermissionList(
            permissions=found.every(self._owner),
            settings=self._settings.allow,
            can_allow=found.can_allow,
            allows_everything=self._settings.force,
        )

    async def revoke_permission(self, id: str) -> None:
        self._permissions().revoke(self._owner, id)

    def _permissions(self) -> "Permissions":
        from cursor_gateway.workspace.permissions import Permissions

        return Permissions(self._directory, lambda: 0, can_allow=self._settings.permissions == "ask")


# --- a conversation's name, as people type it, in; the conversation out ------------------------------


_Found = TypeVar("_Found")

LAST = "last"

_WHOLE = re.compile(r"conv_[0-9a-f]{32}")
_SURE_LENGTH = 17  # of an id: twelve random digits belong to one conversation, so there is no need to see them all
_SHOWN = 4  # conversations that an ambiguous name may mean


async def newest(client: AnyClient, limit: int, query: str | None = None) -> tuple[list[ConversationEntry], bool]:
    """So many, and whether there are more."""
    found = [entry async for entry in client.conversations(query, limit + 1)]
    return found[:limit], len(found) > limit


async def first(client: AnyClient, fits: Callable[[ConversationEntry], bool]) -> ConversationEntry | None:
    async for entry in client.conversations():
        if fits(entry):
            return entry
    return None


async def id_of(client: AnyClient, name: str) -> str:
    """Of a whole id, of the beginning of one, with or without `conv_`, or of `last`.

    Raises `Trouble` for none or several. A whole id is not looked up.
    """
    if _WHOLE.fullmatch(name):
        return name
    if name == LAST:
        async for entry in client.conversations(limit=1):
            return entry.id
        raise Trouble("no conversations yet; start one with `cursor-gateway chat`.")
    beginning = name if name.startswith("conv_") else f"conv_{name}"
    fitting: list[ConversationEntry] = []
    async for entry in client.conversations():
        if name and entry.id.startswith(beginning):
            fitting.append(entry)
            if len(beginning) >= _SURE_LENGTH or len(fitting) > _SHOWN:
                break
    if not fitting:
        raise unknown(name)
    if len(fitting) > 1:
        several = ", ".join(entry.id for entry in fitting[:_SHOWN]) + (" …" if len(fitting) > _SHOWN else "")
        raise Trouble(f"{name!r} matches several conversations: {several}; type more characters.")
    return fitting[0].id


async def find(client: AnyClient, name: str) -> ConversationDetail:
    """Raises `Trouble` if there is none."""
    detail = await or_none(client.conversation(await id_of(client, name)))
    if detail is None:
        raise unknown(name)
    return detail


async def or_none(call: Awaitable[_Found]) -> _Found | None:
    """None if the call reports that there is no such thing."""
    from cursor_gateway.client.failures import CallFailed

    try:
        return await call
    except (CallFailed, NotFound) as error:
        if error.code == NotFound.code:
            return None
        raise


def sure_id(id: str) -> str:
    """As much of an id as `id_of` needs to be sure, for lines that must be short."""
    return id[:_SURE_LENGTH]


def unknown(name: str) -> Trouble:
    return Trouble(f"Unknown conversation {name[:100]!r}; see `cursor-gateway conversations`.")
