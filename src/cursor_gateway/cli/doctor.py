"""`cursor-gateway doctor`: this machine in; what works, what does not, and what to do about it, out.

A check looks and says what it found; none changes anything, waits for ever or takes the others down with it.
"""

import asyncio
import errno
import json
import os
import platform
import shutil
import sys
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar

import click
import msgspec
from msgspec import Struct

from cursor_gateway.cli.configuration import config, configuration, data_dir, usual_file
from cursor_gateway.cli.local_socket import find_socket
from cursor_gateway.cli.output import write_json
from cursor_gateway.cli.remote import ask_health, local_url
from cursor_gateway.errors import AgentError, GatewayError, HostExhausted, SettingsError, StoreUnavailable
from cursor_gateway.settings import FILE_VARIABLE, Loaded, Settings, check_exposed, is_loopback
from cursor_gateway.sources.base import Model
from cursor_gateway.sources.cursor.command import INSTALL_ADVICE, Program

if TYPE_CHECKING:
    from rich.console import RenderableType

    from cursor_gateway.client.calls import Health

Level: TypeAlias = Literal["good", "warning", "broken"]
_T = TypeVar("_T")

_FILES_SECONDS = 5.0  # a folder of a server that is gone never answers
_PORT_SECONDS = 5.0
_STORE_SECONDS = 15.0
_AGENT_SECONDS = 30.0
_LOGIN_SECONDS = 30.0
_MODELS_SECONDS = 60.0

_MEGABYTE = 1024 * 1024
_TOO_LITTLE, _LITTLE = 50 * _MEGABYTE, 500 * _MEGABYTE  # the agent's chats and the largest output of a run

_NAMES = 8  # of settings, in a line for people


class Finding(Struct, frozen=True):
    level: Level
    subject: str
    found: str
    advice: str = ""


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
    from cursor_gateway.cli.terminals import terminal

    console = terminal()
    if as_json or not console.is_terminal:
        findings = asyncio.run(_examine(config, os.environ))
    else:
        with console.status("Checking the agent and this machine…"):
            findings = asyncio.run(_examine(config, os.environ))
    if as_json:
        write_json(msgspec.json.encode({"status": worst(findings), "findings": findings}), indented=True)
    else:
        console.print(picture(findings), soft_wrap=not console.is_terminal)
    return 1 if worst(findings) == "broken" else 0


def worst(findings: Iterable[Finding]) -> Level:
    levels = {finding.level for finding in findings}
    return "broken" if "broken" in levels else "warning" if "warning" in levels else "good"


# --- how it looks ---------------------------------------------------------------------------------------

_MARKS: dict[Level, tuple[str, str]] = {"good": ("✓", "green"), "warning": ("!", "yellow"), "broken": ("✗", "red")}


def picture(findings: Sequence[Finding]) -> "RenderableType":
    """What to do stands below what was found, not beside it: at 80 columns there is no room for both."""
    from rich.console import Group
    from rich.text import Text

    from cursor_gateway.render.listing import Listing, Row
    from cursor_gateway.render.visible import visible_line

    width = max(len(finding.subject) for finding in findings) + 2
    parts: list[RenderableType] = []
    for finding in findings:
        mark, colour = _MARKS[finding.level]
        style = "" if finding.level == "good" else colour
        head = Text.assemble((f"{mark} ", f"bold {colour}"), (finding.subject.ljust(width), "bold"))
        parts.append(Listing([Row(head, Text(visible_line(finding.found), style))]))
        if finding.advice:
            arrow = Text(f"{' ' * (width + 2)}→ ", "bold")
            parts.append(Listing([Row(arrow, Text(visible_line(finding.advice), "bold"))]))
    return Group(*parts, "", Text(summary(findings), f"bold {_MARKS[worst(findings)][1]}"))


def summary(findings: Sequence[Finding]) -> str:
    broken = sum(finding.level == "broken" for finding in findings)
    warnings = sum(finding.level == "warning" for finding in findings)
    looks = f"; {warnings} warning{'' if warnings == 1 else 's'}" if warnings else ""
    if not broken:
        return f"No problems found{looks}."
    return f"{broken} problem{'' if broken == 1 else 's'} found{looks}."


# --- what the facts mean --------------------------------------------------------------------------------


