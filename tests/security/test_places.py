"""Paths of the machine: nobody names, reaches or leaves behind what lies outside."""

import json
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.gateways import RunningGateway, running_gateway
from tests.security.conftest import with_key
from tests.server.conftest import chat, eventually, http_client, invocation, invocations, question, standin, unique
from tests.server.test_caller_tools import PNG
from tests.server.test_safety import assert_nothing_was_started, exchange, request

UPWARDS = [
    "../history.db",
    "..%2fhistory.db",
    "..%2Fhistory.db",
    "%2e%2e/history.db",
    "%2e%2e%2fhistory.db",
    "..%252fhistory.db",
    "..%c0%afhistory.db",
    "..%5chistory.db",
    "..\\history.db",
    "....//history.db",
    "./history.db",
    ".",
    "..",
    "%00",
    "index.html%00.js",
    "/etc/passwd",
    "%2fetc%2fpasswd",
    "//etc/passwd",
    "file:%2f%2f%2fetc%2fpasswd",
    "__init__.py",
    "page_files.py",
    "..%2f__init__.py",
    "~root",
    "C:%5cwindows",
    "a" * 5000,
]


@pytest.mark.quick_cases(5)
@pytest.mark.parametrize("name", UPWARDS, ids=lambda name: name[:30])
def test_no_path_of_a_request_leads_to_a_file(open_gateway: RunningGateway, name: str) -> None:
    """As bytes on the wire: a client library would tidy them up."""
    for before in ("/page/", "/v1/chat/", "/v1/conversations/", "/v1/models/", "/docs/", "/"):
        for after in ("", "/events", "?dialect=page", "?dialect=html"):
            reply = exchange(open_gateway, request("GET", f"{before}{name}{after}"))
            assert reply.status in (400, 404, 405), (before, name)
            for secret in (b"root:", b"SQLite", b"import ", b"[project]"):
                assert secret not in reply.body


@pytest.mark.parametrize(
    "path", ["/page/../v1/runs", "/page/..%2fv1%2fruns", "/page/%2e%2e/metrics", "//v1/runs", "/v1/./runs"]
)
def test_what_is_open_opens_nothing_else(keyed_gateway: RunningGateway, path: str) -> None:
    """The page's files need no key; a path that begins like one of theirs is still itself."""
    reply = exchange(keyed_gateway, request("GET", path))
    assert reply.status in (401, 404)
    with with_key(keyed_gateway, "") as stranger:
        del stranger.headers["authorization"]
        for near in (
            "/V1/runs",
            "/v1/runs/",
            "/v1//runs",
            "/health/../v1/runs",
            "/page",
            "/docs/",
            "/metrics/",
            "/index.html",
        ):
            assert stranger.get(near).status_code in (401, 404)


IDS = [
    "../../work",
    "..",
    ".",
    "/etc",
    "conv_/../../x",
    "conv_\0",
    "*",
    "conv_*",
    "a/b",
    "~",
    "-rf",
    "%2e%2e",
    "conv_" + "a" * 3000,
]


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("id", IDS, ids=lambda given: given[:20])
def test_an_id_is_never_a_path(open_gateway: RunningGateway, anybody: httpx2.Client, id: str) -> None:
    """A conversation has a folder of its name, which is deleted with it."""
    kept = open_gateway.workspace / "kept"
    kept.write_text("kept")
    result = chat(anybody, standin("text"))
    folder = open_gateway.data / "conversations" / result["conversationId"]
    mark = unique()
    quoted = "".join(f"%{byte:02x}" for byte in id.encode())
    for method, path in (
        ("DELETE", f"/v1/conversations/{quoted}"),
        ("GET", f"/v1/conversations/{quoted}"),
        ("GET", f"/v1/chat/{quoted}?dialect=page"),
    ):
        assert exchange(open_gateway, request(method, path)).status == 404
    continuing = {"conversationId": id}
    assert anybody.post("/v1/chat", json={"message": mark, **continuing}).status_code == 404
    assert anybody.post("/v1/chat/completions", json=question(mark, cursor=continuing)).status_code == 404
    assert kept.read_text() == "kept"
    assert folder.is_dir()
    assert_nothing_was_started(open_gateway, anybody, mark)


def test_an_image_has_a_name_of_ours_in_a_folder_of_ours(open_gateway: RunningGateway, anybody: httpx2.Client) -> None:
    result = chat(anybody, standin("text"), images=[PNG])
    folder = open_gateway.data / "conversations" / result["conversationId"] / "images"
    (image,) = folder.iterdir()
    assert image.name.removesuffix(".png").isalnum()


@pytest.fixture
def swapping(tmp_path: Path) -> Iterator[RunningGateway]:
    (tmp_path / "secret").mkdir()
    (tmp_path / "work" / "inner").mkdir(parents=True)
    (tmp_path / "work" / "link").symlink_to("inner")
    with running_gateway(tmp_path) as running:
        yield running


def test_a_link_that_is_swapped_between_two_requests_leads_nowhere_new(swapping: RunningGateway) -> None:
    """It is resolved for each request, and the agent is given what it was resolved to, not the link."""
    link = swapping.workspace / "link"
    with http_client(swapping) as client:
        mark = unique()
        result = chat(client, f"{standin('text')} {mark}", workspace="link")
        started = invocation(swapping, mark)
        assert started["cwd"] == started["workspace"] == str((swapping.workspace / "inner").resolve())
        link.unlink()
        link.symlink_to(swapping.home / "secret")
        assert client.post("/v1/chat", json={"message": "x", "workspace": "link"}).status_code == 403
        again = unique()
        chat(client, f"{standin('text')} {again}", conversationId=result["conversationId"])
        assert invocation(swapping, again)["cwd"] == str((swapping.workspace / "inner").resolve())


