"""Rate what the checks of `cursor-gateway doctor` found, and say what to do about it."""

import errno
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec
from msgspec import Struct

from cursor_gateway.cli.assembly.local_socket import LocalGateway
from cursor_gateway.errors import AgentError, SettingsError
from cursor_gateway.settings import Loaded, Settings, check_exposed, is_loopback, subset
from cursor_gateway.sources.base import Model
from cursor_gateway.sources.cgroups import AgentLimits
from cursor_gateway.sources.cursor.command import INSTALL_ADVICE, Program, check_version, proxy_in

if TYPE_CHECKING:
    from cursor_gateway.cli.commands.verification import Verified
    from cursor_gateway.model.health import Health

Level: TypeAlias = Literal["good", "warning", "broken"]

_MEGABYTE = 1024 * 1024
_TOO_LITTLE, _LITTLE = 50 * _MEGABYTE, 500 * _MEGABYTE  # the agent's chats and the largest output of a run

_NAMES = 8  # of settings, in a line for people


class Finding(Struct, frozen=True):
    level: Level
    subject: str
    found: str
    advice: str = ""


def worst(findings: Iterable[Finding]) -> Level:
    levels = {finding.level for finding in findings}
    return "broken" if "broken" in levels else "warning" if "warning" in levels else "good"


def summary(findings: Sequence[Finding]) -> str:
    broken = sum(finding.level == "broken" for finding in findings)
    warnings = sum(finding.level == "warning" for finding in findings)
    looks = f"; {warnings} warning{'' if warnings == 1 else 's'}" if warnings else ""
    if not broken:
        return f"No problems found{looks}."
    return f"{broken} problem{'' if broken == 1 else 's'} found{looks}."


def of_settings(loaded: Loaded, file: Path | None, is_there: bool) -> Finding:
    given = [name for name, origin in loaded.origins.items() if origin != "default"]
    names = ", ".join(given[:_NAMES]) + (", …" if len(given) > _NAMES else "")
    where = f"{'' if is_there else 'no file '}{file}" if file is not None else "no file"
    return Finding("good", "settings", f"{where}; {f'set: {names}' if given else 'all settings have their defaults'}")


class Found(Struct, frozen=True):
    """A program that is called like the agent."""

    path: str
    program: Program | None  # None: it is not Cursor's
    trouble: str = ""  # why it could not be asked


def of_agent(found: Sequence[Found], settings: Settings) -> Iterator[Finding]:
    """The first good one is used; the others are named, since one of them may be meant."""
    used = next((one for one in found if one.program is not None), None)
    if used is not None and used.program is not None:
        yield Finding("good", "agent", f"cursor-agent {used.program.version} ({used.path})")
    elif not any(one.trouble for one in found):
        needed = bool(settings.agent_program) or settings.source == "cli"
        state = f"{settings.agent_program or 'cursor-agent'} was not found"
        answers = "" if needed else "; the built-in demo is used instead"
        yield Finding("broken" if needed else "warning", "agent", state + answers, f"{INSTALL_ADVICE}.")
    for one in found:
        if one.trouble:
            level: Level = "broken" if used is None else "warning"
            yield Finding(level, "agent", f"{one.path}: {one.trouble}", "run it in a terminal to see why.")
        elif one.program is None:
            state = f"{one.path} is a different program with the same name"
            yield Finding("good" if used else "warning", "agent", f"{state}; it is not used")
        elif used is not None and used.program is not None and one.program.version != used.program.version:
            state = f"another version, {one.program.version}, is not used ({one.path})"
            yield Finding("warning", "agent", state, "set `agent_program` to the one you want.")


def of_version(program: Program, settings: Settings) -> list[Finding]:
    """Nothing if no version is required."""
    if not settings.agent_version:
        return []
    try:
        check_version(program, settings.agent_version)
    except AgentError as error:
        return [Finding("broken", "version", str(error))]
    return [Finding("good", "version", f"{program.version}, as `agent_version` requires")]


