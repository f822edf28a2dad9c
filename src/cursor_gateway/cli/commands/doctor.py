"""`cursor-gateway doctor`: check this machine, and suggest a fix for each problem.

No check changes anything, waits forever, or stops the others when it fails.
"""

import asyncio
import errno
import json
import os
import platform
import shutil
import sqlite3
import threading
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import nullcontext, suppress
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar

import click
import msgspec
from msgspec import Struct

from cursor_gateway.cli.assembly.local_socket import find_gateway, find_gateways, nearest
from cursor_gateway.cli.assembly.remote import ask_health, current_or_none, local_url
from cursor_gateway.cli.configuration import check_paths, config, configuration, data_dir, usual_file
from cursor_gateway.cli.output import write_json
from cursor_gateway.errors import AgentError, GatewayError, HostExhausted, SettingsError, StoreUnavailable
from cursor_gateway.settings import FILE_VARIABLE, Loaded, Settings, check_exposed, is_loopback, subset
from cursor_gateway.sources.base import Model
from cursor_gateway.sources.cgroups import AgentLimits
from cursor_gateway.sources.cursor.command import INSTALL_ADVICE, Program, check_version, proxy_in

if TYPE_CHECKING:
    from rich.console import RenderableType

    from cursor_gateway.cli.commands.verify import Verified
    from cursor_gateway.model.health import Health


# --- what was found, rated, and what to do about it ---------------------------------------------------


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


_T = TypeVar("_T")

_FILES_SECONDS = 5.0  # a folder on an unreachable server never responds
_PORT_SECONDS = 5.0
_STORE_SECONDS = 15.0
_HISTORY_SECONDS = 60.0  # every page and row is read
_AGENT_SECONDS = 30.0
_WAITING_SECONDS = 15.0
_LOGIN_SECONDS = 30.0
_MODELS_SECONDS = 60.0


@click.command(
    epilog="""\b
    Examples:
      cursor-gateway doctor
      cursor-gateway doctor --json | jq '.findings[] | select(.level != "good")'

    \b
    Nothing is changed, and no model is called. A running gateway clears its remembered
    account errors (`account_error_seconds`). Exit status: 0 no problems; 1 problems found.""",
)
@config
@click.option("--json", "as_json", is_flag=True, help="Print the findings as a JSON object.")
def doctor(config: str | None, as_json: bool) -> int:
    """Check the agent, the settings and this machine, and suggest fixes."""
    from cursor_gateway.cli.output import terminal

    console = terminal()
    is_live = console.is_terminal and not as_json
    with console.status("Checking the agent and this machine…") if is_live else nullcontext():
        found = asyncio.run(_examine(config, os.environ))
    if as_json:
        write_json(msgspec.json.encode({"status": worst(found), "findings": found}), indented=True)
    else:
        console.print(rendered(found), soft_wrap=not console.is_terminal)
    return 1 if worst(found) == "broken" else 0


# --- how it looks ---------------------------------------------------------------------------------------

_MARKS: dict[Level, tuple[str, str]] = {"good": ("✓", "green"), "warning": ("!", "yellow"), "broken": ("✗", "red")}


def rendered(found: Sequence[Finding]) -> "RenderableType":
    """The advice is below what was found, because 80 columns have no room for both."""
    from rich.console import Group
    from rich.text import Text

    from cursor_gateway.render.listing import Listing, ListingRow
    from cursor_gateway.render.visible import visible_line

    width = max(len(finding.subject) for finding in found) + 2
    parts: list[RenderableType] = []
    for finding in found:
        mark, colour = _MARKS[finding.level]
        style = "" if finding.level == "good" else colour
        head = Text.assemble((f"{mark} ", f"bold {colour}"), (finding.subject.ljust(width), "bold"))
        parts.append(Listing([ListingRow(head, Text(visible_line(finding.found), style))]))
        if finding.advice:
            arrow = Text(f"{' ' * (width + 2)}→ ", "bold")
            parts.append(Listing([ListingRow(arrow, Text(visible_line(finding.advice), "bold"))]))
    return Group(*parts, "", Text(summary(found), f"bold {_MARKS[worst(found)][1]}"))


# --- looking --------------------------------------------------------------------------------------------


