"""OpenAI's chat completions as a dialect: `POST /v1/chat/completions`; answers as chunks or one completion.

Unknown fields are ignored, as OpenAI's own clients send new ones all the time. `IGNORED` are those that
are known and change nothing here; `REFUSED` are those whose answer would be wrong, so that nobody
takes it for what was asked for. `cursor` is the gateway's own; there, an unknown name is an error.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta, Struct
from msgspec.structs import replace

from cursor_gateway.dialects.base import (
    SSE,
    Dialect,
    Encoder,
    Replay,
    ReplyStart,
    Route,
    RunView,
    StartRun,
)
from cursor_gateway.dialects.chat.encoder import ChunkEncoder, CompletionFold, CompletionHead
from cursor_gateway.dialects.checked import Check
from cursor_gateway.dialects.deltas import AgentTools, TextStyle, without_marked
from cursor_gateway.dialects.errors import OPENAI_ERRORS
from cursor_gateway.dialects.replies import (
    JsonReply,
    Resumed,
    context_tokens,
)
from cursor_gateway.dialects.requests import (
    NO_EFFECT,
    NO_SETTING,
    CursorOptions,
    invalid,
    is_image,
    numbered_attempt,
    one_of,
    option_hints,
    read_text_file,
    with_headers,
)
from cursor_gateway.errors import InvalidRequest
from cursor_gateway.model import caller_tools
from cursor_gateway.model.answers import (
    AnswerId,
)
from cursor_gateway.model.messages import (
    AssistantMessage,
    Image,
    Instructions,
    Message,
    ToolCall,
    ToolMessage,
    UserMessage,
    check_content,
    check_images,
    check_length,
    read_image,
)
from cursor_gateway.model.requests import Attempt, NonEmpty, run_options
from cursor_gateway.prompting.fingerprints import answered
from cursor_gateway.prompting.prompt import quotes_calls
from cursor_gateway.prompting.structured import Format, JsonObject, instructions, read_format
from cursor_gateway.stages.cutting import Cutter
from cursor_gateway.wire.json_body import read_json

IGNORED: dict[str, str] = {
    "temperature": NO_SETTING,
    "top_p": NO_SETTING,
    "presence_penalty": NO_SETTING,
    "frequency_penalty": NO_SETTING,
    "logit_bias": NO_SETTING,
    "seed": NO_SETTING,
    "verbosity": NO_SETTING,
    "reasoning_effort": "Effort is part of Cursor's model names: choose it with `model`.",
    "prediction": "It only makes OpenAI's own models faster.",
    "web_search_options": "The agent decides when to search.",
    "audio": "Answers are text.",
    "service_tier": NO_EFFECT,
    "prompt_cache_key": NO_EFFECT,
    "prompt_cache_retention": NO_EFFECT,
    "safety_identifier": NO_EFFECT,
    "store": "The operator decides what is stored.",
    "metadata": "It only labels what OpenAI stores.",
    "user": "Conversations belong to the API key.",
    "messages[].reasoning_content": "Thinking that a client sends back is not part of the conversation.",
    "messages[].reasoning": "Thinking that a client sends back is not part of the conversation.",
}

REFUSED: dict[str, str] = {
    "n": "A request has one answer. Send 1 or omit it; for another answer, send the request again.",
    "logprobs": "Cursor's agent reports no probabilities; send false or omit it.",
    "top_logprobs": "Cursor's agent reports no probabilities; send 0 or omit it.",
    "modalities": 'Answers are text; send ["text"] or omit it.',
    "messages[].content[].image_url": "Images are not downloaded; send a data: URI with a png, jpeg, gif or webp "
    "in base64.",
    "messages[].content[].type": "The agent accepts only text and images; send parts of type text, image_url or file.",
    "functions": "This is the old form of `tools`, whose results name no call; use `tools`.",
    "tools[].type": "Only functions can be called; send tools of type function.",
    "tool_choice.type": "Send none, auto, required, or an object that names one function.",
    "response_format.type": "Send text, json_object or json_schema.",
}


# --- what is asked for ------------------------------------------------------------------------------


class CompletionRequest(Struct, frozen=True, kw_only=True):
    model: str | None
    messages: tuple[Message, ...]  # with the names of their images
    images: tuple[Image, ...]
    stream: bool
    include_usage: bool
    stop: tuple[str, ...]
    max_tokens: int | None
    format: Format | None
    offer: caller_tools.Offer | None  # None: there are no tools
    cursor: CursorOptions


def read_request(body: bytes, max_images: int = 50) -> CompletionRequest:
    """Raises InvalidRequest, with the field that is to blame, for whatever is wrong with it."""
    wire = read_json(body, CompletionBody, _HINTS)
    _check_refused(wire)
    check_length(sum(map(_count_items, wire.messages)))
    check_images(_count_images(wire.messages), max_images, "messages")
    messages, images = _conversation(wire.messages)
    limits = [limit for limit in (wire.max_tokens, wire.max_completion_tokens) if limit is not None]
    return CompletionRequest(
        model=wire.model,
        messages=tuple(messages),
        images=tuple(images),
        stream=wire.stream or False,
        include_usage=bool(wire.stream_options and wire.stream_options.include_usage),
        stop=(wire.stop,) if isinstance(wire.stop, str) else tuple(wire.stop or ()),
        max_tokens=min(limits, default=None),
        format=_format(wire.response_format),
        offer=_offer(wire),
        cursor=wire.cursor or CursorOptions(),
    )


# --- the body's shape -------------------------------------------------------------------------------


class _TextPart(Struct, frozen=True, tag_field="type", tag="text"):
    """A text part."""

    text: Annotated[str, "The text."]


class _RefusalPart(Struct, frozen=True, tag_field="type", tag="refusal"):
    """A refusal part."""

    refusal: Annotated[str, "The text."]


class _ImageAddress(Struct, frozen=True):
    """An image in the request itself."""

    url: Annotated[str, "A data: URI: png, jpeg, gif or webp in base64."]


class _ImagePart(Struct, frozen=True, tag_field="type", tag="image_url"):
    """An image part."""

    image_url: Annotated[
        str | _ImageAddress, "The image as a data: URI, as a string or in an object. Other URLs are not fetched."
    ]


class _FileData(Struct, frozen=True):
    """A file in the request itself."""

    file_data: Annotated[str, "The base64 of UTF-8 text, or a data: URI of text or of an image."]
    filename: Annotated[str | None, "Its name, for the agent."] = None


class _FilePart(Struct, frozen=True, tag_field="type", tag="file"):
    """A file part: text, or an image."""

    file: Annotated[_FileData, "The file. Stored files, by `file_id`, do not exist."]

    @property
    def is_image(self) -> bool:
        return is_image(self.file.file_data)


_Content: TypeAlias = str | list[_TextPart | _RefusalPart | _ImagePart | _FilePart]


class _RequestFunction(Struct, frozen=True):
    """The function that was called."""

    name: Annotated[str, "The function's name."]
    arguments: Annotated[str, "JSON, as the model wrote it."]


class _RequestToolCall(Struct, frozen=True):
    """An earlier tool call."""

    id: Annotated[str, "The call's id."]
    function: Annotated[_RequestFunction, "The function, and its arguments."]
    type: Annotated[Literal["function"], "The object type."] = "function"


class _SystemMessage(Struct, frozen=True, tag_field="role", tag="system"):
    """Instructions."""

    content: Annotated[_Content, "A string, or a list of parts."]


class _DeveloperMessage(Struct, frozen=True, tag_field="role", tag="developer"):
    """Instructions; the newer name of a system message."""

    content: Annotated[_Content, "A string, or a list of parts."]


class _UserMessage(Struct, frozen=True, tag_field="role", tag="user"):
    """A user message, which may contain images."""

    content: Annotated[_Content, "A string, or a list of parts."]
    name: Annotated[str | None, "Distinguishes several users."] = None


class _AssistantMessage(Struct, frozen=True, tag_field="role", tag="assistant"):
    """An earlier answer."""

    content: Annotated[_Content | None, "The text; may be null if there are tool calls."] = None
    refusal: Annotated[str | None, "The refusal, if there was one."] = None
    tool_calls: Annotated[list[_RequestToolCall] | None, "The tool calls."] = None
    function_call: Annotated[_RequestFunction | None, "The old form of `tool_calls`."] = None


class _ToolMessage(Struct, frozen=True, tag_field="role", tag="tool"):
    """The result of one of the caller's tools."""

    tool_call_id: Annotated[str, "The id of the tool call."]
    content: Annotated[_Content | None, "A string, or a list of parts."] = None
    name: Annotated[str | None, "The tool's name."] = None


