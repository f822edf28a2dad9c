"""Read the input items of a request as a conversation, with its images; and its tools.

An answer is one message, however many items it came in: the texts and the calls of one reply are joined again, which
the ids of our own items tell. An answer may also be referred to by the id of one of its messages: its text is then
looked up. Items that only show what happened (reasoning, searches, the agent's own actions) and items that are not
known are skipped.

Functions and custom tools, alone or in a namespace, become tools with unique names. The response then calls each in
the form in which it was declared. Every other type (web search, file search, MCP servers, shells, …) is accepted and
ignored: the agent has its own.
"""

import base64
import hashlib
import re
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from cursor_gateway.dialects.deltas import without_marked
from cursor_gateway.dialects.requests import convert_field, invalid, is_image, read_text_file
from cursor_gateway.dialects.responses.shapes import MESSAGE, read_item_id
from cursor_gateway.errors import InvalidRequest
from cursor_gateway.model import caller_tools
from cursor_gateway.model.answers import AnswerId
from cursor_gateway.model.messages import (
    AssistantMessage,
    Image,
    Instructions,
    Message,
    ToolCall,
    ToolMessage,
    UserMessage,
    check_images,
    check_length,
    has_content,
    read_image,
)
from cursor_gateway.model.requests import NonEmpty
from cursor_gateway.wire.json_body import has_many_values

# --- tools, as they are declared ----------------------------------------------------------------------


_UNUSUAL = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST = 64  # characters of a name; models know no longer ones
_CALLABLE = ("function", "custom")  # the types of tools that are the client's
_INPUT = "input"  # the only parameter of a custom tool
_CHOICE = 'Send "none", "auto", "required", an object that names one function or custom tool, or allowed_tools.'


class Declared(Struct, frozen=True):
    """How the client knows a tool."""

    kind: Literal["function", "custom"]
    name: str
    namespace: str = ""


class Forms(Struct, frozen=True):
    """The declared tools by the names that the agent calls them."""

    tools: dict[str, Declared] = {}

    def flat_name(self, name: str, namespace: str) -> str:
        """What the agent calls this tool. For one that is no longer declared: what it would be."""
        for flat, declared in self.tools.items():
            if (declared.name, declared.namespace) == (name, namespace):
                return flat
        return _flat(name, namespace)

    def of(self, flat: str) -> Declared:
        return self.tools.get(flat) or Declared("function", flat)


class Toolbox(Struct, frozen=True):
    forms: Forms
    offer: caller_tools.Offer | None  # None: there is nothing to call


class _Function(Struct, frozen=True):
    name: NonEmpty
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class _Grammar(Struct, frozen=True):
    type: str = "text"
    syntax: str = ""
    definition: str = ""
    grammar: "_Grammar | None" = None  # some clients nest it


class _Custom(Struct, frozen=True):
    name: NonEmpty
    description: str | None = None
    format: _Grammar | None = None


class _Namespace(Struct, frozen=True):
    name: NonEmpty
    description: str | None = None
    tools: list[dict[str, Any]] = []


class _Found(Struct, frozen=True):
    declared: Declared
    tool: _Function
    param: str


def read_tools(wire: Sequence[tuple[str, dict[str, Any]]], choice: Any = None, *, parallel: bool = True) -> Toolbox:
    """Each tool with its path in the request. Raises `InvalidRequest`."""
    tools: dict[str, caller_tools.Tool] = {}
    forms: dict[str, Declared] = {}
    seen: set[tuple[str, str]] = set()
    for found in _found(wire):
        if (found.declared.name, found.declared.namespace) in seen:
            continue  # declared again, in a later item
        seen.add((found.declared.name, found.declared.namespace))
        flat = _unique(_flat(found.declared.name, found.declared.namespace), forms)
        forms[flat] = found.declared
        tools[flat] = caller_tools.make_tool(
            flat, found.tool.description, found.tool.parameters, found.param, strict=found.tool.strict or False
        )
    known = Forms(forms)
    chosen, usable = _choose(choice, known, is_empty=not wire)
    offered = tuple(tool for name, tool in tools.items() if name in usable)
    return Toolbox(known, caller_tools.Offer(tools=offered, choice=chosen, parallel=parallel) if offered else None)


