"""`cursor-gateway doctor`: what facts mean, and the command on machines of all kinds."""

import asyncio
import errno
import json
import os
import re
import socket
from collections.abc import Iterable
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from cursor_gateway.cli.commands.doctor import (
    Finding,
    FolderState,
    Found,
    Level,
    _brought,
    _checked,
    _in_thread,
    of_abilities,
    of_agent,
    of_configuration,
    of_data,
    of_exposure,
    of_extras,
    of_isolation,
    of_leftovers,
    of_login,
    of_models,
    of_network,
    of_permissions,
    of_port,
    of_source,
    of_url,
    of_version,
    of_workspaces,
    summary,
    worst,
)
from cursor_gateway.errors import AgentMissing
from cursor_gateway.keys import hash_key
from cursor_gateway.model.health import Health, HealthRuns, HealthSource
from cursor_gateway.settings import Settings, SourceName
from cursor_gateway.sources.base import Model
from cursor_gateway.sources.cursor.command import Program
from tests.agent.install import install
from tests.cli.processes import finished, on_a_terminal, own_machine
from tests.gateways import running_gateway

FLAGS = frozenset({"--stream-partial-output", "--mode", "--workspace", "--trust", "--resume", "--add-dir"})
AGENT = Program("/bin/cursor-agent", "2026.10.01-e373342", FLAGS)
HEALTH = Health(
    status="ok",
    version="0.1.0",
    source=HealthSource("cli", "cursor-agent 2026", demo=False),
    sources=["cli"],
    mode="agent",
    model="auto",
    runs=HealthRuns(0, 8),
)
GB = 1024**3


# --- what facts mean --------------------------------------------------------------------------------


def levels(findings: Iterable[Finding]) -> list[Level]:
    return [finding.level for finding in findings]


def test_no_agent_is_a_warning_unless_one_is_wanted() -> None:
    assert levels(of_agent([], Settings())) == ["warning"]
    assert levels(of_agent([], Settings(source="cli"))) == ["broken"]
    assert levels(of_agent([], Settings(agent_program="my-agent"))) == ["broken"]


def test_the_first_agent_of_cursors_is_used_and_others_are_named() -> None:
    stranger = Found("/bin/agent", None)
    older = Found("/opt/cursor-agent", Program("/opt/cursor-agent", "2025.01.01-abc", FLAGS))
    used = Found("/bin/cursor-agent", AGENT)
    assert levels(of_agent([used], Settings())) == ["good"]
    assert levels(of_agent([stranger, used], Settings())) == ["good", "good"]
    found = list(of_agent([used, older], Settings()))
    assert levels(found) == ["good", "warning"]
    assert "/opt/cursor-agent" in found[1].found
    assert levels(of_agent([stranger], Settings())) == ["warning", "warning"]
    assert levels(of_agent([Found("/bin/cursor-agent", None, "it did not end")], Settings())) == ["broken"]
    same = Found("/usr/bin/cursor-agent", Program("/usr/bin/cursor-agent", AGENT.version, FLAGS))
    assert levels(of_agent([used, same], Settings())) == ["good"]


@pytest.mark.parametrize("flag", sorted(FLAGS))
def test_an_ability_that_is_missing_is_named_with_what_will_not_work(flag: str) -> None:
    finding = of_abilities(Program("agent", "2025", FLAGS - {flag}))
    assert finding.level == "warning"
    assert f"no {flag}: " in finding.found
    assert "update" in finding.advice
    assert of_abilities(AGENT).level == "good"
    assert of_abilities(Program("agent", "2025", frozenset())).level == "warning"


IN = '{"status": "authenticated", "isAuthenticated": true, "userInfo": {"email": "a@b.c"}}'
OUT = '{"status": "unauthenticated", "isAuthenticated": false, "message": "Not logged in"}'


@pytest.mark.parametrize(
    ("status", "environ", "expected", "result"),
    [
        (IN, {}, ["good"], "logged in as a@b.c"),
        (OUT, {}, ["broken"], "not logged in"),
        (OUT, {"CURSOR_API_KEY": "key_secret"}, ["good"], "by CURSOR_API_KEY"),
        (IN, {"CURSOR_API_KEY": "key_secret"}, ["good"], "also logged in as a@b.c"),
        (OUT, {"CURSOR_AUTH_TOKEN": "key_secret"}, ["good"], "by CURSOR_AUTH_TOKEN"),
        (IN, {"CURSOR_API_KEY": ""}, ["warning", "good"], "set but empty"),
        (OUT, {"CURSOR_API_KEY": ""}, ["warning", "broken"], "set but empty"),
        ("error: unknown option '--format'", {}, ["warning"], "unknown option"),
        ("", {}, ["warning"], "no output"),
        (f"A tip!\n{IN}\n", {}, ["good"], "a@b.c"),
        ("{]}", {}, ["warning"], "cannot be read"),
    ],
)
def test_the_login(status: str, environ: dict[str, str], expected: list[Level], result: str) -> None:
    found = list(of_login(status, environ))
    assert levels(found) == expected
    assert any(result in finding.found for finding in found)
    assert "key_secret" not in str(found)


