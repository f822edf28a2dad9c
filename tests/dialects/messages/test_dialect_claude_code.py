"""What Claude Code sends: its sessions, its folder, and requests beside the conversation."""

import json

import pytest

from cursor_gateway.dialects.messages import dialect
from cursor_gateway.model.messages import Instructions, UserMessage

SESSION = "c0ffee00-0000-4000-8000-000000000000"


def test_it_is_known_by_its_user_agent_or_its_session() -> None:
    assert dialect.is_claude_code({"user-agent": "claude-cli/2.1.325 (external, cli)"})
    assert not dialect.is_claude_code({"user-agent": "Anthropic/Python 2.8"})
    assert dialect.is_claude_code({"user-agent": "another", "x-claude-code-session-id": SESSION})
    assert not dialect.is_claude_code({})


@pytest.mark.parametrize(
    ("headers", "user_id", "expected"),
    [
        ({"x-claude-code-session-id": SESSION}, "", SESSION),
        ({"x-claude-code-session-id": SESSION, "x-claude-code-agent-id": "a1"}, "", f"{SESSION} a1"),
        ({}, json.dumps({"device_id": "d", "account_uuid": "", "session_id": SESSION}), SESSION),
        ({"x-claude-code-agent-id": "a1"}, f"user_ab_account__session_{SESSION}", f"{SESSION} a1"),
        ({}, "somebody", ""),
        ({}, "", ""),
        ({"x-claude-code-agent-id": "a1"}, "[]", ""),
    ],
)
def test_its_session_is_in_a_header_or_in_the_users_id(headers: dict[str, str], user_id: str, expected: str) -> None:
    assert dialect.session_of(headers, user_id) == expected


@pytest.mark.parametrize(
    ("tools", "has_format", "last_text", "expected"),
    [
        ([], False, "Warmup", "title"),
        ([], True, "Hello", "title"),
        (["custom"], True, "Hello", "title"),
        (["web_search_20250305"], False, "Perform a web search for the query: x", "search"),
        (["custom", "web_search_20250305"], False, "Hello", None),
        (["custom"], False, "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools.", "summary"),
        (["custom"], False, "Hello", None),
    ],
)
def test_requests_beside_the_conversation_are_recognised(
    tools: list[str], has_format: bool, last_text: str, expected: dialect.Side | None
) -> None:
    assert dialect.side_request(tools, has_format=has_format, last_text=last_text) == expected


def test_a_request_that_names_its_mode_is_a_turn_without_tools() -> None:
    assert dialect.side_request((), has_format=False, last_text="Hi", names_mode=True) is None
    assert dialect.side_request((), has_format=True, last_text="Hi", names_mode=True) == "title"


def test_only_a_search_may_use_a_tool() -> None:
    assert "Search the web" in dialect.instructions_for("search")
    assert dialect.instructions_for("title") == dialect.instructions_for("summary")
    assert "use no tools" in dialect.instructions_for("title")


@pytest.mark.parametrize(
    "text",
    ["# Environment\n - Primary working directory: /home/me/app \n - OS: linux", "Working directory: /home/me/app"],
)
def test_its_folder_stands_in_the_instructions(text: str) -> None:
    assert dialect.folder_of([UserMessage("Hi"), Instructions("Be kind."), Instructions(text)]) == "/home/me/app"
    assert dialect.folder_of([UserMessage(text)]) is None
