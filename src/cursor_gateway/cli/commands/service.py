"""`cursor-gateway service`: install or remove the gateway as a service of this user, by systemd or launchd."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import click
from msgspec import Struct

from cursor_gateway.cli.configuration import config, configuration
from cursor_gateway.cli.kept_files import KeptFile
from cursor_gateway.cli.output import FailedRun, Trouble, aside, complete_folder, write_text
from cursor_gateway.errors import SettingsError
from cursor_gateway.settings import PREFIX, Loaded

# --- service managers: both start it when the user logs in, as that user, and again if it fails ------


LABEL = "cursor-gateway"
MARK = "Written by `cursor-gateway service install`; it is replaced by the next one."

_UNIT = f"{LABEL}.service"
_STOP_MARGIN = 20  # seconds beyond the time that runs have to finish, before it is killed
_WRONG_SETTINGS = 2  # the exit status of a gateway that a restart would not help
_START_AGAIN = 5  # seconds

Command = Sequence[str]


class ServiceUnit(Struct, frozen=True):
    command: Sequence[str]
    path: str  # the variable PATH: where the agent is, and the programs that it runs
    drain_seconds: float


class Manager(Struct, frozen=True, kw_only=True):
    """A system's service manager. Each list of commands is run in order, and the first that fails ends it."""

    title: str
    file: Path
    text: str
    check: Command  # fails where this user has no such manager
    install: Sequence[Command]  # after the file is written
    forget: Command  # stops it, before the file is replaced or removed; may fail: it may not run
    remove: Sequence[Command]  # after the file is removed
    status: Command
    is_running: Callable[[str], bool]  # what `status` printed
    log: str  # the command that shows it


def systemd(service: ServiceUnit, environ: Mapping[str, str]) -> Manager:
    base = environ.get("XDG_CONFIG_HOME", "")
    folder = Path(base) if os.path.isabs(base) else Path("~/.config").expanduser()
    control = ("systemctl", "--user")
    return Manager(
        title="systemd",
        file=folder / "systemd" / "user" / _UNIT,
        text=unit(service),
        check=(*control, "show", "--property=Version"),
        install=[(*control, "daemon-reload"), (*control, "enable", _UNIT), (*control, "restart", _UNIT)],
        forget=(*control, "disable", "--now", _UNIT),
        remove=[(*control, "daemon-reload")],
        status=(*control, "is-active", _UNIT),
        is_running=lambda printed: printed.strip() == "active",
        log=f"journalctl --user --unit {LABEL}",
    )


def launchd(service: ServiceUnit, user: int) -> Manager:
    file = Path(f"~/Library/LaunchAgents/{LABEL}.plist").expanduser()
    log = Path(f"~/Library/Logs/{LABEL}.log").expanduser()
    domain = f"gui/{user}"
    return Manager(
        title="launchd",
        file=file,
        text=property_list(service, log),
        check=("launchctl", "print", domain),
        install=[("launchctl", "bootstrap", domain, str(file))],
        forget=("launchctl", "bootout", f"{domain}/{LABEL}"),
        remove=[],
        status=("launchctl", "print", f"{domain}/{LABEL}"),
        is_running=lambda printed: "state = running" in printed,
        log=f"tail -f {log}",
    )


def unit(service: ServiceUnit) -> str:
    """https://www.freedesktop.org/software/systemd/man/latest/systemd.service.html"""
    words = " ".join(_quoted(word.replace("$", "$$")) for word in service.command)
    return f"""\
# {MARK}
# `systemctl --user edit {LABEL}` adds settings that stay.
[Unit]
Description=Cursor's agent through OpenAI's and Anthropic's APIs
Documentation=man:cursor-gateway(1)

[Service]
Type=notify
ExecStart={words}
Environment={_quoted(f"PATH={service.path}")}
Restart=on-failure
RestartSec={_START_AGAIN}
RestartPreventExitStatus={_WRONG_SETTINGS}
KillMode=mixed
Delegate=yes
TimeoutStopSec={round(service.drain_seconds) + _STOP_MARGIN}
UMask=0077

[Install]
WantedBy=default.target
"""


