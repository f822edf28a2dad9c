"""A conversation as a client tells it in; a short text that is the same whenever the same is told, out.

Plain clients of OpenAI's API send the whole history with every request and no name for it. Its fingerprint
finds the agent's session that has said it; a history that was edited, shortened or put in another order
has another fingerprint.
"""

import hashlib
import json
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from cursor_gateway.model.documents import Mode
from cursor_gateway.model.messages import AssistantMessage, Instructions, Message, ToolMessage, UserMessage


class Scope(Struct, frozen=True, kw_only=True):
    """What else must be the same: a session is nobody else's, works in one folder, and knows one set of tools."""

    owner: str
    workspace: str
    mode: Mode
    tools: tuple[str, ...] = ()
    client_session: str = ""  # the name that the client itself gives to its session, if any


def fingerprint(scope: Scope, messages: Sequence[Message]) -> str:
    told = msgspec.json.encode([scope, [_told(message) for message in messages]])
    return hashlib.sha256(told).hexdigest()


def answered(messages: Sequence[Message]) -> int:
    """How many messages there are up to the last answer, with it: what a session would know already."""
    return max(
        (number for number, message in enumerate(messages, 1) if isinstance(message, AssistantMessage)), default=0
    )


def _told(message: Message) -> list[object]:
    """Clients trim white space around texts, and write arguments in their own way: that does not matter.

    An image is named for what it shows.
    """
    text = message.text.strip()
    match message:
        case Instructions():
            return ["instructions", text]
        case UserMessage(images=images, name=name):
            return ["user", text, name, images]
        case AssistantMessage(calls=calls):
            return ["assistant", text, [[call.id, call.name, _meant(call.arguments)] for call in calls]]
        case ToolMessage(call_id=call_id, images=images):
            return ["tool", text, call_id, images]


def _meant(arguments: str) -> object:
    try:
        return json.dumps(json.loads(arguments), sort_keys=True)
    except (ValueError, RecursionError):  # the model wrote it, not always well
        return arguments