def of_python(found: tuple[int, int, int], told: str) -> Finding:
    if found < (3, 11, 0):
        return Finding("broken", "Python", told, "use 3.11 or newer.")
    return Finding("good", "Python", told)


def of_settings(loaded: Loaded, file: Path | None, is_there: bool) -> Finding:
    given = [name for name, origin in loaded.origins.items() if origin != "default"]
    names = ", ".join(given[:_NAMES]) + (", …" if len(given) > _NAMES else "")
    where = f"{'' if is_there else 'no file '}{file}" if file is not None else "no file"
    return Finding("good", "settings", f"{where}; {f'set: {names}' if given else 'all are the defaults'}")


class Found(Struct, frozen=True):
    """A program that is called like the agent."""

    path: str
    program: Program | None  # None: it is not Cursor's
    trouble: str = ""  # why it could not be asked


def of_agent(found: Sequence[Found], settings: Settings) -> list[Finding]:
    """The first good one is used; the others are named, since one of them may be meant."""
    used = next((one for one in found if one.program is not None), None)
    findings = []
    if used is not None and used.program is not None:
        findings.append(Finding("good", "agent", f"cursor-agent {used.program.version} ({used.path})"))
    elif not any(one.trouble for one in found):
        needed = bool(settings.agent_program) or settings.source == "cli"
        told = f"{settings.agent_program or 'cursor-agent'} is not found"
        answers = "" if needed else "; the built-in demo is used instead"
        findings.append(Finding("broken" if needed else "warning", "agent", told + answers, f"{INSTALL_ADVICE}."))
    for one in found:
        if one.trouble:
            level: Level = "broken" if used is None else "warning"
            findings.append(Finding(level, "agent", f"{one.path}: {one.trouble}", "run it in a terminal to see why."))
        elif one.program is None:
            told = f"{one.path} is a different program with the same name"
            findings.append(Finding("good" if used else "warning", "agent", f"{told}; it is not used"))
        elif used is not None and used.program is not None and one.program.version != used.program.version:
            told = f"another version, {one.program.version}, is not used ({one.path})"
            findings.append(Finding("warning", "agent", told, "set `agent_program` to the one you want."))
    return findings


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
    from cursor_gateway.sources.cursor.confinement import check_confinable

    try:
        check_confinable(program)
    except AgentError as error:
        return Finding("warning", "tools", f"requests with `tools` are rejected: {error}")
    return Finding("good", "tools", "requests can bring their own tools; the agent's are disabled then")


_UPDATE = "update it with `cursor-agent update`."


def of_login(status: str, environ: Mapping[str, str]) -> list[Finding]:
    """`status` is what `cursor-agent status --format json` prints. A key does not change what it says."""
    findings = []
    key = environ.get("CURSOR_API_KEY")
    if key == "":
        told = "CURSOR_API_KEY is set but empty; the gateway ignores it, but cursor-agent rejects it"
        findings.append(Finding("warning", "login", told, "`unset CURSOR_API_KEY`, or give it a value."))
    has_key = next((name for name in ("CURSOR_API_KEY", "CURSOR_AUTH_TOKEN") if environ.get(name)), None)
    is_in, who = _read_status(status)
    if has_key is not None:
        findings.append(Finding("good", "login", f"by {has_key}{f'; also logged in{who}' if is_in else ''}"))
    elif is_in is None:
        told = f"its status cannot be read: {status.strip()[:200] or 'no output'}"
        findings.append(Finding("warning", "login", told, f"see `cursor-agent status`; {_UPDATE}"))
    elif is_in:
        findings.append(Finding("good", "login", f"logged in{who}"))
    else:
        advice = "run `cursor-agent login`, or set CURSOR_API_KEY."
        findings.append(Finding("broken", "login", "not logged in, and no API key is set", advice))
    return findings


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

    told = f"{len(models)} model{'' if len(models) == 1 else 's'}; the setting `model` is {wanted}"
    if is_known(wanted, models):
        return Finding("good", "models", told)
    near = ", ".join(nearest(wanted, models)) or "a model from `cursor-gateway models`"
    return Finding("broken", "models", f"{told}, which is not one of them", f"set `model` to {near}.")


