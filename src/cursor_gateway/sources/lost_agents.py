"""The agents of other gateways on this machine that have lost their runs: ended before an agent starts here.

A conversation is free as soon as the run of a dead gateway is ended in the store, by any process on any machine. Its
agent may still be there, and works in the same folder. So whoever starts an agent first ends those of gateways on its
machine that are dead, or that are no longer members of its cluster: these may also be frozen or cut off.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import TypeAlias

from cursor_gateway.errors import ConversationBusy
from cursor_gateway.sources.ledger import Ledger
from cursor_gateway.sources.process_groups import members

_GONE_SECONDS = 10.0  # only a process in uninterruptible sleep takes that long to end
_LOOK_SECONDS = 0.005


Absent: TypeAlias = Callable[[Collection[str]], Awaitable[Collection[str]]]  # which of these are no members


class LostAgents:
    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._cluster = ""
        self._absent: Absent | None = None  # in a cluster

    def join(self, cluster: str, own: str, absent: Absent) -> None:
        """Raises `OSError`."""
        self._ledger.note_member(cluster, own)
        self._cluster, self._absent = cluster, absent

    def joined(self) -> None:
        """This gateway has its runs: others do not end its agents any more."""
        self._ledger.reopen()

    async def end(self) -> None:
        """Raises `StoreUnavailable` if nobody knows who is a member, `ConversationBusy` if an agent cannot be ended."""
        groups = await asyncio.to_thread(self._ledger.end_orphans) if self._ledger.dead() else []
        if self._absent is not None:
            names = {other.member: other.name for other in self._ledger.others() if other.cluster == self._cluster}
            for id in await self._absent(names) if names else ():
                groups += await asyncio.to_thread(self._ledger.end_agents_of, names[id])
        await _gone(groups)

    async def end_of(self, member: str) -> None:
        """The same for a member of the cluster that has just been removed."""
        lost = [
            other.name for other in self._ledger.others() if (other.cluster, other.member) == (self._cluster, member)
        ]
        for name in lost:
            await _gone(await asyncio.to_thread(self._ledger.end_agents_of, name))


async def _gone(groups: Collection[int]) -> None:
    deadline = asyncio.get_running_loop().time() + _GONE_SECONDS
    while any(map(members, groups)):
        if asyncio.get_running_loop().time() > deadline:
            raise ConversationBusy("The agent of a process that died is still working; try again in a moment.")
        await asyncio.sleep(_LOOK_SECONDS)