def test_a_model_that_the_agent_does_not_know_is_broken() -> None:
    models = [Model("auto", "Auto"), Model("gpt-5-mini", "GPT-5 Mini")]
    assert of_models(models, "auto").level == "good"
    finding = of_models(models, "gpt5-mini")
    assert finding.level == "broken"
    assert "gpt-5-mini" in finding.advice


@pytest.mark.parametrize(
    ("port", "taken", "health", "level"),
    [
        (8787, None, None, "good"),
        (0, None, None, "good"),
        (8787, errno.EADDRINUSE, HEALTH, "good"),
        (8787, errno.EADDRINUSE, None, "broken"),
        (80, errno.EACCES, None, "broken"),
        (8787, errno.EADDRNOTAVAIL, None, "broken"),
    ],
)
def test_the_port(port: int, taken: int | None, health: Health | None, level: Level) -> None:
    error = OSError(taken, os.strerror(taken)) if taken is not None else None
    finding = of_port(Settings(port=port), error, health, is_own=True)
    assert finding.level == level
    assert bool(finding.advice) == (level == "broken")


def test_a_gateway_on_the_port_that_may_be_anothers() -> None:
    taken = OSError(errno.EADDRINUSE, "in use")
    finding = of_port(Settings(), taken, HEALTH, is_own=False)
    assert (finding.level, "`chat` will not use it" in finding.advice) == ("warning", True)
    assert of_port(Settings(verify_gateway=False), taken, HEALTH, is_own=False).level == "good"


def test_the_exposure() -> None:
    keys = {"laptop": hash_key("cgw_x")}
    assert of_exposure(Settings()).level == "good"
    assert of_exposure(Settings(api_keys=keys)).level == "good"
    assert of_exposure(Settings(host="0.0.0.0")).level == "broken"
    finding = of_exposure(Settings(host="0.0.0.0", api_keys=keys))
    assert finding.level == "warning"
    assert "laptop" in finding.found
    assert "sha256" not in finding.found


def test_workspaces() -> None:
    good, closed, missing = (
        FolderState("/a", True, True),
        FolderState("/b", True, False),
        FolderState("/c", False, False),
    )
    assert levels(of_workspaces(good, [good])) == ["good", "good"]
    assert levels(of_workspaces(missing, [missing])) == ["broken", "warning"]
    assert levels(of_workspaces(closed, [closed])) == ["warning", "warning"]


def test_the_version() -> None:
    program = Program("/bin/cursor-agent", "2026.10.01-e373342", frozenset())
    assert of_version(program, Settings()) == []
    assert levels(of_version(program, Settings(agent_version="2026.10.01"))) == ["good"]
    (other,) = of_version(program, Settings(agent_version="2026.10.22"))
    assert (other.level, "install that version" in other.found) == ("broken", True)


def test_the_network(tmp_path: Path) -> None:
    assert of_network(Settings(), {}) == Finding("good", "network", "no proxy")
    proxy, ca = {"HTTPS_PROXY": "http://user:secret@proxy:3128"}, tmp_path / "ca.pem"
    ca.touch()
    asked = of_network(Settings(), proxy)
    assert (asked.level, asked.found, "http1 = true" in asked.advice) == ("warning", "HTTPS_PROXY is set", True)
    assert "NODE_USE_ENV_PROXY" in of_network(Settings(http1=True), proxy).advice
    given = {**proxy, "NODE_USE_ENV_PROXY": "1", "NODE_EXTRA_CA_CERTS": str(ca)}
    told = f"HTTPS_PROXY is set, HTTP/1.1, certificates of {ca}"
    assert of_network(Settings(http1=True), given) == Finding("good", "network", told)
    assert of_network(Settings(), {"NODE_EXTRA_CA_CERTS": "/nowhere"}).level == "broken"