def of_port(settings: Settings, taken: OSError | None, health: "Health | None", *, is_own: bool) -> Finding:
    where = f"{settings.host} port {settings.port}"
    if taken is None:
        return Finding("good", "port", f"{where} is free" if settings.port else f"any free port on {settings.host}")
    if taken.errno == errno.EADDRINUSE and health is not None:
        told = f"{where}: a gateway answers here, {health.version}, from {health.source.detail or health.source.name}"
        if is_own or not settings.verify_gateway:
            return Finding("good", "port", told)
        advice = (
            "`chat` will not use it: restart it if it is yours; otherwise choose another port, or see `verify_gateway`."
        )
        return Finding("warning", "port", f"{told}; it could not be verified as yours", advice)
    another = "choose another with `--port` or the setting `port`."
    if taken.errno == errno.EADDRINUSE:
        return Finding("broken", "port", f"{where} is taken by another program", another)
    if taken.errno == errno.EACCES:
        return Finding("broken", "port", f"{where} requires administrator rights", another)
    told = f"{where} cannot be used: {taken.strerror or taken}"
    return Finding("broken", "port", told, "set `host` to an address of this machine, usually 127.0.0.1.")


def of_exposure(settings: Settings) -> Finding:
    keys = f"keys of {', '.join(sorted(settings.api_keys))}" if settings.api_keys else "no API keys"
    try:
        check_exposed(settings)
    except SettingsError as error:
        return Finding("broken", "exposure", f"{settings.host} without API keys", str(error))
    if is_loopback(settings.host):
        return Finding("good", "exposure", f"only this machine can connect; {keys}")
    told = f"other machines can connect to {settings.host} and run commands here with a key; {keys}"
    return Finding("warning", "exposure", told, "keys are sent unencrypted: put a TLS proxy in front of it.")


class Folder(Struct, frozen=True):
    path: str
    is_there: bool
    is_writable: bool


def of_workspaces(default: Folder, roots: Sequence[Folder]) -> list[Finding]:
    findings = []
    if not default.is_there:
        told = f"the folder {default.path} does not exist"
        findings.append(Finding("broken", "workspace", told, "create it, or set `workspace` to another."))
    elif not default.is_writable:
        told = f"{default.path} cannot be written to"
        findings.append(Finding("warning", "workspace", told, "the agent can only read it; set another `workspace`."))
    else:
        findings.append(Finding("good", "workspace", default.path))
    for root in roots:
        if not root.is_there:
            told = f"the folder {root.path} does not exist"
            findings.append(Finding("warning", "workspace", told, "create it, or remove it from `workspace_roots`."))
        elif not root.is_writable:
            told = f"{root.path} cannot be written to"
            findings.append(Finding("warning", "workspace", told, "the agent can only read it."))
        else:
            findings.append(Finding("good", "workspace", f"requests may name folders at or below {root.path}"))
    return findings


def of_data(folder: Folder, free: int) -> Finding:
    room = f"{free / 1024**3:.1f} GB free" if free >= 1024**3 else f"{free // _MEGABYTE} MB free"
    if not folder.is_writable:
        told = f"{folder.path} cannot be written to"
        return Finding("broken", "data", told, "check its permissions, or set `data_dir` to another.")
    told = f"{folder.path}{'' if folder.is_there else ' (not created yet)'}, {room}"
    if free < _TOO_LITTLE:
        return Finding("broken", "data", told, "free some disk space: runs cannot start without it.")
    if free < _LITTLE:
        return Finding("warning", "data", told, "free some disk space: the agent's chats and large answers need it.")
    return Finding("good", "data", told)


def of_store(server: str, found: int, known: int) -> Finding:
    """Of a database: the version of its tables, and the one that this gateway needs."""
    told = f"{server}, format {found}" if found else f"{server}, without tables"
    if found < known:
        return Finding("broken", "store", told, f"run `cursor-gateway migrate`: this version needs format {known}.")
    if found > known:
        return Finding("broken", "store", told, f"upgrade cursor-gateway: this version supports format {known}.")
    return Finding("good", "store", told)


def of_configuration(folder: str, unreadable: Sequence[str], wrong: str, is_there: bool) -> Finding:
    if unreadable:
        told = f"{', '.join(unreadable)} cannot be read, so no run can start"
        return Finding("broken", "configuration", told, "make it readable for the user who runs the gateway.")
    if wrong:
        return Finding("warning", "configuration", wrong, "fix it, or remove it: the agent creates a new one.")
    return Finding(
        "good", "configuration", f"{folder}{'' if is_there else ' (not created yet: the agent uses its defaults)'}"
    )