def _found(wire: Sequence[tuple[str, dict[str, Any]]], namespace: str = "", about: str = "") -> Iterator[_Found]:
    for param, tool in wire:
        match tool.get("type", "function"):
            case "function":
                function = _convert_tool(tool, _Function, param)
                yield _Found(Declared("function", function.name, namespace), _described(function, about), param)
            case "custom":
                custom = _convert_tool(tool, _Custom, param)
                yield _Found(Declared("custom", custom.name, namespace), _described(_as_function(custom), about), param)
            case "namespace" if not namespace:
                space = _convert_tool(tool, _Namespace, param)
                inner = [(f"{param}.tools[{number}]", member) for number, member in enumerate(space.tools)]
                yield from _found(inner, space.name, space.description or "")
            case _:
                pass


def _described(function: _Function, about: str) -> _Function:
    if not about:
        return function
    return msgspec.structs.replace(function, description="\n\n".join(filter(None, (about, function.description))))


def _as_function(custom: _Custom) -> _Function:
    """A custom tool takes free text."""
    text: dict[str, Any] = {"type": "string", "description": "The tool's input: plain text, not JSON."}
    lines = [custom.description or ""]
    grammar = (custom.format.grammar or custom.format) if custom.format is not None else None
    if grammar is not None and grammar.definition:
        lines.append(f"`{_INPUT}` must match this {grammar.syntax or 'text'} grammar:\n\n{grammar.definition}")
    schema = {"type": "object", "properties": {_INPUT: text}, "required": [_INPUT], "additionalProperties": False}
    return _Function(custom.name, "\n\n".join(filter(None, lines)), schema)


def _convert_tool(tool: dict[str, Any], shape: Any, param: str) -> Any:
    # Chat's form, `{"type": "function", "function": {…}}`, is a common mistake, and its meaning is clear.
    value = tool["function"] if isinstance(tool.get("function"), dict) and "name" not in tool else tool
    try:
        return msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        raise invalid(param, f"{str(error).replace(' - at `$', ' at `')}.") from None


# --- names of tools -----------------------------------------------------------------------------------


def _flat(name: str, namespace: str) -> str:
    full = f"{namespace}__{name}" if namespace else name
    plain = _UNUSUAL.sub("_", full) or "_"
    if len(plain) <= _LONGEST:
        return plain
    return f"{plain[: _LONGEST - 9]}_{hashlib.sha256(full.encode()).hexdigest()[:8]}"


def _unique(name: str, taken: dict[str, Declared]) -> str:
    number, unique = 2, name
    while unique in taken:
        unique = f"{name[: _LONGEST - 4]}_{number}"
        number += 1
    return unique


def input_of(arguments: dict[str, Any]) -> str:
    """The text that a custom tool is called with."""
    text = arguments.get(_INPUT)
    return text if isinstance(text, str) else msgspec.json.encode(arguments).decode()


def arguments_of(input: str) -> str:
    """The JSON of a custom tool's call, as the agent made it."""
    return msgspec.json.encode({_INPUT: input}).decode()


# --- the choice of a tool -----------------------------------------------------------------------------


class _Named(Struct, frozen=True):
    type: str
    name: str = ""
    namespace: str = ""


class _Allowed(Struct, frozen=True):
    mode: Literal["auto", "required"] = "auto"
    tools: list[_Named] = []


_C = TypeVar("_C", _Named, _Allowed)


def _choose(choice: Any, forms: Forms, *, is_empty: bool) -> tuple[caller_tools.ToolChoice, set[str]]:
    """What must be called, and what may be."""
    everything = set(forms.tools)
    match choice:
        case None | "auto":
            return caller_tools.AutoTool(), everything
        case "none":
            return caller_tools.NoTool(), everything
        case "required":
            if is_empty:
                raise invalid("tool_choice", "A tool call is required, but `tools` is empty.")
            return caller_tools.RequiredTool(), everything
        case {"type": "allowed_tools"}:
            allowed = _convert_choice(choice, _Allowed)
            names = {_chosen(tool, forms) for tool in allowed.tools if tool.type in _CALLABLE}
            return caller_tools.RequiredTool() if allowed.mode == "required" else caller_tools.AutoTool(), names
        case {"type": "function" | "custom"}:
            return caller_tools.NamedTool(_chosen(_convert_choice(choice, _Named), forms)), everything
        case {"type": str()}:
            return caller_tools.AutoTool(), everything  # a tool that the agent has itself
        case _:
            raise invalid("tool_choice", _CHOICE)


