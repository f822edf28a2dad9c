"""One process of a cluster, put together: a member, which serves clients, runs agents, or both; and its hints."""

import asyncio
from collections.abc import Callable, Collection
from contextlib import aclosing

from msgspec import Struct

from cursor_gateway.cluster.asking import Asking
from cursor_gateway.cluster.front import Front, FrontLimits
from cursor_gateway.cluster.hub import Hub
from cursor_gateway.cluster.members import Members, Timing
from cursor_gateway.cluster.runner import Runner
from cursor_gateway.runs.run_service import Defaults
from cursor_gateway.runs.service import LocalRunService
from cursor_gateway.sources.ledger import LostAgents
from cursor_gateway.store.base import Store
from cursor_gateway.store.cluster import ClusterStore, Hint, Member

_AGAIN_SECONDS = 0.5  # after a fault


class NodeOptions(Struct, frozen=True, kw_only=True):
    own: Member
    timing: Timing
    limits: FrontLimits
    defaults: Defaults
    api_keys: Collection[str] = ()  # the names of those in the settings


class Node:
    def __init__(
        self,
        options: NodeOptions,
        cluster: ClusterStore,
        store: Store,
        local: LocalRunService | None,
        now_ms: Callable[[], int],
        warn: Callable[[str], None] = lambda message: None,
        fault: Callable[[Exception], None] = lambda error: None,
        agents: LostAgents | None = None,
    ) -> None:
        """`local` runs this process's agents; a front has none. `agents` are those of others on this machine."""
        self.members = Members(cluster, store, options.own, options.timing, now_ms, warn, agents)
        self.hub = Hub(cluster, store, options.own.id)
        self._asking = Asking(cluster)
        runs = local.runs if local is not None else None
        self.front = Front(store, cluster, self.members, self.hub, self._asking, options.defaults, options.limits, runs)
        self.runner: Runner | None = None
        if local is not None:
            limit = options.limits.max_runs_per_key
            self.runner = Runner(local, cluster, self.members, options.own.capacity, fault, options.api_keys, limit)
            local.cancel_elsewhere = self.front.cancel
        self._cluster, self._fault = cluster, fault
        self._listening: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Raises `StoreUnavailable`."""
        await self.members.join()
        self.hub.start()
        self._asking.start()
        if self.runner is not None:
            self.runner.start()
        self._listening = asyncio.get_running_loop().create_task(self._listen(), name="hints")

    async def close(self) -> None:
        """After its runs have ended."""
        await self.front.close()
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.wait([self._listening])
        if self.runner is not None:
            await self.runner.close()
        await self.members.leave()
        await self._cluster.hints.close()

    async def _listen(self) -> None:
        """For ever: without hints, everything takes a second or two longer."""
        while True:
            try:
                async with aclosing(self._cluster.hints.listen(self.members.own_id)) as hints:
                    async for hint in hints:
                        self._try(hint)
            except Exception as error:  # noqa: BLE001 -- whatever it is, it must not end all hints
                self._fault(error)
            await asyncio.sleep(_AGAIN_SECONDS)

    def _try(self, hint: Hint) -> None:
        try:
            self._hinted(hint)
        except Exception as error:  # noqa: BLE001 -- the sender may be another version
            self._fault(error)

    def _hinted(self, hint: Hint) -> None:
        if hint.kind in ("all", "run"):
            if hint.values:
                self.hub.hinted(hint)
            else:
                self.hub.look_at_all()
        if hint.kind == "all":
            self._asking.look()
        if hint.kind == "outcome":
            self._asking.hinted(hint.values)
        if self.runner is not None and hint.kind in ("all", "queue"):
            self.runner.look()
        if self.runner is not None and hint.kind in ("all", "watchers"):
            self.runner.look_at_readers()
