"""Conversations that were deleted from the history in; their folders, and what agents keep of them, deleted too.

An agent that is shared must end before its sessions can be deleted, and may have other work to finish first. So a
removal continues in the background; what is left when the gateway stops is noted in the conversation's folder, and
the next gateway that finds the folder finishes it.
"""

import asyncio

from cursor_gateway.errors import GatewayError
from cursor_gateway.runs.conversations import Conversations
from cursor_gateway.runs.permissions import Permissions
from cursor_gateway.sources.leftovers import remove_folder
from cursor_gateway.sources.router import SourceRouter
from cursor_gateway.store.base import StoreUpkeep
from cursor_gateway.workspace.snapshots import Snapshots, forget_changes

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
        except (GatewayError, OSError):
            is_done = False
        await forget_changes(self._snapshots, str(self._conversations.data), conversation_id)
        await asyncio.to_thread(remove_folder, folder, is_done=is_done)
        return is_done
