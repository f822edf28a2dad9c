"""A conversation's id and owner in; what the next turn needs to go on with it, out. One turn at a time."""

import shutil
from pathlib import Path
from uuid import uuid4

from msgspec import Struct

from cursor_gateway.errors import ConversationBusy, InvalidRequest, NotFound
from cursor_gateway.runs.run import Run


class Conversation(Struct):
    id: str
    owner: str
    workspace: str
    folder: Path  # the agent's configuration and chats; at one path for as long as the conversation lives
    session_id: str | None = None
    is_busy: bool = False
    run: Run | None = None  # the latest, until nothing is left of it

    @property
    def is_ending(self) -> bool:
        """Who has the answer, or enough of it, may go on at once: the next run waits for the agent to go."""
        return self.run is not None and self.run.is_ending

    @property
    def latest_session(self) -> str | None:
        return (self.run.session_id if self.run is not None else None) or self.session_id


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
        if conversation is None or conversation.owner != owner or _never_began(conversation):
            raise NotFound(
                f"There is no conversation {id!r}; leave `conversationId` out to begin one.", param="conversationId"
            )
        if workspace is not None and workspace != conversation.workspace:
            raise InvalidRequest(
                f"This conversation works in {conversation.workspace!r}; begin a new one to work elsewhere.",
                param="workspace",
            )
        if conversation.is_busy and not conversation.is_ending:
            raise ConversationBusy("This conversation has a run that has not ended; wait for it, or cancel it.")
        conversation.is_busy, conversation.session_id = True, conversation.latest_session
        self._known[id] = self._known.pop(id)  # the last used is the last to go
        return conversation

    def release(self, conversation: Conversation) -> None:
        conversation.session_id = conversation.latest_session
        conversation.is_busy, conversation.run = False, None
        if conversation.id in self._known:
            self._known[conversation.id] = self._known.pop(conversation.id)  # its turn may have been a long one

    def remove(self, conversation: Conversation) -> None:
        self._known.pop(conversation.id, None)
        shutil.rmtree(conversation.folder, ignore_errors=True)

    def close(self) -> None:
        for conversation in list(self._known.values()):
            self.remove(conversation)


def _never_began(conversation: Conversation) -> bool:
    """The agent did not get as far as a session: what is left of it is about to be removed."""
    return conversation.is_ending and conversation.latest_session is None
