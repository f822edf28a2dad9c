"""A conversation as callers send it: messages of four kinds, and images."""

import base64
import hashlib
import re
from collections.abc import Sequence
from functools import cached_property
from typing import TypeAlias

import msgspec
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


# --- images -----------------------------------------------------------------------------------------


_NAME = re.compile(r"[0-9a-f]{16}\.(?:png|jpg|gif|webp)")
_BEGINNINGS = {  # of files
    "image/png": re.compile(rb"\x89PNG\r\n\x1a\n"),
    "image/jpeg": re.compile(rb"\xff\xd8\xff"),
    "image/gif": re.compile(rb"GIF8[79]a"),
    "image/webp": re.compile(rb"RIFF.{4}WEBP", re.DOTALL),
}
_EXTENSIONS = {"image/png": "png", "image/jpeg": "jpg", "image/gif": "gif", "image/webp": "webp"}


class Image(Struct, frozen=True, dict=True):
    message: int  # the number of its message, from 0
    media_type: str
    data: bytes

    @cached_property
    def name(self) -> str:
        """A file name made from the content, so that prompts with the same image stay the same."""
        return f"{hashlib.sha256(self.data).hexdigest()[:16]}.{_EXTENSIONS[self.media_type]}"


def is_image_name(name: str) -> bool:
    """Whether an image can have this name."""
    return _NAME.fullmatch(name) is not None


def media_type_of(data: bytes) -> str | None:
    """By its first bytes. An SVG is none of these: it could contain scripts."""
    return next((type for type, beginning in _BEGINNINGS.items() if beginning.match(data)), None)


def check_images(count: int, most: int, param: str) -> None:
    """Called before any of them is decoded. Raises `InvalidRequest`."""
    if count > most:
        raise InvalidRequest(
            f"{param}: {count:,} images, but the limit is {most:,}; send fewer, or raise `max_images`.",
            param=param,
        )


def read_image(uri: str, param: str, message: int = 0) -> Image:
    """Raises `InvalidRequest`. Never fetches a URL: callers must not make the gateway send requests."""
    header, _, data = uri.partition(",")
    scheme, *options = header[:200].lower().split(";")
    media_type = scheme.removeprefix("data:").strip().replace("image/jpg", "image/jpeg")
    if not scheme.startswith("data:") or media_type not in _EXTENSIONS or "base64" not in options:
        raise InvalidRequest(
            f"{param}: Image URLs are not fetched; send a data: URI with a base64 png, jpeg, gif or webp.",
            param=param,
        )
    data = "".join(data.split()).rstrip("=")
    try:
        decoded = base64.b64decode(data + "=" * (-len(data) % 4), validate=True)
    except ValueError:
        decoded = b""
    if not decoded:
        raise InvalidRequest(f"{param}: The data: URI is not valid base64; encode the image again.", param=param)
    return Image(message, media_type, decoded)


def quote_reply(messages: list[Message], number: int, text: str, calls: Sequence[ToolCall]) -> None:
    """Adds what an answer said that a client only named, and those of its calls whose results the client sends."""
    answer = messages[number]
    assert isinstance(answer, AssistantMessage)
    called = {call.id: call for call in calls if call.id not in {known.id for known in answer.calls}}
    for place, message in enumerate(messages):
        if isinstance(message, ToolMessage) and message.call_id in called and not message.name:
            messages[place] = msgspec.structs.replace(message, name=called[message.call_id].name)
    results = {message.call_id for message in messages if isinstance(message, ToolMessage)}
    quoted = (call for id, call in called.items() if id in results)
    messages[number] = msgspec.structs.replace(answer, text=text, calls=(*answer.calls, *quoted))


def place_images(messages: Sequence[Message], images: Sequence[Image], paths: Sequence[str]) -> list[Message]:
    """The messages, each with the paths of its images; `paths` is in the order of `images`."""
    placed: dict[int, list[str]] = {}
    for image, path in zip(images, paths, strict=True):
        placed.setdefault(image.message, []).append(path)
    return [
        msgspec.structs.replace(message, images=tuple(placed[number])) if number in placed else message
        for number, message in enumerate(messages)
    ]