def of_permissions(settings: Settings, is_unrestricted: bool) -> list[Finding]:
    findings = []
    if settings.force:
        told = "`force` is set: the agent runs every command without asking"
        findings.append(
            Finding(
                "warning",
                "permissions",
                told,
                "set `force` to false unless you trust everyone who can use the gateway.",
            )
        )
    elif is_unrestricted:
        told = "the agent's configuration has `approvalMode: unrestricted`: it runs every command without asking"
        advice = "set it to `allowlist` unless you trust everyone who can use the gateway."
        findings.append(Finding("warning", "permissions", told, advice))
    else:
        told = "the agent reads and edits files, and runs the commands that its configuration allows"
        if settings.allow:
            told += f", and what `allow` adds: {', '.join(settings.allow)}"
        asks = "everything else is rejected, and callers may allow it for themselves"
        denies = "everything else is rejected, and callers cannot allow it (`permissions` is `deny`)"
        findings.append(Finding("good", "permissions", f"{told}; {asks if settings.permissions == 'ask' else denies}"))
    if not settings.trust:
        told = "`trust` is off: runs fail in folders that the agent does not trust"
        findings.append(Finding("warning", "permissions", told, "run the agent once in each, or set `trust` to true."))
    return findings


def of_leftovers(gateways: int, left: int) -> Finding:
    running = f"{gateways} gateway{'' if gateways == 1 else 's'} running, " if gateways else ""
    if not left:
        return Finding("good", "leftovers", f"{running}no agents left behind")
    told = f"{running}{left} agent{'' if left == 1 else 's'} left behind by stopped gateways"
    return Finding("warning", "leftovers", told, "the next `cursor-gateway serve` or `chat` stops them.")


def of_source(settings: Settings, versions: Mapping[str, str | None], has_key: bool) -> Finding:
    """What answers, why that, and what else could. `versions` of the packages that the other sources need."""
    acp, sdk = versions["agent-client-protocol"], versions["cursor-sdk"]
    lacking = {"acp": "" if acp else "cursor-gateway[acp]", "sdk": "" if sdk else "cursor-gateway[sdk]"}
    if package := lacking.get(settings.source):
        return Finding("broken", "source", f"`{settings.source}` is not installed", f"run `pip install {package}`.")
    if settings.source == "sdk" and not has_key:
        return Finding("broken", "source", "`sdk` without CURSOR_API_KEY", "set CURSOR_API_KEY, or another `source`.")
    if settings.source == "auto":
        others = [f"acp {acp}" if acp else "", f"sdk {sdk}" if sdk and has_key else ""]
        there = ", ".join(filter(None, others))
        could = f"; requests can also select {there}" if there else ""
        return Finding(
            "good", "source", f"auto: starts an agent for each run (cli), or runs the demo if none is installed{could}"
        )
    return Finding("good", "source", f"{settings.source} (configured)")


def of_extras(versions: Mapping[str, str | None]) -> Finding:
    there = ", ".join(f"{name} {found}" for name, found in versions.items() if found)
    missing = [name for name, found in versions.items() if not found]
    if not missing:
        return Finding("good", "extras", there)
    told = f"{f'{there}; ' if there else ''}no {' and no '.join(missing)}"
    return Finding("warning", "extras", told, f"`pip install {' '.join(missing)}` makes the gateway faster.")


def of_url(url: str, health: "Health | None", trouble: str) -> Finding:
    if trouble:
        return Finding(
            "broken", "url", f"{url} cannot be reached: {trouble}", "correct the setting `url`, or remove it."
        )
    if health is None:
        return Finding("warning", "url", f"{url} is not a cursor-gateway", "correct the setting `url`.")
    source = health.source.detail or health.source.name
    return Finding("good", "url", f"{url}: a gateway, {health.version}, from {source}")


# --- looking --------------------------------------------------------------------------------------------


