"""Choose the parts of a gateway and put them together, as the settings say."""

import asyncio
import os
import resource
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, nullcontext, suppress
from functools import partial
from pathlib import Path
from time import monotonic, time, time_ns
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from cursor_gateway.cli.configuration import check_paths, data_dir
from cursor_gateway.cli.output import aside, aside_demo
from cursor_gateway.cli.stores import OpenableStore, database_url, store_of
from cursor_gateway.demo import recordings
from cursor_gateway.errors import AgentError, AgentMissing, SettingsError, StoreUnavailable
from cursor_gateway.runs.admission import Runs, Shares
from cursor_gateway.runs.conversations import Conversations, FreshFolders
from cursor_gateway.runs.handle import end_interrupted_runs
from cursor_gateway.runs.machine import Timeouts, WaitLimits
from cursor_gateway.runs.permissions import Permissions
from cursor_gateway.runs.repeats import AccountErrors
from cursor_gateway.runs.run import Observer
from cursor_gateway.runs.run_service import Defaults
from cursor_gateway.runs.service import LocalRunService
from cursor_gateway.settings import Settings, subset
from cursor_gateway.sources.base import Source
from cursor_gateway.sources.cli.source import CliOptions, CursorCliSource
from cursor_gateway.sources.cli.spares import SpareOptions
from cursor_gateway.sources.cursor.command import CommandOptions
from cursor_gateway.sources.cursor.confinement import OWN_CONFIGURATION
from cursor_gateway.sources.cursor.permissions import wrong_rules
from cursor_gateway.sources.ledger import Ledger, registry
from cursor_gateway.sources.lost_agents import LostAgents
from cursor_gateway.sources.private_files import secret_in
from cursor_gateway.sources.recorder import Recorder
from cursor_gateway.sources.replay import Recording, ReplaySource, load
from cursor_gateway.sources.router import SourceRouter, routed
from cursor_gateway.sources.tool_server.endpoint import ToolEndpoint
from cursor_gateway.store.base import HistoryLimits, Store, StoreUpkeep
from cursor_gateway.workspace.roots import Workspaces
from cursor_gateway.workspace.snapshots import Snapshots

if TYPE_CHECKING:
    from cursor_gateway.cluster.node import Node
    from cursor_gateway.sources.agent_user import AgentUser
    from cursor_gateway.sources.cli.hooked_turn import HookOptions
    from cursor_gateway.store.cluster import Member

_LOOK_SECONDS = 60.0  # between looks at the size of the history
_LOOKS = 60  # then it is pruned, however little it has grown
_MOST_GROWN = 0.1  # of its limit: it is pruned at once
_SHORTEST_SECRET = 8  # characters; what is shorter could be any word
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
) -> Gateway:
    """Raises `SettingsError`, or an `AgentError` where `source = "cli"` and there is no agent.

    `takes_work`: in a cluster, it runs agents for others as well.
    """
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
        ledger.watch()
        own = None
        if in_cluster:
            from cursor_gateway.cli.clustering import own_member

            own = own_member(settings, ledger.folder.name, runs_agents=True, takes_work=takes_work)
        directory = data if settings.history else ledger.folder
        store = store_of(settings, directory)
        undo.push_async_callback(store.close)
        opening = asyncio.get_running_loop().create_task(_open(store, None if in_cluster else ledger, warn))
        try:
            source, why_demo = await choose_source(settings, ledger, directory, environ, warn)
            undo.push_async_callback(source.close)
        finally:
            await opening
        secret = None
        with nullcontext() if in_cluster else suppress(OSError):  # a full disk: then it is one for this process
            secret = secret_in(directory)
        account_errors = AccountErrors(source, settings.account_error_seconds, monotonic, data)
        agents = LostAgents(ledger)
        service = await _service(
            settings, source, store, directory, ledger, observers, account_errors, secret, agents, own
        )
        gateway = Gateway(service, ledger, store, why_demo)
        if own is not None:
            gateway = await _joined(gateway, settings, own, agents, dead, warn)
        undo.pop_all()
    return gateway


