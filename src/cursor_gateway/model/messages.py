"""A conversation as callers send it: messages of four kinds."""

from collections.abc import Sequence
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from cursor_gateway.errors import InvalidRequest


class Instructions(Struct, frozen=True, tag=True):
    """What OpenAI calls a system or developer message."""

    text: str


class UserMessage(Struct, frozen=True, tag=True):
    text: str
    images: tuple[str, ...] = ()  # paths of files that exist when the agent reads the prompt
    name: str = ""  # of one user among several


class ToolCall(Struct, frozen=True):
    id: str
    name: str
    arguments: str  # as received: JSON, if the model wrote it correctly


class AssistantMessage(Struct, frozen=True, tag=True):
    """An answer and its tool calls. Thinking that a client sends back (`reasoning_content`) is dropped: it was not part
    of the answer, no model accepts it as text, and a model that sees it as its own words repeats it."""

    text: str
    calls: tuple[ToolCall, ...] = ()


class ToolMessage(Struct, frozen=True, tag=True):
    """The result of a call."""

    text: str
    call_id: str
    name: str = ""  # of the tool, where it is known
    images: tuple[str, ...] = ()
    is_error: bool = False


Message: TypeAlias = Instructions | UserMessage | AssistantMessage | ToolMessage

_MOST = 10_000  # a conversation of some days has a thousand


def check_length(count: int, param: str = "messages") -> None:
    """Raises `InvalidRequest` for more messages, parts, calls and results, all together, than a request may have."""
    if count > _MOST:
        raise InvalidRequest(
            f"{param}: The limit is {_MOST:,} messages, parts and tool calls; start a new conversation, or send a "
            "summary.",
            param=param,
        )


def check_content(messages: Sequence[Message]) -> None:
    """Raises `InvalidRequest` if nothing is said in them."""
    if not any(has_content(message) for message in messages):
        raise InvalidRequest("messages: They contain no text and no image; add a user message.", param="messages")


def without_call_ids(messages: Sequence[Message]) -> list[Message]:
    """So that the results in them are taken for no run's: they are quoted, not brought."""
    quoted: list[Message] = []
    for message in messages:
        match message:
            case AssistantMessage(calls=calls):
                quoted.append(replace(message, calls=tuple(replace(call, id="") for call in calls)))
            case ToolMessage():
                quoted.append(replace(message, call_id=""))
            case Instructions() | UserMessage():
                quoted.append(message)
    return quoted


def has_content(message: Message) -> bool:
    """Whether it has text, an image or a call."""
    match message:
        case AssistantMessage(calls=calls) if calls:
            return True
        case UserMessage(images=images) | ToolMessage(images=images) if images:
            return True
        case _:
            return bool(message.text.strip())
