"""The blocks of a prompt as a message."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.acp_server.prompts import UnusablePrompt, read_prompt
from cursor_gateway.acp_server.shapes import PromptBlock


def blocks(*plain: dict[str, Any]) -> list[PromptBlock]:
    return msgspec.convert(plain, list[PromptBlock])


def test_links_stay_where_they_are() -> None:
    prompt = read_prompt(
        blocks(
            {"type": "text", "text": "Compare "},
            {"type": "resource_link", "uri": "file:///project/src/a%20b.py", "name": "a b.py"},
            {"type": "text", "text": " with "},
            {"type": "resource_link", "uri": "file:///etc/hosts#L1:3", "name": "hosts"},
            {"type": "text", "text": " and "},
            {"type": "resource_link", "uri": "https://example.com/x", "name": "x"},
            {"type": "text", "text": " and "},
            {"type": "resource_link", "uri": "https://example.com/y"},
            {"type": "text", "text": " and "},
            {"type": "resource_link", "uri": "c.py"},
        ),
        "/project",
    )
    assert prompt.message == (
        "Compare @src/a b.py with @/etc/hosts (L1:3) and [x](https://example.com/x) and https://example.com/y and @c.py"
    )
    assert prompt.images == []


def test_contents_follow_the_text() -> None:
    prompt = read_prompt(
        blocks(
            {"type": "text", "text": "Explain "},
            {"type": "resource", "resource": {"uri": "file:///project/a.md", "text": "```\ncode\n```"}},
        ),
        "/project",
    )
    assert prompt.message == "Explain @a.md\n\n@a.md\n````\n```\ncode\n```\n````"


def test_images_are_data_uris() -> None:
    prompt = read_prompt(
        blocks(
            {"type": "text", "text": "What is it?"},
            {"type": "image", "data": "AA==", "mimeType": "image/png"},
            {"type": "resource", "resource": {"uri": "x:", "blob": "BB==", "mimeType": "image/gif"}},
        ),
        "/project",
    )
    assert prompt.images == ["data:image/png;base64,AA==", "data:image/gif;base64,BB=="]


@pytest.mark.parametrize(
    ("block", "why"),
    [
        ({"type": "audio"}, "cannot listen"),
        ({"type": "resource", "resource": {"uri": "file:///a.zip", "blob": "AA=="}}, "file:///a.zip is neither"),
        ({"type": "text", "text": " \n"}, "has no text"),
        ({"type": "image", "data": "AA==", "mimeType": "image/png"}, "has no text"),
    ],
)
def test_what_the_agent_cannot_use_is_refused(block: dict[str, Any], why: str) -> None:
    with pytest.raises(UnusablePrompt, match=why):
        read_prompt(blocks(block), "/project")


@given(st.text(), st.text(min_size=1), st.sampled_from(["", "/", "/project"]))
def test_any_text_and_any_address_are_in_the_message(text: str, path: str, folder: str) -> None:
    link = {"type": "resource_link", "uri": f"file:///project/{path}"}
    prompt = read_prompt(blocks({"type": "text", "text": text}, link), folder)
    assert prompt.message.startswith(text.lstrip())
    assert "@" in prompt.message
