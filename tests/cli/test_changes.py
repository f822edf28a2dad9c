"""`cursor-gateway conversations changes`: the same review as on the page, at a gateway and without one."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cli.processes import finished
from tests.cli.test_conversations import typed
from tests.gateways import running_gateway
from tests.server.conftest import http_client
from tests.workspace.agent_trace import lines, valid_record


@pytest.fixture(autouse=True)
def trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CURSOR_GATEWAY_VERIFY_GATEWAY", "false")  # the gateways of these tests have another home


def changes(*arguments: str, **environment: str) -> tuple[int, str, str]:
    done = finished("conversations", "changes", *arguments, stdin=b"", **environment)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


@pytest.mark.parametrize("how", ["at a gateway", "without one"])
def test_changes_are_listed_reverted_kept_and_restored(tmp_path: Path, how: str) -> None:
    with running_gateway(tmp_path, settings={"force": "true"}) as gateway:
        (gateway.workspace / "a.txt").write_text("".join(f"{number}\n" for number in range(20)))
        before = (gateway.workspace / "a.txt").read_text()
        after = before.replace("3\n", "three\n", 1).replace("12\n", "twelve\n")
        steps: list[dict[str, Any]] = [
            {"native": "edit", "args": {"path": str(gateway.workspace / "a.txt"), "streamContent": after}},
            {"native": "shell", "args": {"command": "echo made > made.txt"}},
        ]
        with http_client(gateway) as http:
            body = {"message": f"standin: program\n---\n{json.dumps(steps)}"}
            run = http.post("/v1/chat", json=body).json()
            assert len(http.get(f"/v1/conversations/{run['conversationId']}/changes").json()["files"]) == 2
        if how == "at a gateway":
            review(run, gateway.workspace, before, after, "--url", gateway.url)
    if how == "without one":
        review(run, tmp_path / "work", before, after, "--direct", CURSOR_GATEWAY_DATA_DIR=str(tmp_path / "data"))


def review(run: dict[str, str], work: Path, before: str, after: str, *where: str, **environment: str) -> None:
    file, id = work / "a.txt", run["conversationId"]

    def on(*arguments: str) -> tuple[int, str, str]:
        return changes(id, *where, *arguments, **environment)

    status, out, _ = on()
    assert (status, out) == (0, "edit\t+2\t−2\ta.txt\ncreate\t+1\t−0\tmade.txt\tby a command\n")
    status, out, _ = on("--file", "a.txt")
    assert "    1. line 4: +1 −1\n    2. line 13: +1 −1\n" in out
    assert [one["path"] for one in json.loads(on("--json")[1])["files"]] == ["a.txt", "made.txt"]
    status, patch, _ = on("--patch", "--turn", run["id"])
    subprocess.run(["git", "apply", "-R", "--check", "-"], input=patch.encode(), cwd=work, check=True)
    traced = finished("conversations", "trace", id, *where, stdin=b"", **environment)
    assert traced.returncode == 0, traced.stderr
    assert lines(valid_record(traced.stdout), "a.txt") == {4: run["id"], 13: run["id"]}
    assert on("--revert")[0] == 2
    assert on("--revert", "--keep")[0] == 2
    assert on("--hunk", "1", "--keep")[0] == 2
    status, _, errors = on("--revert", "--file", "a.txt")
    assert status == 2
    assert "add --yes" in errors
    assert file.read_text() == after
    status, _, errors = on("--revert", "--file", "a.txt", "--hunk", "2", "--yes", "--patch")
    assert status == 0, errors
    assert "+12" in errors
    assert file.read_text() == after.replace("twelve", "12")
    assert on("--keep", "--file", "a.txt", "--hunk", "1")[0] == 0
    assert "kept" in on()[1]
    status, _, errors = on("--restore", run["id"], "--yes")
    assert status == 0, errors
    assert file.read_text() == before
    assert not (work / "made.txt").exists()
    undo = errors.rsplit("--undo ", 1)[1].strip()
    assert json.loads(on("--json")[1])["undo"] == undo
    assert on("--undo", undo, "--yes")[0] == 0
    assert (work / "made.txt").read_text() == "made\n"
    assert on("--file", "nothing", "--revert", "--yes")[0] in (1, 2)
    assert on("--commit", "--yes")[0] in (1, 2)  # it is no repository


def test_it_asks_on_a_terminal(tmp_path: Path) -> None:
    with running_gateway(tmp_path) as gateway, http_client(gateway) as http:
        file = gateway.workspace / "a.txt"
        steps = [{"native": "edit", "args": {"path": str(file), "streamContent": "1\n"}}]
        run = http.post("/v1/chat", json={"message": f"standin: program\n---\n{json.dumps(steps)}"}).json()
        words = (
            "conversations",
            "changes",
            run["conversationId"],
            "--turn",
            run["id"],
            "--revert",
            "--url",
            gateway.url,
        )
        for answer, exists in (("n\n", True), ("y\n", False)):
            assert typed(answer, *words) == (1 if exists else 0)
            assert file.exists() == exists
