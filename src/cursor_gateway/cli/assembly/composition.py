"""Choose the parts of a gateway and put them together, as the settings say."""

import asyncio
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, nullcontext, suppress
from pathlib import Path
from time import monotonic, time
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from cursor_gateway.cli.assembly.sources import Basis, choose_source
from cursor_gateway.cli.assembly.stores import OpenableStore, database_url, store_of
from cursor_gateway.cli.configuration import check_paths, data_dir
from cursor_gateway.cli.output import aside, aside_demo
from cursor_gateway.errors import SettingsError, StoreUnavailable
from cursor_gateway.fair_places import Shares
from cursor_gateway.runs.admission import Runs
from cursor_gateway.runs.conversations import Conversations
from cursor_gateway.runs.handle import end_interrupted_runs
from cursor_gateway.runs.machine import Timeouts, WaitLimits
from cursor_gateway.runs.queue import QueueLimits, RunQueue
from cursor_gateway.runs.repeats import AccountErrors
from cursor_gateway.runs.run import Observer
from cursor_gateway.runs.run_service import Defaults
from cursor_gateway.runs.service import LocalRunService
from cursor_gateway.runs.starter import RunParts, now_ms
from cursor_gateway.settings import Settings, check_budgets, check_schedules, subset
from cursor_gateway.sources.cgroups import AgentLimits, delegated
from cursor_gateway.sources.cli.source import CursorCliSource
from cursor_gateway.sources.cursor.configuration import OWN_CONFIGURATION
from cursor_gateway.sources.ledger import Ledger, LostAgents, registry
from cursor_gateway.sources.private_files import FreshFolders, secret_in
from cursor_gateway.sources.replay import ReplaySource
from cursor_gateway.sources.router import SourceRouter
from cursor_gateway.sources.tool_endpoint import ToolEndpoint
from cursor_gateway.store.base import HistoryLimits, Store, StoreUpkeep
from cursor_gateway.store.queue import LocalQueue
from cursor_gateway.workspace.permissions import Permissions
from cursor_gateway.workspace.roots import Workspaces
from cursor_gateway.workspace.snapshots import Snapshots

if TYPE_CHECKING:
    from cursor_gateway.cluster.node import Node
    from cursor_gateway.server.tracing import Tracing
    from cursor_gateway.store.cluster import Member

_LOOK_SECONDS = 60.0  # between looks at the size of the history
_LOOKS = 60  # then it is pruned, however little it has grown
_MOST_GROWN = 0.1  # of its limit: it is pruned at once
_AGAIN_SECONDS = 2.0  # when the history is unreachable


class Gateway(Struct, frozen=True):
    """A service and what must be closed after it."""

    service: LocalRunService
    ledger: Ledger
    store: OpenableStore
    why_demo: str = ""  # why the built-in recordings answer
    node: "Node | None" = None  # in a cluster

    def announce(self, how: str) -> None:
        """The backend and how it is used; or that it is the demo, and why."""
        state = self.service.source.state()
        if state.is_demo:
            aside_demo()
            aside(self.why_demo)
        else:
            aside(f"{state.detail}{how}")

    async def close(self) -> None:
        await self.service.close()
        if self.node is not None:
            await self.node.close()
        await self.store.close()
        self.ledger.close()


async def compose(
    settings: Settings,
    observers: Sequence[Observer] = (),
    environ: Mapping[str, str] = os.environ,
    warn: Callable[[str], None] = lambda message: None,
    *,
    takes_work: bool = False,
    tracing: "Tracing | None" = None,
) -> Gateway:
    """Raises `SettingsError`, or an `AgentError` where `source = "cli"` and there is no agent.

    `takes_work`: in a cluster, it runs agents for others as well; on one machine, what waits in the history's queue.
    `tracing`: one of the observers, if runs are traced.
    """
    check_budgets(settings)
    check_schedules(settings)
    in_cluster = bool(database_url(settings))
    if takes_work and settings.role != "all" and not in_cluster:
        raise _no_database(settings.role)
    data = data_dir(settings, environ)
    check_paths(settings, str(data))
    ledger = _opened_ledger(settings, data, warn)
    async with AsyncExitStack() as undo:
        undo.callback(ledger.close)
        dead = ledger.dead()
        ledger.end_orphans()
        _use_cgroups(settings, ledger)
        ledger.watch()  # after that: a process beside this one would keep it from controllers
        own = None
        if in_cluster:
            from cursor_gateway.cli.assembly.clustering import own_member

            own = own_member(settings, ledger.folder.name, runs_agents=True, takes_work=takes_work)
        directory = data if settings.history else ledger.folder
        basis = Basis(settings=settings, environ=environ, warn=warn, ledger=ledger, directory=directory, own=own)
        store = store_of(settings, directory)
        undo.push_async_callback(store.close)
        opening = asyncio.get_running_loop().create_task(_open(store, None if in_cluster else ledger, warn))
        try:
            source, why_demo = await choose_source(basis)
            undo.push_async_callback(source.close)
        finally:
            await opening
        secret = None
        with nullcontext() if in_cluster else suppress(OSError):  # a full disk: then it is one for this process
            secret = secret_in(directory)
        account_errors = AccountErrors(source, settings.account_error_seconds, monotonic, data)
        agents = LostAgents(ledger)
        kept: Store = store
        if tracing is not None:
            kept, source.observed = tracing.store(store), tracing.turn
        queue = _queue_of(settings, store) if takes_work and own is None else None
        service = await _service(basis, source, kept, observers, account_errors, secret, agents, queue)
        gateway = Gateway(service, ledger, store, why_demo)
        if own is not None:
            gateway = await _joined(gateway, basis, own, agents)
            assert gateway.node is not None
            await gateway.node.members.take_over_processes(dead)  # of this machine, whose runs it ends
        undo.pop_all()
    return gateway


