"""The history over HTTP: conversations are listed, found, looked at, and gone when they are deleted."""

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import httpx2
import pytest

from cursor_gateway.cli.assembly import composition
from cursor_gateway.cli.assembly.composition import Gateway, compose, keep_history
from cursor_gateway.keys import hash_key
from cursor_gateway.model.messages import UserMessage, read_image
from cursor_gateway.runs.run_service import RunRequest
from cursor_gateway.runs.starter import now_ms
from cursor_gateway.settings import Settings
from cursor_gateway.sources.processes import members
from cursor_gateway.store.sqlite.store import SqliteStore
from tests.dialects.documents.test_dialect import PIXEL
from tests.gateways import RunningGateway, running_gateway
from tests.openai_shapes import validate_error
from tests.runs.scripted import true
from tests.server.conftest import (
    Json,
    ask,
    chat,
    conversation_folder,
    growing,
    http_client,
    invocation,
    question,
    sse,
    standin,
    unique,
)


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx2.Client]:
    """A gateway that nobody else talks to: its list is these tests' own."""
    with running_gateway(tmp_path_factory.mktemp("quiet")) as running, http_client(running) as client:
        yield client


def listed(http: httpx2.Client, **query: object) -> list[Json]:
    found: list[Json] = page(http, **query)["conversations"]
    return found


def page(http: httpx2.Client, **query: object) -> Json:
    reply = http.get("/v1/conversations", params={name: str(value) for name, value in query.items()})
    assert reply.status_code == 200, reply.text
    result: Json = reply.json()
    return result


def detail(http: httpx2.Client, id: str) -> Json:
    reply = http.get(f"/v1/conversations/{id}")
    assert reply.status_code == 200, reply.text
    result: Json = reply.json()
    return result


def ids(entries: list[Json]) -> list[str]:
    return [entry["id"] for entry in entries]


# --- the list -----------------------------------------------------------------------------------------------


def test_the_latest_used_come_first_page_by_page(quiet: httpx2.Client) -> None:
    mark = unique()
    made = [chat(quiet, f"{mark} {number}")["conversationId"] for number in range(5)]
    chat(quiet, "again", conversationId=made[1])
    expected = [made[1], made[4], made[3], made[2], made[0]]
    assert ids(listed(quiet))[:5] == expected
    for limit in (1, 2, 3, 5, 100):
        for query in ({}, {"q": mark}):
            found, before = list[str](), ""
            while len(found) < 5:
                result = page(quiet, limit=limit, **query, **({"before": before} if before else {}))
                assert len(result["conversations"]) <= limit
                found += ids(result["conversations"])
                before = result["next"] or ""
                if not before:
                    break
            by_use = expected if not query else [made[4], made[3], made[2], made[1], made[0]]
            assert found[:5] == by_use
    assert page(quiet, q=mark, limit=5)["next"] is None


def test_what_a_list_tells_of_a_conversation(quiet: httpx2.Client) -> None:
    mark = unique()
    first = chat(quiet, f"  {mark}  what\nis this?", mode="ask")
    (entry,) = listed(quiet, q=mark)
    assert set(entry) == {
        "client",
        "id",
        "title",
        "created",
        "updated",
        "workspace",
        "mode",
        "model",
        "isRunning",
        "pinned",
        "snippet",
    }
    assert (entry["id"], entry["title"]) == (first["conversationId"], f"{mark} what")
    assert (entry["mode"], entry["model"], entry["isRunning"]) == ("ask", first["model"], False)
    assert Path(entry["workspace"]).name == "work"
    assert datetime.fromisoformat(entry["created"]) <= datetime.fromisoformat(entry["updated"])
    assert mark in entry["snippet"]
    chat(quiet, "more", conversationId=entry["id"], mode="plan", model="gpt-5-mini")
    (later,) = listed(quiet, q=mark)
    assert (later["title"], later["mode"], later["created"]) == (entry["title"], "plan", entry["created"])
    assert later["updated"] > entry["updated"]
    assert "snippet" not in listed(quiet)[0]


def test_a_list_can_be_limited_to_a_program_or_to_people(quiet: httpx2.Client) -> None:
    marks = {}
    for client in ("curl/8.1", "opencode/1.0", "cursor-gateway", "Mozilla/5.0"):
        marks[client] = unique()
        reply = quiet.post("/v1/chat", json={"message": marks[client]}, headers={"user-agent": client})
        assert reply.status_code == 200

    def found(**query: str) -> set[str]:
        titles = {one["title"] for one in listed(quiet, **query)}
        return {client for client, mark in marks.items() if mark in titles}

    assert found() == set(marks)
    assert found(client="people") == {"cursor-gateway", "Mozilla/5.0"}
    assert found(client="OpenCode") == {"opencode/1.0"}


