"""The gateway as a service: the files that systemd and launchd read, and the commands that are run, in their order."""

import os
import plistlib
import shlex
import shutil
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cursor_gateway.cli.commands.serve import _notify_service_manager
from cursor_gateway.cli.commands.service import ServiceUnit, launchd, property_list, systemd, unit
from tests.cli.processes import TIMEOUT, finished

PROGRAM = "/opt/a b/cursor-gateway"
HARD = '/srv/50% "new" $HOME \\ x'
SERVICE = ServiceUnit([PROGRAM, "serve", "--workspace", HARD], "/usr/bin:/opt/a b", 10)

# Notes what it is called with, and answers as the service manager would.
_STAND_IN = """#!/bin/sh
echo "$*" >> {calls}
test "$*" = "--user $FAILS" && {{ echo 'Failed to connect to bus'; exit 1; }}
test "$2" = is-active && echo "${{STATE:-active}}"
exit 0
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "systemctl").write_text(_STAND_IN.format(calls=shlex.quote(str(tmp_path / "calls"))))
    (programs / "systemctl").chmod(0o755)
    (tmp_path / "work").mkdir()
    return tmp_path


@pytest.fixture
def service(home: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., "subprocess.CompletedProcess[bytes]"]:
    monkeypatch.setattr("sys.platform", "linux")

    def run(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[bytes]":
        monkeypatch.setenv("HOME", str(home))
        monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
        monkeypatch.delenv("CURSOR_GATEWAY_RUNTIME_DIR", raising=False)
        path = f"{home / 'bin'}:{os.environ['PATH']}"
        changed = {"HOME": str(home), "PATH": path, **environment}
        return finished("service", *arguments, stdin=b"", **changed)

    return run


def calls(home: Path) -> list[str]:
    file = home / "calls"
    return file.read_text().splitlines() if file.exists() else []


def unit_file(home: Path) -> Path:
    return home / ".config" / "systemd" / "user" / "cursor-gateway.service"


def test_the_unit_is_installed_started_reported_and_removed(
    home: Path, service: Callable[..., "subprocess.CompletedProcess[bytes]"]
) -> None:
    made = service("install", "--workspace", str(home / "work"))
    assert made.returncode == 0, made.stderr
    assert b"runs as a service of systemd" in made.stderr
    assert f'"serve" "--workspace" "{home / "work"}"' in unit_file(home).read_text()
    assert calls(home) == [
        "--user show --property=Version",
        "--user daemon-reload",
        "--user enable cursor-gateway.service",
        "--user restart cursor-gateway.service",
    ]
    assert service("status").stdout.startswith(b"running: systemd, ")
    stopped = service("status", STATE="failed")
    assert (stopped.returncode, stopped.stdout[:12]) == (1, b"not running:")
    assert service("remove").returncode == 0
    assert not unit_file(home).exists()
    assert calls(home)[-2:] == ["--user disable --now cursor-gateway.service", "--user daemon-reload"]


def test_a_second_installation_replaces_the_first(
    home: Path, service: Callable[..., "subprocess.CompletedProcess[bytes]"]
) -> None:
    for _ in range(2):
        assert service("install", "--workspace", str(home / "work")).returncode == 0
    assert calls(home)[5] == "--user disable --now cursor-gateway.service"
    assert calls(home)[-1] == "--user restart cursor-gateway.service"


@pytest.mark.parametrize("verb", [["install", "--workspace", "/srv"], ["remove"], ["status"]])
def test_a_dry_run_prints_and_changes_nothing(
    verb: list[str], home: Path, service: Callable[..., "subprocess.CompletedProcess[bytes]"]
) -> None:
    shown = service(*verb, "--dry-run")
    assert shown.returncode == 0
    assert b"\nsystemctl --user " in b"\n" + shown.stdout
    assert calls(home) == []
    assert not unit_file(home).exists()


def test_what_is_missing_is_named(home: Path, service: Callable[..., "subprocess.CompletedProcess[bytes]"]) -> None:
    nowhere = service("install")
    assert nowhere.returncode == 2
    assert b"name the one in which the agent works with --workspace" in nowhere.stderr
    from_shell = service("install", CURSOR_GATEWAY_WORKSPACE=str(home))  # the service has another environment
    assert b"with --workspace" in from_shell.stderr
    assert b"the service is not installed" in service("remove").stderr
    assert service("status").returncode == 1


def test_settings_of_the_shell_are_named_since_the_service_has_none_of_them(
    home: Path, service: Callable[..., "subprocess.CompletedProcess[bytes]"]
) -> None:
    made = service("install", "--workspace", str(home), CURSOR_GATEWAY_PORT="9000", CURSOR_API_KEY="key-1234")
    assert b"not for the service: CURSOR_GATEWAY_PORT, CURSOR_API_KEY." in b" ".join(made.stderr.split())
    assert "key-1234" not in unit_file(home).read_text()


def test_without_a_manager_nothing_is_written(
    home: Path, service: Callable[..., "subprocess.CompletedProcess[bytes]"]
) -> None:
    refused = service("install", "--workspace", str(home), FAILS="show --property=Version")
    assert refused.returncode == 2
    assert b"failed: Failed to connect to bus. This needs systemd and a session" in refused.stderr
    assert not unit_file(home).exists()
    (home / "bin" / "systemctl").unlink()
    missing = service("install", "--workspace", str(home), PATH=str(home / "bin"))
    assert b"systemctl is not installed" in missing.stderr


def test_a_service_that_does_not_start_is_reported(
    home: Path, service: Callable[..., "subprocess.CompletedProcess[bytes]"]
) -> None:
    failed = service("install", "--workspace", str(home), FAILS="restart cursor-gateway.service")
    assert failed.returncode == 2
    assert b"is installed, but it does not run: see `journalctl --user --unit cursor-gateway`" in failed.stderr


def test_a_file_of_somebody_else_is_left_alone(
    home: Path, service: Callable[..., "subprocess.CompletedProcess[bytes]"]
) -> None:
    unit_file(home).parent.mkdir(parents=True)
    unit_file(home).write_text("[Service]\nExecStart=/bin/true\n")
    for verb in (["install", "--workspace", str(home)], ["remove"]):
        refused = service(*verb)
        assert refused.returncode == 2
        assert b"was not written by this command" in refused.stderr
    assert unit_file(home).read_text() == "[Service]\nExecStart=/bin/true\n"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    program = tmp_path / "a b" / "cursor-gateway"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    file = tmp_path / "cursor-gateway.service"
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path)}

    def verified(text: str) -> "subprocess.CompletedProcess[str]":
        file.write_text(text)
        return subprocess.run(
            ["systemd-analyze", "verify", "--user", "--man=no", str(file)],
            env=environment, capture_output=True, text=True, timeout=TIMEOUT, check=False,
        )  # fmt: skip

    text = unit(ServiceUnit([str(program), "serve", "--workspace", HARD], SERVICE.path, 10))
    assert (verified(text).returncode, verified(text).stderr) == (0, "")
    assert "Failed to parse service type" in verified(text.replace("Type=notify", "Type=other")).stderr


def test_a_unit_quotes_what_systemd_would_read_as_something_else() -> None:
    (line,) = [line for line in unit(SERVICE).splitlines() if line.startswith("ExecStart=")]
    assert line == f'ExecStart="{PROGRAM}" "serve" "--workspace" "/srv/50%% \\"new\\" $$HOME \\\\ x"'


def test_the_property_list_has_the_command_as_it_is(tmp_path: Path) -> None:
    values = plistlib.loads(property_list(SERVICE, tmp_path / "log").encode())
    assert values["ProgramArguments"] == [PROGRAM, "serve", "--workspace", HARD]
    assert values["EnvironmentVariables"] == {"PATH": "/usr/bin:/opt/a b"}
    assert (values["RunAtLoad"], values["KeepAlive"]) == (True, {"SuccessfulExit": False})
    assert values["StandardErrorPath"] == str(tmp_path / "log")
    assert values["Umask"] == 0o077


def test_launchd_and_systemd_say_whether_it_runs() -> None:
    manager = launchd(SERVICE, 501)
    assert manager.file.name == "cursor-gateway.plist"
    assert list(manager.install[-1])[:3] == ["launchctl", "bootstrap", "gui/501"]
    assert manager.is_running("gui/501/cursor-gateway = {\n\tstate = running\n")
    assert not manager.is_running("\tstate = not running\n")
    assert systemd(SERVICE, {"XDG_CONFIG_HOME": "/c"}).file == Path("/c/systemd/user/cursor-gateway.service")
    assert not systemd(SERVICE, {}).is_running("inactive\n")


@pytest.mark.parametrize("prefix", ["", "@"])
def test_systemd_is_notified_when_the_gateway_listens(
    prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"{prefix}{tmp_path}/notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(address.replace("@", "\0"))
        manager.settimeout(TIMEOUT)
        monkeypatch.setenv("NOTIFY_SOCKET", address)
        _notify_service_manager()
        assert manager.recv(100) == b"READY=1"
