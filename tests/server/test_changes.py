"""The changed files of a conversation over HTTP: exact lists, patches, reverts, hunks and checkpoints."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.gateways import RunningGateway, running_gateway
from tests.openai_shapes import validate_error
from tests.server.conftest import http_client, unique


@pytest.fixture(scope="module")
def reverting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    with running_gateway(tmp_path_factory.mktemp("reverting")) as running:
        yield running


@pytest.fixture(scope="module")
def http(reverting: RunningGateway) -> Iterator[httpx2.Client]:
    with http_client(reverting) as client:
        yield client


@pytest.fixture
def folder(reverting: RunningGateway) -> Path:
    folder = reverting.workspace / unique()
    folder.mkdir()
    return folder


def edited(http: httpx2.Client, *files: tuple[Path, str], **more: str) -> dict[str, str]:
    """A run that writes these texts."""
    steps = [{"native": "edit", "args": {"path": str(path), "streamContent": text}} for path, text in files]
    reply = http.post("/v1/chat", json={"message": f"standin: program\n---\n{json.dumps(steps)}", **more})
    assert reply.status_code == 200, reply.text
    result: dict[str, str] = reply.json()
    return result


def revert(http: httpx2.Client, run: dict[str, str], **wanted: object) -> httpx2.Response:
    reply = http.post(f"/v1/conversations/{run['conversationId']}/revert", json=wanted)
    if reply.status_code != 200:
        validate_error(reply.content)
    return reply


def changes(http: httpx2.Client, run: dict[str, str], **query: str) -> list[dict[str, Any]]:
    reply = http.get(f"/v1/conversations/{run['conversationId']}/changes", params=query)
    assert reply.status_code == 200, reply.text
    files: list[dict[str, Any]] = reply.json()["files"]
    return files


def can_revert(http: httpx2.Client, run: dict[str, str]) -> list[bool]:
    return [file["canRevert"] for file in changes(http, run)]


def test_a_file_is_reverted_and_a_created_one_deleted(http: httpx2.Client, folder: Path) -> None:
    old, new = folder / "old.py", folder / "new.py"
    old.write_text("a\nb\nc\n")
    old.chmod(0o750)
    run = edited(http, (old, "a\nB\nc\n"), (new, "x\n"), (old, "a\nB\nC\n"))
    assert can_revert(http, run) == [True, True]
    reply = revert(http, run, path=str(old)).json()
    assert [(file["path"], file["action"]) for file in reply["files"]] == [(f"{folder.name}/old.py", "restored")]
    assert (old.read_text(), old.stat().st_mode & 0o777) == ("a\nb\nc\n", 0o750)
    assert [file["path"] for file in changes(http, run)] == [f"{folder.name}/new.py"]
    assert revert(http, run, path=str(new)).json()["files"][0]["action"] == "deleted"
    assert not new.exists()
    assert revert(http, run, path=str(new)).status_code == 404
    assert revert(http, run, undo=reply["undo"]).status_code == 200
    assert old.read_text() == "a\nB\nC\n"


def test_a_turn_is_reverted_and_the_one_before_stays(http: httpx2.Client, folder: Path) -> None:
    one, two = folder / "one.py", folder / "two.py"
    one.write_text("1\n")
    two.write_text("1\n")
    first = edited(http, (one, "2\n"), (two, "2\n"))
    second = edited(http, (one, "3\n"), (two, "3\n"), conversationId=first["conversationId"])
    assert len(revert(http, second, chatId=second["id"]).json()["files"]) == 2
    assert (one.read_text(), two.read_text()) == ("2\n", "2\n")
    assert revert(http, first, chatId=first["id"], path=str(one)).status_code == 200
    assert (one.read_text(), two.read_text()) == ("1\n", "2\n")


def test_later_changes_are_never_overwritten(http: httpx2.Client, folder: Path) -> None:
    mine, other = folder / "mine.py", folder / "other.py"
    mine.write_text("a\nb\n")
    other.write_text("a\n")
    run = edited(http, (other, "b\n"), (mine, "a\nB\n"))
    mine.write_text("a\nmine\n")
    refused = revert(http, run, chatId=run["id"])
    assert refused.status_code == 409
    assert "mine.py` was not reverted: it is no longer as the agent left it" in refused.json()["error"]["message"]
    assert (mine.read_text(), other.read_text()) == ("a\nmine\n", "b\n")  # nothing was written
    mine.unlink()
    assert "does not exist" in revert(http, run, path=str(mine)).json()["error"]["message"]


def test_links_and_other_folders_are_refused(http: httpx2.Client, reverting: RunningGateway, folder: Path) -> None:
    outside = reverting.home / unique()
    outside.mkdir()
    secret = outside / "a.py"
    secret.write_text("b\n")
    linked, behind, away = folder / "a.py", folder / "sub" / "a.py", outside / "c.py"
    behind.parent.mkdir()
    for path in (linked, behind, away):
        path.write_text("a\n")
    run = edited(http, (linked, "b\n"), (behind, "b\n"), (away, "b\n"))
    linked.unlink()
    linked.symlink_to(secret)
    os.rename(behind.parent, folder / "moved")
    behind.parent.symlink_to(outside)
    for refused in (str(linked), str(behind), str(away), f"{folder}/../{outside.name}/a.py"):
        assert revert(http, run, path=refused).status_code in (404, 409)
    assert (secret.read_text(), away.read_text()) == ("b\n", "b\n")
    assert can_revert(http, run) == [False, False, False]


def test_only_what_was_changed_in_this_conversation(http: httpx2.Client, folder: Path) -> None:
    run = edited(http, (folder / "a.py", "x\n"))
    assert revert(http, run).status_code == 400
    assert revert(http, run, path="b.py").status_code == 404
    assert revert(http, run, chatId="chat_none").status_code == 404
    assert revert(http, {"conversationId": "conv_none"}, path="a.py").status_code == 404
    assert revert(http, run, path="a.py", force=True).status_code == 400


def test_not_while_the_agent_works(http: httpx2.Client, folder: Path) -> None:
    run = edited(http, (folder / "a.py", "x\n"))
    body = {"message": "standin: hang-mid", "conversationId": run["conversationId"]}
    busy = http.post("/v1/chat", json=body, headers={"prefer": "respond-async"}).json()
    assert revert(http, run, path=str(folder / "a.py")).status_code == 409
    http.post(f"/v1/chat/{busy['id']}/cancel", json={})
    assert (folder / "a.py").exists()