async def _examine(file: str | None, environ: Mapping[str, str]) -> list[Finding]:
    findings = [
        of_python(sys.version_info[:3], f"{platform.python_version()} ({platform.system()} {platform.machine()})"),
        Finding("good", "gateway", version("cursor-gateway")),
    ]
    settings = Settings()
    try:
        loaded = configuration(file, environ=environ)
        settings = loaded.settings
        named = file or environ.get(FILE_VARIABLE)
        path = Path(named).expanduser() if named else usual_file(environ)
        findings.append(of_settings(loaded, path, path is not None and path.is_file()))
    except SettingsError as error:
        findings.append(Finding("broken", "settings", str(error), "until then, the other checks use the defaults."))
    looks = [
        _agent(settings, environ),
        _checked("port", _PORT_SECONDS, lambda: _port(settings, environ)),
        _checked("url", _PORT_SECONDS * 3, lambda: _url(settings)),
        _checked("exposure", _FILES_SECONDS, lambda: _at_once([of_exposure(settings)])),
        _checked("workspace", _FILES_SECONDS, lambda: _in_thread(lambda: _workspaces(settings))),
        _checked("data", _FILES_SECONDS, lambda: _in_thread(lambda: _data(settings, environ))),
        _checked("store", _STORE_SECONDS, lambda: _store(settings)),
        _checked("configuration", _FILES_SECONDS, lambda: _in_thread(lambda: _configuration(settings, environ))),
        _checked("account errors", _FILES_SECONDS, lambda: _in_thread(lambda: _account_errors(settings, environ))),
        _checked("leftovers", _FILES_SECONDS, lambda: _in_thread(lambda: _leftovers(settings, environ))),
        _checked("source", _FILES_SECONDS, lambda: _at_once([_source(settings, environ)])),
        _checked("extras", _FILES_SECONDS, lambda: _at_once([of_extras(_versions("uvloop", "httptools"))])),
    ]
    for found in await asyncio.gather(*looks):
        findings += found
    return findings


async def _checked(subject: str, seconds: float, look: Callable[[], Awaitable[list[Finding]]]) -> list[Finding]:
    try:
        async with asyncio.timeout(seconds):
            return await look()
    except TimeoutError:
        return [Finding("broken", subject, f"no answer within {seconds:g} s", "find out why it hangs.")]
    except GatewayError as error:
        return [Finding("broken", subject, str(error))]
    except Exception as error:  # noqa: BLE001 -- one check must not take the others down with it
        told = f"this check failed: {type(error).__name__}: {error}"
        return [Finding("warning", subject, told, "please report this.")]


async def _at_once(findings: list[Finding]) -> list[Finding]:
    return findings


async def _in_thread(look: Callable[[], _T]) -> _T:
    """In one that nobody waits for: a folder that never answers would keep the command from ending."""
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
    from cursor_gateway.sources.cursor.command import environment_for

    environment = environment_for(environ, settings.agent_environment, environ.get("CURSOR_CONFIG_DIR"))
    found: list[Found] = []

    async def look() -> list[Finding]:
        paths = await _in_thread(lambda: _programs(settings.agent_program, environment))
        found.extend(await asyncio.gather(*(_ask(path, environment) for path in paths)))
        return of_agent(found, settings)

    findings = await _checked("agent", _AGENT_SECONDS * 2 + 5, look)
    program = next((one.program for one in found if one.program is not None), None)
    if program is None:
        return findings
    findings += [of_abilities(program), of_tools(program)]
    login, models = await asyncio.gather(
        _checked("login", _LOGIN_SECONDS + 5, lambda: _login(program, environment, environ)),
        _checked("models", _MODELS_SECONDS + 5, lambda: _models(program, environment, settings.model)),
    )
    if worst(login) == "broken" and worst(models) == "broken":
        models = [Finding("warning", "models", "not known without a login")]
    return [*findings, *login, *models]


def _source(settings: Settings, environ: Mapping[str, str]) -> Finding:
    return of_source(settings, _versions("agent-client-protocol", "cursor-sdk"), bool(environ.get("CURSOR_API_KEY")))


def _programs(wanted: str, environment: Mapping[str, str]) -> list[str]:
    """Every file that is called like the agent; the same file under two names is one. The first is what is used."""
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


async def _ask(path: str, environment: Mapping[str, str]) -> Found:
    from cursor_gateway.sources.cursor.program import ask_program

    try:
        return Found(path, await ask_program(path, environment))
    except (AgentError, HostExhausted) as error:
        return Found(path, None, str(error).partition(";")[0])  # what to do is told for all of them


