"""`cursor-gateway launch`, with stand-ins for the clients, a real gateway and the stand-in agent."""

import json
import os
import pty
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from cursor_gateway.cli.clients.table import LAUNCHED
from cursor_gateway.keys import hash_key, new_key
from cursor_gateway.sources.processes import members
from tests.agent.install import install
from tests.cli import fake_client
from tests.cli.processes import TIMEOUT, arguments_of, finished, finished_process, read_until
from tests.gateways import RunningGateway, running_gateway

MODELS = {"auto": "Auto", "gpt-5-mini": "GPT-5 Mini"}
KNOBS = {"models": [f"{id} - {label}" for id, label in MODELS.items()]}


@pytest.fixture(autouse=True)
def temporary() -> Iterator[Path]:
    """The folder for temporary files: a short path, as a socket's must be."""
    with TemporaryDirectory(prefix="t") as folder:
        yield Path(folder)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with an agent and all clients, and no gateway on the usual port."""
    for name in [*os.environ]:
        if name.startswith(("CURSOR_", "XDG_", "ANTHROPIC_", "NO_PROXY", "no_proxy")):
            monkeypatch.delenv(name)
    home = tmp_path / "home"
    (home / "work").mkdir(parents=True)
    install(home / "bin", knobs={"log": str(home / "agent.log"), **KNOBS})
    for client in LAUNCHED.values():
        assert client.launch is not None
        fake_client.install(home / "clients", client.programs[0])
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setenv("PATH", os.pathsep.join([str(home / "bin"), str(home / "clients"), "/usr/bin", "/bin"]))
    monkeypatch.setenv("CLIENT_SEEN", str(home / "seen.json"))
    monkeypatch.setenv("CURSOR_GATEWAY_DATA_DIR", str(home / "data"))
    monkeypatch.setenv("CURSOR_GATEWAY_PORT", str(free_port()))
    monkeypatch.setenv("CURSOR_GATEWAY_GRACE_SECONDS", "0.5")
    monkeypatch.chdir(home / "work")
    return home


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


def launch(*arguments: str, stdin: bytes = b"", **environment: str) -> subprocess.CompletedProcess[bytes]:
    ended = finished_process("launch", *arguments, stdin=stdin, **environment)
    assert b"Traceback" not in ended.stderr, ended.stderr.decode()
    return ended


def seen(home: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((home / "seen.json").read_text())
    return found


def listens(url: str) -> bool:
    try:
        socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))).close()
    except ConnectionRefusedError:
        return False
    return True


def user_files(home: Path) -> set[Path]:
    """All but the gateway's own, and what the stand-ins wrote."""
    ours = (home / "data", home / "bin", home / "clients", home / "agent.log", home / "seen.json")
    return {path for path in home.rglob("*") if not any(path == one or one in path.parents for one in ours)}


# --- every client ---------------------------------------------------------------------------------------


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", LAUNCHED)
def test_a_client_finds_a_gateway_that_ends_with_it_and_its_models(name: str, home: Path, temporary: Path) -> None:
    before = user_files(home)
    ended = launch(name, "--", "--flag", "a word")
    assert ended.returncode == 0, ended.stderr
    was = seen(home)
    assert was["argv"][-2:] == ["--flag", "a word"]
    assert was["cwd"] == str(home / "work")
    assert was["health"]["workspace"] == str(home / "work")
    assert set(was["modes"]) <= {"0o700"}
    assert not listens(was["url"])
    assert user_files(home) == before
    assert not list(temporary.iterdir())
    if name not in ("claude", "cline"):  # Claude Code asks the gateway for its models; Cline has no list
        assert "gpt-5-mini" in json.dumps([was["files"], was["environment"], was["argv"]])


def test_a_model_is_named(home: Path) -> None:
    launch("--model", "opus-9", "opencode")
    configuration = json.loads(seen(home)["environment"]["OPENCODE_CONFIG_CONTENT"])
    assert configuration["model"] == "cursor-gateway/opus-9"
    assert set(configuration["provider"]["cursor-gateway"]["models"]) == {*MODELS, "opus-9"}