def test_the_images_of_a_conversation_are_its_owners_and_nothing_else_is_one(tmp_path: Path) -> None:
    keys = f"one={hash_key('key-of-one')},two={hash_key('key-of-two')}"
    with running_gateway(tmp_path, settings={"api_keys": keys}) as gateway, http_client(gateway) as http:
        mine, yours = ({"authorization": f"Bearer key-of-{name}"} for name in ("one", "two"))
        reply = http.post("/v1/chat", json={"message": "Look", "images": [PIXEL]}, headers=mine)
        conversation = f"/v1/conversations/{reply.json()['conversationId']}"
        (name,) = http.get(conversation, headers=mine).json()["messages"][0]["images"]
        (gateway.workspace / "a.png").write_bytes(read_image(PIXEL, "images").data)
        (gateway.workspace / "b.png").write_text("<svg onload='x'/>")
        for path in (f"{conversation}/images/{name}", f"{conversation}/workspace-image?path=a.png"):
            image = http.get(path, headers=mine)
            assert (image.status_code, image.headers["content-type"]) == (200, "image/png")
            assert image.content == read_image(PIXEL, "images").data
            assert image.headers["x-content-type-options"] == "nosniff"
            assert "sandbox" in image.headers["content-security-policy"]
            assert http.get(path, headers=yours).status_code == 404
            assert http.get(path).status_code == 401
        for path in (
            "images/x.png",
            "images/..%2Fa.png",
            "workspace-image?path=b.png",
            "workspace-image?path=../x.png",
        ):
            assert http.get(f"{conversation}/{path}", headers=mine).status_code == 404, path


def test_messages_documents_commands_and_paths_are_found(quiet: httpx2.Client) -> None:
    mark = unique()
    result = chat(quiet, f"Überprüfe {mark} {standin('tools')}")
    conversation = result["conversationId"]
    kinds = {document["type"]: document for document in result["documents"]}
    words = [mark, "uberprufe", mark[:-4], kinds["text"]["content"].split()[0]]
    words += [kinds["terminal_command"]["metadata"]["command"], kinds["file_edit"]["metadata"]["filePath"]]
    words += [kinds["tool_call"]["metadata"]["toolName"]]
    for word in words:
        assert conversation in ids(listed(quiet, q=f"{mark} {word}")), word
    assert ids(listed(quiet, q=f"{mark} nowhere")) == []
    for strange in ('"', "*", "a OR", "NEAR(", "x:y", "'; --", "\\", "(", "é" * 300):
        listed(quiet, q=f"{mark} {strange}")


def test_a_running_conversation_is_listed_and_found_by_what_was_asked(quiet: httpx2.Client, tmp_path: Path) -> None:
    mark, file = unique(), tmp_path / "go"
    with growing(quiet, "documents", f"{mark} {standin(f'wait-for file={file}')}") as reply:
        reply.until(b"file.")
        (entry,) = listed(quiet, q=mark)
        assert entry["isRunning"]
        result = detail(quiet, entry["id"])
        assert [message["role"] for message in result["messages"]] == ["user"]
        assert [(run["state"], run["usage"], run["durationMs"]) for run in result["runs"]] == [("running", None, None)]
        file.touch()
        reply.rest()
    assert not listed(quiet, q=mark)[0]["isRunning"]


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ({"limit": "0"}, "limit"),
        ({"limit": "101"}, "limit"),
        ({"limit": "-1"}, "limit"),
        ({"limit": "ten"}, "limit"),
        ({"limit": "1e1"}, "limit"),
        ({"limit": "٣"}, "limit"),
        ({"limit": "9" * 5000}, "limit"),
        ({"before": "x"}, "before"),
        ({"before": "é"}, "before"),
        ({"before": "W10"}, "before"),
        ({"before": "bnVsbA", "q": "x"}, "before"),
        ({"before": "WzEsMl0", "limit": "5"}, "before"),
    ],
)
def test_what_is_no_page(quiet: httpx2.Client, query: dict[str, str], param: str) -> None:
    refused = quiet.get("/v1/conversations", params=query)
    assert refused.status_code == 400, refused.text
    error = validate_error(refused.content)
    assert (error.code, error.param) == ("invalid_request", param)


def test_a_search_takes_no_place_of_the_list(quiet: httpx2.Client) -> None:
    for number in range(2):
        chat(quiet, f"page {number}")
    before = page(quiet, limit=1)["next"]
    assert quiet.get("/v1/conversations", params={"before": before, "q": "page"}).status_code == 400