class _FunctionMessage(Struct, frozen=True, tag_field="role", tag="function"):
    """The old form of a tool message."""

    name: Annotated[str, "The function's name."]
    content: Annotated[_Content | None, "A string, or a list of parts."] = None


_WireMessage: TypeAlias = (
    _SystemMessage | _DeveloperMessage | _UserMessage | _AssistantMessage | _ToolMessage | _FunctionMessage
)


class _FunctionDefinition(Struct, frozen=True):
    """A function that the agent can call."""

    name: Annotated[NonEmpty, "The tool's name."]
    description: Annotated[str | None, "What it does, for the model."] = None
    parameters: Annotated[
        dict[str, Any] | None,
        "The JSON Schema of its arguments, which must be an object. Arguments are checked against it.",
    ] = None
    strict: Annotated[bool | None, "Accepted; arguments are checked either way."] = None


class _Tool(Struct, frozen=True):
    """A caller's tool."""

    function: Annotated[_FunctionDefinition, "The function."]
    type: Annotated[Literal["function"], "The object type."] = "function"


class _FunctionName(Struct, frozen=True):
    """A function's name."""

    name: Annotated[str, "The function's name."]


class _ToolChoice(Struct, frozen=True):
    """The one function that must be called."""

    function: Annotated[_FunctionName, "The function's name."]
    type: Annotated[Literal["function"], "The object type."] = "function"


