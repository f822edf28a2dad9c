"""Choose the backends of a gateway, as the settings say."""

import os
import resource
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from msgspec import Struct

from cursor_gateway.cli.configuration import data_dir
from cursor_gateway.demo import recordings
from cursor_gateway.errors import AgentError, AgentMissing, SettingsError, WorkspaceForbidden
from cursor_gateway.settings import Settings
from cursor_gateway.sources.base import Source
from cursor_gateway.sources.cli.source import CliOptions, CursorCliSource
from cursor_gateway.sources.cli.spares import SpareOptions
from cursor_gateway.sources.cursor.command import CommandOptions
from cursor_gateway.sources.cursor.permissions import wrong_rules
from cursor_gateway.sources.ledger import Ledger
from cursor_gateway.sources.recorder import Recorder
from cursor_gateway.sources.replay import Recording, ReplaySource, load
from cursor_gateway.sources.router import SourceRouter, routed
from cursor_gateway.sources.tool_endpoint import ToolEndpoint
from cursor_gateway.workspace.roots import Workspaces

if TYPE_CHECKING:
    from cursor_gateway.sources.agent_user import AgentUser
    from cursor_gateway.sources.cursor.hooks import HookOptions
    from cursor_gateway.store.cluster import Member


_SHORTEST_SECRET = 8  # characters; what is shorter could be any word


class Basis(Struct, frozen=True, kw_only=True):
    """What all parts of a gateway are made with."""

    settings: Settings
    environ: Mapping[str, str]
    warn: Callable[[str], None]
    ledger: Ledger
    directory: Path  # for what must not outlive the history
    own: "Member | None" = None  # this process, in a cluster


async def choose_source(basis: Basis) -> tuple[SourceRouter, str]:
    """And why it is the demo, if it is. Requests may choose another of those that can be used here."""
    settings, environ = basis.settings, basis.environ
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
    _share_folders(basis)
    cli = _cli(basis)
    try:
        program = await cli.probe()
        if (hooks := hook_options(settings, environ)) is not None:
            from cursor_gateway.sources.cursor.hooks import unverified

            if why := unverified(program, hooks):
                raise SettingsError(why, param="approvals")
    except AgentMissing as error:
        if settings.source == "auto" and not settings.agent_program:  # naming a program rules out the demo
            return routed(_replay(settings)), str(error)
        if settings.source != "sdk":  # which needs no agent here
            raise
        sdk = {"sdk": _sdk(basis)}
        return SourceRouter(sdk, "sdk", refused=refused, secrets=_secrets(settings, environ)), ""
    except AgentError as error:
        if settings.source == "cli":
            raise
        basis.warn(str(error))  # it exists; a run will report what is wrong with it
    default = "cli" if settings.source == "auto" else settings.source
    sources: dict[str, Source] = {"cli": cli}
    if "acp" not in refused:
        sources["acp"] = _acp(basis, cli)
    if "sdk" not in refused:
        from cursor_gateway.sources.sdk.source import unavailable

        if default == "sdk" or unavailable(environ) is None:
            sources["sdk"] = _sdk(basis)
    interactive = "acp" if settings.source == "auto" and "acp" in sources else None
    return SourceRouter(sources, default, "cli", refused, _secrets(settings, environ), interactive), ""


def _share_folders(basis: Basis) -> None:
    """With agents that run as another user."""
    if (user := agent_user(basis.settings)) is None:
        return
    from cursor_gateway.sources.agent_user import UMASK

    os.umask(UMASK)  # of the agents
    try:
        data, base = data_dir(basis.settings, basis.environ).resolve(), basis.directory.resolve()
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