async def _joined(
    gateway: Gateway,
    settings: Settings,
    own: "Member",
    agents: LostAgents,
    dead: Sequence[str],
    warn: Callable[[str], None],
) -> Gateway:
    """As a member of the cluster. `dead` are processes of this machine, whose runs it ends."""
    from cursor_gateway.cli.clustering import node_of

    node = node_of(settings, own, gateway.store, gateway.service, gateway.service.defaults, now_ms, warn, agents)
    await node.start()
    await node.members.take_over_processes(dead)
    return replace(gateway, node=node)


async def compose_front(settings: Settings, warn: Callable[[str], None]) -> tuple["Node", OpenableStore]:
    """Of a cluster. Raises `SettingsError` and `StoreUnavailable`."""
    from cursor_gateway.cli.clustering import node_of, own_member

    if not database_url(settings):
        raise _no_database(settings.role)
    own = own_member(settings, str(os.getpid()), runs_agents=False)
    async with AsyncExitStack() as undo:
        store = store_of(settings, data_dir(settings))
        undo.push_async_callback(store.close)
        await store.open(now_ms())
        node = node_of(settings, own, store, None, subset(settings, Defaults), now_ms, warn)
        await node.start()
        undo.pop_all()
    return node, store


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


def _fresh_folders(source: SourceRouter, directory: Path, ledger: Ledger) -> FreshFolders:
    """In this gateway's own folder, which is removed with it."""
    base = directory.resolve()
    names = [OWN_CONFIGURATION] if isinstance(source.named(None), CursorCliSource) else []
    return FreshFolders(base, base / ledger.folder.relative_to(directory) / "conversations" / "fresh", names)


async def _service(
    settings: Settings,
    source: SourceRouter,
    store: Store,
    directory: Path,
    ledger: Ledger,
    observers: Sequence[Observer],
    account_errors: AccountErrors,
    secret: bytes | None,
    agents: LostAgents,
    own: "Member | None" = None,
) -> LocalRunService:
    """`own` is this process, in a cluster."""
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
    return LocalRunService(
        source,
        Runs(source, subset(settings, Timeouts), shares, observers),
        store,
        Conversations(
            store,
            directory / "conversations",
            own.volumes if own is not None else (),
            fresh=_fresh_folders(source, directory, ledger) if not settings.agent_user else None,
        ),
        Workspaces(
            default,
            [Path(root).expanduser() for root in settings.workspace_roots],
            refuse_hooks=settings.refuse_workspace_hooks,
            host=own.host if own is not None else "",
            volumes={name: Path(folder).expanduser() for name, folder in settings.volumes.items()} if own else {},
        ),
        replace(subset(settings, Defaults), model=model),
        instance=own.id if own is not None else ledger.folder.name,
        now_ms=now_ms,
        endpoint=ToolEndpoint(settings.progress_seconds),
        caller_limits=WaitLimits(answer_seconds=settings.answer_seconds),
        account_errors=account_errors,
        secret=secret,
        permissions=Permissions(directory, now_ms, can_allow=settings.permissions == "ask"),
        is_alive=ledger.is_alive if own is None else lambda instance: True,  # a cluster ends the runs of its dead
        must_store_seconds=None if own is None else settings.database_seconds,
        lost_agents=agents,
        snapshots=Snapshots(str(directory.resolve())) if settings.snapshots and settings.history else None,
    )


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


def now_ms() -> int:
    return time_ns() // 1_000_000


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