class _StreamOptions(Struct, frozen=True):
    """Options of a stream."""

    include_usage: Annotated[bool | None, "Whether a last chunk contains the usage."] = None


class _TextFormat(Struct, frozen=True, tag_field="type", tag="text"):
    """Any text."""


class _JsonObjectFormat(Struct, frozen=True, tag_field="type", tag="json_object"):
    """Any JSON object."""


class _JsonSchema(Struct, frozen=True):
    """A schema, and its name."""

    name: Annotated[str | None, "The name of the format."] = None
    description: Annotated[str | None, "A description of the format."] = None
    schema: Annotated[dict[str, Any] | None, "The JSON Schema. References must stay within it."] = None
    strict: Annotated[bool | None, "Accepted; answers are checked either way."] = None


class _JsonSchemaFormat(Struct, frozen=True, tag_field="type", tag="json_schema"):
    """JSON that is valid against a schema."""

    json_schema: Annotated[_JsonSchema, "The schema, and its name."]


_WireFormat: TypeAlias = _TextFormat | _JsonObjectFormat | _JsonSchemaFormat
_Limit: TypeAlias = Annotated[int, Meta(ge=1)]


class CompletionBody(Struct, frozen=True, kw_only=True):
    """A chat completion request. Unknown fields are ignored, so that any client works."""

    messages: Annotated[
        list[_WireMessage], Meta(min_length=1), "The conversation. At least one message must not be empty."
    ]
    model: Annotated[NonEmpty | None, "A model id from `GET /v1/models`. The default is the operator's setting."] = None
    stream: Annotated[bool | None, "Whether to stream the answer."] = None
    stream_options: _StreamOptions | None = None
    max_tokens: Annotated[
        _Limit | None, "The maximum length of the answer. If both limits are given, the smaller one applies."
    ] = None
    max_completion_tokens: Annotated[_Limit | None, "The maximum length of the answer."] = None
    stop: Annotated[
        NonEmpty | Annotated[list[NonEmpty], Meta(max_length=4)] | None, "Sequences at which the answer ends."
    ] = None
    response_format: Annotated[
        _WireFormat | None, "The format of the answer. It is checked, and requested once more if it does not match."
    ] = None
    tools: Annotated[
        list[_Tool] | None,
        "Functions that the caller runs, with unique names. They replace the agent's own tools. If the agent calls "
        "one, the reply ends with `tool_calls`, and the request with the results continues the same run.",
    ] = None
    tool_choice: Annotated[
        Literal["none", "auto", "required"] | _ToolChoice | None,
        "Whether the agent may call the caller's tools (`auto`, `none`), must call one (`required`), or must call the "
        "named one.",
    ] = None
    parallel_tool_calls: Annotated[bool | None, "Whether a reply may contain several tool calls."] = None
    functions: Annotated[
        list[Any] | None, "The old form of `tools`. Not supported, because its results name no call; use `tools`."
    ] = None
    cursor: Annotated[CursorOptions | None, "Gateway options. Clients that cannot send them can use headers."] = None
    # Refused for some of their values:
    n: Annotated[int | None, "Must be 1."] = None
    logprobs: Annotated[bool | None, "Not supported by Cursor's agent."] = None
    top_logprobs: Annotated[int | None, "Not supported by Cursor's agent."] = None
    modalities: Annotated[list[str] | None, "Only text is supported."] = None
    # Ignored, but a caller who gets their type wrong wants to know:
    temperature: float | None = None
    top_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    seed: int | None = None
    reasoning_effort: str | None = None
    store: bool | None = None
    metadata: dict[str, Any] | None = None
    user: str | None = None


