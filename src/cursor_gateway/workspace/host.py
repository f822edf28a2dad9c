"""The machine that agents work on: its models, its files, what changed in them, images, and permissions."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, TypeAlias

from msgspec import Struct

from cursor_gateway.errors import NotFound, unwritable
from cursor_gateway.fair_threads import FairThreads, IsGone, KeyedLocks
from cursor_gateway.model.answers import PermissionEntry
from cursor_gateway.model.changes import (
    ListedChanges,
    ListRequest,
    PatchRequest,
    ReviewRequest,
    ReviewResult,
    TraceRequest,
)
from cursor_gateway.model.messages import Image, is_image_name, media_type_of
from cursor_gateway.sources.base import Model
from cursor_gateway.sources.private_files import private_folder, read_private, write_private
from cursor_gateway.sources.router import SourceRouter
from cursor_gateway.store.base import ConversationRecord, Store
from cursor_gateway.workspace.files import find_files
from cursor_gateway.workspace.permissions import Permissions
from cursor_gateway.workspace.roots import Workspaces
from cursor_gateway.workspace.snapshots import Snapshots

_LIST_SECONDS = 5.0
_LARGEST = 10_000_000  # bytes of an image that is shown


class AttachedImage(Struct, frozen=True, tag="attached"):
    """One that was sent with a message."""

    name: str


class WorkspaceImage(Struct, frozen=True, tag="workspace"):
    """One that an answer mentions."""

    path: str  # below the workspace, or absolute


ImagePlace: TypeAlias = AttachedImage | WorkspaceImage


def read_image_file(place: ImagePlace, folder: Path, workspace: str | None) -> bytes:
    """`folder` is the conversation's; the workspace is None if it may not be used. Raises `NotFound`."""
    data = b""
    match place:
        case AttachedImage(name=name):
            if is_image_name(name):
                data = _read_inside(folder / "images", name)
        case WorkspaceImage(path=path):
            if workspace is not None:
                data = _read_inside(Path(workspace), path)
    if media_type_of(data) is None:
        raise NotFound("There is no PNG, JPEG, GIF or WebP image of at most 10 MB at this path.", param="path")
    return data


def _read_inside(folder: Path, path: str) -> bytes:
    """Nothing if it is not a file in the folder. A link that leads out of it is not followed, also if it takes the
    place of a folder after the path was resolved."""
    try:
        root = folder.resolve()
        file = (root / path).resolve()
        return read_private(root, file, _LARGEST) if file.is_relative_to(root) else b""
    except (OSError, RuntimeError, ValueError):  # not there, or a loop of links
        return b""


def write_images(images: Sequence[Image], folder: Path) -> list[tuple[Image, str]]:
    """Each image with its file. Identical images share a file, which only its owner may read.

    `folder` is in a conversation's, three levels below the gateway's own directory.
    """
    with private_folder(folder.parents[2], folder) as opened:
        for name, image in {image.name: image for image in images}.items():
            write_private(opened, name, image.data)
    return [(image, str(folder / image.name)) for image in images]


class Host(Protocol):
    """The machine that agents work on, or those of a cluster's runners. All methods raise a `GatewayError` for requests
    that cannot be fulfilled."""

    async def models(self) -> list[Model]: ...

    def check_model(self, model: str) -> None:
        """Raises `ModelUnavailable` for a name that is known to be wrong."""
        ...

    async def files(self, owner: str, workspace: str | None, query: str, limit: int) -> list[str]:
        """Paths below the workspace, best match first."""
        ...

    async def folders(self, owner: str, query: str, limit: int) -> list[str]:
        """Folders that a conversation may use as its workspace."""
        ...

    async def review(self, conversation: ConversationRecord, request: ReviewRequest) -> ReviewResult:
        """Lists, reverts, keeps or commits what changed in the conversation's workspace."""
        ...

    async def image(self, conversation: ConversationRecord, place: ImagePlace) -> bytes:
        """Raises `NotFound`."""
        ...

    async def permissions(self, owner: str) -> list[PermissionEntry]:
        """The newest first."""
        ...

    async def revoke_permission(self, owner: str, id: str) -> bool:
        """False: there is none."""
        ...


class LocalHost:
    """The `Host` of a process that runs its agents itself."""

    def __init__(
        self,
        source: SourceRouter,
        store: Store,
        conversations: Path,
        workspaces: Workspaces,
        permissions: Permissions,
        snapshots: Snapshots | None,
        threads: FairThreads,
    ) -> None:
        """`conversations` has their folders; `threads` are for files: disks may be slow, and folders large."""
        self._source, self._store, self._conversations, self._workspaces = source, store, conversations, workspaces
        self._permissions, self._snapshots, self._threads = permissions, snapshots, threads
        self._locks = KeyedLocks()

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
        is_reading = isinstance(request, ListRequest | PatchRequest | TraceRequest)
        if self._snapshots is None:
            if is_reading and not isinstance(request, TraceRequest):
                return ListedChanges([])
            raise NotFound("This gateway does not record what files were (`snapshots` is false).")
        find = self._workspaces.allowed if is_reading else self._workspaces.find
        folder = find(conversation.workspace) or ""  # then no file exists, for a list
        await self._snapshots.settled(conversation.id)
        log, until = self._snapshots.log(conversation.id), time.monotonic() + _LIST_SECONDS
        runs = [run.id for run in await self._store.runs_of(conversation.id, conversation.owner)]

        def work(is_gone: IsGone) -> ReviewResult:
            from cursor_gateway.workspace.review import Review  # most gateways' lives pass without it

            review = Review(folder, log, conversation.title, runs, lambda: is_gone() or time.monotonic() > until)
            return review.perform(request)

        async with self._locks.holding(conversation.id):
            return await self._threads.run(conversation.owner, work)

    async def image(self, conversation: ConversationRecord, place: ImagePlace) -> bytes:
        workspace = self._workspaces.allowed(conversation.workspace)
        folder = self._conversations / conversation.id
        return await self._threads.run(conversation.owner, lambda _: read_image_file(place, folder, workspace))

    async def permissions(self, owner: str) -> list[PermissionEntry]:
        try:
            return self._permissions.every(owner)
        except OSError as error:
            raise unwritable(error) from error

    async def revoke_permission(self, owner: str, id: str) -> bool:
        try:
            return self._permissions.revoke(owner, id)
        except OSError as error:
            raise unwritable(error) from error