def of_network(settings: Settings, environ: Mapping[str, str]) -> Finding:
    """Which proxy and certificates agents get, and the version of HTTP."""
    proxy, certificates = proxy_in(environ), environ.get("NODE_EXTRA_CA_CERTS", "")
    told = f"{proxy} is set" if proxy else "no proxy"
    told += ", HTTP/1.1" if settings.http1 else ""
    if certificates:
        if not os.access(certificates, os.R_OK):
            problem = f"NODE_EXTRA_CA_CERTS names {certificates}, which cannot be read"
            return Finding("broken", "network", problem, "correct the path, or its permissions.")
        told += f", certificates of {certificates}"
    if proxy and not settings.http1:
        return Finding("warning", "network", told, "most proxies need `http1 = true` for cursor-agent.")
    if proxy and not environ.get("NODE_USE_ENV_PROXY"):
        return Finding("warning", "network", told, "if cursor-agent does not use the proxy, set NODE_USE_ENV_PROXY=1.")
    return Finding("good", "network", told)


def of_brought(found: str, refusal: str, *, is_refused: bool) -> Finding:
    """Programs and permissions that the default workspace brings; empty: none. `refusal`: what each request is told."""
    if not found:
        refused = "; folders with such are refused" if is_refused else ""
        return Finding("good", "hooks", f"the workspace has no hooks, MCP servers or permissions of its own{refused}")
    if refusal:
        return Finding("broken", "hooks", f"every request for this workspace is refused: {found}", refusal)
    if is_refused:
        return Finding("good", "hooks", f"allowed by `allow_workspace_hooks`: {found}")
    advice = "if others can write there, remove `refuse_workspace_hooks = false`."
    return Finding("good", "hooks", f"used, so the agent starts what they name: {found}", advice)


_ABILITIES = {  # what is lost without each
    "--stream-partial-output": "text arrives in whole paragraphs, not word by word",
    "--mode": "the modes `plan` and `ask` are not available",
    "--workspace": "the agent uses its current folder and may not recognize it as a project",
    "--trust": "runs fail in folders that the agent does not trust yet",
    "--resume": "conversations cannot be continued",
    "--add-dir": "the agent may not read images",
}


def of_abilities(program: Program) -> Finding:
    if not program.flags:
        return Finding(
            "warning", "abilities", "its --help lists no options, so all are used and some may fail", _UPDATE
        )
    lost = [f"no {flag}: {loss}" for flag, loss in _ABILITIES.items() if not program.can(flag)]
    if lost:
        return Finding("warning", "abilities", "; ".join(lost), _UPDATE)
    return Finding("good", "abilities", "it supports every option that the gateway uses")


def of_tools(program: Program) -> Finding:
    """Whether callers may bring tools of their own."""
    from cursor_gateway.sources.cursor.configuration import check_confinable

    try:
        check_confinable(program)
    except AgentError as error:
        return Finding("warning", "tools", f"requests with `tools` are rejected: {error}")
    return Finding("good", "tools", "requests can bring their own tools; the agent's are disabled then")


_UPDATE = "update it with `cursor-agent update`."


def of_login(status: str, environ: Mapping[str, str]) -> Iterator[Finding]:
    """`status` is what `cursor-agent status --format json` prints. A key does not change what it says."""
    key = environ.get("CURSOR_API_KEY")
    if key == "":
        state = "CURSOR_API_KEY is set but empty; the gateway ignores it, but cursor-agent rejects it"
        yield Finding("warning", "login", state, "`unset CURSOR_API_KEY`, or give it a value.")
    has_key = next((name for name in ("CURSOR_API_KEY", "CURSOR_AUTH_TOKEN") if environ.get(name)), None)
    is_in, who = _read_status(status)
    if has_key is not None:
        yield Finding("good", "login", f"by {has_key}{f'; also logged in{who}' if is_in else ''}")
    elif is_in is None:
        state = f"its status cannot be read: {status.strip()[:200] or 'no output'}"
        yield Finding("warning", "login", state, f"see `cursor-agent status`; {_UPDATE}")
    elif is_in:
        yield Finding("good", "login", f"logged in{who}")
    else:
        advice = "run `cursor-agent login`, or set CURSOR_API_KEY."
        yield Finding("broken", "login", "not logged in, and no API key is set", advice)