async def choose_source(
    settings: Settings, ledger: Ledger, directory: Path, environ: Mapping[str, str], warn: Callable[[str], None]
) -> tuple[SourceRouter, str]:
    """And why it is the demo, if it is. Requests may choose another of those that can be used here.

    `directory` is for what must not outlive the history.
    """
    if wrong := wrong_rules(settings.allow):
        raise SettingsError(
            f"{wrong[0]!r} is not a rule; write it like Shell(git) or WebFetch(example.com).", param="allow"
        )
    if settings.source == "replay":
        why = "" if settings.replay_dir else "`source` is `replay`, and `replay_dir` is not set"
        return routed(_replay(settings)), why
    refused = {name: reason for name in ("acp", "sdk") if (reason := unsupported(name, settings))}
    if settings.source in refused:
        raise SettingsError(
            f"`source = {settings.source}` cannot be used: {refused[settings.source]}; change one of the two settings.",
            param="source",
        )
    _share_folders(settings, directory, environ)
    cli = _cli(settings, ledger, environ, warn)
    try:
        program = await cli.probe()
        if (hooks := hook_options(settings, environ)) is not None:
            from cursor_gateway.sources.cli.hooked_turn import unverified

            if why := unverified(program, hooks):
                raise SettingsError(why, param="approvals")
    except AgentMissing as error:
        if settings.source == "auto" and not settings.agent_program:  # naming a program rules out the demo
            return routed(_replay(settings)), str(error)
        if settings.source != "sdk":  # which needs no agent here
            raise
        sdk = {"sdk": _sdk(settings, ledger, directory, environ)}
        return SourceRouter(sdk, "sdk", refused=refused, secrets=_secrets(settings, environ)), ""
    except AgentError as error:
        if settings.source == "cli":
            raise
        warn(str(error))  # it exists; a run will report what is wrong with it
    default = "cli" if settings.source == "auto" else settings.source
    sources: dict[str, Source] = {"cli": cli}
    if "acp" not in refused:
        sources["acp"] = _acp(settings, cli, (directory / "acp").resolve(), environ, ledger)
    if "sdk" not in refused:
        from cursor_gateway.sources.sdk.source import unavailable

        if default == "sdk" or unavailable(environ) is None:
            sources["sdk"] = _sdk(settings, ledger, directory, environ)
    interactive = "acp" if settings.source == "auto" and "acp" in sources else None
    return SourceRouter(sources, default, "cli", refused, _secrets(settings, environ), interactive), ""


def _share_folders(settings: Settings, directory: Path, environ: Mapping[str, str]) -> None:
    """With agents that run as another user."""
    if (user := agent_user(settings)) is None:
        return
    from cursor_gateway.sources.agent_user import UMASK

    os.umask(UMASK)  # of the agents
    try:
        data, base = data_dir(settings, environ).resolve(), directory.resolve()
        user.share(data, [base / "conversations", base / "acp"])
    except OSError as error:
        raise SettingsError(
            f"{error.filename} cannot be shared with `agent_user`: {error.strerror}; change its owner or `data_dir`.",
            param="agent_user",
        ) from None


def agent_user(settings: Settings) -> "AgentUser | None":
    """None: the gateway's own. Raises `SettingsError`."""
    if not settings.agent_user:
        return None
    from cursor_gateway.sources.agent_user import find_agent_user

    return find_agent_user(settings.agent_user)


def unsupported(source: str, settings: Settings) -> str:
    """Why this source cannot obey the operator's settings; empty if it can. The CLI obeys all of them."""
    if settings.record_dir:
        return "every run is recorded (`record_dir`), and only CLI runs can be recorded"
    if not settings.trust:
        return "`trust` is false, and only the CLI checks whether a workspace is trusted"
    if settings.agent_user and source == "sdk":
        return "`agent_user` is set, and the SDK's bridge runs as the gateway's own user"
    if settings.agent_headers and source == "sdk":
        return "`agent_headers` is set, and the SDK does not support headers"
    return ""


def _secrets(settings: Settings, environ: Mapping[str, str]) -> list[str]:
    """The credentials that an agent is given, and could repeat when it fails."""
    given = [environ.get("CURSOR_API_KEY", ""), environ.get("CURSOR_AUTH_TOKEN", ""), *settings.agent_headers.values()]
    return [value for value in given if len(value) >= _SHORTEST_SECRET]


