"""The machine that agents work on: its models, its files, what changed in them, and what people allowed there."""

import time

from cursor_gateway.errors import NotFound
from cursor_gateway.fair_threads import FairThreads, IsGone
from cursor_gateway.model.answers import PermissionEntry
from cursor_gateway.model.changes import ListedChanges, ListRequest, PatchRequest, ReviewRequest, ReviewResult
from cursor_gateway.runs.admission import KeyedLocks
from cursor_gateway.runs.conversations import ImagePlace, read_image_file, unwritable
from cursor_gateway.runs.permissions import Permissions
from cursor_gateway.runs.starter import RunParts
from cursor_gateway.sources.base import Model
from cursor_gateway.store.base import ConversationRecord
from cursor_gateway.workspace.files import find_files

_LIST_SECONDS = 5.0


class LocalHost:
    """The `Host` of a process that runs its agents itself."""

    def __init__(self, parts: RunParts, decisions: Permissions, locks: KeyedLocks, threads: FairThreads) -> None:
        """`threads` are for files of workspaces: their disks may be slow, and their folders large."""
        self._source, self._conversations, self._workspaces = parts.source, parts.conversations, parts.workspaces
        self._snapshots, self._decisions, self._locks, self._threads = parts.snapshots, decisions, locks, threads

    async def models(self) -> list[Model]:
        return await self._source.models()

    def check_model(self, model: str) -> None:
        self._source.check_model(model)

    async def files(self, owner: str, workspace: str | None, query: str, limit: int) -> list[str]:
        def find(is_gone: IsGone) -> list[str]:
            return find_files(self._workspaces.find(workspace), query, limit, is_gone=is_gone)

        return await self._threads.run(owner, find)

    async def folders(self, owner: str, query: str, limit: int) -> list[str]:
        return await self._threads.run(owner, lambda _: self._workspaces.folders(query, limit))

    async def review(self, conversation: ConversationRecord, request: ReviewRequest) -> ReviewResult:
        """One at a time in each conversation."""
        is_reading = isinstance(request, ListRequest | PatchRequest)
        if self._snapshots is None:
            if is_reading:
                return ListedChanges([])
            raise NotFound("This gateway does not record what files were (`snapshots` is false).")
        find = self._workspaces.allowed if is_reading else self._workspaces.find
        folder = find(conversation.workspace) or ""  # then no file exists, for a list
        await self._snapshots.settled(conversation.id)
        log, until = self._snapshots.log(conversation.id), time.monotonic() + _LIST_SECONDS

        def work(is_gone: IsGone) -> ReviewResult:
            from cursor_gateway.workspace.review import Review  # most gateways' lives pass without it

            return Review(folder, log, conversation.title, lambda: is_gone() or time.monotonic() > until).perform(
                request
            )

        async with self._locks.holding(("changes", conversation.id)):
            return await self._threads.run(conversation.owner, work)

    async def image(self, conversation: ConversationRecord, place: ImagePlace) -> bytes:
        workspace = self._workspaces.allowed(conversation.workspace)
        folder = self._conversations.folder(conversation.id)
        return await self._threads.run(conversation.owner, lambda _: read_image_file(place, folder, workspace))

    async def permissions(self, owner: str) -> list[PermissionEntry]:
        try:
            return self._decisions.every(owner)
        except OSError as error:
            raise unwritable(error) from error

    async def revoke_permission(self, owner: str, id: str) -> bool:
        try:
            return self._decisions.revoke(owner, id)
        except OSError as error:
            raise unwritable(error) from error