# --- reading it -------------------------------------------------------------------------------------


# What to say beside the value that is wrong, by its field.
_HINTS = {
    "messages[].role": one_of(("system", "developer", "user", "assistant", "tool", "function")),
    "messages[].content[].type": REFUSED["messages[].content[].type"],
    "tools[].type": REFUSED["tools[].type"],
    "tool_choice": REFUSED["tool_choice.type"],
    "tool_choice.type": REFUSED["tool_choice.type"],
    "response_format.type": REFUSED["response_format.type"],
    **option_hints(CursorOptions),
}


def _check_refused(wire: CompletionBody) -> None:
    is_refused = {
        "n": wire.n not in (None, 1),
        "logprobs": wire.logprobs,
        "top_logprobs": wire.top_logprobs,
        "modalities": set(wire.modalities or ()) - {"text"},
        "functions": wire.functions,
    }
    for field, is_wrong in is_refused.items():
        if is_wrong:
            raise invalid(field, REFUSED[field])


# --- messages ---------------------------------------------------------------------------------------


def _conversation(wire: list[_WireMessage]) -> tuple[list[Message], list[Image]]:
    messages: list[Message] = []
    images: list[Image] = []
    called: dict[str, str] = {}  # the names of the tools, by the ids of their calls
    for number, message in enumerate(wire):
        text, found = _content(message.content, number)
        if found and not isinstance(message, _UserMessage | _ToolMessage):
            raise invalid(f"messages[{number}].content", "Images are only allowed in user and tool messages.")
        images += found
        names = tuple(image.name for image in found)
        match message:
            case _SystemMessage() | _DeveloperMessage():
                messages.append(Instructions(text))
            case _UserMessage(name=name):
                messages.append(UserMessage(text, names, name or ""))
            case _AssistantMessage(refusal=refusal, tool_calls=tool_calls, function_call=function_call):
                calls = [ToolCall(call.id, call.function.name, call.function.arguments) for call in tool_calls or ()]
                if function_call is not None:
                    calls.append(ToolCall("", function_call.name, function_call.arguments))
                called |= {call.id: call.name for call in calls}
                messages.append(AssistantMessage(without_marked(text or refusal or ""), tuple(calls)))
            case _ToolMessage(tool_call_id=call_id, name=name):
                messages.append(ToolMessage(text, call_id, called.get(call_id) or name or "", names))
            case _FunctionMessage(name=name):
                messages.append(ToolMessage(text, "", name))
    check_content(messages)
    return messages, images


def _count_items(message: _WireMessage) -> int:
    parts = len(message.content) if isinstance(message.content, list) else 0
    return 1 + parts + (len(message.tool_calls or ()) if isinstance(message, _AssistantMessage) else 0)


