"""`cursor-gateway service`: install or remove the gateway as a service of this user."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from cursor_gateway.cli.configuration import config, configuration
from cursor_gateway.cli.kept_files import KeptFile
from cursor_gateway.cli.output import RunFailed, Trouble, aside, write_text
from cursor_gateway.cli.path_completion import complete_folder
from cursor_gateway.cli.service_managers import MARK, Command, Manager, Service, launchd, systemd
from cursor_gateway.errors import SettingsError
from cursor_gateway.settings import PREFIX, Loaded

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
        raise RunFailed(f"the service is not installed: there is no {manager.file}.")
    _run(manager, manager.check)
    _, printed = _try(manager.status)
    runs = manager.is_running(printed)
    write_text(f"{'running' if runs else 'not running'}: {manager.title}, {manager.file}\nlog: {manager.log}\n")
    return 0 if runs else 1


# --- the service ----------------------------------------------------------------------------------------


def _service(config: str | None, workspace: str | None, loaded: Loaded) -> Service:
    if not loaded.settings.workspace or loaded.origins["workspace"].startswith(PREFIX):
        raise SettingsError(
            "a service has no current folder; name the one in which the agent works with --workspace, "
            "or with the setting `workspace` in the configuration file.",
            param="workspace",
        )
    given = [("--config", config), ("--workspace", workspace)]
    options = [word for name, path in given if path for word in (name, str(Path(path).expanduser().absolute()))]
    return Service([*_program(), "serve", *options], os.environ.get("PATH", ""), loaded.settings.drain_seconds)


def _program() -> list[str]:
    """As it was called, with its links: an upgrade may replace what they lead to."""
    called = shutil.which(sys.argv[0]) or ""
    if Path(called).name == "cursor-gateway":
        return [os.path.abspath(called)]
    return [sys.executable, "-m", "cursor_gateway"]


def _manager(made: Service | None = None) -> Manager:
    described = made or Service([], "", 0)  # to remove it and to look at it, its name is enough
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