def _convert_choice(choice: Any, shape: type[_C]) -> _C:
    try:
        return msgspec.convert(choice, shape)
    except msgspec.ValidationError:
        raise invalid("tool_choice", _CHOICE) from None


def _chosen(named: _Named, forms: Forms) -> str:
    for flat, declared in forms.tools.items():
        if declared.name == named.name and named.namespace in ("", declared.namespace):
            return flat
    there = f"there are {', '.join(forms.tools)}" if forms.tools else "there are none"
    raise invalid("tool_choice", f"{named.name[:100]!r} is not one of the tools; {there}.")


# --- compaction -------------------------------------------------------------------------------------


PREVIOUS_RESPONSE = "previous_response"  # the gateway's own item within a compaction
_MARK = "cg1."
_LARGEST = 32 * 1024 * 1024  # bytes, unpacked

SUMMARY_REQUEST = (
    "Write a summary of this conversation for somebody who continues it and knows nothing else of it: what the user "
    "wants, in the user's own words where they matter; what has been done, found out and decided, with names of files, "
    "functions and commands; what is left to do. Write only the summary, and use no tools."
)
_SUMMARY = "This is a summary of the conversation so far:\n\n"


def pack(items: Sequence[dict[str, Any]]) -> str:
    return _MARK + base64.urlsafe_b64encode(zlib.compress(msgspec.json.encode(items))).decode()


def unpack(text: str) -> list[dict[str, Any]]:
    """Empty for what was not packed here."""
    if not text.startswith(_MARK):
        return []
    unpacking = zlib.decompressobj()
    try:
        data = unpacking.decompress(base64.urlsafe_b64decode(text.removeprefix(_MARK)), _LARGEST)
        if has_many_values(data):
            return []
        return msgspec.json.decode(data, type=list[dict[str, Any]])
    except (ValueError, zlib.error, msgspec.MsgspecError, RecursionError):
        return []


def pack_summary(text: str) -> str:
    return pack([{"type": "message", "role": "user", "content": _SUMMARY + text}])


T = TypeVar("T")

_CALLS = ("function_call", "custom_tool_call")
_RESULTS = ("function_call_output", "custom_tool_call_output")
_QUOTED = (MESSAGE, "fc_", "ctc_")  # how the ids of texts and calls begin
_OWN_ITEMS = ("reasoning", "web_search_call", "mcp_call", *_CALLS)  # beside messages


class Placed(Struct, frozen=True):
    """An item, and its path in the request."""

    item: dict[str, Any]
    param: str

    @property
    def type(self) -> str:
        known = "message" if "role" in self.item else "item_reference" if "id" in self.item else ""
        kind = known if self.item.get("type") is None else self.item["type"]
        return kind if isinstance(kind, str) else ""

    @property
    def answer(self) -> AnswerId | None:
        """The gateway's own reply that it is part of."""
        id = self.item.get("id")
        found = read_item_id(id) if isinstance(id, str) else None
        return None if found is None else found.answer


# --- items ------------------------------------------------------------------------------------------


def read_items(input: str | Sequence[Any] | None) -> list[Placed]:
    """All items; in the place of the last compaction, which stands for the earlier ones, too, what is packed in it.

    Raises `InvalidRequest`."""
    if input is None:
        return []
    if isinstance(input, str):
        return [Placed({"type": "message", "role": "user", "content": input}, "input")]
    check_length(len(input) + sum(map(_count_parts, input)), "input")
    items = [_placed(item, f"input[{number}]") for number, item in enumerate(input)]
    compactions = [number for number, placed in enumerate(items) if placed.type == "compaction"]
    if not compactions:
        return items
    last = compactions[-1]
    packed, param = items[last].item.get("encrypted_content"), items[last].param
    unpacked = [Placed(item, param) for item in unpack(packed)] if isinstance(packed, str) else []
    return [*items[:last], *unpacked, *items[last + 1 :]]


def _count_parts(item: Any) -> int:
    content = item.get("content") or item.get("output") if isinstance(item, dict) else None
    return len(content) if isinstance(content, list) else 0


def _placed(item: Any, param: str) -> Placed:
    if not isinstance(item, dict):
        raise invalid(param, "An item must be an object.")
    return Placed(item, param)


def declared_tools(items: Sequence[Placed]) -> list[tuple[str, dict[str, Any]]]:
    """Tools that are declared within the conversation, each with its path."""
    return [
        (f"{placed.param}.tools[{number}]", tool)
        for placed in items
        if placed.type in ("additional_tools", "tool_search_output") and isinstance(placed.item.get("tools"), list)
        for number, tool in enumerate(placed.item["tools"])
        if isinstance(tool, dict)
    ]


