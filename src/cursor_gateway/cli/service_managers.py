"""The files and commands with which systemd and launchd run a service.

Both start it when the user logs in, as that user, and again if it fails.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

LABEL = "cursor-gateway"
MARK = "Written by `cursor-gateway service install`; it is replaced by the next one."

_UNIT = f"{LABEL}.service"
_STOP_MARGIN = 20  # seconds beyond the time that runs have to finish, before it is killed
_WRONG_SETTINGS = 2  # the exit status of a gateway that a restart would not help
_START_AGAIN = 5  # seconds

Command = Sequence[str]


class Service(Struct, frozen=True):
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


def systemd(service: Service, environ: Mapping[str, str]) -> Manager:
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


def launchd(service: Service, user: int) -> Manager:
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


def unit(service: Service) -> str:
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
TimeoutStopSec={round(service.drain_seconds) + _STOP_MARGIN}
UMask=0077

[Install]
WantedBy=default.target
"""


def _quoted(word: str) -> str:
    """As systemd reads it: `%` begins a specifier, and a backslash an escape."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("\n", "\\n")
    return f'"{escaped}"'


def property_list(service: Service, log: Path) -> str:
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