def _quoted(word: str) -> str:
    """As systemd reads it: `%` begins a specifier, and a backslash an escape."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("\n", "\\n")
    return f'"{escaped}"'


def property_list(service: ServiceUnit, log: Path) -> str:
    """`man launchd.plist`"""
    import plistlib  # with a parser of XML, which only macOS needs

    values = {
        "Label": LABEL,
        "ProgramArguments": list(service.command),
        "EnvironmentVariables": {"PATH": service.path},
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "ThrottleInterval": _START_AGAIN,
        "ExitTimeOut": round(service.drain_seconds) + _STOP_MARGIN,
        "Umask": 0o077,
        "StandardOutPath": str(log),
        "StandardErrorPath": str(log),
    }
    lines = plistlib.dumps(values, sort_keys=False).decode().splitlines()
    return "\n".join([lines[0], f"<!-- {MARK} -->", *lines[1:], ""])


# --- the command ------------------------------------------------------------------------------------------


_LIMIT = 120  # seconds for a command of the service manager: it waits until the gateway listens or has stopped

dry_run_option = click.option("--dry-run", is_flag=True, help="Print the file and the commands, and change nothing.")


@click.group(
    epilog="""\b
    Examples:
      cursor-gateway service install --workspace ~/project --dry-run
      cursor-gateway service install --workspace ~/project
      cursor-gateway service status
      cursor-gateway service remove

    \b
    On Linux it is a systemd user unit, on macOS a launchd agent.
    Exit status: 0 success; 1 the service is not running (`status`); 2 failure.""",
)
def service() -> None:
    """Run the gateway in the background, as a user service that starts at login."""


@service.command()
@config
@click.option(
    "--workspace",
    metavar="DIR",
    shell_complete=complete_folder,
    help="The folder in which the agent works. Default: the setting `workspace`.",
)
@dry_run_option
def install(config: str | None, workspace: str | None, dry_run: bool) -> int:
    """Install the service, or replace it, and start it."""
    loaded = configuration(config, {"workspace": workspace})
    manager = _manager(_service(config, workspace, loaded))
    if dry_run:
        write_text(f"# {manager.file}\n{manager.text}\n{_lines([manager.check, *manager.install])}")
        return 0
    file, before = _own_file(manager)
    _run(manager, manager.check)
    if before is not None:
        _try(manager.forget)
    file.write(manager.text)
    try:
        for command in manager.install:
            _run(manager, command)
    except Trouble as error:
        raise Trouble(f"{error.message} The service is installed, but it does not run: see `{manager.log}`.") from None
    aside(f"The gateway runs as a service of {manager.title}. Its log: {manager.log}")
    _report_environment(loaded)
    return 0


@service.command()
@dry_run_option
def remove(dry_run: bool) -> int:
    """Stop the service and remove it."""
    manager = _manager()
    if dry_run:
        lines = [manager.forget, ("rm", str(manager.file)), *manager.remove]
        write_text(_lines(lines))
        return 0
    file, before = _own_file(manager)
    if before is None:
        raise Trouble(f"the service is not installed: there is no {manager.file}.")
    _run(manager, manager.check)
    _try(manager.forget)
    file.remove()
    for command in manager.remove:
        _run(manager, command)
    aside("The service is stopped and removed. The history and the settings stay.")
    return 0


@service.command()
@dry_run_option
def status(dry_run: bool) -> int:
    """Report whether the service is installed and running."""
    manager = _manager()
    if dry_run:
        write_text(_lines([manager.status]))
        return 0
    if KeptFile(manager.file).read() is None:
        raise FailedRun(f"the service is not installed: there is no {manager.file}.")
    _run(manager, manager.check)
    _, printed = _try(manager.status)
    runs = manager.is_running(printed)
    write_text(f"{'running' if runs else 'not running'}: {manager.title}, {manager.file}\nlog: {manager.log}\n")
    return 0 if runs else 1


# --- the service ----------------------------------------------------------------------------------------


def _service(config: str | None, workspace: str | None, loaded: Loaded) -> ServiceUnit:
    if not loaded.settings.workspace or loaded.origins["workspace"].startswith(PREFIX):
        raise SettingsError(
            "a service has no current folder; name the one in which the agent works with --workspace, "
            "or with the setting `workspace` in the configuration file.",
            param="workspace",
        )
    given = [("--config", config), ("--workspace", workspace)]
    options = [word for name, path in given if path for word in (name, str(Path(path).expanduser().absolute()))]
    return ServiceUnit([*_program(), "serve", *options], os.environ.get("PATH", ""), loaded.settings.drain_seconds)


def _program() -> list[str]:
    """As it was called, with its links: an upgrade may replace what they lead to."""
    called = shutil.which(sys.argv[0]) or ""
    if Path(called).name == "cursor-gateway":
        return [os.path.abspath(called)]
    return [sys.executable, "-m", "cursor_gateway"]


def _manager(made: ServiceUnit | None = None) -> Manager:
    described = made or ServiceUnit([], "", 0)  # to remove it and to look at it, its name is enough
    return launchd(described, os.getuid()) if sys.platform == "darwin" else systemd(described, os.environ)


def _report_environment(loaded: Loaded) -> None:
    variables = sorted(origin for origin in loaded.origins.values() if origin.startswith(PREFIX))
    if os.environ.get("CURSOR_API_KEY"):
        variables.append("CURSOR_API_KEY")
    if variables:
        aside(
            f"Set in this shell, but not for the service: {', '.join(variables)}. Put settings into the configuration "
            "file, and log in with `cursor-agent login`."
        )


# --- files and commands ---------------------------------------------------------------------------------


def _own_file(manager: Manager) -> tuple[KeptFile, str | None]:
    """With its text. A file that another program or a person wrote is left alone."""
    file = KeptFile(manager.file)
    text = file.read()
    if text is not None and MARK not in text:
        raise Trouble(f"{manager.file} was not written by this command; move it away first.")
    return file, text


def _run(manager: Manager, command: Command) -> None:
    status, printed = _try(command)
    if status != 0:
        reason = " ".join(printed.split()) or f"exit status {status}"
        raise Trouble(
            f"`{shlex.join(command)}` failed: {reason}. This needs {manager.title} and a session of your own on this "
            "machine; else start `cursor-gateway serve` with a service manager of your choice."
        )


def _try(command: Command) -> tuple[int, str]:
    """The exit status, and all that it printed."""
    try:
        ran = subprocess.run(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_LIMIT,
            check=False,
        )
    except FileNotFoundError:
        return 127, f"{command[0]} is not installed"
    except subprocess.TimeoutExpired:
        return 124, f"no answer within {_LIMIT} seconds"
    return ran.returncode, ran.stdout.decode(errors="replace")


def _lines(commands: Sequence[Command]) -> str:
    return "".join(f"{shlex.join(command)}\n" for command in commands)