def test_what_a_workspace_brings(tmp_path: Path) -> None:
    work = tmp_path / "cloned"
    work.mkdir()

    def found(**settings: Any) -> Finding:
        (one,) = _brought(Settings(workspace=str(work), **settings))
        return one

    assert "are refused" in found().found
    assert "are refused" not in found(refuse_workspace_hooks=False).found
    (work / ".mcp.json").touch()
    used = found(refuse_workspace_hooks=False)
    assert (used.level, "refuse_workspace_hooks" in used.advice) == ("good", True)
    refused = found()
    assert (refused.level, f'`allow_workspace_hooks = ["{work}"]`' in refused.advice) == ("broken", True)
    assert str(work / ".mcp.json") in refused.found
    allowed = found(allow_workspace_hooks=[str(work)])
    assert (allowed.level, "allow_workspace_hooks" in allowed.found) == ("good", True)


def test_the_data_directory() -> None:
    assert of_data(FolderState("/d", True, True), 10 * GB).level == "good"
    assert "not created yet" in of_data(FolderState("/d", False, True), 10 * GB).found
    assert of_data(FolderState("/d", True, True), GB // 8).level == "warning"
    assert of_data(FolderState("/d", True, True), 1000).level == "broken"
    assert of_data(FolderState("/d", True, False), 10 * GB).level == "broken"


def test_the_agents_configuration_and_permissions() -> None:
    assert of_configuration("/c", [], "", True).level == "good"
    assert of_configuration("/c", ["/c/cli-config.json"], "", True).level == "broken"
    assert of_configuration("/c", [], "is not JSON", True).level == "warning"
    assert levels(of_permissions(Settings(), False)) == ["good"]
    (asks,) = of_permissions(Settings(allow=["Shell(git)", "Shell(npm)"]), False)
    assert "and those of `allow`: Shell(git), Shell(npm); everything else needs your permission" in asks.found
    (denies,) = of_permissions(Settings(permissions="deny"), False)
    assert denies.found.endswith("nobody is asked (`permissions` is `deny`)")
    assert levels(of_permissions(Settings(), True)) == ["warning"]
    assert levels(of_permissions(Settings(force=True), False)) == ["warning"]
    assert levels(of_permissions(Settings(trust=False), False)) == ["good", "warning"]


def test_the_rest() -> None:
    assert of_leftovers(0).level == "good"
    assert of_leftovers(2).level == "warning"
    assert of_extras({"uvloop": "1", "httptools": "2"}).level == "good"
    finding = of_extras({"uvloop": None, "httptools": "2"})
    assert finding.level == "warning"
    assert finding.advice.startswith("`pip install uvloop`")
    assert of_url("http://x", HEALTH, "").level == "good"
    assert of_url("http://x", None, "").level == "warning"
    assert of_url("http://x", None, "Connection refused").level == "broken"


def test_the_worst_decides() -> None:
    good, warning, broken = (Finding(level, "x", "y") for level in ("good", "warning", "broken"))
    assert worst([good]) == "good"
    assert worst([good, warning]) == "warning"
    assert worst([broken, good, warning]) == "broken"
    assert summary([good]) == "No problems found."
    assert summary([good, warning]) == "No problems found; 1 warning."
    assert summary([broken, broken, warning, warning]) == "2 problems found; 2 warnings."


async def test_a_check_that_hangs_or_fails_is_a_finding() -> None:
    async def hangs() -> list[Finding]:
        return await _in_thread(lambda: [Finding("good", str(Event().wait(600)), "")])

    async def fails() -> list[Finding]:
        return await _in_thread(lambda: [Finding("good", str(1 // 0), "")])

    async def refuses() -> list[Finding]:
        raise AgentMissing("It is not there.")

    checks = [_checked("a", 0.01, hangs), _checked("b", 60, fails), _checked("c", 60, refuses)]
    hung, failed, refused = await asyncio.gather(*checks)
    assert "no answer within 0.01 s" in hung[0].found
    assert "ZeroDivisionError" in failed[0].found
    assert refused == [Finding("broken", "c", "It is not there.")]


# --- the command ------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    own_machine(monkeypatch, tmp_path, runtime_dir=str(tmp_path / "runtime"))
    return tmp_path


def doctor(*arguments: str, **environment: str) -> tuple[int, dict[str, list[dict[str, Any]]]]:
    """The exit status, and the findings by subject."""
    ended = finished("doctor", "--json", *arguments, stdin=b"", **environment)
    assert ended.stderr == b""
    result = json.loads(ended.stdout)
    assert (result["status"] == "broken") == (ended.returncode == 1)
    by_subject: dict[str, list[dict[str, Any]]] = {}
    for finding in result["findings"]:
        by_subject.setdefault(finding["subject"], []).append(finding)
    return ended.returncode, by_subject


def test_a_workspace_whose_name_is_not_utf_8_is_broken(home: Path) -> None:
    status, found = doctor(CURSOR_GATEWAY_WORKSPACE=f"{home}/caf\udce9", CURSOR_GATEWAY_HOST="0.0.0.0")
    assert status == 1
    assert found["workspace"][0]["level"] == "broken"
    assert "(`workspace`) is not valid UTF-8" in found["workspace"][0]["found"]
    assert found["exposure"][0]["level"] == "broken"  # the other settings are still checked


def test_isolation_says_what_a_gateway_here_can_do() -> None:
    assert "cgroup of its own; limits of cpu, memory can be kept" in of_isolation(Settings(), {"memory", "cpu"}).found
    assert "no limits can be kept" in of_isolation(Settings(), frozenset()).found
    without = of_isolation(Settings(), None)
    assert (without.level, "no cgroup can be made here" in without.found) == ("good", True)
    assert "`agent_cgroups` is false" in of_isolation(Settings(agent_cgroups=False), {"memory"}).found
    limited = Settings(agent_memory_bytes=2**30, agent_tasks=100)
    assert of_isolation(limited, {"memory", "pids"}).level == "good"
    for controllers in ({"memory"}, None):
        finding = of_isolation(limited, controllers)
        assert finding.level == "broken"
        assert "pids" in finding.found
        assert "Delegate=yes" in finding.advice


def test_all_is_well_with_an_agent(home: Path) -> None:
    program = install(home / "bin")
    status, found = doctor()
    assert status == 0
    assert list(found) == [
        "Python",
        "gateway",
        "settings",
        "agent",
        "abilities",
        "tools",
        "waiting",
        "login",
        "models",
        "port",
        "running",
        "exposure",
        "workspace",
        "hooks",
        "network",
        "data",
        "configuration",
        "permissions",
        "isolation",
        "leftovers",
        "verified",
        "source",
        "extras",
    ]
    assert {finding["level"] for findings in found.values() for finding in findings} == {"good"}
    assert found["agent"][0]["found"] == f"cursor-agent 2026.10.01-e373342 ({program})"
    assert found["models"][0]["found"].startswith("6 models")
    assert found["workspace"][0]["found"] == str(home / "work")
    assert {entry.name for entry in home.iterdir()} == {"work", "bin", "runtime"}  # nothing else is made


def test_an_agent_that_cannot_be_confined_is_reported(home: Path) -> None:
    install(home / "bin", knobs={"version": "2026.01.28-fd13201"})
    _, found = doctor()
    (tools,) = found["tools"]
    assert tools["level"] == "warning"
    assert "cursor-agent update" in tools["found"]


@pytest.mark.parametrize(
    ("source", "packages", "has_key", "level", "expected"),
    [
        ("auto", "", False, "good", "acp where a person can answer, otherwise cli, or the demo"),
        ("auto", "sdk", True, "good", "requests can also select sdk 1"),
        ("auto", "sdk", False, "good", "if no agent is installed"),
        ("cli", "", False, "good", "cli (configured)"),
        ("acp", "", False, "good", "acp (configured)"),
        ("sdk", "", True, "broken", "not installed"),
        ("sdk", "sdk", False, "broken", "without CURSOR_API_KEY"),
    ],
)
def test_what_answers_and_why(source: SourceName, packages: str, has_key: bool, level: str, expected: str) -> None:
    versions = {"cursor-sdk": "1" if "sdk" in packages else None}
    finding = of_source(Settings(source=source), versions, has_key)
    assert finding.level == level
    assert expected in finding.found


@pytest.mark.parametrize(
    ("knobs", "environment", "level", "expected"),
    [
        ({}, {}, "good", "waits for your answers and permissions"),
        ({"acp_missing": True}, {}, "warning", "has no ACP"),
        ({"version": "2026.01.28-fd13201"}, {}, "warning", "2026.01.28-fd13201 has no ACP"),
        ({}, {"CURSOR_GATEWAY_SOURCE": "cli"}, "warning", "`source` is `cli`"),
        ({}, {"CURSOR_GATEWAY_TRUST": "false"}, "warning", "`trust` is false"),
        ({}, {"CURSOR_GATEWAY_SOURCE": "sdk"}, "good", "waits for your answers and permissions (sdk)"),
    ],
)
def test_whether_the_agent_waits_and_why_not(
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    knobs: dict[str, object],
    environment: dict[str, str],
    level: str,
    expected: str,
) -> None:
    install(home / "bin", knobs=knobs)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    _, found = doctor()
    (waiting,) = found["waiting"]
    assert waiting["level"] == level
    assert expected in waiting["found"]


def test_without_an_agent_nothing_is_broken(home: Path) -> None:
    status, found = doctor()
    assert status == 0
    assert found["agent"][0]["level"] == "warning"
    assert "curl https://cursor.com/install -fsS | bash" in found["agent"][0]["advice"]
    assert "login" not in found


def test_an_agent_without_a_login_is_broken(home: Path) -> None:
    install(home / "bin", knobs={"login": "none"})
    status, found = doctor()
    assert status == 1
    assert found["login"][0]["level"] == "broken"
    assert found["models"][0]["level"] == "warning"
    status, found = doctor(CURSOR_API_KEY="key_1")
    assert status == 0
    assert doctor(CURSOR_API_KEY="bad_key")[1]["models"][0]["level"] == "broken"


def test_an_agent_that_does_not_tell_its_models_is_broken(home: Path) -> None:
    install(home / "bin", knobs={"models_fail": "Error: the moon is full"})
    status, found = doctor()
    assert status == 1
    assert "the moon is full" in found["models"][0]["found"]


def test_settings_that_are_wrong_do_not_end_it(home: Path) -> None:
    (home / "c.toml").write_text("prot = 1")
    status, found = doctor("--config", str(home / "c.toml"))
    assert status == 1
    assert "unknown setting 'prot'" in found["settings"][0]["found"]
    assert found["workspace"][0]["level"] == "good"
    (home / "c.toml").write_text("max_runs = 1")
    status, found = doctor("--config", str(home / "c.toml"))
    assert status == 0
    assert found["settings"][0]["found"] == f"{home / 'c.toml'}; set: port, max_runs, runtime_dir"


def test_a_port_that_is_taken(home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        status, found = doctor(CURSOR_GATEWAY_PORT=str(other.getsockname()[1]))
    assert status == 1
    assert "taken by another program" in found["port"][0]["found"]
    with running_gateway(home / "gateway", settings={"data_dir": str(home / ".local/share/cursor-gateway")}) as gateway:
        status, found = doctor(CURSOR_GATEWAY_PORT=gateway.url.rpartition(":")[2], CURSOR_GATEWAY_URL=gateway.url)
        assert status == 0
        assert "a gateway answers here, 0." in found["port"][0]["found"]
        assert found["url"][0]["level"] == "good"
        assert found["running"][0]["found"].startswith(f"{gateway.url} in {gateway.workspace}; commands in this folder")
    assert doctor(CURSOR_GATEWAY_URL="http://127.0.0.1:1")[0] == 1
    assert doctor(CURSOR_GATEWAY_HOST="203.0.113.1")[1]["port"][0]["level"] == "broken"
    assert doctor(CURSOR_GATEWAY_HOST="no-such-host.invalid")[1]["port"][0]["level"] == "broken"


def test_folders_that_are_missing_are_found(home: Path) -> None:
    status, found = doctor(CURSOR_GATEWAY_WORKSPACE="/nowhere", CURSOR_GATEWAY_DATA_DIR="/proc/here")
    assert status == 1
    assert found["workspace"][0]["level"] == "broken"
    assert found["data"][0]["level"] in ("broken", "warning")


def test_the_agents_own_configuration_is_read(home: Path) -> None:
    (home / ".cursor").mkdir()
    (home / ".cursor" / "cli-config.json").write_text('{"approvalMode": "unrestricted"}')
    assert doctor()[1]["permissions"][0]["level"] == "warning"
    (home / ".cursor" / "cli-config.json").write_text("[]")
    assert doctor()[1]["configuration"][0]["level"] == "warning"


@pytest.mark.parametrize("columns", [80, 120])
def test_the_table_fits_the_terminal(columns: int, home: Path) -> None:
    install(home / "bin", knobs={"login": "none"})
    status, sent, error = on_a_terminal("doctor", COLUMNS=str(columns), LINES="50", CURSOR_GATEWAY_FORCE="1")
    assert (status, error) == (1, "")
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", sent)
    lines = [line.rpartition("\r")[2] for line in plain.splitlines()]
    assert max(len(line) for line in lines) <= columns
    assert any(line.startswith("✗ login ") for line in lines)
    assert any(line.strip().startswith("→ run `cursor-agent login`") for line in lines)
    assert lines[-1] == "1 problem found; 2 warnings."


def test_without_a_terminal_it_is_plain_text_and_no_line_is_broken(home: Path) -> None:
    ended = finished("doctor", COLUMNS="40")
    assert ended.returncode == 0
    assert b"\x1b" not in ended.stdout
    assert re.search(rb"^! agent +cursor-agent was not found; the built-in demo is used instead$", ended.stdout, re.M)


def test_an_encoding_without_our_marks_is_no_error(home: Path) -> None:
    assert finished("doctor", PYTHONIOENCODING="ascii").returncode == 0
