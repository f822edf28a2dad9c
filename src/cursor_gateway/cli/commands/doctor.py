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
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import nullcontext, suppress
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click
import msgspec

from cursor_gateway.cli.assembly.local_socket import find_gateway, find_gateways, nearest
from cursor_gateway.cli.assembly.remote import ask_health, current_or_none, local_url
from cursor_gateway.cli.commands import findings
from cursor_gateway.cli.commands.findings import Finding, FolderState, Found, Level, summary, worst
from cursor_gateway.cli.configuration import check_paths, config, configuration, data_dir, usual_file
from cursor_gateway.cli.output import write_json
from cursor_gateway.errors import AgentError, GatewayError, HostExhausted, SettingsError, StoreUnavailable
from cursor_gateway.settings import FILE_VARIABLE, Settings
from cursor_gateway.sources.cursor.command import Program

if TYPE_CHECKING:
    from rich.console import RenderableType

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
        found.append(findings.of_settings(loaded, path, path is not None and path.is_file()))
    except SettingsError as error:
        found.append(Finding("broken", "settings", str(error), "until then, the other checks use the defaults."))
    has_key = bool(environ.get("CURSOR_API_KEY"))
    sources = _versions("cursor-sdk")
    looks = [
        _agent(settings, environ),
        _checked("port", _PORT_SECONDS, lambda: _port(settings, environ)),
        _checked_here("running", lambda: _running(settings, environ)),
        _checked("url", _PORT_SECONDS * 3, lambda: _url(settings)),
        _checked_here("exposure", lambda: [findings.of_exposure(settings)]),
        _checked_here("workspace", lambda: _workspaces(settings)),
        _checked_here("hooks", lambda: _brought(settings)),
        _checked_here("network", lambda: [findings.of_network(settings, environ)]),
        _checked_here("data", lambda: _data(settings, environ)),
        _checked("store", _STORE_SECONDS, lambda: _store(settings)),
        _checked("history", _HISTORY_SECONDS, lambda: _in_thread(lambda: _history(settings, environ))),
        _checked_here("configuration", lambda: _configuration(settings, environ)),
        _checked_here("account errors", lambda: _account_errors(settings, environ)),
        _checked_here("isolation", lambda: _isolation(settings)),
        _checked_here("leftovers", lambda: _leftovers(settings, environ)),
        _checked_here("verified", lambda: _verified(settings, environ)),
        _checked_here("source", lambda: [findings.of_source(settings, sources, has_key)]),
        _checked_here("extras", lambda: [findings.of_extras(_versions("uvloop", "httptools"))]),
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
        return list(findings.of_agent(found, settings))

    rated = await _checked("agent", _AGENT_SECONDS * 2 + 5, look)
    program = next((one.program for one in found if one.program is not None), None)
    if program is None:
        return rated
    rated += findings.of_version(program, settings)
    rated += [findings.of_abilities(program), findings.of_tools(program)]
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
    return [] if options is None else [findings.of_approvals(unverified(program, options))]


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
        return [findings.of_waiting(obstacle, "")]
    try:
        await greet(program, environment, _WAITING_SECONDS)
    except AgentError as error:
        return [findings.of_waiting("", str(error).partition(";")[0])]
    return [findings.of_waiting("", "")]


async def _login(program: Program, environment: Mapping[str, str], environ: Mapping[str, str]) -> list[Finding]:
    from cursor_gateway.sources.cursor.program import run_to_end

    ran = await run_to_end([*program.command, "status", "--format", "json"], environment, _LOGIN_SECONDS)
    return list(findings.of_login(ran.stdout if ran.stdout.strip() else ran.stderr, environ))


async def _models(program: Program, environment: Mapping[str, str], wanted: str) -> list[Finding]:
    from cursor_gateway.sources.cursor.failures import known_failure
    from cursor_gateway.sources.cursor.models import parse_models
    from cursor_gateway.sources.cursor.program import run_to_end

    ran = await run_to_end([*program.command, "--list-models"], environment, _MODELS_SECONDS)
    if models := parse_models(ran.stdout):
        return [findings.of_models(models, wanted)]
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
    return [findings.of_port(settings, taken, health, is_own=is_own)]


def _running(settings: Settings, environ: Mapping[str, str]) -> list[Finding]:
    gateways = find_gateways(data_dir(settings, environ))
    return [findings.of_gateways(gateways, nearest(gateways, current_or_none(), settings.port))]


async def _url(settings: Settings) -> list[Finding]:
    if not settings.url:
        return []
    try:
        return [findings.of_url(settings.url, await ask_health(settings.url, 10.0), "")]
    except OSError as error:
        return [findings.of_url(settings.url, None, str(error))]


def _folder(path: Path) -> FolderState:
    is_there = path.is_dir()
    return FolderState(str(path), is_there, is_there and os.access(path, os.W_OK | os.X_OK))


def _workspaces(settings: Settings) -> list[Finding]:
    check_paths(settings)
    roots = [_folder(Path(root).expanduser().absolute()) for root in settings.workspace_roots]
    return list(findings.of_workspaces(_folder(Path(settings.workspace or ".").expanduser().absolute()), roots))


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
    return [findings.of_brought(", ".join(found), refusal, is_refused=settings.refuse_workspace_hooks)]


def _data(settings: Settings, environ: Mapping[str, str]) -> list[Finding]:
    path = data_dir(settings, environ)
    there = next(above for above in (path, *path.parents) if above.exists())  # what is missing will be made
    writable = there.is_dir() and os.access(there, os.W_OK | os.X_OK)
    return [findings.of_data(FolderState(str(path), path.is_dir(), writable), shutil.disk_usage(there).free)]


async def _store(settings: Settings) -> list[Finding]:
    from cursor_gateway.cli.assembly.stores import database_url

    if not (url := database_url(settings)):
        return []  # the file is in the data directory
    from cursor_gateway.store.postgres import schema

    try:
        server, found = await schema.look(url)
    except StoreUnavailable as error:
        return [Finding("broken", "store", f"{error} {error.details}".strip())]
    return [findings.of_store(server, found, schema.newest())]


def _history(settings: Settings, environ: Mapping[str, str]) -> list[Finding]:
    """The file, unless a database has the history."""
    from cursor_gateway.store.sqlite.opening import FILE, examine

    path = data_dir(settings, environ) / FILE
    if settings.store or not settings.history or not path.exists():
        return []
    try:
        return [findings.of_history(str(path), examine(path))]
    except sqlite3.Error as error:
        return [Finding("broken", "history", f"{path}: {error}", "check its permissions and the disk.")]


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
    finding = findings.of_configuration(str(folder), unreadable, wrong, folder.is_dir())
    return [finding, *findings.of_permissions(settings, approval == "unrestricted")]


def _account_errors(settings: Settings, environ: Mapping[str, str]) -> list[Finding]:
    """The user may have just fixed the account, so a running gateway must not answer from its cache."""
    from cursor_gateway.runs.repeats import forget_account_errors

    with suppress(OSError):  # a folder that cannot be written to has a finding of its own
        forget_account_errors(data_dir(settings, environ))
    return []


def _isolation(settings: Settings) -> list[Finding]:
    from cursor_gateway.sources.cgroups import available

    return [findings.of_isolation(settings, available())]


def _leftovers(settings: Settings, environ: Mapping[str, str]) -> list[Finding]:
    from cursor_gateway.sources.ledger import Ledger, registry

    ledger = Ledger(data_dir(settings, environ) / "instances", registry(settings.runtime_dir))
    return [findings.of_leftovers(len(ledger.orphans()))]


def _verified(settings: Settings, environ: Mapping[str, str]) -> list[Finding]:
    from cursor_gateway.cli.commands.verification import read_verified

    return [findings.of_verified(read_verified(data_dir(settings, environ)))]


def _versions(*packages: str) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found