class _User(Struct, frozen=True):
    email: str | None = None


class _Status(Struct, frozen=True, rename="camel"):
    is_authenticated: bool
    user_info: _User | None = None


def _read_status(text: str) -> tuple[bool | None, str]:
    try:
        status = msgspec.json.decode(text[text.index("{") : text.rindex("}") + 1], type=_Status)
    except (ValueError, msgspec.DecodeError):
        return None, ""
    email = status.user_info.email if status.user_info is not None else None
    return status.is_authenticated, f" as {email}" if email else ""


def of_models(models: Sequence[Model], wanted: str) -> Finding:
    from cursor_gateway.sources.cursor.models import is_known, nearest

    state = f"{len(models)} model{'' if len(models) == 1 else 's'}; the setting `model` is {wanted}"
    if is_known(wanted, models):
        return Finding("good", "models", state)
    near = ", ".join(nearest(wanted, models)) or "a model from `cursor-gateway models`"
    return Finding("broken", "models", f"{state}, which is not one of them", f"set `model` to {near}.")


def of_port(settings: Settings, taken: OSError | None, health: "Health | None", *, is_own: bool) -> Finding:
    where = f"{settings.host} port {settings.port}"
    if taken is None:
        return Finding("good", "port", f"{where} is free" if settings.port else f"any free port on {settings.host}")
    if taken.errno == errno.EADDRINUSE and health is not None:
        state = f"{where}: a gateway answers here, {health.version}, from {health.source.detail or health.source.name}"
        if is_own or not settings.verify_gateway:
            return Finding("good", "port", state)
        advice = (
            "`chat` will not use it: restart it if it is yours; otherwise choose another port, or see `verify_gateway`."
        )
        return Finding("warning", "port", f"{state}; it could not be verified as yours", advice)
    another = "choose another with `--port` or the setting `port`."
    if taken.errno == errno.EADDRINUSE:
        return Finding("broken", "port", f"{where} is taken by another program", another)
    if taken.errno == errno.EACCES:
        return Finding("broken", "port", f"{where} requires administrator rights", another)
    state = f"{where} cannot be used: {taken.strerror or taken}"
    return Finding("broken", "port", state, "set `host` to an address of this machine, usually 127.0.0.1.")


def of_exposure(settings: Settings) -> Finding:
    keys = f"keys of {', '.join(sorted(settings.api_keys))}" if settings.api_keys else "no API keys"
    try:
        check_exposed(settings)
    except SettingsError as error:
        return Finding("broken", "exposure", f"{settings.host} without API keys", str(error))
    if is_loopback(settings.host):
        return Finding("good", "exposure", f"only this machine can connect; {keys}")
    state = f"other machines can connect to {settings.host} and run commands here with a key; {keys}"
    return Finding("warning", "exposure", state, "keys are sent unencrypted: put a TLS proxy in front of it.")


class FolderState(Struct, frozen=True):
    path: str
    is_there: bool
    is_writable: bool


def of_workspaces(default: FolderState, roots: Sequence[FolderState]) -> Iterator[Finding]:
    if not default.is_there:
        state = f"the folder {default.path} does not exist"
        yield Finding("broken", "workspace", state, "create it, or set `workspace` to another.")
    elif not default.is_writable:
        state = f"{default.path} cannot be written to"
        yield Finding("warning", "workspace", state, "the agent can only read it; set another `workspace`.")
    else:
        yield Finding("good", "workspace", default.path)
    for root in roots:
        if not root.is_there:
            state = f"the folder {root.path} does not exist"
            yield Finding("warning", "workspace", state, "create it, or remove it from `workspace_roots`.")
        elif not root.is_writable:
            state = f"{root.path} cannot be written to"
            yield Finding("warning", "workspace", state, "the agent can only read it.")
        else:
            yield Finding("good", "workspace", f"requests may name folders at or below {root.path}")


