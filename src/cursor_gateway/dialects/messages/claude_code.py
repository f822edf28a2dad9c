"""What Claude Code sends beside a turn: its session, its folder, and requests that are not part of the conversation.

Beside each turn it asks for a title, searches the web and summarises the conversation, at the same time and with the
same session id. Such a side request must not reach the conversation's agent, nor change a file.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

import msgspec

from cursor_gateway.model.messages import Instructions, Message
from cursor_gateway.wire.payload import Fields

Side: TypeAlias = Literal["title", "search", "summary"]

CHEAPEST = "claude-haiku"  # the model for side requests that need no judgement
_COMPACTION = "CRITICAL: Respond with TEXT ONLY"
_FOLDER = re.compile(r"(?:Primary working|Working) directory: ([^\n]+)")
_SESSION = "x-claude-code-session-id"
_OLD_SESSION = "_session_"
_WEB = ("web_search_", "web_fetch_")


def is_claude_code(headers: Mapping[str, str]) -> bool:
    return headers.get("user-agent", "").startswith("claude-cli") or _SESSION in headers


def session_of(headers: Mapping[str, str], user_id: str) -> str:
    """Claude Code's own name for the conversation; its subagents have conversations of their own. Empty: none."""
    session = headers.get(_SESSION) or _session_in(user_id)
    agent = headers.get("x-claude-code-agent-id", "")
    return f"{session} {agent}" if session and agent else session


def _session_in(user_id: str) -> str:
    if _OLD_SESSION in user_id:
        return user_id.rpartition(_OLD_SESSION)[2]
    try:
        return Fields(msgspec.json.decode(user_id)).text("session_id")
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""


def side_request(
    tool_types: Sequence[str], *, has_format: bool, last_text: str, names_mode: bool = False
) -> Side | None:
    """What it is, if it is not the next turn of the conversation. `tool_types` are those of the request's tools;
    `names_mode`: it says in which mode the agent works, with the agent's own tools if it has none."""
    if tool_types and all(type.startswith(_WEB) for type in tool_types):
        return "search"
    if last_text.startswith(_COMPACTION):
        return "summary"
    return "title" if has_format or not (tool_types or names_mode) else None


def instructions_for(side: Side) -> str:
    match side:
        case "search":
            return "Search the web for this, then answer with what you found. Do not read or change files."
        case "title" | "summary":
            return "Answer from what is written here alone: use no tools, read no files, and change nothing."


def folder_of(messages: Sequence[Message]) -> str | None:
    """The folder in which Claude Code works, as its instructions say."""
    found = (_FOLDER.search(message.text) for message in messages if isinstance(message, Instructions))
    return next((match[1].strip() for match in found if match), None)