def compacted_response(items: Sequence[Placed]) -> str | None:
    """The response that a compaction stands for, beside the items in it."""
    ids = [placed.item.get("id") for placed in items if placed.type == PREVIOUS_RESPONSE]
    return next((id for id in ids if isinstance(id, str)), None)


def without_retried(items: list[Placed]) -> tuple[list[Placed], frozenset[str]]:
    """Without our own items at the end, which a client that retries has already got; and their ids."""
    kept = len(items)
    while kept and _is_own(items[kept - 1]):
        kept -= 1
    return items[:kept], frozenset(placed.item["id"] for placed in items[kept:])


def _is_own(placed: Placed) -> bool:
    is_output = placed.type in _OWN_ITEMS or (placed.type == "message" and placed.item.get("role") == "assistant")
    return is_output and placed.answer is not None


# --- messages ---------------------------------------------------------------------------------------


class ResponsesConversation(Struct, frozen=True):
    messages: tuple[Message, ...]
    images: tuple[Image, ...]
    references: dict[int, AnswerId] = {}  # by the number of a message, the answer whose text and calls it has


class _Message(Struct, frozen=True):
    role: str
    content: str | list[Any] | None = None
    phase: str | None = None


class _AnyCall(Struct, frozen=True):
    call_id: str
    name: str
    namespace: str | None = None


class _FunctionCall(_AnyCall, frozen=True):
    arguments: str = ""


class _CustomCall(_AnyCall, frozen=True):
    input: str = ""


class _Output(Struct, frozen=True):
    call_id: str
    output: str | list[Any] | None = None


class _Text(Struct, frozen=True):
    text: str


class _ImagePart(Struct, frozen=True):
    image_url: str | None = None
    file_id: str | None = None


class _FilePart(Struct, frozen=True):
    file_data: str | None = None
    filename: str | None = None


def read_conversation(
    items: Sequence[Placed], instructions: str, forms: Forms, max_images: int
) -> ResponsesConversation:
    """Raises `InvalidRequest`."""
    check_images(sum(map(_count_images, items)), max_images, "input")
    reader = _Reader(forms, instructions)
    first = len(reader.messages)
    for placed in items:
        reader.read(placed)
    # A result may be empty.
    if not any(isinstance(message, ToolMessage) or has_content(message) for message in reader.messages[first:]):
        raise invalid("input", "It contains no text and no image; add a user message.")
    return ResponsesConversation(tuple(reader.messages), tuple(reader.images), reader.references)