async def _examine(file: str | None, environ: Mapping[str, str]) -> list[Finding]:
    python = f"{platform.python_version()} ({platform.system()} {platform.machine()})"
    found = [Finding("good", "Python", python), Finding("good", "gateway", version("cursor-gateway"))]
    settings = Settings()
    try:
        loaded = configuration(file, environ=environ)
        settings = loaded.settings
        named = file or environ.get(FILE_VARIABLE)
        path = Path(named).expanduser() if named else usual_file(environ)
        found.append(of_settings(loaded, path, path is not None and path.is_file()))
    except SettingsError as error:
        found.append(Finding("broken", "settings", str(error), "until then, the other checks use the defaults."))
    has_key = bool(environ.get("CURSOR_API_KEY"))
    sources = _versions("cursor-sdk")
    looks = [
        _agent(settings, environ),
        _checked("port", _PORT_SECONDS, lambda: _port(settings, environ)),
        _checked_here("running", lambda: _running(settings, environ)),
        _checked("url", _PORT_SECONDS * 3, lambda: _url(settings)),
        _checked_here("exposure", lambda: [of_exposure(settings)]),
        _checked_here("workspace", lambda: _workspaces(settings)),
        _checked_here("hooks", lambda: _brought(settings)),
        _checked_here("network", lambda: [of_network(settings, environ)]),
        _checked_here("data", lambda: _data(settings, environ)),
        _checked("store", _STORE_SECONDS, lambda: _store(settings)),
        _checked("history", _HISTORY_SECONDS, lambda: _in_thread(lambda: _history(settings, environ))),
        _checked_here("configuration", lambda: _configuration(settings, environ)),
        _checked_here("account errors", lambda: _account_errors(settings, environ)),
        _checked_here("isolation", lambda: _isolation(settings)),
        _checked_here("leftovers", lambda: _leftovers(settings, environ)),
        _checked_here("verified", lambda: _verified(settings, environ)),
        _checked_here("source", lambda: [of_source(settings, sources, has_key)]),
        _checked_here("extras", lambda: [of_extras(_versions("uvloop", "httptools"))]),
    ]
    return [*found, *chain.from_iterable(await asyncio.gather(*looks))]


async def _checked(subject: str, seconds: float, look: Callable[[], Awaitable[list[Finding]]]) -> list[Finding]:
    try:
        async with asyncio.timeout(seconds):
            return await look()
    except TimeoutError:
        return [Finding("broken", subject, f"no answer within {seconds:g} s", "find out why it hangs.")]
    except GatewayError as error:
        return [Finding("broken", subject, str(error))]
    except Exception as error:  # noqa: BLE001 -- one check must not take the others down with it
        problem = f"this check failed: {type(error).__name__}: {error}"
        return [Finding("warning", subject, problem, "please report this.")]


async def _checked_here(subject: str, look: Callable[[], list[Finding]]) -> list[Finding]:
    """What needs only files and settings."""
    return await _checked(subject, _FILES_SECONDS, lambda: _in_thread(look))


async def _in_thread(look: Callable[[], _T]) -> _T:
    """In a daemon thread: an unreachable folder must not keep the command from ending."""
    future: Future[_T] = Future()

    def work() -> None:
        future.set_running_or_notify_cancel()
        try:
            future.set_result(look())
        except Exception as error:  # noqa: BLE001 -- raised again where it is waited for
            future.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return await asyncio.wrap_future(future)


# --- the agent ------------------------------------------------------------------------------------------