def _acp(basis: Basis, cli: CursorCliSource) -> Source:
    from cursor_gateway.sources.acp.pool import PoolOptions
    from cursor_gateway.sources.acp.source import AcpOptions, CursorAcpSource

    settings, folder = basis.settings, (basis.directory / "acp").resolve()
    options = AcpOptions(
        user=agent_user(settings),
        command=_command(settings),
        environment=settings.agent_environment,
        pool=PoolOptions(max_processes=settings.max_agents),
        spare_seconds=settings.spare_seconds if settings.spare_agents else 0.0,
        grace_seconds=settings.grace_seconds,
        max_output_bytes=settings.max_output_bytes,
        permissions=settings.permissions,
        allow=settings.allow,
        may_prepare=may_prepare(settings),
    )
    endpoint = ToolEndpoint(settings.progress_seconds)
    return CursorAcpSource(options, cli, folder, basis.environ, basis.ledger, endpoint)


def _sdk(basis: Basis) -> Source:
    from cursor_gateway.sources.sdk.bridge import BridgeOptions, most_descriptors
    from cursor_gateway.sources.sdk.source import CursorSdkSource, SdkOptions

    settings = basis.settings
    bridge = BridgeOptions(
        command=settings.sdk_bridge,
        environment=settings.agent_environment,
        http1=settings.http1,
        grace_seconds=settings.grace_seconds,
        max_descriptors=most_descriptors(resource.getrlimit(resource.RLIMIT_NOFILE)[1]),
    )
    options = SdkOptions(
        folder=(basis.directory / "sdk").resolve(),
        bridge=bridge,
        force=settings.force,
        permissions=settings.permissions,
        allow=settings.allow,
        loads_settings=settings.sdk_settings,
        sandbox=settings.sandbox,
        models_seconds=settings.models_seconds,
        max_output_bytes=settings.max_output_bytes,
    )
    return CursorSdkSource(options, basis.environ, basis.ledger, monotonic)


def _cli(basis: Basis) -> CursorCliSource:
    settings = basis.settings
    options = CliOptions(
        program=settings.agent_program,
        version=settings.agent_version,
        user=agent_user(settings),
        command=_command(settings),
        environment=settings.agent_environment,
        allow=settings.allow,
        max_output_bytes=settings.max_output_bytes,
        grace_seconds=settings.grace_seconds,
        models_seconds=settings.models_seconds,
        hooks=hook_options(settings, basis.environ),
        spares=SpareOptions(
            most=settings.spare_agents, seconds=settings.spare_seconds, grace_seconds=settings.grace_seconds
        ),
        may_prepare=may_prepare(settings),
    )
    recorder = None
    if settings.record_dir:
        recorder = Recorder(Path(settings.record_dir).expanduser(), prompts=settings.record_prompts, warn=basis.warn)
    endpoint = ToolEndpoint(settings.progress_seconds)
    return CursorCliSource(options, basis.environ, basis.ledger, monotonic, recorder, endpoint)


def may_prepare(settings: Settings) -> Callable[[str], bool]:
    """An agent reads the hooks and servers of its workspace as soon as it starts, and may have written them itself."""
    allowed = [Path(folder).expanduser() for folder in settings.allow_workspace_hooks]
    workspaces = Workspaces(Path(), [], refuse_hooks=settings.refuse_workspace_hooks, allow_hooks=allowed)

    def may_work_in(workspace: str) -> bool:
        try:
            workspaces.check(workspace)
        except WorkspaceForbidden:
            return False
        return True

    return may_work_in


def _command(settings: Settings) -> CommandOptions:
    return CommandOptions(
        trust=settings.trust,
        force=settings.force,
        headers=settings.agent_headers,
        sandbox=settings.sandbox,
        http1=settings.http1,
    )


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
    from cursor_gateway.cli.commands.verify import holds_commands
    from cursor_gateway.sources.cursor.hooks import HookOptions

    return HookOptions(
        is_verified=partial(holds_commands, data_dir(settings, environ)), permissions=settings.permissions
    )


def _replay(settings: Settings) -> ReplaySource:
    if settings.replay_dir:
        return ReplaySource(load(Path(settings.replay_dir).expanduser()), settings.replay_speed, is_demo=False)
    built_in = [Recording(name, data) for name, data in recordings().items()]
    return ReplaySource(built_in, settings.replay_speed, is_demo=True)