async def _joined(gateway: Gateway, basis: Basis, own: "Member", agents: LostAgents) -> Gateway:
    """As a member of the cluster."""
    from cursor_gateway.cli.assembly.clustering import cluster_of, node_of
    from cursor_gateway.cluster.volumes import check_volumes

    service = gateway.service
    await check_volumes(_volumes_of(basis.settings), cluster_of(gateway.store), basis.warn)
    node = node_of(basis.settings, own, gateway.store, service, service.defaults, now_ms, basis.warn, agents)
    await node.start()
    return replace(gateway, node=node)


async def compose_front(settings: Settings, warn: Callable[[str], None]) -> tuple["Node", OpenableStore]:
    """Of a cluster. Raises `SettingsError` and `StoreUnavailable`."""
    from cursor_gateway.cli.assembly.clustering import node_of, own_member

    if not database_url(settings):
        raise _no_database(settings.role)
    check_schedules(settings)
    own = own_member(settings, str(os.getpid()), runs_agents=False)
    async with AsyncExitStack() as undo:
        store = store_of(settings, data_dir(settings))
        undo.push_async_callback(store.close)
        await store.open(now_ms())
        node = node_of(settings, own, store, None, subset(settings, Defaults), now_ms, warn)
        await node.start()
        undo.pop_all()
    return node, store


def _volumes_of(settings: Settings) -> dict[str, Path]:
    """Of the volumes that this machine shares with others."""
    return {name: Path(folder).expanduser() for name, folder in settings.volumes.items()}


def _no_database(role: str) -> SettingsError:
    return SettingsError(f"`role = {role}` needs a database that the cluster shares; set `store`.", param="role")


def ledger_of(settings: Settings, data: Path) -> Ledger:
    return Ledger(data / "instances", registry(settings.runtime_dir))


def _opened_ledger(settings: Settings, data: Path, warn: Callable[[str], None]) -> Ledger:
    ledger = ledger_of(settings, data)
    if not ledger.is_registered:
        warn(
            "`runtime_dir` is not a folder that only this user can write to, so agents left behind by a killed gateway "
            "with another `data_dir` are not ended; name another one."
        )
    try:
        ledger.open()
    except OSError as error:
        raise SettingsError(
            f"the gateway cannot write to {error.filename}: {error.strerror}; set `data_dir` to a writable folder.",
            param="data_dir",
        ) from None
    return ledger


def _use_cgroups(settings: Settings, ledger: Ledger) -> None:
    """Raises `SettingsError`."""
    limits = subset(settings, AgentLimits)
    if not settings.agent_cgroups:
        if limits.files():
            raise SettingsError("limits of agents need cgroups; set `agent_cgroups` to true.", param="agent_cgroups")
    elif (cgroups := delegated(limits)) is not None:
        ledger.use_cgroups(cgroups)


def _fresh_folders(source: SourceRouter, directory: Path, ledger: Ledger) -> FreshFolders:
    """In this gateway's own folder, which is removed with it."""
    base = directory.resolve()
    names = [OWN_CONFIGURATION] if isinstance(source.named(None), CursorCliSource) else []
    return FreshFolders(base, base / ledger.folder.relative_to(directory) / "conversations" / "fresh", names)