async def _agent(settings: Settings, environ: Mapping[str, str]) -> list[Finding]:
    from cursor_gateway.cli.assembly.sources import agent_user
    from cursor_gateway.sources.cursor.command import environment_for
    from cursor_gateway.sources.cursor.configuration import check_confinable

    try:
        user = agent_user(settings)
    except SettingsError as error:
        return [Finding("broken", "agent", str(error), "then run `cursor-gateway doctor` again.")]
    given = environ if user is None else user.environment(environ)
    launcher = user.launcher if user is not None else ()
    environment = environment_for(given, settings.agent_environment, given.get("CURSOR_CONFIG_DIR"))
    found: list[Found] = []

    async def look() -> list[Finding]:
        paths = await _in_thread(lambda: _programs(settings.agent_program, environment))
        found.extend(await asyncio.gather(*(_ask(path, environment, launcher) for path in paths)))
        return list(of_agent(found, settings))

    rated = await _checked("agent", _AGENT_SECONDS * 2 + 5, look)
    program = next((one.program for one in found if one.program is not None), None)
    if program is None:
        return rated
    rated += of_version(program, settings)
    tools = Finding("good", "tools", "requests can bring their own tools; the agent's are disabled then")
    try:
        check_confinable(program)
    except AgentError as error:
        tools = Finding("warning", "tools", f"requests with `tools` are rejected: {error}")
    rated += [of_abilities(program), tools]
    rated += await _checked_here("approvals", lambda: _approvals(program, settings, environ))
    waiting, login, models = await asyncio.gather(
        _checked("waiting", _WAITING_SECONDS + 5, lambda: _waiting(program, environment, settings)),
        _checked("login", _LOGIN_SECONDS + 5, lambda: _login(program, environment, environ)),
        _checked("models", _MODELS_SECONDS + 5, lambda: _models(program, environment, settings.model)),
    )
    if worst(login) == "broken" and worst(models) == "broken":
        models = [Finding("warning", "models", "not known without a login")]
    return [*rated, *waiting, *login, *models]


def _programs(wanted: str, environment: Mapping[str, str]) -> list[str]:
    """Every file with the agent's name, without duplicates. The first one is used."""
    from cursor_gateway.sources.cursor.program import candidates

    paths = candidates(wanted, environment)
    if not wanted:
        folders = environment.get("PATH", os.defpath).split(os.pathsep)
        further = [
            shutil.which(name, path=folder) for name in ("cursor-agent", "agent") for folder in folders if folder
        ]
        paths += [os.path.abspath(path) for path in further if path]
    files: dict[str, str] = {}
    for path in paths:
        files.setdefault(os.path.realpath(path), path)
    return list(files.values())


async def _ask(path: str, environment: Mapping[str, str], launcher: Sequence[str]) -> Found:
    from cursor_gateway.sources.cursor.program import ask_program

    try:
        return Found(path, await ask_program(path, environment, launcher))
    except (AgentError, HostExhausted) as error:
        return Found(path, None, str(error).partition(";")[0])  # the advice is the same for all


def _approvals(program: Program, settings: Settings, environ: Mapping[str, str]) -> list[Finding]:
    from cursor_gateway.cli.assembly.sources import hook_options
    from cursor_gateway.sources.cursor.hooks import unverified

    try:
        options = hook_options(settings, environ)
    except SettingsError as error:
        return [Finding("broken", "approvals", str(error))]
    if options is None:
        return []
    if why := unverified(program, options):
        return [Finding("broken", "approvals", why)]
    state = "the CLI waits for your permission, with a hook that `verify` has tested"
    return [Finding("good", "approvals", state)]


async def _waiting(program: Program, environment: Mapping[str, str], settings: Settings) -> list[Finding]:
    """Starts the agent as interactive requests do, and greets it; that needs no login and costs nothing."""
    from cursor_gateway.cli.assembly.sources import unsupported
    from cursor_gateway.sources.acp.connection import greet

    if settings.source == "sdk" or (settings.source == "cli" and settings.approvals == "hooks"):
        return [Finding("good", "waiting", f"the agent waits for your answers and permissions ({settings.source})")]
    obstacle = unsupported("acp", settings)
    if not obstacle and settings.source not in ("auto", "acp"):
        obstacle = f"`source` is `{settings.source}`"
    if obstacle:
        state = f"the agent does not wait for permissions: {obstacle}"
        return [Finding("warning", "waiting", state, "you can still allow commands afterwards.")]
    try:
        await greet(program, environment, _WAITING_SECONDS)
    except AgentError as error:
        state = f"the agent cannot wait for permissions: {str(error).partition(';')[0]}"
        advice = "update it with `cursor-agent update`, or decide afterwards."
        return [Finding("warning", "waiting", state, advice)]
    return [Finding("good", "waiting", "the agent waits for your answers and permissions (acp)")]


async def _login(program: Program, environment: Mapping[str, str], environ: Mapping[str, str]) -> list[Finding]:
    from cursor_gateway.sources.cursor.program import run_to_end

    ran = await run_to_end([*program.command, "status", "--format", "json"], environment, _LOGIN_SECONDS)
    return list(of_login(ran.stdout if ran.stdout.strip() else ran.stderr, environ))