# --- the process ----------------------------------------------------------------------------------------


@pytest.mark.quick_cases(1)
def test_its_exit_status_is_passed_on(home: Path) -> None:
    assert launch("pi", CLIENT_DOES="3").returncode == 3


def test_its_input_and_output_are_passed_on(home: Path) -> None:
    ended = launch("llm", stdin=b"standin: echo-args", CLIENT_DOES="ask")
    result = json.loads(ended.stdout)
    assert result["workspace"] == str(home / "work")


def test_variables_that_would_lead_elsewhere_are_removed(home: Path) -> None:
    launch("claude", ANTHROPIC_API_KEY="sk-mine", CLAUDE_CODE_USE_BEDROCK="1", HTTPS_PROXY="http://proxy:1")
    environment = seen(home)["environment"]
    assert not {"ANTHROPIC_API_KEY", "CLAUDE_CODE_USE_BEDROCK"} & set(environment)
    assert environment["ANTHROPIC_BASE_URL"] == seen(home)["url"]
    assert environment["NO_PROXY"] == environment["no_proxy"] == "127.0.0.1,localhost,::1"


@contextmanager
def waiting(home: Path, name: str = "pi") -> Iterator[tuple["subprocess.Popen[bytes]", int]]:
    """A launched client that waits, on a terminal of its own: the process and the terminal."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "CLIENT_DOES": "wait", "TERM": "xterm"}
    with subprocess.Popen(
        ["setsid", "--ctty", "--wait", *arguments_of("launch", name)],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment,
    ) as process:
        os.close(theirs)
        try:
            read_until(ours, b"waiting")
            yield process, ours
        finally:
            for pid in [pid for pid in (seen(home)["pid"], process.pid) if members(pid)]:
                os.kill(pid, signal.SIGKILL)
            os.close(ours)
            process.wait(TIMEOUT)


def launcher_of(home: Path) -> int:
    """The parent of the client."""
    status = Path(f"/proc/{seen(home)['pid']}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("PPid:")))


needs_proc = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc and setsid")


@needs_proc
def test_ctrl_c_is_the_clients_own(home: Path) -> None:
    with waiting(home) as (process, terminal):
        was = seen(home)
        assert was["is_foreground"]
        os.write(terminal, b"\x03")
        read_until(terminal, b"interrupted")
        assert listens(was["url"])
        assert process.poll() is None


@pytest.mark.quick_cases(1)
@needs_proc
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_client_and_the_gateway(number: signal.Signals, home: Path, temporary: Path) -> None:
    with waiting(home) as (process, _):
        was = seen(home)
        os.kill(launcher_of(home), number)
        assert process.wait(TIMEOUT) == 128 + number
        assert not listens(was["url"])
        assert not Path(f"/proc/{was['pid']}").exists()
    assert not list(temporary.iterdir())


# --- which gateway --------------------------------------------------------------------------------------


@contextmanager
def gateway_of(home: Path, **settings: str) -> Iterator[RunningGateway]:
    """The user's own, on the usual port."""
    port, data = os.environ["CURSOR_GATEWAY_PORT"], os.environ["CURSOR_GATEWAY_DATA_DIR"]
    with running_gateway(home, "--port", port, settings={"data_dir": data, **settings}) as gateway:
        yield gateway


def test_a_running_gateway_is_used(home: Path) -> None:
    with gateway_of(home) as gateway:
        ended = launch("llm", stdin=b"standin: echo-args", CLIENT_DOES="ask")
        assert seen(home)["url"] == gateway.url
        assert f"Gateway at {gateway.url}" in ended.stderr.decode()
        assert str(home / "work") in seen(home)["files"]["extra-openai-models.yaml"]
        assert listens(gateway.url)


