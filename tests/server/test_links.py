"""What a read-only link shows does not say where the workspace is."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from time import monotonic
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from cursor_gateway.errors import TooManyRequests
from cursor_gateway.keys import LOCAL_OWNER, KeyRing, hash_key
from cursor_gateway.model.documents import ChatResponse, CodeBlockDocument, CodeBlockMetadata
from cursor_gateway.render.html.work import RenderedTurn, render_conversation
from cursor_gateway.runs.run_service import RunService
from cursor_gateway.server.links import HiddenPlace, LinkEndpoints
from cursor_gateway.server.streaming import Reading
from cursor_gateway.settings import Settings
from cursor_gateway.store.base import ConversationRecord

SCENARIOS = sorted((Path(__file__).parents[1] / "scenarios").glob("*/documents.json"))


@pytest.mark.parametrize(
    ("workspace", "text", "shown"),
    [
        ("/home/me/calc", "/home/me/calc and /home/me/calc/a.py, -I/home/me/calc/src", "the folder and a.py, -Isrc"),
        ("/home/me/calc/", "file:///home/me/calc/a.py", "file://a.py"),
        ("/code", "<code>x</code> in /code/a.py, (/code)", "<code>x</code> in a.py, (the folder)"),
        ("/app", "http://localhost/app/login, /app/a.py", "http://localhost/app/login, a.py"),
        ("/", "/etc/hosts", "/etc/hosts"),
    ],
)
def test_paths_are_below_the_workspace(workspace: str, text: str, shown: str) -> None:
    assert HiddenPlace(workspace).text(text) == shown


@pytest.mark.parametrize("file", SCENARIOS, ids=lambda file: file.parent.name)
def test_nothing_else_changes(file: Path) -> None:
    response = msgspec.json.decode(file.read_bytes(), type=ChatResponse)
    assert HiddenPlace("/not/there").response(response) == response


def test_it_is_hidden_also_where_colours_divide_it() -> None:
    code = CodeBlockDocument(
        id="doc_001",
        sequence=1,
        content="// /srv/2024/calc/a\ncd /srv/2024/calc",
        metadata=CodeBlockMetadata(language="json", purpose="example"),
    )
    [text] = [file for file in SCENARIOS if file.parent.name == "thinking_included"]
    response = replace(msgspec.json.decode(text.read_bytes(), type=ChatResponse), documents=[code])
    assert "2024" in render_conversation("", [RenderedTurn("", response)]).partition("<figure")[2]
    hidden = HiddenPlace("/srv/2024/calc").response(response)
    assert "2024" not in render_conversation("", [RenderedTurn("", hidden)]).partition("<figure")[2]


def endpoints(find: Callable[[str], Coroutine[Any, Any, ConversationRecord | None]]) -> LinkEndpoints:
    """Of a gateway whose store finds links in this way, and that can do nothing else."""
    service = cast(RunService, SimpleNamespace(store=SimpleNamespace(find_by_link=find)))
    return LinkEndpoints(service, Settings(public_links=True), KeyRing({}), cast(Reading, None))


def read(links: LinkEndpoints, token: str) -> Request:
    request = Request({"type": "http", "path_params": {"token": token}, "state": {"owner": LOCAL_OWNER}})
    assert asyncio.run(links.read(request)).status_code == 404
    return request


async def nothing(_: str) -> None:
    return None


def test_a_page_that_strangers_do_not_read_is_not_held_against_a_key() -> None:
    assert read(endpoints(nothing), "x").state.owner != LOCAL_OWNER


def test_the_store_is_not_asked_for_more_guesses_than_are_allowed() -> None:
    asked: list[str] = []

    async def find(link: str) -> None:
        asked.append(link)

    links, began = endpoints(find), monotonic()
    for number in range(700):
        with suppress(TooManyRequests):
            read(links, f"{number}")
    assert 600 <= len(asked) <= 601 + 10 * (monotonic() - began)


def test_guesses_do_not_keep_the_readers_of_a_link_out(monkeypatch: pytest.MonkeyPatch) -> None:
    known = hash_key("known")
    asked: list[str] = []

    async def find(link: str) -> ConversationRecord | None:
        asked.append(link)
        return cast(ConversationRecord, SimpleNamespace(id="conv_1", owner=LOCAL_OWNER)) if link == known else None

    async def page(self: LinkEndpoints, conversation: ConversationRecord) -> Response:
        return Response("", 404)  # `read` expects it

    async def connected(request: Request, work: Coroutine[Any, Any, Response]) -> Response:
        return await work

    monkeypatch.setattr(LinkEndpoints, "_page", page)
    monkeypatch.setattr("cursor_gateway.server.links.while_connected", connected)
    links = endpoints(find)
    read(links, "known")
    for number in range(700):
        with suppress(TooManyRequests):
            read(links, f"{number}")
    read(links, "known")
    for _ in range(70):
        with suppress(TooManyRequests):
            read(links, "known")
    assert 60 <= asked.count(known) < 70


def test_only_so_many_links_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    async def find(link: str) -> ConversationRecord:
        return cast(ConversationRecord, SimpleNamespace(id=link, owner=LOCAL_OWNER))

    links = endpoints(find)
    monkeypatch.setattr("cursor_gateway.server.links._MOST_KNOWN", 3)
    for number in range(10):
        asyncio.run(links._found(f"{number}"))
    assert list(links._known) == ["7", "8", "9"]
