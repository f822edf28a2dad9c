"""Read Anthropic's `system` and `messages`: the conversation and its images.

Blocks are read leniently: what carries nothing for the agent (thinking, server tools, kinds that are not known) is
skipped, because a client sends its whole history with every request, and one block must not end the conversation.
How a text is written, as a string or as blocks, changes nothing: clients do it differently from turn to turn.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from cursor_gateway.dialects.invalid import invalid
from cursor_gateway.dialects.marked import without_marked
from cursor_gateway.model.images import Image, check_images, read_image
from cursor_gateway.model.messages import (
    AssistantMessage,
    Instructions,
    Message,
    ToolCall,
    ToolMessage,
    UserMessage,
    check_content,
    check_length,
)
from cursor_gateway.wire.payload import Fields

Block: TypeAlias = dict[str, Any]
MessageContent: TypeAlias = str | list[Block]

_BILLING = "x-anthropic-billing-header:"  # Claude Code's; it varies from request to request
_REMINDER = "<system-reminder>"


class WireMessage(Struct, frozen=True):
    role: Literal["user", "assistant", "system"]
    content: MessageContent


class MessagesConversation(Struct, frozen=True):
    messages: tuple[Message, ...]
    images: tuple[Image, ...]


def read_conversation(
    system: MessageContent | None, wire: Sequence[WireMessage], max_images: int
) -> MessagesConversation:
    """Raises `InvalidRequest`."""
    check_length(sum(1 + sum(1 for _ in _inner_blocks(message.content)) for message in wire))
    check_images(sum(map(_count_images, wire)), max_images, "messages")
    reader = _Reader()
    if text := _text(system or ""):
        reader.messages.append(Instructions(text))
    for number, message in enumerate(wire):
        reader.read(message, f"messages[{number}].content")
    check_content(reader.messages)
    return MessagesConversation(tuple(reader.messages), tuple(reader.images))


def texts_of(content: MessageContent) -> list[str]:
    """The texts of its blocks."""
    return [text for block in _blocks(content) if (text := _text_of(Fields(block)))]


def _text_of(block: Fields) -> str:
    """Of a summary, too, which stands for all that came before it."""
    return block.text("content") if block.text("type") == "compaction" else block.text("text")


class _Reader:
    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.images: list[Image] = []
        self._names: dict[str, str] = {}  # of the tools, by the ids of their calls

    def read(self, message: WireMessage, param: str) -> None:
        match message.role:
            case "system":
                self._note(_text(message.content))
            case "assistant":
                self._assistant(message.content)
            case "user":
                self._user(message.content, param)

    def _note(self, text: str) -> None:
        """Beside the results of calls it belongs to them: the agent reads it with them, without a turn of its own."""
        if not text:
            return
        if not self._add_to_result(f"{_REMINDER}\n{text}\n</system-reminder>"):
            self.messages.append(Instructions(text))

    def _assistant(self, content: MessageContent) -> None:
        """Its texts are one, as they were streamed; those of the gateway's own are not the agent's."""
        texts = map(without_marked, texts_of(content))
        uses = [Fields(block) for block in _blocks(content) if block.get("type") == "tool_use"]
        inputs = [msgspec.json.encode(use.all.get("input", {})).decode() for use in uses]
        calls = [ToolCall(use.text("id"), use.text("name"), input) for use, input in zip(uses, inputs, strict=True)]
        self._names |= {call.id: call.name for call in calls}
        self.messages.append(AssistantMessage("".join(texts), tuple(calls)))

    def _user(self, content: MessageContent, param: str) -> None:
        texts: list[str] = []
        images: list[Image] = []
        results = 0
        for place, block in enumerate(_blocks(content)):
            if block.get("type") == "tool_result":
                results += 1
                self._result(Fields(block), f"{param}[{place}]")
            else:
                found = _found(block, f"{param}[{place}]")
                texts += [found] if isinstance(found, str) else []
                images += [found] if isinstance(found, Image) else []
        if results:
            texts = [text for text in texts if not (text.startswith(_REMINDER) and self._add_to_result(text))]
        if texts or images or not results:
            self.messages.append(UserMessage("\n".join(texts), self._keep(images)))

    def _result(self, block: Fields, param: str) -> None:
        content = block.all.get("content")
        found = [_found(part, param) for part in _blocks(content if isinstance(content, str | list) else "")]
        texts = [part for part in found if isinstance(part, str)]
        images = self._keep([part for part in found if isinstance(part, Image)])
        id = block.text("tool_use_id")
        is_error = block.flag("is_error") or False
        self.messages.append(ToolMessage("\n".join(texts), id, self._names.get(id, ""), images, is_error))

    def _add_to_result(self, text: str) -> bool:
        """Whether the message before is a result, to which the text is now added."""
        if not self.messages or not isinstance(last := self.messages[-1], ToolMessage):
            return False
        self.messages[-1] = replace(last, text=f"{last.text}\n\n{text}" if last.text else text)
        return True

    def _keep(self, images: Sequence[Image]) -> tuple[str, ...]:
        """Of the message that is added next."""
        self.images += [replace(image, message=len(self.messages)) for image in images]
        return tuple(image.name for image in images)


# --- blocks -----------------------------------------------------------------------------------------


def _blocks(content: MessageContent) -> list[Block]:
    """A string is one block of text."""
    return [{"type": "text", "text": content}] if isinstance(content, str) else [*filter(_is_object, content)]


def _is_object(block: object) -> bool:
    return isinstance(block, dict)


def _text(content: MessageContent) -> str:
    return "\n\n".join(text for text in texts_of(content) if not text.startswith(_BILLING))


def _found(block: Mapping[str, Any], param: str) -> str | Image | None:
    """What the agent gets of a user's block, or of a part of a result."""
    fields = Fields(block)
    match fields.text("type"):
        case "text":
            return fields.maybe_text("text")
        case "image":
            return _image(fields.object("source"), f"{param}.source")
        case "document":
            return _document(fields)
        case "search_result":
            lines = [fields.text("title"), fields.text("source"), *texts_of(fields.items("content"))]
            return "\n".join(line for line in lines if line)
        case "tool_reference":
            return fields.text("tool_name")
        case "compaction":
            return _text_of(fields)
        case _:
            return None


def _image(source: Fields, param: str) -> str | Image:
    match source.text("type"):
        case "base64":
            return read_image(f"data:{source.text('media_type')};base64,{source.text('data')}", param)
        case "url" if source.text("url").startswith("data:"):
            return read_image(source.text("url"), param)
        case "url":
            return f"[Image: {source.text('url')}]"  # never fetched here; the agent may be able to
        case _:
            raise invalid(param, "Files are not stored here; send the image as base64.")


def _document(block: Fields) -> str:
    source, head = block.object("source"), [text for text in (block.text("title"), block.text("context")) if text]
    match source.text("type"):
        case "text":
            text = source.text("data")
        case "content":
            content = source.all.get("content")
            text = "\n".join(texts_of(content if isinstance(content, str | list) else ""))
        case "url":
            text = f"[Document: {source.text('url')}]"
        case _:
            text = f"[A document that the agent cannot read: {source.text('media_type') or 'a stored file'}]"
    return "\n".join([*head, text])


def _count_images(message: WireMessage) -> int:
    return sum(1 for block in _inner_blocks(message.content) if block.get("type") == "image")


def _inner_blocks(content: MessageContent) -> Iterator[Block]:
    """With those inside results."""
    for block in _blocks(content):
        yield block
        if block.get("type") == "tool_result":
            yield from _blocks(Fields(block).items("content"))