# --- one conversation ---------------------------------------------------------------------------------------


def test_a_conversation_holds_all_that_was_said(quiet: httpx2.Client) -> None:
    first, second = unique(), unique()
    answers = [chat(quiet, first)]
    conversation = answers[0]["conversationId"]
    answers.append(chat(quiet, f"{second} {standin('fences')}", conversationId=conversation, model="gpt-5-mini"))
    failed = ask(quiet, "documents", standin("crash"), conversationId=conversation)
    result = detail(quiet, conversation)
    assert result["title"] == first
    assert [(message["role"], message["text"]) for message in result["messages"][:2]] == [
        ("user", first),
        ("assistant", f"You said: {first}"),
    ]
    assert "```python" in result["messages"][3]["text"]  # the agent's own text, to the byte
    assert [message["chatId"] for message in result["messages"]] == [
        run["id"] for run in result["runs"] for _ in range(2)
    ]
    assert [run["id"] for run in result["runs"]] == [*(answer["id"] for answer in answers), failed.headers["x-chat-id"]]
    assert [(run["state"], run["errorCode"]) for run in result["runs"]] == [
        ("completed", None),
        ("completed", None),
        ("error", "agent_crashed"),
    ]
    for run, answer in zip(result["runs"], answers, strict=False):
        assert (run["usage"], run["model"], run["mode"]) == (answer["usage"], answer["model"], answer["mode"])
        assert run["created"] == answer["created"]
        assert 0 <= run["firstEventMs"] <= run["durationMs"]


@pytest.mark.parametrize("scenario", ["text", "tools", "fences", "thinking", "parallel", "plan", "question", "empty"])
def test_an_answer_is_kept_as_it_was_sent(quiet: httpx2.Client, scenario: str) -> None:
    for include in ([], ["thinking", "raw"]):
        reply = ask(quiet, "documents", standin(scenario), include=include)
        kept = quiet.get(f"/v1/chat/{reply.json()['id']}")
        assert (kept.status_code, kept.headers["content-type"]) == (200, "application/json")
        assert kept.content == reply.content


def test_an_answer_of_the_other_dialect_is_kept_as_documents(quiet: httpx2.Client) -> None:
    reply = quiet.post("/v1/chat/completions", json=question(standin("fences"), stream=True))
    kept = quiet.get(f"/v1/chat/{reply.headers['x-chat-id']}").json()
    assert [document["type"] for document in kept["documents"]].count("code_block") == 1
    assert kept["status"] == "completed"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/chat/chat_none"),
        ("GET", "/v1/chat/chat_none/events"),
        ("POST", "/v1/chat/chat_none/cancel"),
        ("GET", "/v1/conversations/conv_none"),
        ("DELETE", "/v1/conversations/conv_none"),
        ("GET", "/v1/conversations/%00"),
        ("DELETE", "/v1/conversations/.."),
        ("GET", f"/v1/conversations/{'x' * 3000}"),
    ],
)
def test_what_is_not_there(quiet: httpx2.Client, method: str, path: str) -> None:
    refused = quiet.request(method, path, json={} if method == "POST" else None)
    assert refused.status_code == 404
    assert validate_error(refused.content).code == "not_found"


# --- deleting -----------------------------------------------------------------------------------------------


def test_a_conversation_that_is_deleted_takes_its_run_with_it(gateway: RunningGateway, http: httpx2.Client) -> None:
    mark = unique()
    with growing(http, "documents", f"{mark} {standin('grandchild group=same')}") as reply:
        reply.until(b"grandchild=")
        conversation = reply.response.headers["x-conversation-id"]
        group = invocation(gateway, mark)["pgid"]
        assert http.delete(f"/v1/conversations/{conversation}").status_code == 204
        assert not members(group)
        events = sse(reply.rest())
    assert json.loads(events[-1].data)["status"] == "error"
    assert "The conversation was deleted" in events[-2].data
    assert not conversation_folder(gateway, conversation).exists()
    assert http.get(f"/v1/chat/{reply.response.headers['x-chat-id']}").status_code == 404
    assert listed(http, q=mark) == []


# --- what is kept, and for how long -------------------------------------------------------------------------


def test_a_history_that_is_no_longer_wanted_stays_as_it_was(tmp_path: Path) -> None:
    with running_gateway(tmp_path) as gateway, http_client(gateway) as http:
        result = chat(http, "hello")
    with running_gateway(tmp_path, settings={"history": "false"}) as gateway, http_client(gateway) as http:
        assert listed(http) == []
        chat(http, "secret")
    with running_gateway(tmp_path) as gateway, http_client(gateway) as http:
        assert ids(listed(http)) == [result["conversationId"]]