def _count_images(wire: list[_WireMessage]) -> int:
    contents = (message.content for message in wire)
    parts = (part for parts in contents if isinstance(parts, list) for part in parts)
    return sum(isinstance(part, _ImagePart) or (isinstance(part, _FilePart) and part.is_image) for part in parts)


def _content(content: _Content | None, number: int) -> tuple[str, list[Image]]:
    """Parts of text are paragraphs of their own to the clients that send several."""
    texts: list[str] = []
    images: list[Image] = []
    parts, param = [_TextPart(content)] if isinstance(content, str) else content or [], f"messages[{number}].content"
    for place, part in enumerate(parts):
        match part:
            case _TextPart(text=text) | _RefusalPart(refusal=text):
                texts.append(text)
            case _ImagePart(image_url=address):
                url = address if isinstance(address, str) else address.url
                images.append(read_image(url, f"{param}[{place}].image_url", number))
            case _FilePart(file=file) if part.is_image:
                images.append(read_image(file.file_data, f"{param}[{place}].file.file_data", number))
            case _FilePart(file=file):
                texts.append(read_text_file(file.file_data, file.filename or "", f"{param}[{place}].file.file_data"))
    return "\n".join(texts), images


# --- tools and format -------------------------------------------------------------------------------


def _offer(wire: CompletionBody) -> caller_tools.Offer | None:
    tools: dict[str, caller_tools.Tool] = {}
    for number, offered in enumerate(tool.function for tool in wire.tools or ()):
        param = f"tools[{number}].function"
        if offered.name in tools:
            raise invalid(f"{param}.name", "Two tools have this name; rename one.")
        tools[offered.name] = caller_tools.make_tool(
            offered.name, offered.description, offered.parameters, param, strict=offered.strict or False
        )
    choice = _tool_choice(wire, list(tools))
    if not tools:
        return None
    return caller_tools.Offer(
        tools=tuple(tools.values()), choice=choice, parallel=wire.parallel_tool_calls is not False
    )


def _tool_choice(wire: CompletionBody, names: list[str]) -> caller_tools.ToolChoice:
    match wire.tool_choice:
        case "none":
            return caller_tools.NoTool()
        case "auto" | None:
            return caller_tools.AutoTool()
        case "required":
            if not names:
                raise invalid("tool_choice", "A tool call is required, but `tools` is empty.")
            return caller_tools.RequiredTool()
        case _ToolChoice(function=_FunctionName(name=name)):
            if name not in names:
                there = f"there are {', '.join(names)}" if names else "there are none"
                raise invalid("tool_choice", f"{name[:100]!r} is not one of the tools; {there}.")
            return caller_tools.NamedTool(name)


def _format(wire: _WireFormat | None) -> Format | None:
    match wire:
        case None | _TextFormat():
            return None
        case _JsonObjectFormat():
            return JsonObject()
        case _JsonSchemaFormat(
            json_schema=_JsonSchema(name=name, description=description, schema=schema, strict=strict)
        ):
            return read_format(schema, "response_format.json_schema.schema", name, description, strict=bool(strict))


_PREFIX = "chatcmpl-"
_RUN_PREFIX = "chat_"


def chat_dialect(max_images: int, agent_tools: AgentTools, text: TextStyle = "exact") -> Dialect:
    """`text` is the default of requests that do not say how they want it, and what those who resume a run get."""
    shown = ChatReply(agent_tools=agent_tools, include_usage=True, text=text)
    return Dialect(
        routes=[Route("/v1/chat/completions", "completions", partial(_read, max_images=max_images, shown=shown))],
        replays=[Replay("openai", SSE, partial(_resumed, shown=shown))],
        errors=OPENAI_ERRORS,
        description="cursor_gateway.dialects.chat.openapi",
        answer_id=answer_id,
    )


# --- ids --------------------------------------------------------------------------------------------


def completion_head(run: RunView, after: int = 0) -> CompletionHead:
    """The same for all readers of the run. Each reply of a run that pauses has its own id."""
    reply = f"-{after}" if after else ""
    id = f"{_PREFIX}{run.info.id.removeprefix(_RUN_PREFIX)}{reply}"
    return CompletionHead(id, run.created, run.info.model or "")


