"""What a read-only link shows does not say where the workspace is."""

import asyncio
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from msgspec.structs import replace
from starlette.requests import Request

from cursor_gateway.keys import LOCAL_OWNER, KeyRing
from cursor_gateway.model.documents import ChatResponse, CodeBlockDocument, CodeBlockMetadata
from cursor_gateway.render.html import RenderedTurn, render_conversation
from cursor_gateway.server.links import HiddenPlace, LinkEndpoints
from cursor_gateway.settings import Settings

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


def test_a_page_that_strangers_do_not_read_is_not_held_against_a_key() -> None:
    async def found(_: str) -> None:
        return None

    service = SimpleNamespace(store=SimpleNamespace(find_by_link=found))
    endpoints = LinkEndpoints(service, Settings(public_links=True), KeyRing({}), SimpleNamespace())  # type: ignore[arg-type]
    request = Request({"type": "http", "path_params": {"token": "x"}, "state": {"owner": LOCAL_OWNER}})
    assert asyncio.run(endpoints.read(request)).status_code == 404
    assert request.state.owner != LOCAL_OWNER