def test_a_gateway_that_may_not_work_here_is_not_used(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "elsewhere").mkdir()
    monkeypatch.chdir(home / "elsewhere")
    with gateway_of(home) as gateway:
        ended = launch("llm")
        assert seen(home)["url"] != gateway.url
        assert seen(home)["health"]["workspace"] == str(home / "elsewhere")
        assert "is not allowed to work in this folder" in ended.stderr.decode()
        launch("--url", gateway.url, "llm")  # whoever names it means it
        assert seen(home)["url"] == gateway.url
        assert "elsewhere" not in json.dumps(seen(home)["files"])


def test_a_running_gateway_gets_its_key(home: Path) -> None:
    key = new_key()
    with gateway_of(home, api_keys=f"me={hash_key(key)}") as gateway:
        assert launch("--url", gateway.url, "codex").returncode == 2
        assert not (home / "seen.json").exists()
        assert launch("--url", gateway.url, "codex", CURSOR_GATEWAY_API_KEY=key).returncode == 0
    assert seen(home)["environment"]["CGW_API_KEY"] == key


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("knows_key", [True, False])
def test_a_new_gateway_has_the_users_keys_or_one_for_its_lifetime(knows_key: bool, home: Path) -> None:
    key = new_key()
    environment = {"CURSOR_GATEWAY_API_KEYS": f"me={hash_key(key)}"}
    if knows_key:
        environment["CURSOR_GATEWAY_API_KEY"] = key
    ended = launch("qwen", stdin=b"standin: echo-args", CLIENT_DOES="ask", **environment)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["workspace"] == str(home / "work")
    used = seen(home)["environment"]["CGW_API_KEY"]
    assert (used == key) is knows_key
    assert used.startswith("cgw_")


def test_without_an_agent_it_is_the_demo_and_says_so(home: Path) -> None:
    for program in ("cursor-agent", "agent"):
        (home / "bin" / program).unlink()
    ended = launch("pi")
    assert ended.returncode == 0
    assert b"DEMO" in ended.stderr


# --- what cannot be done --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LAUNCHED)
def test_a_client_that_is_not_installed(name: str, monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    monkeypatch.setenv("PATH", str(home / "bin"))
    ended = finished("launch", name)
    assert ended.returncode == 127
    client = LAUNCHED[name]
    assert client.launch is not None
    assert f"run `{client.launch.install}`" in ended.stderr.decode()


def test_a_client_that_cannot_be_started(home: Path) -> None:
    (home / "clients" / "pi").write_text("#!/does/not/exist\n")
    ended = launch("pi")
    assert ended.returncode == 2
    assert b"cannot be started" in ended.stderr


def test_a_gateway_that_cannot_start(home: Path) -> None:
    ended = launch("pi", CURSOR_GATEWAY_SOURCE="cli", CURSOR_GATEWAY_AGENT_PROGRAM="/does/not/exist")
    assert ended.returncode == 2
    assert b"/does/not/exist" in ended.stderr
    assert not (home / "seen.json").exists()


def test_an_unknown_client() -> None:
    ended = finished("launch", "emacs")
    assert ended.returncode == 2
    assert b"'claude'" in ended.stderr


# --- only showing it ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LAUNCHED)
def test_a_dry_run_starts_nothing(name: str, home: Path) -> None:
    ended = finished("launch", "--dry-run", name, "--", "a word")
    assert ended.returncode == 0
    shown = ended.stdout.decode()
    assert f"{home / 'clients'}" in shown
    assert "'a word'" in shown
    assert "http://127.0.0.1:PORT" in shown
    assert not (home / "seen.json").exists()
    assert not (home / "data").exists()


def test_a_dry_run_with_a_running_gateway_hides_the_key(home: Path) -> None:
    key = new_key()
    with gateway_of(home, api_keys=f"me={hash_key(key)}") as gateway:
        ended = finished("launch", "--dry-run", "--url", gateway.url, "codex", CURSOR_GATEWAY_API_KEY=key)
    shown = ended.stdout.decode()
    assert gateway.url in shown
    assert "CGW_API_KEY=KEY" in shown
    assert key not in shown