async def _login(program: Program, environment: Mapping[str, str], environ: Mapping[str, str]) -> list[Finding]:
    from cursor_gateway.sources.cursor.program import run_to_end

    ran = await run_to_end([program.path, "status", "--format", "json"], environment, _LOGIN_SECONDS)
    return of_login(ran.stdout if ran.stdout.strip() else ran.stderr, environ)


async def _models(program: Program, environment: Mapping[str, str], wanted: str) -> list[Finding]:
    from cursor_gateway.sources.cursor.failures import known_failure
    from cursor_gateway.sources.cursor.models import parse_models
    from cursor_gateway.sources.cursor.program import run_to_end

    ran = await run_to_end([program.path, "--list-models"], environment, _MODELS_SECONDS)
    if models := parse_models(ran.stdout):
        return [of_models(models, wanted)]
    said = ran.stderr.strip() or ran.stdout.strip()
    if (error := known_failure(said)) is not None:
        return [Finding("broken", "models", str(error))]
    told = f"the agent does not list its models: {said[:200] or 'no output'}"
    return [Finding("broken", "models", told, f"run `{os.path.basename(program.path)} --list-models` to see why.")]


# --- the machine ----------------------------------------------------------------------------------------


async def _port(settings: Settings, environ: Mapping[str, str]) -> list[Finding]:
    taken, health = None, None
    try:
        await _in_thread(lambda: _bind(settings.host, settings.port))
    except OSError as error:
        taken = error
        if error.errno == errno.EADDRINUSE:
            health = await _health(local_url(settings))
    is_own = find_socket(data_dir(settings, environ), settings.port) is not None
    return [of_port(settings, taken, health, is_own=is_own)]


def _bind(host: str, port: int) -> None:
    from cursor_gateway.server.sockets import bound_socket

    bound_socket(host, port).close()


async def _health(url: str) -> "Health | None":
    try:
        return await ask_health(url, 2.0)
    except OSError:
        return None


async def _url(settings: Settings) -> list[Finding]:
    if not settings.url:
        return []
    try:
        return [of_url(settings.url, await ask_health(settings.url, 10.0), "")]
    except OSError as error:
        return [of_url(settings.url, None, str(error))]


def _folder(path: Path) -> Folder:
    is_there = path.is_dir()
    return Folder(str(path), is_there, is_there and os.access(path, os.W_OK | os.X_OK))


def _workspaces(settings: Settings) -> list[Finding]:
    roots = [_folder(Path(root).expanduser().absolute()) for root in settings.workspace_roots]
    return of_workspaces(_folder(Path(settings.workspace or ".").expanduser().absolute()), roots)


def _data(settings: Settings, environ: Mapping[str, str]) -> list[Finding]:
    path = data_dir(settings, environ)
    there = next(above for above in (path, *path.parents) if above.exists())  # what is missing will be made
    writable = there.is_dir() and os.access(there, os.W_OK | os.X_OK)
    return [of_data(Folder(str(path), path.is_dir(), writable), shutil.disk_usage(there).free)]


async def _store(settings: Settings) -> list[Finding]:
    from cursor_gateway.cli.stores import database_url

    if not (url := database_url(settings)):
        return []  # the file is in the data directory
    from cursor_gateway.store.postgres import schema

    try:
        server, found = await schema.look(url)
    except StoreUnavailable as error:
        return [Finding("broken", "store", f"{error} {error.details}".strip())]
    return [of_store(server, found, schema.newest())]


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
    """Whoever runs this has just mended something: a running gateway must not answer from memory."""
    from cursor_gateway.runs.account_errors import forget_account_errors

    with suppress(OSError):  # a folder that cannot be written to has a finding of its own
        forget_account_errors(data_dir(settings, environ))
    return []


def _leftovers(settings: Settings, environ: Mapping[str, str]) -> list[Finding]:
    from cursor_gateway.sources.ledger import _entries, _is_alive
    from cursor_gateway.sources.process_groups import members, start_of

    gateways, left = 0, 0
    for instance in _entries(data_dir(settings, environ) / "instances"):
        if _is_alive(instance):
            gateways += 1
            continue
        for agent in _entries(instance / "agents"):
            group, _, start = agent.name.partition("-")
            left += start_of(int(group)) in (None, start) and bool(members(int(group)))
    return [of_leftovers(gateways, left)]


def _versions(*packages: str) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found
