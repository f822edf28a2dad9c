"""Read and delete past conversations: those of a gateway or, if none runs, of the history's own file."""

import asyncio
import os
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from cursor_gateway.cli.configuration import data_dir
from cursor_gateway.cli.output import Trouble
from cursor_gateway.cli.remote import Place, Remote, open_gateway
from cursor_gateway.errors import NotFound, RequestError, StoreUnavailable
from cursor_gateway.keys import LOCAL_OWNER, owner_of
from cursor_gateway.model.changes import (
    CommitRequest,
    ConversationChanges,
    KeepRequest,
    ListedChanges,
    ListRequest,
    Patch,
    PatchRequest,
    RevertRequest,
    ReviewRequest,
    ReviewResult,
)
from cursor_gateway.model.documents import ChatResponse
from cursor_gateway.model.history import ConversationDetail, ConversationEntry
from cursor_gateway.settings import Settings

if TYPE_CHECKING:
    from cursor_gateway.store.base import Store

_Found = TypeVar("_Found")

LAST = "last"

_PAGE = 100  # conversations that are read at once
_WHOLE = re.compile(r"conv_[0-9a-f]{32}")
_SURE_LENGTH = 17  # of an id: twelve random digits belong to one conversation, so there is no need to see them all
_SHOWN = 4  # conversations that an ambiguous name may mean


@asynccontextmanager
async def open_history(place: Place) -> AsyncIterator["History"]:
    """Of the gateway that `chat` would talk to."""
    settings = place.settings
    async with open_gateway(settings, place.url, direct=place.direct) as remote:
        if remote is not None:
            yield RemoteHistory(remote)
            return
    from cursor_gateway.cli.stores import database_url, store_of

    directory = data_dir(settings)
    in_database = bool(database_url(settings))
    if not in_database and not _is_there(directory):
        yield NoHistory(directory, is_kept=settings.history)
        return
    store = store_of(settings, directory)
    where = "the database of the setting `store`" if in_database else str(directory)
    history = LocalHistory(store, directory, owner_here(settings), where)
    try:
        if not in_database:  # a gateway on another machine may drive them
            await history.end_interrupted_runs()
        yield history
    finally:
        await store.close()


def owner_here(settings: Settings) -> str:
    """The owner of the runs of this machine's user."""
    known = owner_of(settings.api_key, settings.api_keys) if settings.api_key else None
    return known or LOCAL_OWNER


def _is_there(directory: Path) -> bool:
    """Does not create a file."""
    from cursor_gateway.store.sqlite.opening import FILE

    try:
        return (directory / FILE).exists()
    except OSError as error:
        raise Trouble(f"the history in {directory} cannot be read: {error.strerror}; check its permissions.") from None


# --- which conversation -----------------------------------------------------------------------------


async def newest(history: "History", limit: int, query: str | None = None) -> tuple[list[ConversationEntry], bool]:
    """So many, and whether there are more."""
    found = [entry async for entry in history.entries(limit + 1, query)]
    return found[:limit], len(found) > limit


async def first(history: "History", fits: Callable[[ConversationEntry], bool]) -> ConversationEntry | None:
    async for entry in history.entries():
        if fits(entry):
            return entry
    return None


async def id_of(history: "History", name: str) -> str:
    """Of a whole id, of the beginning of one, with or without `conv_`, or of `last`.

    Raises `Trouble` for none or several. A whole id is not looked up.
    """
    if _WHOLE.fullmatch(name):
        return name
    if name == LAST:
        async for entry in history.entries(1):
            return entry.id
        raise Trouble("no conversations yet; start one with `cursor-gateway chat`.")
    beginning = name if name.startswith("conv_") else f"conv_{name}"
    fitting: list[ConversationEntry] = []
    async for entry in history.entries():
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


async def find(history: "History", name: str) -> ConversationDetail:
    """Raises `Trouble` if there is none."""
    detail = await history.conversation(await id_of(history, name))
    if detail is None:
        raise unknown(name)
    return detail


def sure_id(id: str) -> str:
    """As much of an id as `id_of` needs to be sure, for lines that must be short."""
    return id[:_SURE_LENGTH]


def unknown(name: str) -> Trouble:
    return Trouble(f"Unknown conversation {name[:100]!r}; see `cursor-gateway conversations`.")


# --- where it is ------------------------------------------------------------------------------------


class RemoteHistory:
    """Each call may raise `CallFailed`."""

    def __init__(self, remote: Remote) -> None:
        self.location = f"History of the gateway at {remote.url}"
        self._client = remote.client

    def entries(self, limit: int | None = None, query: str | None = None) -> AsyncIterator[ConversationEntry]:
        """Newest first; at most so many, and those in which all words of `query` occur."""
        return self._client.conversations(query, limit)

    async def conversation(self, id: str) -> ConversationDetail | None:
        return await _or_none(self._client.conversation(id))

    async def answer(self, run_id: str) -> ChatResponse | None:
        return await _or_none(self._client.response(run_id))

    async def review(self, detail: ConversationDetail, request: ReviewRequest) -> ConversationChanges | ReviewResult:
        client = self._client
        match request:
            case ListRequest(chat_id=chat_id):
                return await client.changes(detail.id, chat_id)
            case PatchRequest(chat_id=chat_id, path=path):
                return Patch(await client.patch(detail.id, chat_id, path))
            case RevertRequest():
                return await client.revert(detail.id, request)
            case KeepRequest():
                return await client.keep(detail.id, request)
            case CommitRequest():
                return await client.commit(detail.id, request)

    async def remove(self, id: str) -> bool:
        """With its folder. False: there was none."""
        return await _or_none(self._removed(id)) is not None

    async def _removed(self, id: str) -> bool:
        await self._client.delete_conversation(id)
        return True


