"""A request in; its conversation, and how much of it the agent's session already knows, out; how one is removed."""

import asyncio
import os
from collections.abc import Callable, Collection, Sequence
from os import urandom
from pathlib import Path

from msgspec import Struct

from cursor_gateway import errors
from cursor_gateway.model.messages import AssistantMessage, Message, UserMessage
from cursor_gateway.prompting.fingerprints import Scope, answered, fingerprint
from cursor_gateway.runs.run import Run
from cursor_gateway.sources.leftovers import remove_folder
from cursor_gateway.sources.private_files import FreshFolders, private_folder, size_of
from cursor_gateway.sources.router import SourceRouter
from cursor_gateway.store.base import ConversationRecord, MessageRecord, RunRecord, Store, StoreUpkeep
from cursor_gateway.workspace.change_log import FOLDER as CHANGES
from cursor_gateway.workspace.permissions import Permissions
from cursor_gateway.workspace.snapshots import Snapshots, forget_changes

TOOLS = "tools.json"  # in a conversation's folder: those that were offered last


class Conversation(Struct, frozen=True, kw_only=True):
    """The conversation of a turn, or one that begins with it."""

    id: str
    workspace: str
    session_id: str | None  # the agent's own, which knows `known`
    known: Sequence[Message]  # what was said before
    new: Sequence[Message]
    given_known: int = 0  # how many of the request's messages are among `known`
    version: str = ""  # changes when a run in it begins or ends; empty for a new one


_YOUNG_SECONDS = 3600.0


class Conversations:
    def __init__(
        self,
        store: Store,
        directory: Path,
        volumes: Collection[str] = (),
        *,
        latest: Callable[[str], Run | None] = lambda _: None,
        fresh: FreshFolders | None = None,
    ) -> None:
        """`volumes` are those of this machine, in a cluster: sessions elsewhere cannot be resumed here. `latest` is the
        run of a conversation that the next one waits for."""
        # Resolved once: the operator may have put it elsewhere by a link; one that is planted later leads nowhere.
        self._store, self._directory = store, directory.resolve()
        self.directory = str(self._directory)
        self.data = self._directory.parent  # the data directory
        self._fresh = fresh
        self._latest, self._volumes = latest, volumes

    def folder(self, id: str) -> Path:
        """At one path for as long as the conversation lives: the agent keeps its chats in there."""
        return self._directory / id

    def make_folder(self, conversation: Conversation) -> str:
        """Its path, when it is there. Raises `OSError`."""
        folder = f"{self.directory}/{conversation.id}"
        if self._fresh is not None and not conversation.version and not os.path.exists(folder):  # a new one
            with private_folder(self.data, self.directory) as parent:
                if self._fresh.move_to(parent, conversation.id):
                    return folder
        with private_folder(self.data, folder):
            return folder

    # --- finding ------------------------------------------------------------------------------------

    async def named(self, id: str, owner: str, workspace: str | None, messages: Sequence[Message]) -> Conversation:
        """The one of this id. Of the messages, those after the last answer are new."""
        latest = self._latest(id)  # before the store is asked: its session may be stored after that
        if latest is not None and latest.owner == owner:
            await latest.entered()
        found = await self._store.conversation(id, owner)
        if found is None:
            raise errors.NotFound(
                f"Unknown conversation {id[:100]!r}; leave it out to start a new one.",
                param="conversationId",
            )
        if workspace is not None and workspace != found.workspace:
            raise errors.InvalidRequest(
                f"This conversation uses the workspace {found.workspace!r}; start a new one to use another.",
                param="workspace",
            )
        given = answered(messages)
        if given == len(messages):
            raise errors.InvalidRequest("There is no new message after the last answer; add one.", param="messages")
        version = _version(found, latest)  # as of before `known` is read
        known = messages[:given] or await self._said_in(id, owner)
        return self._conversation(found, latest, known, messages[given:], given, version)

    async def interrupted(self, run: RunRecord, messages: Sequence[Message]) -> Conversation:
        """That of a run whose process died, as it was when the run began with these messages."""
        found = await self._store.conversation(run.conversation_id, run.owner)
        if found is None:
            raise errors.NotFound(
                f"Unknown conversation {run.conversation_id!r}; it was deleted.", param="conversationId"
            )
        given = answered(messages)
        said = await self._store.messages(found.id, run.owner)
        known = messages[:given] or [_message(record) for record in said if record.run_id != run.id]
        return self._conversation(found, None, known, messages[given:], given, _version(found, None))

    async def find_by_history(self, scope: Scope, messages: Sequence[Message]) -> Conversation:
        """The conversation whose messages are all of these except the last, or a new one."""
        given = answered(messages)
        if 0 < given < len(messages):
            try:
                page = await self._store.conversations(scope.owner, fingerprint=fingerprint(scope, messages[:given]))
            except errors.StoreUnavailable:  # it costs the agent's memory, not the answer
                return self.new(scope.workspace, messages)
            for found in [one.conversation for one in page.found]:
                if self._volumes and found.volume not in self._volumes:
                    continue
                latest = self._latest(found.id)
                if latest is None or latest.is_ending:
                    version = _version(found, latest)
                    return self._conversation(found, latest, messages[:given], messages[given:], given, version)
        return self.new(scope.workspace, messages)

    def new(self, workspace: str, messages: Sequence[Message]) -> Conversation:
        return Conversation(id=new_conversation_id(), workspace=workspace, session_id=None, known=(), new=messages)

    def _conversation(
        self,
        found: ConversationRecord,
        latest: Run | None,
        known: Sequence[Message],
        new: Sequence[Message],
        given_known: int,
        version: str,
    ) -> Conversation:
        return Conversation(
            id=found.id,
            workspace=found.workspace,
            # The session is stored when its run has ended, which may be a moment after its answer.
            session_id=(latest.session_id if latest is not None else None) or found.session_id,
            known=known,
            new=new,
            given_known=given_known,
            version=version,
        )

    async def is_current(self, conversation: Conversation, owner: str) -> bool:
        """No run in it has begun or ended since it was looked up."""
        if not conversation.version:
            return True
        found = await self._store.conversation(conversation.id, owner)
        return found is not None and _version(found, self._latest(found.id)) == conversation.version

    async def _said_in(self, id: str, owner: str) -> list[Message]:
        return [_message(record) for record in await self._store.messages(id, owner)]

    async def said_up_to(self, id: str, owner: str, run_id: str) -> list[Message]:
        """The messages up to the end of this run."""
        records = await self._store.messages(id, owner)
        last = max((place for place, record in enumerate(records, 1) if record.run_id == run_id), default=0)
        return [_message(record) for record in records[:last]]

    # --- removing -----------------------------------------------------------------------------------

    async def file_sizes(self) -> dict[str, int]:
        """The bytes that each conversation keeps in its folder, and of the files that it changed."""
        return await asyncio.to_thread(
            lambda: {
                folder.name: size_of(folder) + size_of(self.data / CHANGES / folder.name)
                for folder in self._directory.glob("conv_*")
            }
        )

    async def strays(self, store: StoreUpkeep, now: float) -> list[str]:
        """Conversations that have files and are gone from the history. New ones may not be stored yet."""
        folders = [folder for parent in (self._directory, self.data / CHANGES) for folder in parent.glob("conv_*")]
        old = list({folder.name for folder in folders if _age(folder, now) > _YOUNG_SECONDS})
        return [id for id in await store.unknown_conversations(old) if self._latest(id) is None]


