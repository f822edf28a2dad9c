"""A request in; its conversation, and how much of it the agent's session already knows, out."""

import asyncio
import os
from collections.abc import Collection, Sequence
from os import urandom
from pathlib import Path

from cursor_gateway.errors import InvalidRequest, NotFound, StoreUnavailable
from cursor_gateway.model.messages import AssistantMessage, Message, UserMessage
from cursor_gateway.prompting.fingerprints import Scope, answered, fingerprint
from cursor_gateway.runs.fresh_folders import FreshFolders
from cursor_gateway.runs.image_files import size_of
from cursor_gateway.runs.run import Run
from cursor_gateway.runs.turn_builder import Conversation
from cursor_gateway.sources.private_files import private_folder
from cursor_gateway.store.base import ConversationRecord, MessageRecord, RunRecord, Store, StoreUpkeep
from cursor_gateway.workspace.change_log import FOLDER as CHANGES

_YOUNG_SECONDS = 3600.0


class Conversations:
    """One turn at a time in each: `latest` is the run that the next one waits for."""

    def __init__(
        self, store: Store, directory: Path, volumes: Collection[str] = (), *, fresh: FreshFolders | None = None
    ) -> None:
        """`volumes` are those of this machine, in a cluster: sessions elsewhere cannot be resumed here."""
        # Resolved once: the operator may have put it elsewhere by a link; one that is planted later leads nowhere.
        self._store, self._directory = store, directory.resolve()
        self.directory = str(self._directory)
        self.data = self._directory.parent  # the data directory
        self._fresh = fresh
        self._latest: dict[str, Run] = {}
        self._volumes = volumes

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

    def latest(self, id: str) -> Run | None:
        """Until nothing is left of it."""
        return self._latest.get(id)

    def begin(self, id: str, run: Run) -> None:
        self._latest[id] = run

    def end(self, id: str, run: Run) -> None:
        if self._latest.get(id) is run:
            del self._latest[id]

    # --- finding ------------------------------------------------------------------------------------

    async def named(self, id: str, owner: str, workspace: str | None, messages: Sequence[Message]) -> Conversation:
        """The one of this id. Of the messages, those after the last answer are new."""
        latest = self._latest.get(id)  # before the store is asked: its session may be stored after that
        if latest is not None and latest.owner == owner:
            await latest.entered()
        found = await self._store.conversation(id, owner)
        if found is None:
            raise NotFound(
                f"Unknown conversation {id[:100]!r}; leave it out to start a new one.",
                param="conversationId",
            )
        if workspace is not None and workspace != found.workspace:
            raise InvalidRequest(
                f"This conversation uses the workspace {found.workspace!r}; start a new one to use another.",
                param="workspace",
            )
        given = answered(messages)
        if given == len(messages):
            raise InvalidRequest("There is no new message after the last answer; add one.", param="messages")
        version = _version(found, latest)  # as of before `known` is read
        known = messages[:given] or await self._said_in(id, owner)
        return self._conversation(found, latest, known, messages[given:], given, version)

    async def interrupted(self, run: RunRecord, messages: Sequence[Message]) -> Conversation:
        """That of a run whose process died, as it was when the run began with these messages."""
        found = await self._store.conversation(run.conversation_id, run.owner)
        if found is None:
            raise NotFound(f"Unknown conversation {run.conversation_id!r}; it was deleted.", param="conversationId")
        given = answered(messages)
        said = await self._store.messages(found.id, run.owner)
        known = messages[:given] or [_message(record) for record in said if record.run_id != run.id]
        return self._conversation(found, None, known, messages[given:], given, _version(found, None))

    async def find_by_history(self, scope: Scope, messages: Sequence[Message]) -> Conversation:
        """The conversation whose messages are all of these except the last, or a new one."""
        given = answered(messages)
        if 0 < given < len(messages):
            try:
                candidates = await self._store.find_by_fingerprint(scope.owner, fingerprint(scope, messages[:given]))
            except StoreUnavailable:  # it costs the agent's memory, not the answer
                candidates = []
            for found in candidates:
                if self._volumes and found.volume not in self._volumes:
                    continue
                latest = self._latest.get(found.id)
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
        return found is not None and _version(found, self._latest.get(found.id)) == conversation.version

    async def _said_in(self, id: str, owner: str) -> list[Message]:
        return [_message(record) for record in await self._store.messages(id, owner)]

    async def said_up_to(self, id: str, owner: str, run_id: str) -> list[Message]:
        """The messages up to the end of this run."""
        records = await self._store.messages(id, owner)
        last = max((place for place, record in enumerate(records, 1) if record.run_id == run_id), default=0)
        return [_message(record) for record in records[:last]]

    # --- removing -----------------------------------------------------------------------------------

    async def remove(self, id: str, owner: str) -> bool:
        """From the history; `Removals` deletes its folder."""
        return await self._store.delete_conversation(id, owner)

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
        return [id for id in await store.unknown_conversations(old) if id not in self._latest]


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
