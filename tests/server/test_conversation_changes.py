"""A conversation is renamed, pinned, branched and exported over HTTP, and tells which files were changed."""

from collections.abc import Iterator

import httpx2
import pytest

from tests.gateways import running_gateway
from tests.openai_shapes import validate_error
from tests.server.conftest import http_client


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx2.Client]:
    with running_gateway(tmp_path_factory.mktemp("changes")) as running, http_client(running) as client:
        yield client


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx2.Client]:
    home, settings = tmp_path_factory.mktemp("demo"), {"replay_speed": "0"}
    with running_gateway(home, has_agent=False, settings=settings) as running, http_client(running) as client:
        yield client


def asked(http: httpx2.Client, message: str, **more: object) -> dict[str, str]:
    reply = http.post("/v1/chat", json={"message": message, **more})
    assert reply.status_code == 200, reply.text
    result: dict[str, str] = reply.json()
    return result


def test_a_conversation_is_renamed_and_pinned(http: httpx2.Client) -> None:
    path = f"/v1/conversations/{asked(http, 'Hello')['conversationId']}"
    assert http.get(path).json()["pinned"] is False
    changed = http.patch(path, json={"title": "  A  new\nname ", "pinned": True}).json()
    assert (changed["title"], changed["pinned"]) == ("A new name", True)
    assert http.get(path).json()["title"] == "A new name"
    pinned = http.get("/v1/conversations", params={"pinned": "true"}).json()["conversations"]
    assert [one["title"] for one in pinned] == ["A new name"]
    assert http.patch(path, json={"pinned": False}).json()["title"] == "A new name"
    assert http.get("/v1/conversations", params={"pinned": "true"}).json()["conversations"] == []


@pytest.mark.parametrize("body", [{"title": " "}, {"title": "x" * 201}, {"pinned": "yes"}, {"owner": "me"}, []])
def test_other_changes_are_refused(http: httpx2.Client, body: object) -> None:
    path = f"/v1/conversations/{asked(http, 'Hello')['conversationId']}"
    reply = http.patch(path, json=body)
    assert reply.status_code == 400
    validate_error(reply.content)


def test_what_does_not_exist_is_not_changed(http: httpx2.Client) -> None:
    for reply in (
        http.patch("/v1/conversations/conv_nowhere", json={"pinned": True}),
        http.get("/v1/conversations/conv_nowhere/export"),
        http.get("/v1/conversations/conv_nowhere/changes"),
    ):
        assert reply.status_code == 404
        validate_error(reply.content)


def test_a_run_that_follows_an_earlier_one_is_a_branch(http: httpx2.Client) -> None:
    first = asked(http, "The first")
    second = asked(http, "The second", conversationId=first["conversationId"])
    assert second["conversationId"] == first["conversationId"]
    branch = asked(http, "Another second", follows=first["id"])
    assert branch["conversationId"] != first["conversationId"]
    assert "The first" in str(branch["documents"])
    assert "The second" not in str(branch["documents"])
    latest = asked(http, "The third", follows=second["id"])
    assert latest["conversationId"] == first["conversationId"]
    both = http.post("/v1/chat", json={"message": "x", "follows": first["id"], "conversationId": "conv_x"})
    assert both.status_code == 400


def test_answers_and_conversations_as_text(demo: httpx2.Client) -> None:
    run = asked(demo, "Implement JWT authentication")
    path = f"/v1/conversations/{run['conversationId']}/export"
    markdown = demo.get(path)
    assert markdown.headers["content-type"].startswith("text/markdown")
    assert 'filename="implement-jwt-authentication.md"' in markdown.headers["content-disposition"]
    assert "## You\n\n> Implement JWT authentication" in markdown.text
    assert "**Created** `bookshelf/auth.py`" in markdown.text
    assert demo.get(path, params={"format": "json"}).json()["responses"][0]["id"] == run["id"]
    assert demo.get(path, params={"format": "text"}).text.startswith("You:\n\nImplement")
    assert demo.get(path, params={"format": "pdf"}).status_code == 400
    answer = demo.get(f"/v1/chat/{run['id']}", params={"dialect": "markdown"}).text
    assert answer in markdown.text
    said = demo.get(f"/v1/chat/{run['id']}", params={"dialect": "text"})
    assert said.headers["content-type"].startswith("text/plain")
    assert "Created" not in said.text
    assert "**anyone**" in said.text


def test_the_changed_files_of_a_conversation(demo: httpx2.Client) -> None:
    run = asked(demo, "Implement JWT authentication")
    path = f"/v1/conversations/{run['conversationId']}/changes"
    files = demo.get(path).json()["files"]
    assert (files[0]["path"], files[0]["operation"]) == ("bookshelf/auth.py", "create")
    assert len({file["path"] for file in files}) == len(files) == 4
    assert {file["canRevert"] for file in files} == {False}  # nothing really happened
    assert all("reported" in file["note"] for file in files)
    assert demo.get(path, params={"dialect": "pdf"}).status_code == 400
    nothing = asked(demo, "Explain how the retries work", mode="ask")
    assert demo.get(f"/v1/conversations/{nothing['conversationId']}/changes").json()["files"] == []