def of_data(folder: FolderState, free: int) -> Finding:
    room = f"{free / 1024**3:.1f} GB free" if free >= 1024**3 else f"{free // _MEGABYTE} MB free"
    if not folder.is_writable:
        state = f"{folder.path} cannot be written to"
        return Finding("broken", "data", state, "check its permissions, or set `data_dir` to another.")
    state = f"{folder.path}{'' if folder.is_there else ' (not created yet)'}, {room}"
    if free < _TOO_LITTLE:
        return Finding("broken", "data", state, "free some disk space: runs cannot start without it.")
    if free < _LITTLE:
        return Finding("warning", "data", state, "free some disk space: the agent's chats and large answers need it.")
    return Finding("good", "data", state)


def of_isolation(settings: Settings, controllers: Collection[str] | None) -> Finding:
    """`controllers`: of cgroups; None if the gateway can make no cgroups."""
    missing = [name for name in subset(settings, AgentLimits).controllers() if name not in (controllers or ())]
    if missing and (controllers is None or settings.agent_cgroups):
        state = f"limits of agents are set, but cgroups cannot keep those of {' and '.join(missing)} here"
        return Finding("broken", "isolation", state, "start the gateway in a unit with `Delegate=yes`, or as root.")
    if controllers is None or not settings.agent_cgroups:
        why = "no cgroup can be made here" if settings.agent_cgroups else "`agent_cgroups` is false"
        return Finding("good", "isolation", f"{why}; what agents start is found by its parents and variables")
    kept = f"limits of {', '.join(sorted(controllers))} can be kept" if controllers else "no limits can be kept"
    return Finding("good", "isolation", f"each agent gets a cgroup of its own; {kept}")


def of_history(path: str, damage: str) -> Finding:
    if not damage:
        return Finding("good", "history", f"{path} is undamaged")
    return Finding(
        "broken",
        "history",
        f"{path} is damaged: {damage}",
        "restart the gateway: it keeps the damaged file and recovers what can be read.",
    )


def of_store(server: str, found: int, known: int) -> Finding:
    """Of a database: the version of its tables, and the one that this gateway needs."""
    state = f"{server}, format {found}" if found else f"{server}, without tables"
    if found < known:
        return Finding("broken", "store", state, f"run `cursor-gateway migrate`: this version needs format {known}.")
    if found > known:
        return Finding("broken", "store", state, f"upgrade cursor-gateway: this version supports format {known}.")
    return Finding("good", "store", state)


def of_configuration(folder: str, unreadable: Sequence[str], wrong: str, is_there: bool) -> Finding:
    if unreadable:
        state = f"{', '.join(unreadable)} cannot be read, so no run can start"
        return Finding("broken", "configuration", state, "make it readable for the user who runs the gateway.")
    if wrong:
        return Finding("warning", "configuration", wrong, "fix it, or remove it: the agent creates a new one.")
    return Finding(
        "good", "configuration", f"{folder}{'' if is_there else ' (not created yet: the agent uses its defaults)'}"
    )


def of_permissions(settings: Settings, is_unrestricted: bool) -> Iterator[Finding]:
    if settings.force:
        state = "`force` is set: the agent runs every command without asking"
        advice = "set `force` to false unless you trust everyone who can use the gateway."
        yield Finding("warning", "permissions", state, advice)
    elif is_unrestricted:
        state = "the agent's configuration has `approvalMode: unrestricted`: it runs every command without asking"
        advice = "set it to `allowlist` unless you trust everyone who can use the gateway."
        yield Finding("warning", "permissions", state, advice)
    else:
        state = "the agent may read and edit files, and run the commands that its configuration allows"
        if settings.allow:
            state += f" and those of `allow`: {', '.join(settings.allow)}"
        asks = "everything else needs your permission, which you give when the agent asks"
        denies = "everything else is denied, and nobody is asked (`permissions` is `deny`)"
        yield Finding("good", "permissions", f"{state}; {asks if settings.permissions == 'ask' else denies}")
    if not settings.trust:
        state = "`trust` is off: runs fail in folders that the agent does not trust"
        yield Finding("warning", "permissions", state, "run the agent once in each, or set `trust` to true.")


