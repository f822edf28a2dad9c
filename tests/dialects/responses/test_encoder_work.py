"""How a response shows what the agent does."""

import pytest

from cursor_gateway.dialects.deltas import ToolAction
from cursor_gateway.dialects.responses.encoder import doing, pages_of, web_action
from cursor_gateway.dialects.responses.shapes import OpenPage, Search, WebSource
from cursor_gateway.model.document_events import DocumentStarted, KnownMetadata
from cursor_gateway.model.documents import DocumentType


@pytest.mark.parametrize(
    ("type", "known", "expected"),
    [
        ("terminal_command", KnownMetadata(command="make\n  test"), "Running `make test`"),
        ("terminal_command", None, "Running a command"),
        ("file_edit", KnownMetadata(file_path="a.py"), "Editing a.py"),
        ("file_edit", KnownMetadata(), "Editing a file"),
        ("plan", KnownMetadata(title="All"), "Planning"),
        ("tool_call", None, "Using a tool"),
        ("tool_call", KnownMetadata(ran_by="caller"), ""),
        ("text", None, ""),
    ],
)
def test_a_line_says_what_goes_on(type: DocumentType, known: KnownMetadata | None, expected: str) -> None:
    assert doing(DocumentStarted("doc_001", type, 1, known)) == expected


def test_searches_and_pages_of_the_web() -> None:
    found = '[{"url":"https://a.example","title":"A"},{"url":7},"x"]'
    assert web_action(ToolAction("web_search", {"search_term": "x"}, found)) == Search(
        query="x", queries=("x",), sources=(WebSource(url="https://a.example"),)
    )
    assert web_action(ToolAction("web_search", {"search_term": 7}, "{}")) == Search(query="", queries=("",))
    assert web_action(ToolAction("exa_search", {"query": "x"}, "no JSON")) == Search(query="x", queries=("x",))
    assert web_action(ToolAction("web_fetch", {"url": "https://a.example"}, "")) == OpenPage(url="https://a.example")
    assert web_action(ToolAction("grep", {"query": "x"}, "")) is None


def test_pages_have_titles() -> None:
    found = '[{"url":"https://a.example","title":"A"},{"url":"https://b.example"},{"title":"C"}]'
    pages = {"https://a.example": "A", "https://b.example": "https://b.example"}
    assert pages_of(ToolAction("web_search", {}, found)) == pages
    assert pages_of(ToolAction("web_fetch", {"url": "https://a.example"}, "")) == {
        "https://a.example": "https://a.example"
    }
    assert pages_of(ToolAction("web_fetch", {}, "")) == pages_of(ToolAction("grep", {}, found)) == {}