def _acp(settings: Settings, cli: CursorCliSource, folder: Path, environ: Mapping[str, str], ledger: Ledger) -> Source:
    from cursor_gateway.sources.acp.pool import PoolOptions
    from cursor_gateway.sources.acp.source import AcpOptions, CursorAcpSource

    options = AcpOptions(
        user=agent_user(settings),
        command=CommandOptions(trust=settings.trust, force=settings.force, headers=settings.agent_headers),
        environment=settings.agent_environment,
        pool=PoolOptions(max_processes=settings.max_agents),
        spare_seconds=settings.spare_seconds if settings.spare_agents else 0.0,
        grace_seconds=settings.grace_seconds,
        max_output_bytes=settings.max_output_bytes,
        permissions=settings.permissions,
        allow=settings.allow,
    )
    return CursorAcpSource(options, cli, folder, environ, ledger, ToolEndpoint(settings.progress_seconds))


def _sdk(settings: Settings, ledger: Ledger, directory: Path, environ: Mapping[str, str]) -> Source:
    from cursor_gateway.sources.sdk.bridge import BridgeOptions, most_descriptors
    from cursor_gateway.sources.sdk.source import CursorSdkSource, SdkOptions

    bridge = BridgeOptions(
        command=settings.sdk_bridge,
        environment=settings.agent_environment,
        grace_seconds=settings.grace_seconds,
        max_descriptors=most_descriptors(resource.getrlimit(resource.RLIMIT_NOFILE)[1]),
    )
    options = SdkOptions(
        folder=(directory / "sdk").resolve(),
        bridge=bridge,
        force=settings.force,
        permissions=settings.permissions,
        allow=settings.allow,
        loads_settings=settings.sdk_settings,
        models_seconds=settings.models_seconds,
        max_output_bytes=settings.max_output_bytes,
    )
    return CursorSdkSource(options, environ, ledger, monotonic)


def _cli(
    settings: Settings, ledger: Ledger, environ: Mapping[str, str], warn: Callable[[str], None]
) -> CursorCliSource:
    options = CliOptions(
        program=settings.agent_program,
        user=agent_user(settings),
        command=CommandOptions(trust=settings.trust, force=settings.force, headers=settings.agent_headers),
        environment=settings.agent_environment,
        allow=settings.allow,
        max_output_bytes=settings.max_output_bytes,
        grace_seconds=settings.grace_seconds,
        models_seconds=settings.models_seconds,
        hooks=hook_options(settings, environ),
        spares=SpareOptions(
            most=settings.spare_agents, seconds=settings.spare_seconds, grace_seconds=settings.grace_seconds
        ),
    )
    recorder = None
    if settings.record_dir:
        recorder = Recorder(Path(settings.record_dir).expanduser(), prompts=settings.record_prompts, warn=warn)
    return CursorCliSource(options, environ, ledger, monotonic, recorder, ToolEndpoint(settings.progress_seconds))


def hook_options(settings: Settings, environ: Mapping[str, str]) -> "HookOptions | None":
    """None unless the CLI asks by hooks. Raises `SettingsError`."""
    if settings.approvals != "hooks" or settings.force:  # which allows everything
        return None
    if settings.agent_user:
        raise SettingsError(
            '`approvals = "hooks"` cannot be used with `agent_user`, whose processes cannot reach the gateway; change '
            "one of the two settings.",
            param="approvals",
        )
    from cursor_gateway.cli.verification import holds_commands
    from cursor_gateway.sources.cli.hooked_turn import HookOptions

    return HookOptions(
        is_verified=partial(holds_commands, data_dir(settings, environ)), permissions=settings.permissions
    )


def _replay(settings: Settings) -> ReplaySource:
    if settings.replay_dir:
        return ReplaySource(load(Path(settings.replay_dir).expanduser()), settings.replay_speed, is_demo=False)
    built_in = [Recording(name, data) for name, data in recordings().items()]
    return ReplaySource(built_in, settings.replay_speed, is_demo=True)
