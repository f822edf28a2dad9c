"""`cursor-gateway models`, as a process of its own."""

import json
import re
from pathlib import Path

import pytest

from tests.agent.install import install
from tests.cli.processes import finished, on_a_terminal, own_machine
from tests.gateways import running_gateway

LABELS = {"auto": "Auto", "gpt-5-mini": "GPT-5 Mini", "opus-4.6": "Opus 4.6"}
KNOBS = {"models": [f"{id} - {label}" for id, label in LABELS.items()]}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    own_machine(monkeypatch, tmp_path, verify_gateway="false")  # the tests' gateways have another home
    return tmp_path


def models(*arguments: str, **environment: str) -> tuple[int, str, str]:
    ended = finished("models", *arguments, stdin=b"", **environment)
    assert b"Traceback" not in ended.stderr
    return ended.returncode, ended.stdout.decode(), ended.stderr.decode()


LINES = "".join(f"{id}\t{label}\n" for id, label in LABELS.items())


def test_piped_it_is_one_a_line(home: Path) -> None:
    install(home / "bin", knobs=KNOBS)
    status, out, error = models()
    assert (status, out) == (0, LINES)
    assert error.endswith("without a gateway\n")


def test_on_a_terminal_it_is_a_table_with_the_default(home: Path) -> None:
    install(home / "bin", knobs=KNOBS)
    status, sent, _ = on_a_terminal("models", COLUMNS="80", CURSOR_GATEWAY_MODEL="opus-4.6")
    assert status == 0
    head, *rows = re.sub(r"\x1b\[[0-9;]*m", "", sent).splitlines()
    assert head.split() == ["model", "name"]
    assert [row.split("  ")[0] for row in rows] == list(LABELS)
    assert [row.rstrip().endswith("default") for row in rows] == [False, False, True]


def test_json_is_for_scripts(home: Path) -> None:
    install(home / "bin", knobs=KNOBS)
    status, out, _ = models("--json")
    assert status == 0
    assert json.loads(out)[:2] == [
        {"id": "auto", "label": "Auto", "default": True},
        {"id": "gpt-5-mini", "label": "GPT-5 Mini", "default": False},
    ]


def test_a_gateway_tells_its_own(tmp_path: Path, home: Path) -> None:
    with running_gateway(tmp_path / "gateway", knobs=KNOBS) as gateway:
        for arguments, environment in (
            (["--url", gateway.url], {}),
            ([], {"CURSOR_GATEWAY_PORT": gateway.url.rpartition(":")[2]}),
        ):
            status, out, error = models(*arguments, **environment)
            assert (status, out) == (0, LINES)
            assert error.startswith(f"Gateway at {gateway.url}: cursor-agent")
        status, out, error = models("--direct", CURSOR_GATEWAY_URL=gateway.url)
        assert out == "demo\tDemo (built-in recordings)\n"
        assert error.startswith("DEMO: ")


def test_an_agent_that_does_not_tell_exits_with_1(tmp_path: Path, home: Path) -> None:
    install(home / "bin", knobs={"login": "none"})
    status, out, error = models()
    assert (status, out) == (1, "")
    assert error.splitlines()[-1].startswith("cursor-gateway: The agent is not logged in; run `cursor-agent login`")
    with running_gateway(tmp_path / "gateway", knobs={"login": "none"}) as gateway:
        status, out, error = models("--url", gateway.url)
        assert (status, out) == (1, "")
        assert "cursor-agent login" in error


def test_a_gateway_that_does_not_answer_exits_with_2() -> None:
    status, out, error = models("--url", "http://127.0.0.1:1")
    assert (status, out) == (2, "")
    assert "Connection refused" in error


def test_a_gateway_cannot_be_named_and_left_out(home: Path) -> None:
    status, out, error = models("--direct", "--url", "http://127.0.0.1:1")
    assert (status, out) == (2, "")
    assert "--direct and --url cannot be combined." in error