def new_conversation_id() -> str:
    return f"conv_{urandom(16).hex()}"


def _version(found: ConversationRecord, latest: Run | None) -> str:
    return f"{found.updated_ms} {latest.id if latest is not None and not latest.is_ending else ''}"


def _message(record: MessageRecord) -> Message:
    return UserMessage(record.text) if record.role == "user" else AssistantMessage(record.text)


def _age(folder: Path, now: float) -> float:
    try:
        return now - folder.stat().st_mtime
    except OSError:
        return 0


_WAIT_SECONDS = 5.0  # of the caller that deletes


class Removals:
    def __init__(
        self,
        source: SourceRouter,
        conversations: Conversations,
        permissions: Permissions,
        snapshots: Snapshots | None = None,
    ) -> None:
        self._source, self._conversations, self._permissions = source, conversations, permissions
        self._snapshots = snapshots
        self._under_way: dict[str, asyncio.Task[bool]] = {}

    async def remove(self, conversation_id: str, seconds: float = _WAIT_SECONDS) -> bool:
        """False: something is left, and is deleted later."""
        task = self._under_way.get(conversation_id)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._remove(conversation_id), name="removal")
            self._under_way[conversation_id] = task
            task.add_done_callback(lambda _: self._under_way.pop(conversation_id, None))
        await asyncio.wait([task], timeout=seconds)
        return task.done() and task.result()

    async def remove_strays(self, store: StoreUpkeep, now: float) -> None:
        """Folders whose conversations are gone from the history."""
        for id in await self._conversations.strays(store, now):
            await self.remove(id)

    async def close(self) -> None:
        """Close this after the source, when no agent can block it."""
        if tasks := set(self._under_way.values()):
            await asyncio.wait(tasks)

    async def _remove(self, conversation_id: str) -> bool:
        folder = self._conversations.folder(conversation_id)
        try:
            self._permissions.forget_conversation(conversation_id)
            is_done = await self._source.forget(str(folder))
        except (errors.GatewayError, OSError):
            is_done = False
        await forget_changes(self._snapshots, str(self._conversations.data), conversation_id)
        await asyncio.to_thread(remove_folder, folder, is_done=is_done)
        return is_done