async def _models(program: Program, environment: Mapping[str, str], wanted: str) -> list[Finding]:
    from cursor_gateway.sources.cursor.failures import known_failure
    from cursor_gateway.sources.cursor.models import parse_models
    from cursor_gateway.sources.cursor.program import run_to_end

    ran = await run_to_end([*program.command, "--list-models"], environment, _MODELS_SECONDS)
    if models := parse_models(ran.stdout):
        return [of_models(models, wanted)]
    output = ran.stderr.strip() or ran.stdout.strip()
    if (error := known_failure(output)) is not None:
        return [Finding("broken", "models", str(error))]
    problem = f"the agent does not list its models: {output[:200] or 'no output'}"
    return [Finding("broken", "models", problem, f"run `{os.path.basename(program.path)} --list-models` to see why.")]


# --- the machine ----------------------------------------------------------------------------------------


async def _port(settings: Settings, environ: Mapping[str, str]) -> list[Finding]:
    from cursor_gateway.cli.assembly.local_socket import bound_socket

    taken, health = None, None
    try:
        await _in_thread(lambda: bound_socket(settings.host, settings.port).close())
    except OSError as error:
        taken = error
        if error.errno == errno.EADDRINUSE:
            with suppress(OSError):
                health = await ask_health(local_url(settings), 2.0)
    is_own = find_gateway(data_dir(settings, environ), settings.port) is not None
    return [of_port(settings, taken, health, is_own=is_own)]


def _running(settings: Settings, environ: Mapping[str, str]) -> list[Finding]:
    gateways = find_gateways(data_dir(settings, environ))
    used = nearest(gateways, current_or_none(), settings.port)
    names = []
    for gateway in gateways:
        folders = ", ".join(gateway.description.folders)
        note = "; commands in this folder use it" if gateway is used else ""
        names.append(f"{gateway.url}{f' in {folders}' if folders else ''}{note}")
    none = "no gateway; commands such as `chat` start the agent themselves"
    return [Finding("good", "running", " · ".join(names) or none)]


async def _url(settings: Settings) -> list[Finding]:
    if not settings.url:
        return []
    try:
        return [of_url(settings.url, await ask_health(settings.url, 10.0), "")]
    except OSError as error:
        return [of_url(settings.url, None, str(error))]


def _folder(path: Path) -> FolderState:
    is_there = path.is_dir()
    return FolderState(str(path), is_there, is_there and os.access(path, os.W_OK | os.X_OK))


def _workspaces(settings: Settings) -> list[Finding]:
    check_paths(settings)
    roots = [_folder(Path(root).expanduser().absolute()) for root in settings.workspace_roots]
    return list(of_workspaces(_folder(Path(settings.workspace or ".").expanduser().absolute()), roots))


def _brought(settings: Settings) -> list[Finding]:
    from cursor_gateway.errors import WorkspaceForbidden
    from cursor_gateway.workspace.roots import Workspaces, agent_files

    default = Path(settings.workspace or ".").expanduser().resolve()
    found, refusal = [str(file.path) for file in agent_files(str(default))], ""
    allowed = [Path(folder).expanduser() for folder in settings.allow_workspace_hooks]
    try:
        Workspaces(default, [], refuse_hooks=settings.refuse_workspace_hooks, allow_hooks=allowed).check(str(default))
    except WorkspaceForbidden as error:
        refusal = str(error)
    is_refused, listed = settings.refuse_workspace_hooks, ", ".join(found)
    if not found:
        refused = "; folders with such are refused" if is_refused else ""
        none = f"the workspace has no hooks, MCP servers or permissions of its own{refused}"
        return [Finding("good", "hooks", none)]
    if refusal:
        return [Finding("broken", "hooks", f"every request for this workspace is refused: {listed}", refusal)]
    if is_refused:
        return [Finding("good", "hooks", f"allowed by `allow_workspace_hooks`: {listed}")]
    advice = "if others can write there, remove `refuse_workspace_hooks = false`."
    return [Finding("good", "hooks", f"used, so the agent starts what they name: {listed}", advice)]