def test_a_file_cannot_be_written_through_a_link_that_an_agent_left(swapping: RunningGateway) -> None:
    """In the folder of its conversation an agent may write; what the gateway puts there next replaces the link."""
    victim = swapping.home / "victim"
    victim.write_text("untouched")
    (swapping.home / ".cursor" / "cli-config.json").write_text(json.dumps({"version": 1}))
    with http_client(swapping) as client:
        result = chat(client, standin("text"))
        copy = swapping.data / "conversations" / result["conversationId"] / "cursor" / "cli-config.json"
        copy.unlink()
        copy.symlink_to(victim)
        chat(client, standin("text"), conversationId=result["conversationId"])
    assert victim.read_text() == "untouched"
    assert not copy.is_symlink()


LINKS = {
    "cursor/.cli-config.json.new": "a name that was guessed",
    "cursor": "the copy of the configuration",
    "tools.json": "the caller's tools",
    "scratch": "the caller's workspace",
    "confined": "the caller's configuration",
    "images": "the caller's images",
    "sessions.json": "the sessions that agents keep",
}


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", LINKS, ids=str)
def test_no_link_below_the_data_directory_is_written_through(swapping: RunningGateway, name: str) -> None:
    """A file that a link leads to stays as it is, and a folder gets nothing new, whatever the request is told."""
    victim, folder = swapping.home / "victim", swapping.home / "folder"
    victim.write_text("untouched")
    (swapping.home / ".cursor" / "cli-config.json").write_text(json.dumps({"version": 1}))
    with http_client(swapping) as client:
        result = chat(client, standin("text"))["conversationId"]
        # The agent of this turn writes there, too, until it is gone.
        eventually(lambda: "cursor_gateway_runs_running 0.0" in client.get("/metrics").text)
        planted = swapping.data / "conversations" / result / name
        folder.mkdir()
        if planted.is_dir():
            shutil.rmtree(planted)
        planted.parent.mkdir(exist_ok=True)
        is_folder = name in ("cursor", "scratch", "confined", "images")
        planted.symlink_to(folder if is_folder else victim)
        for source in ("cli", "acp"):
            client.post("/v1/chat", json={"message": standin("text"), "conversationId": result, "source": source})
        client.post("/v1/chat", json={"message": standin("text"), "conversationId": result, "images": [PNG]})
        tool = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
        asked = question(standin("text"), tools=[tool], cursor={"conversationId": result})
        client.post("/v1/chat/completions", json=asked)
    assert victim.read_text() == "untouched"
    assert list(folder.iterdir()) == []


def test_the_callers_tools_are_kept_for_their_owner_alone(open_gateway: RunningGateway, anybody: httpx2.Client) -> None:
    tool = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
    result = anybody.post("/v1/chat/completions", json=question(standin("text"), tools=[tool]))
    kept = open_gateway.data / "conversations" / result.headers["x-conversation-id"] / "tools.json"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600


def test_a_workspace_with_hooks_of_its_own_is_refused(tmp_path: Path) -> None:
    with running_gateway(tmp_path) as gateway, http_client(gateway) as client:
        hooks = gateway.workspace / ".cursor" / "hooks.json"
        hooks.parent.mkdir()
        hooks.write_text('{"version": 1, "hooks": {}}')
        result = chat(client, standin("text"))["conversationId"]
        hooks.write_text('{"version": 1, "hooks": {"stop": [{"command": "true"}]}}')  # as an agent could
        again = unique()
        messages = question(again)["messages"]
        asked: list[tuple[str, dict[str, Any]]] = [
            *(("/v1/chat", {"message": again, "source": source}) for source in ("cli", "acp")),
            ("/v1/chat", {"message": again, "conversationId": result}),
            ("/v1/chat/completions", question(again)),
            ("/v1/responses", {"model": "auto", "input": again}),
            ("/v1/messages", {"model": "auto", "max_tokens": 9, "messages": messages}),
        ]
        line = f'`allow_workspace_hooks = ["{gateway.workspace}"]` in `config.toml`'
        for path, body in asked:
            refused = client.post(path, json=body)
            assert (refused.status_code, refused.json()["error"]["type"]) == (403, "permission_error"), path
            assert str(hooks) in refused.json()["error"]["message"]
            assert line in refused.json()["error"]["message"]
        assert invocations(gateway, again) == []
        tool = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
        offered = client.post("/v1/chat/completions", json=question(standin("text"), tools=[tool]))
        assert offered.status_code == 200  # it works in a folder of the gateway's


def test_hooks_of_workspaces_are_used_if_the_operator_says_so(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / ".mcp.json").write_text('{"mcpServers": {"own": {"command": "true"}}}')
    allowing = {"refuse_workspace_hooks": "false"}, {"allow_workspace_hooks": str(tmp_path / "work")}
    for number, settings in enumerate(allowing):
        more = {"data_dir": str(tmp_path / f"data{number}"), **settings}
        with running_gateway(tmp_path, settings=more) as gateway, http_client(gateway) as client:
            assert chat(client, standin("text"))["status"] == "completed"