def answer_id(id: str) -> AnswerId | None:
    """Of a completion's id, as `completion_head` makes them."""
    if not id.startswith(_PREFIX):
        return None
    run, _, after = id.removeprefix(_PREFIX).partition("-")
    return AnswerId(_RUN_PREFIX + run, int(after) if after.isascii() and after.isdigit() and len(after) < 16 else 0)


# --- replies ----------------------------------------------------------------------------------------


class ChatReply(JsonReply, Struct, frozen=True, kw_only=True):
    agent_tools: AgentTools
    include_usage: bool = False
    stop: tuple[str, ...] = ()
    max_tokens: int | None = None
    text: TextStyle = "exact"
    has_ids: bool = True

    def stream(self, run: RunView, start: ReplyStart) -> ChunkEncoder:
        return ChunkEncoder(
            completion_head(run, start.after),
            include_usage=self.include_usage,
            agent_tools=self.agent_tools,
            cutter=self.cutter(),
            prompt_tokens=self.prompt_tokens(run, start),
            text=self.text,
            after=start.after,
            has_ids=self.has_ids,
        )

    def whole(self, run: RunView, start: ReplyStart) -> CompletionFold:
        return CompletionFold(
            completion_head(run, start.after),
            agent_tools=self.agent_tools,
            cutter=self.cutter(),
            prompt_tokens=self.prompt_tokens(run, start),
            text=self.text,
            after=start.after,
        )

    def cutter(self) -> Cutter | None:
        return Cutter(self.stop, self.max_tokens) if self._is_limited else None

    def prompt_tokens(self, run: RunView, start: ReplyStart) -> int:
        """For the usage of an answer that is cut, which the agent does not report."""
        return context_tokens(run, start) if self._is_limited else 0

    @property
    def _is_limited(self) -> bool:
        return bool(self.stop) or self.max_tokens is not None


def _resumed(run: RunView, after: int, shown: ChatReply) -> tuple[Encoder, int]:
    return Resumed(lambda pause: shown.stream(run, ReplyStart(pause)), after, has_numbers=True), 0


# --- the dialect --------------------------------------------------------------------------------------


def _read(body: bytes, headers: Mapping[str, str], max_images: int, shown: ChatReply) -> StartRun:
    asked, agent_tools = read_request(body, max_images), shown.agent_tools
    if asked.offer is not None and agent_tools == "tool_calls":
        raise InvalidRequest(
            "This gateway reports the agent's own tools as `tool_calls` (setting `agent_tools`), so a client would "
            "run them again; omit `tools`.",
            param="tools",
        )
    options = with_headers(asked.cursor, headers)
    client_session = headers.get("x-session-id") or headers.get("x-session-affinity") or ""
    return StartRun(
        messages=asked.messages,
        reply=_reply(asked, options.text or shown.text, shown),
        check=None if asked.format is None else Check(asked.format, asked.stop, asked.max_tokens),
        stream=asked.stream,
        images=asked.images,
        instructions=instructions(asked.format) if asked.format is not None else "",
        clients_retry=True,
        attempt=_attempt(asked.messages, headers),
        has_full_history=options.conversation_id is None,
        client_session=client_session,
        # Only clients that run tools themselves name their sessions, or quote calls that were not the agent's own.
        has_own_tools=agent_tools != "tool_calls" and (bool(client_session) or quotes_calls(asked.messages)),
        offer=asked.offer,
        model=asked.model,
        **run_options(options),
    )


def _attempt(messages: Sequence[Message], headers: Mapping[str, str]) -> Attempt:
    has_results = any(isinstance(message, ToolMessage) for message in messages[answered(messages) :])
    return "only" if has_results else numbered_attempt(headers)  # repeated results are recognized by themselves


def _reply(asked: CompletionRequest, text: TextStyle, shown: ChatReply) -> ChatReply:
    """Nothing is inserted into an answer that must have a format, and its events are not those of the run."""
    is_free = asked.format is None
    return replace(
        shown,
        include_usage=asked.include_usage,
        stop=asked.stop,
        max_tokens=asked.max_tokens,
        text=text if is_free else "exact",
        has_ids=is_free,
    )
