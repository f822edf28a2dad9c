"""Hash a conversation, so that it is recognized when a client sends it again.

Plain clients of OpenAI's API send the whole history with every request and no id for it. The fingerprint finds the
agent's session with this history; a history that was edited, shortened or reordered has another fingerprint.
"""

import hashlib
import json
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from cursor_gateway.model.documents import Mode
from cursor_gateway.model.messages import AssistantMessage, Instructions, Message, ToolMessage, UserMessage


class Scope(Struct, frozen=True, kw_only=True):
    """What else must match: a session belongs to one owner, one folder and one set of tools."""

    owner: str
    workspace: str
    mode: Mode
    tools: tuple[str, ...] = ()
    client_session: str = ""  # the client's own id for its session, if any


def fingerprint(scope: Scope, messages: Sequence[Message]) -> str:
    encoded = msgspec.json.encode([scope, [_normalized(message) for message in messages]])
    return hashlib.sha256(encoded).hexdigest()


def answered(messages: Sequence[Message]) -> int:
    """The number of messages up to and including the last answer: what a session would know already."""
    return max(
        (number for number, message in enumerate(messages, 1) if isinstance(message, AssistantMessage)), default=0
    )


def _normalized(message: Message) -> list[object]:
    """Ignores what clients change: white space around texts, and the formatting of arguments.

    In an answer all white space is ignored: a client that got it in several parts joins them in its own way. An image
    is identified by its content.
    """
    text = message.text.strip()
    match message:
        case Instructions():
            return ["instructions", text]
        case UserMessage(images=images, name=name):
            return ["user", text, name, images]
        case AssistantMessage(calls=calls):
            called = [[call.id, call.name, _normalized_json(call.arguments)] for call in calls]
            return ["assistant", "".join(["".join(line.split()) for line in text.splitlines()]), called]
        case ToolMessage(call_id=call_id, images=images):
            return ["tool", text, call_id, images]


def _normalized_json(arguments: str) -> object:
    try:
        return json.dumps(json.loads(arguments), sort_keys=True)
    except (ValueError, RecursionError):  # the model may write invalid JSON
        return arguments