async def _service(
    basis: Basis,
    source: SourceRouter,
    store: Store,
    observers: Sequence[Observer],
    account_errors: AccountErrors,
    secret: bytes | None,
    agents: LostAgents,
    queued: LocalQueue | None,
) -> LocalRunService:
    settings, directory, ledger, own = basis.settings, basis.directory, basis.ledger, basis.own
    model = settings.model
    if isinstance(source.named(None), ReplaySource):
        model = (await source.models())[0].id
    default = Path(settings.workspace or ".").expanduser()
    if not default.is_dir():
        raise SettingsError(
            f"the folder {str(default)!r} does not exist; set `workspace` to one that does.", param="workspace"
        )
    shares = subset(settings, Shares)
    if own is not None:  # places are given by the database: see `cluster`
        waiting = settings.max_waiting_per_key or settings.max_runs
        most = 4 * settings.max_runs + 8
        shares = Shares(max_runs=most, max_waiting_per_key=waiting, queue_seconds=settings.queue_seconds)
    runs = Runs(source, subset(settings, Timeouts), shares, observers)
    defaults = replace(subset(settings, Defaults), model=model)
    instance = own.id if own is not None else ledger.folder.name
    queue = None
    if queued is not None:
        limits = subset(settings, QueueLimits)
        queue = RunQueue(queued, store, runs, limits, defaults, instance, ledger.is_alive, _queue_fault)
    return LocalRunService(
        RunParts(
            source,
            runs,
            store,
            Conversations(
                store,
                directory / "conversations",
                own.volumes if own is not None else (),
                latest=runs.latest,
                fresh=_fresh_folders(source, directory, ledger) if not settings.agent_user else None,
            ),
            Workspaces(
                default,
                [Path(root).expanduser() for root in settings.workspace_roots],
                refuse_hooks=settings.refuse_workspace_hooks,
                allow_hooks=[Path(folder).expanduser() for folder in settings.allow_workspace_hooks],
                host=own.host if own is not None else "",
                volumes=_volumes_of(settings) if own else {},
            ),
            defaults,
            instance=instance,
            now_ms=now_ms,
            endpoint=ToolEndpoint(settings.progress_seconds),
            waits=WaitLimits(answer_seconds=settings.answer_seconds),
            account_errors=account_errors,
            secret=secret,
            permissions=Permissions(directory, now_ms, can_allow=settings.permissions == "ask"),
            is_alive=ledger.is_alive if own is None else lambda instance: True,  # a cluster ends the runs of its dead
            must_store_seconds=None if own is None else settings.database_seconds,
            lost_agents=agents,
            snapshots=_snapshots(settings, directory, ledger),
            queue=queue,
        )
    )


def _queue_of(settings: Settings, store: OpenableStore) -> LocalQueue | None:
    """Of a history in a file."""
    from cursor_gateway.store.sqlite.store import SqliteStore

    return store.queue if settings.queue_ttl_seconds and isinstance(store, SqliteStore) else None


def _queue_fault(error: Exception) -> None:
    logging.getLogger(__name__).error("Internal error in the queue; its traceback follows.", exc_info=error)


def _snapshots(settings: Settings, directory: Path, ledger: Ledger) -> Snapshots | None:
    if not (settings.snapshots and settings.history):
        return None
    snapshots = Snapshots(str(directory.resolve()), ledger.folder.name)
    snapshots.recover(ledger.is_alive)
    return snapshots


async def _open(store: OpenableStore, ledger: Ledger | None, warn: Callable[[str], None]) -> None:
    """Without a history, runs still work; but not without the database of a cluster, which has no `ledger`."""
    try:
        if (warning := await store.open(now_ms())) is not None:
            warn(warning)
        if ledger is not None:
            await end_interrupted_runs(store, ledger.is_alive, now_ms())
    except StoreUnavailable as error:
        if ledger is None:
            raise
        warn(str(error))


async def keep_history(gateway: Gateway, settings: Settings) -> None:
    """Periodically ends what crashed gateways left behind, and deletes what exceeds the limits."""
    limits = HistoryLimits(
        max_age_seconds=settings.history_days * 24 * 3600 or None,
        max_bytes=settings.max_history_bytes,
        max_bytes_per_owner=settings.max_history_bytes_per_key or None,
    )
    limit = min(settings.max_history_bytes, settings.max_history_bytes_per_key or settings.max_history_bytes)
    while True:
        try:
            if gateway.node is None:
                await end_interrupted_runs(gateway.store, gateway.ledger.is_alive, now_ms())
            file_sizes = await gateway.service.conversations.file_sizes()
            await gateway.store.prune(limits, now_ms(), file_sizes)
            await gateway.service.removals.remove_strays(gateway.store, time())
            await _until_due(gateway.store, limit * _MOST_GROWN)
        except StoreUnavailable:  # not done yet, if the history was unreachable at the start
            await asyncio.sleep(_AGAIN_SECONDS)


async def _until_due(store: StoreUpkeep, most_grown: float) -> None:
    """Waits for an hour, or until the history has grown by that many bytes."""
    smallest = await store.size()
    for _ in range(_LOOKS):
        await asyncio.sleep(_LOOK_SECONDS)
        size = await store.size()
        if size - smallest > most_grown:
            return
        smallest = min(smallest, size)  # deleted rows leave the file a while later


async def probe_history(store: StoreUpkeep) -> None:
    """While the history fails: `/health` shows that it works again even if nobody uses it."""
    while True:
        await asyncio.sleep(_AGAIN_SECONDS)
        if store.health.is_failing:
            with suppress(StoreUnavailable):
                await store.probe()