class _Reader:
    def __init__(self, forms: Forms, instructions: str) -> None:
        self.messages: list[Message] = [Instructions(instructions)] if instructions else []
        self.images: list[Image] = []
        self.references: dict[int, AnswerId] = {}
        self._forms = forms
        self._called: dict[str, str] = {}  # the names of the tools, by the ids of their calls
        self._answered = -1  # the number of the last answer
        self._answer: AnswerId | None = None  # whose items it has

    def read(self, placed: Placed) -> None:
        match placed.type:
            case "message":
                self._message(_convert(placed, _Message), placed)
            case "function_call":
                call = _convert(placed, _FunctionCall)
                self._call(call, call.arguments, placed)
            case "custom_tool_call":
                custom = _convert(placed, _CustomCall)
                self._call(custom, arguments_of(custom.input), placed)
            case "function_call_output" | "custom_tool_call_output":
                output = _convert(placed, _Output)
                text, names = self._content(output.output, placed, "output")
                self.messages.append(ToolMessage(text, output.call_id, self._called.get(output.call_id, ""), names))
            case "item_reference":
                self._refer(placed)
            case _:
                pass

    def _message(self, message: _Message, placed: Placed) -> None:
        text, names = self._content(message.content, placed, "content")
        if names and message.role != "user":
            raise invalid(f"{placed.param}.content", "Images are only allowed in user messages and tool results.")
        match message.role:
            case "user":
                self.messages.append(UserMessage(text, names))
            case "system" | "developer":
                self.messages.append(Instructions(text))
            case "assistant":
                is_comment = message.phase == "commentary" and placed.answer is not None  # which describes an action
                if not is_comment and not _is_thinking(text):
                    self._say(without_marked(text), placed)
            case role:
                hint = "send user, assistant, system or developer"
                raise invalid(f"{placed.param}.role", f"{role[:100]!r} is unknown; {hint}.")

    def _say(self, text: str, placed: Placed) -> None:
        before = self._open_answer(placed)
        if before is None:
            self._new_answer(AssistantMessage(text), placed)
        else:
            apart = "\n\n" if before.text and placed.answer is None else ""
            self.messages[self._answered] = replace(before, text=f"{before.text}{apart}{text}")

    def _refer(self, placed: Placed) -> None:
        """To all text of an answer, which may have several messages, and to those of its calls that have a result."""
        answer = placed.answer
        if answer is None or not placed.item["id"].startswith(_QUOTED) or answer == self._answer:
            return
        self._new_answer(AssistantMessage(""), placed)
        self.references[self._answered] = answer

    def _call(self, item: _AnyCall, arguments: str, placed: Placed) -> None:
        call = ToolCall(item.call_id, self._forms.flat_name(item.name, item.namespace or ""), arguments)
        self._called[call.id] = call.name
        before = self._open_answer(placed)
        if before is None:
            self._new_answer(AssistantMessage("", (call,)), placed)
        else:
            self.messages[self._answered] = replace(before, calls=(*before.calls, call))

    def _open_answer(self, placed: Placed) -> AssistantMessage | None:
        """The answer that this item is part of: the message before it, or that of the same reply."""
        if self._answered < 0:
            return None
        is_last = self._answered == len(self.messages) - 1
        is_same = placed.answer is not None and placed.answer == self._answer
        before = self.messages[self._answered]
        return before if isinstance(before, AssistantMessage) and (is_last or is_same) else None

    def _new_answer(self, message: AssistantMessage, placed: Placed) -> None:
        self._answered, self._answer = len(self.messages), placed.answer
        self.messages.append(message)

    def _content(self, content: str | list[Any] | None, placed: Placed, field: str) -> tuple[str, tuple[str, ...]]:
        """Its text, and the names of its images. Parts of text are paragraphs of their own."""
        if content is None or isinstance(content, str):
            return content or "", ()
        texts: list[str] = []
        names: list[str] = []
        for number, value in enumerate(content):
            param = f"{placed.param}.{field}[{number}]"
            part = Placed(value if isinstance(value, dict) else {}, param)
            match part.type:
                case "input_text" | "output_text" | "text" | "summary_text":
                    texts.append(_convert(part, _Text).text)
                case "refusal":
                    texts.append(str(part.item.get("refusal", "")))
                case "input_image":
                    names.append(self._image(_image_address(part), f"{param}.image_url"))
                case "input_file":
                    file = _file(part)
                    if isinstance(file, str):
                        texts.append(file)
                    else:
                        names.append(self._image(file.file_data or "", f"{param}.file_data"))
                case _:
                    pass
        is_one_text = placed.item.get("role") == "assistant"  # whose parts follow each other
        return ("" if is_one_text else "\n").join(texts), tuple(names)

    def _image(self, address: str, param: str) -> str:
        image = read_image(address, param, len(self.messages))
        self.images.append(image)
        return image.name


def _is_thinking(text: str) -> bool:
    """Pydantic AI sends reasoning back as such a message."""
    return text.startswith("<think>") and text.endswith("</think>")


def _convert(placed: Placed, shape: type[T]) -> T:
    return convert_field(placed.item, shape, placed.param)


def _image_address(part: Placed) -> str:
    image = _convert(part, _ImagePart)
    if image.image_url is None:
        raise InvalidRequest(
            f"{part.param}: This gateway stores no files; send the image as a data: URI in `image_url`.",
            param=f"{part.param}.file_id",
        )
    return image.image_url


def _file(part: Placed) -> str | _FilePart:
    """The file's text, or the file itself if it is an image."""
    file = _convert(part, _FilePart)
    if file.file_data is None:
        raise InvalidRequest(
            f"{part.param}: This gateway neither stores nor fetches files; send the text in `file_data`.",
            param=f"{part.param}.file_id" if "file_id" in part.item else part.param,
        )
    if is_image(file.file_data):
        return file
    return read_text_file(file.file_data, file.filename or "", f"{part.param}.file_data")


def _count_images(placed: Placed) -> int:
    parts = placed.item.get("output" if placed.type in _RESULTS else "content")
    if not isinstance(parts, list):
        return 0
    return sum(isinstance(part, dict) and part.get("type") in ("input_image", "input_file") for part in parts)
