"""A conversation's id and owner in; what the next turn needs to go on with it, out. One turn at a time."""

import shutil
from pathlib import Path
from uuid import uuid4

from msgspec import Struct

from cursor_gateway.errors import ConversationBusy, InvalidRequest, NotFound


class Conversation(Struct):
    id: str
    owner: str
    workspace: str
    folder: Path  # the agent's configuration and chats; at one path for as long as the conversation lives
    session_id: str | None = None
    is_busy: bool = False


class Conversations:
    """In memory, for as long as the gateway runs: at most `limit`, the longest unused go first."""

    def __init__(self, directory: Path, limit: int) -> None:
        self._directory, self._limit = directory, limit
        self._known: dict[str, Conversation] = {}

    def new(self, owner: str, workspace: str) -> Conversation:
        """For a turn that begins now."""
        id = f"conv_{uuid4().hex}"
        folder = self._directory / id
        folder.mkdir(parents=True, mode=0o700)
        conversation = Conversation(id, owner, workspace, folder, is_busy=True)
        self._known[id] = conversation
        idle = [known for known in self._known.values() if not known.is_busy]
        for old in idle[: max(0, len(self._known) - self._limit)]:
            self.remove(old)
        return conversation

    def resume(self, id: str, owner: str, workspace: str | None) -> Conversation:
        """For a turn that begins now."""
        conversation = self._known.get(id)
        if conversation is None or conversation.owner != owner:
            raise NotFound(
                f"There is no conversation {id!r}; leave `conversationId` out to begin one.", param="conversationId"
            )
        if workspace is not None and workspace != conversation.workspace:
            raise InvalidRequest(
                f"This conversation works in {conversation.workspace!r}; begin a new one to work elsewhere.",
                param="workspace",
            )
        if conversation.is_busy:
            raise ConversationBusy("This conversation has a run that has not ended; wait for it, or cancel it.")
        conversation.is_busy = True
        self._known[id] = self._known.pop(id)  # the last used is the last to go
        return conversation

    def release(self, conversation: Conversation, session_id: str | None) -> None:
        conversation.is_busy = False
        conversation.session_id = session_id

    def remove(self, conversation: Conversation) -> None:
        self._known.pop(conversation.id, None)
        shutil.rmtree(conversation.folder, ignore_errors=True)

    def close(self) -> None:
        for conversation in list(self._known.values()):
            self.remove(conversation)