def _data(settings: Settings, environ: Mapping[str, str]) -> list[Finding]:
    path = data_dir(settings, environ)
    there = next(above for above in (path, *path.parents) if above.exists())  # what is missing will be made
    writable = there.is_dir() and os.access(there, os.W_OK | os.X_OK)
    return [of_data(FolderState(str(path), path.is_dir(), writable), shutil.disk_usage(there).free)]


async def _store(settings: Settings) -> list[Finding]:
    from cursor_gateway.cli.assembly.stores import database_url

    if not (url := database_url(settings)):
        return []  # the file is in the data directory
    from cursor_gateway.store.postgres import schema

    try:
        server, found = await schema.look(url)
    except StoreUnavailable as error:
        return [Finding("broken", "store", f"{error} {error.details}".strip())]
    state, known = f"{server}, format {found}" if found else f"{server}, without tables", schema.newest()
    if found < known:
        return [Finding("broken", "store", state, f"run `cursor-gateway migrate`: this version needs format {known}.")]
    if found > known:
        return [Finding("broken", "store", state, f"upgrade cursor-gateway: this version supports format {known}.")]
    return [Finding("good", "store", state)]


def _history(settings: Settings, environ: Mapping[str, str]) -> list[Finding]:
    """The file, unless a database has the history."""
    from cursor_gateway.store.sqlite.opening import FILE, examine

    path = data_dir(settings, environ) / FILE
    if settings.store or not settings.history or not path.exists():
        return []
    try:
        damage = examine(path)
    except sqlite3.Error as error:
        return [Finding("broken", "history", f"{path}: {error}", "check its permissions and the disk.")]
    if not damage:
        return [Finding("good", "history", f"{path} is undamaged")]
    advice = "restart the gateway: it keeps the damaged file and recovers what can be read."
    return [Finding("broken", "history", f"{path} is damaged: {damage}", advice)]


def _configuration(settings: Settings, environ: Mapping[str, str]) -> list[Finding]:
    from cursor_gateway.sources.cursor.configuration import user_configuration

    folder = user_configuration(environ)
    unreadable, wrong, approval = [], "", None
    if folder.is_dir():
        try:
            entries = [entry for entry in folder.iterdir() if entry.is_file()]
            unreadable = [str(entry) for entry in entries if not os.access(entry, os.R_OK)]
        except OSError:
            unreadable = [str(folder)]
        own = folder / "cli-config.json"
        if own.is_file() and not unreadable:
            try:
                approval = json.loads(own.read_bytes()).get("approvalMode")
            except (ValueError, AttributeError):
                wrong = f"{own} is not a JSON object"
    finding = of_configuration(str(folder), unreadable, wrong, folder.is_dir())
    return [finding, *of_permissions(settings, approval == "unrestricted")]


def _account_errors(settings: Settings, environ: Mapping[str, str]) -> list[Finding]:
    """The user may have just fixed the account, so a running gateway must not answer from its cache."""
    from cursor_gateway.runs.repeats import forget_account_errors

    with suppress(OSError):  # a folder that cannot be written to has a finding of its own
        forget_account_errors(data_dir(settings, environ))
    return []


def _isolation(settings: Settings) -> list[Finding]:
    from cursor_gateway.sources.cgroups import available

    return [of_isolation(settings, available())]


def _leftovers(settings: Settings, environ: Mapping[str, str]) -> list[Finding]:
    from cursor_gateway.sources.ledger import Ledger, registry

    ledger = Ledger(data_dir(settings, environ) / "instances", registry(settings.runtime_dir))
    return [of_leftovers(len(ledger.orphans()))]


def _verified(settings: Settings, environ: Mapping[str, str]) -> list[Finding]:
    from cursor_gateway.cli.commands.verify import read_verified

    return [of_verified(read_verified(data_dir(settings, environ)))]


def of_verified(found: "Sequence[Verified]") -> Finding:
    """The newest result for each backend."""
    newest = {one.source: one for one in sorted(found, key=lambda one: one.date)}
    states = [f"{source} verified with {one.version} on {one.date}, {one.counted}" for source, one in newest.items()]
    none = "not yet; `cursor-gateway verify` checks the agent with short prompts"
    return Finding("good", "verified", "; ".join(states) or none)


def _versions(*packages: str) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found