async def said(gateway: Gateway, text: str) -> str:
    """The id of a conversation in which this was said and answered."""
    run = await gateway.service.start(RunRequest(owner="local", messages=[UserMessage(text)]))
    with run.reader() as reader:
        while not reader.at_end:
            await reader.next()
    await true(lambda: gateway.service.runs.latest(run.info.conversation_id or "") is None)
    return run.info.conversation_id or ""


def replaying(tmp_path: Path, *, days: float = 0, most: int = 2**31) -> Settings:
    return Settings(
        data_dir=str(tmp_path / "data"),
        workspace=str(tmp_path),
        source="replay",
        replay_speed=0,
        history_days=days,
        max_history_bytes=most,
    )


async def kept(gateway: Gateway, settings: Settings, expected: int) -> list[str]:
    """What is left when there are only so many, their folders included."""
    folders = gateway.service.conversations.folder("x").parent

    async def left() -> list[str]:
        found = (await gateway.store.conversations("local", limit=100)).found
        return [one.conversation.id for one in found]

    async def is_tidy() -> bool:
        names = [path.name for path in folders.iterdir()]
        return len(names) <= expected and sorted(names) == sorted(await left())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(composition, "time", lambda: time.time() + 1e6)  # a young folder may belong to a run that begins
        keeping = asyncio.ensure_future(keep_history(gateway, settings))
        while not keeping.done() and not await is_tidy():
            await asyncio.sleep(0.001)
        keeping.cancel()
        with suppress(asyncio.CancelledError):
            await keeping
    return await left()


@pytest.mark.parametrize("days", [0, 2])
async def test_what_was_not_used_for_long_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, days: int) -> None:
    settings = replaying(tmp_path, days=days)
    day = 24 * 3600 * 1000
    gateway = await compose(settings)
    made = [await said(gateway, text) for text in ("one", "two", "three")]
    clock = now_ms
    monkeypatch.setattr(composition, "now_ms", lambda: clock() + day)
    assert set(await kept(gateway, settings, 3)) == set(made)
    monkeypatch.setattr(composition, "now_ms", lambda: clock() + 3 * day)
    assert set(await kept(gateway, settings, 0 if days else 3)) == (set() if days else set(made))
    await gateway.close()


async def test_what_is_more_than_may_be_kept_goes_the_oldest_first(tmp_path: Path) -> None:
    settings = replaying(tmp_path, most=1024 * 1024)
    gateway = await compose(settings)
    made = [await said(gateway, f"{number} " + "words " * 20_000) for number in range(30)]
    assert await gateway.store.size() > 1024 * 1024
    left = await kept(gateway, settings, len(made) - 1)
    assert 2 <= len(left) < len(made)  # each takes about a third of what may be kept
    assert left == list(reversed(made[-len(left) :]))
    await gateway.close()


async def test_folders_that_belong_to_no_conversation_go(tmp_path: Path) -> None:
    settings = replaying(tmp_path)
    gateway = await compose(settings)
    made = await said(gateway, "one")
    folder = gateway.service.conversations.folder("conv_stray")
    folder.mkdir()
    assert await kept(gateway, settings, 1) == [made]
    await gateway.close()


async def test_a_history_that_grows_fast_is_pruned_soon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(composition, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(composition, "_LOOKS", 2**40)  # the hour never ends
    settings = replaying(tmp_path, most=1024 * 1024)
    gateway = await compose(settings)
    keeping = asyncio.ensure_future(keep_history(gateway, settings))
    await said(gateway, "one")
    for number in range(30):
        await said(gateway, f"{number} " + "words " * 20_000)
    async with asyncio.timeout(60):
        while len((await gateway.store.conversations("local", limit=100)).found) > 10:
            await asyncio.sleep(0.01)
    keeping.cancel()
    with suppress(asyncio.CancelledError):
        await keeping
    await gateway.close()


def test_a_history_that_does_not_grow_is_pruned_once_an_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    slept = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    class Sized(SqliteStore):
        def __init__(self, *sizes: int) -> None:
            self._reported = iter(sizes)

        async def size(self) -> int:
            return next(self._reported, 9)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    asyncio.run(composition._until_due(Sized(9), 3))
    assert sum(slept) == 3600
    slept.clear()
    asyncio.run(composition._until_due(Sized(9, 5, 8, 9), 3))  # from its smallest size
    assert slept == [60, 60, 60]