async def _or_none(call: Awaitable[_Found]) -> _Found | None:
    """None: the gateway has no such thing."""
    from cursor_gateway.client.failures import CallFailed

    try:
        return await call
    except CallFailed as error:
        if error.code == NotFound.code:
            return None
        raise


class LocalHistory:
    """Any number of processes may read it. A file is not repaired here; processes that write to it do that.

    Each call may raise `StoreUnavailable`.
    """

    def __init__(self, store: "Store", directory: Path, owner: str, where: str = "") -> None:
        from cursor_gateway.runs.conversations import Conversations
        from cursor_gateway.sources.ledger import Ledger

        self.location = f"History in {where or directory}"
        self._store, self._directory, self._owner = store, directory, owner
        self._conversations = Conversations(store, directory / "conversations")
        self._ledger = Ledger(directory / "instances")

    async def entries(self, limit: int | None = None, query: str | None = None) -> AsyncIterator[ConversationEntry]:
        from cursor_gateway.store.entries import entry_of

        left, before = limit, None
        while left is None or left > 0:
            size = _PAGE if left is None else min(left, _PAGE)
            page = await self._store.conversations(self._owner, limit=size, before=before, query=query)
            for found in page.found:
                yield entry_of(found)
            before = page.next
            if before is None:
                return
            left = None if left is None else left - len(page.found)

    async def conversation(self, id: str) -> ConversationDetail | None:
        from cursor_gateway.store.entries import detail_of

        found = await self._store.conversation(id, self._owner)
        return None if found is None else await detail_of(self._store, found)

    async def answer(self, run_id: str) -> ChatResponse | None:
        from cursor_gateway.runs.handle import StoredRun
        from cursor_gateway.runs.whole_answers import response_of

        run = await self._store.run(run_id, self._owner)
        return None if run is None else await response_of(await StoredRun.open(self._store, run))

    async def review(self, detail: ConversationDetail, request: ReviewRequest) -> ConversationChanges | ReviewResult:
        from cursor_gateway.workspace.change_log import ChangeLog
        from cursor_gateway.workspace.review import Review

        if detail.is_running and not isinstance(request, ListRequest | PatchRequest):
            raise Trouble("the agent is still working in this conversation; try again when it is done.")
        review = Review(detail.workspace, ChangeLog(str(self._directory), detail.id), detail.title)
        try:
            done = await asyncio.to_thread(review.perform, request)
        except RequestError as error:
            raise Trouble(str(error)) from None
        if isinstance(done, ListedChanges):
            return ConversationChanges(done.files, sorted(set(done.problems.values())), detail.workspace)
        return done

    async def remove(self, id: str) -> bool:
        from cursor_gateway.runs.permissions import Permissions
        from cursor_gateway.sources.leftovers import remove_offline
        from cursor_gateway.workspace.change_log import ChangeLog

        found = await self._store.conversation(id, self._owner)
        if found is not None and found.is_running:  # its agent still needs its folder
            raise Trouble(f"{id} has an active run in another process; wait until it has ended, or cancel it there.")
        is_removed = await self._conversations.remove(id, self._owner)
        if is_removed:
            await asyncio.to_thread(remove_offline, self._conversations.folder(id), self._directory, os.environ)
            with suppress(OSError):
                Permissions(self._directory, lambda: 0).forget_conversation(id)
            with suppress(OSError):
                await asyncio.to_thread(ChangeLog(str(self._directory), id).remove)
        with suppress(StoreUnavailable):
            await self._store.prune(None, None, 0)  # what is deleted leaves the file before this process ends
        return is_removed

    async def end_interrupted_runs(self) -> None:
        """As a starting gateway does: runs of a crashed gateway are no longer active."""
        from cursor_gateway.runs.recovery import end_interrupted_runs

        with suppress(StoreUnavailable):  # reading will report why
            await end_interrupted_runs(self._store, self._ledger.is_alive, time.time_ns() // 1_000_000)


class NoHistory:
    """There is no history file yet."""

    def __init__(self, directory: Path, *, is_kept: bool) -> None:
        self.location = f"No history in {directory}" + ("" if is_kept else ": the setting `history` is off")

    async def entries(self, limit: int | None = None, query: str | None = None) -> AsyncIterator[ConversationEntry]:
        nothing: list[ConversationEntry] = []
        for entry in nothing:
            yield entry

    async def conversation(self, id: str) -> ConversationDetail | None:
        return None

    async def answer(self, run_id: str) -> ChatResponse | None:
        return None

    async def review(self, detail: ConversationDetail, request: ReviewRequest) -> ConversationChanges | ReviewResult:
        return ConversationChanges([])

    async def remove(self, id: str) -> bool:
        return False


History: TypeAlias = RemoteHistory | LocalHistory | NoHistory