def of_verified(found: "Sequence[Verified]") -> Finding:
    """The newest result for each backend."""
    newest = {one.source: one for one in sorted(found, key=lambda one: one.date)}
    if not newest:
        return Finding("good", "verified", "not yet; `cursor-gateway verify` checks the agent with short prompts")
    states = [
        f"{source} verified with {one.version} on {one.date}, "
        + (
            f"{len(one.differences)} difference{'' if len(one.differences) == 1 else 's'}"
            if one.differences
            else "no differences"
        )
        for source, one in newest.items()
    ]
    return Finding("good", "verified", "; ".join(states))


def of_gateways(gateways: Sequence[LocalGateway], used: LocalGateway | None) -> Finding:
    """`used`: the one that commands in the current folder talk to."""
    if not gateways:
        return Finding("good", "running", "no gateway; commands such as `chat` start the agent themselves")
    names = []
    for gateway in gateways:
        folders = ", ".join(gateway.description.folders)
        note = "; commands in this folder use it" if gateway is used else ""
        names.append(f"{gateway.url}{f' in {folders}' if folders else ''}{note}")
    return Finding("good", "running", " · ".join(names))


def of_leftovers(left: int) -> Finding:
    if not left:
        return Finding("good", "leftovers", "no agents left behind")
    state = f"{left} agent{'' if left == 1 else 's'} left behind by stopped gateways"
    return Finding("warning", "leftovers", state, "the next `cursor-gateway serve` or `chat` stops them.")


def of_source(settings: Settings, versions: Mapping[str, str | None], has_key: bool) -> Finding:
    """What answers, why that, and what else could. `versions` of the packages that the other sources need."""
    sdk = versions["cursor-sdk"]
    if settings.source == "sdk" and not sdk:
        return Finding(
            "broken",
            "source",
            "`sdk` is not installed",
            "run `pipx install --force '.[sdk]'` in cursor-gateway's folder.",
        )
    if settings.source == "sdk" and not has_key:
        return Finding("broken", "source", "`sdk` without CURSOR_API_KEY", "set CURSOR_API_KEY, or another `source`.")
    if settings.source == "auto":
        could = f"; requests can also select sdk {sdk}" if sdk and has_key else ""
        state = "auto: acp where a person can answer, otherwise cli, or the demo if no agent is installed"
        return Finding("good", "source", state + could)
    return Finding("good", "source", f"{settings.source} (configured)")


def of_approvals(unverified: str) -> Finding:
    """Whether the CLI's hooks can be relied upon; `unverified` says why not."""
    if unverified:
        return Finding("broken", "approvals", unverified)
    return Finding("good", "approvals", "the CLI waits for your permission, with a hook that `verify` has tested")


def of_waiting(obstacle: str, failure: str) -> Finding:
    """Whether the agent waits for a person. `obstacle` is the setting that prevents it, `failure` what went wrong."""
    subject = "waiting"
    if obstacle:
        state = f"the agent does not wait for permissions: {obstacle}"
        return Finding("warning", subject, state, "you can still allow commands afterwards.")
    if failure:
        state = f"the agent cannot wait for permissions: {failure}"
        return Finding("warning", subject, state, "update it with `cursor-agent update`, or decide afterwards.")
    return Finding("good", subject, "the agent waits for your answers and permissions (acp)")


def of_extras(versions: Mapping[str, str | None]) -> Finding:
    there = ", ".join(f"{name} {found}" for name, found in versions.items() if found)
    missing = [name for name, found in versions.items() if not found]
    if not missing:
        return Finding("good", "extras", there)
    state = f"{f'{there}; ' if there else ''}no {' and no '.join(missing)}"
    return Finding("warning", "extras", state, f"`pip install {' '.join(missing)}` makes the gateway faster.")


def of_url(url: str, health: "Health | None", trouble: str) -> Finding:
    if trouble:
        return Finding(
            "broken", "url", f"{url} cannot be reached: {trouble}", "correct the setting `url`, or remove it."
        )
    if health is None:
        return Finding("warning", "url", f"{url} is not a cursor-gateway", "correct the setting `url`.")
    source = health.source.detail or health.source.name
    return Finding("good", "url", f"{url}: a gateway, {health.version}, from {source}")
