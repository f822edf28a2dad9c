"""Anthropic's Messages API as a dialect: `POST /v1/messages` and `/v1/messages/count_tokens`.

Unknown fields are ignored, as clients send new ones all the time; so are the fields of `IGNORED`, which change nothing
here. Almost nothing is refused: Claude Code answers a refusal with five more requests. `cursor` is the gateway's
own; there, an unknown name is an error.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
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
    StreamForm,
)
from cursor_gateway.dialects.checked import Check
from cursor_gateway.dialects.deltas import ActionDisplay, ReplyState, TextStyle, without_marked
from cursor_gateway.dialects.messages.encoder import (
    PING,
    BlockStep,
    Composer,
    Display,
    MessageEncoder,
    MessageHead,
    message_of,
)
from cursor_gateway.dialects.messages.shapes import ANTHROPIC_ERRORS, answer_id, message_id
from cursor_gateway.dialects.replies import (
    JsonReply,
    Resumed,
    context_tokens,
)
from cursor_gateway.dialects.requests import (
    NO_EFFECT,
    NO_SETTING,
    CursorOptions,
    decoded_text,
    invalid,
    numbered_attempt,
    one_of,
    option_hints,
    with_headers,
)
from cursor_gateway.model import caller_tools
from cursor_gateway.model.document_events import DocumentEvent
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
    without_call_ids,
)
from cursor_gateway.model.requests import NonEmpty, run_options
from cursor_gateway.prompting.prompt import quotes_calls
from cursor_gateway.prompting.structured import Format, instructions, read_format
from cursor_gateway.stages.cutting import Cutter
from cursor_gateway.stages.tokens import estimate_tokens_by_sample
from cursor_gateway.wire.json_body import read_json
from cursor_gateway.wire.payload import Fields

# --- the conversation -------------------------------------------------------------------------------


Block: TypeAlias = dict[str, Any]
MessageContent: TypeAlias = str | list[Block]

_BILLING = "x-anthropic-billing-header:"  # Claude Code's; it varies from request to request
_REMINDER = "<system-reminder>"


class WireMessage(Struct, frozen=True):
    """One message of the conversation."""

    role: Annotated[Literal["user", "assistant", "system"], "The role of the message."]
    content: Annotated[
        MessageContent,
        "A text, or blocks: `text`, `image`, `document`, `tool_use`, `tool_result`, `search_result`. Thinking, server "
        "tools and blocks of unknown types are skipped.",
    ]


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
        case "base64" if source.text("media_type").startswith("text/") and (
            (decoded := decoded_text(source.text("data"))) is not None
        ):
            text = decoded
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


IGNORED: dict[str, str] = {
    "temperature": NO_SETTING,
    "top_p": NO_SETTING,
    "top_k": NO_SETTING,
    "thinking.budget_tokens": NO_SETTING,
    "output_config.effort": "The names of Cursor's models include the effort: choose it with `model`.",
    "cache_control": "Cursor decides what is cached.",
    "context_management": "Cursor's agent manages its own context.",
    "container": "The agent works in its workspace.",
    "mcp_servers": "Only the agent's own configuration names MCP servers.",
    "service_tier": NO_EFFECT,
    "speed": NO_EFFECT,
    "betas": NO_EFFECT,
    "diagnostics": NO_EFFECT,
    "tools[].type": "Anthropic's own tools are not run here, because the agent has its own.",
    "messages[].content[].type": "Thinking, server tools and blocks of unknown types are skipped.",
}

# Clients that want no limit send the largest that they know: Claude Code 128,000, others 32,000.
_NO_LIMIT = 16_000


class MessagesOptions(CursorOptions, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Gateway options."""

    actions: Annotated[ActionDisplay | None, "How the agent's own actions are shown."] = None


class MessagesRequest(Struct, frozen=True, kw_only=True):
    model: str
    conversation: MessagesConversation
    stream: bool
    max_tokens: int | None  # None: no limit
    stop: tuple[str, ...]
    thinking: bool
    tool_types: tuple[str, ...]  # of all tools, `custom` for the caller's own
    offer: caller_tools.Offer | None  # None: there are no tools of the caller's
    format: Format | None
    user_id: str
    cursor: MessagesOptions

    @property
    def takes_blocks(self) -> bool:
        """Other than text: some clients fail on those if they asked for neither thinking nor tools."""
        return self.thinking or bool(self.tool_types)


def read_request(body: bytes, max_images: int = 50) -> MessagesRequest:
    """Raises `InvalidRequest`, with the field that is to blame."""
    wire = read_json(body, MessagesBody, _HINTS)
    return MessagesRequest(
        model=wire.model,
        conversation=read_conversation(wire.system, wire.messages, max_images),
        stream=wire.stream or False,
        max_tokens=wire.max_tokens if wire.max_tokens < _NO_LIMIT else None,
        stop=tuple(wire.stop_sequences or ()),
        thinking=_thinks(Fields(wire.thinking)),
        tool_types=tuple(map(_type_of, wire.tools or ())),
        offer=_offer(wire),
        format=_format(wire),
        user_id=Fields(wire.metadata).text("user_id"),
        cursor=wire.cursor or MessagesOptions(),
    )


def countable(body: bytes) -> list[str]:
    """The texts of a request that is only to be counted: it has no limit, and its images count nothing."""
    wire = read_json(body, Counted, _HINTS)
    given = [msgspec.json.encode(tool).decode() for tool in wire.tools or ()]
    messages = read_conversation(wire.system, wire.messages, len(body)).messages
    calls = [f"{call.name} {call.arguments}" for message in messages for call in getattr(message, "calls", ())]
    return [*(message.text for message in messages), *calls, *given]


# --- the body's shape -------------------------------------------------------------------------------

_Object: TypeAlias = dict[str, Any]


class Counted(Struct, frozen=True, kw_only=True):
    """A request to count tokens."""

    messages: Annotated[
        list[WireMessage],
        Meta(min_length=1),
        "The whole conversation. If the last message is the assistant's, the answer continues it.",
    ]
    system: Annotated[MessageContent | None, "The instructions: a string, or text blocks."] = None
    tools: Annotated[list[_Object] | None, "The caller's tools. They replace the agent's own."] = None


class MessagesBody(Counted, frozen=True, kw_only=True):
    """A request of Anthropic's Messages API."""

    model: Annotated[
        NonEmpty, "A model id from `GET /v1/models`, or any Claude model name, which the setting `model_aliases` maps."
    ]
    max_tokens: Annotated[
        int,
        Meta(ge=1),
        "The maximum number of tokens in the answer's text (an estimate). Values of 16,000 and more set no limit.",
    ]
    stream: Annotated[bool | None, "Whether to stream the answer."] = None
    stop_sequences: Annotated[list[NonEmpty] | None, "Sequences at which the answer ends."] = None
    thinking: Annotated[
        _Object | None,
        "`enabled` or `adaptive` shows the agent's thinking. `budget_tokens`: Cursor's agent has no such setting.",
    ] = None
    tool_choice: Annotated[
        _Object | None,
        "`auto`, `any`, `none`, or `tool` with a `name`; `disable_parallel_tool_use` for one call at a time.",
    ] = None
    output_config: Annotated[
        _Object | None,
        "With a `format` of type `json_schema` the answer is JSON. `effort`: The names of Cursor's models include the "
        "effort: choose it with `model`.",
    ] = None
    output_format: Annotated[_Object | None, "The older place of `output_config.format`."] = None
    metadata: Annotated[_Object | None, "`user_id` may contain the session id, as in Claude Code."] = None
    cursor: MessagesOptions | None = None


_HINTS = {
    "messages[].role": one_of(("user", "assistant", "system")),
    **option_hints(MessagesOptions),
}


# --- reading it -------------------------------------------------------------------------------------


def _thinks(thinking: Fields) -> bool:
    return thinking.text("type") in ("enabled", "adaptive") and thinking.text("display") != "omitted"


def _type_of(tool: _Object) -> str:
    return Fields(tool).text("type") or "custom"


def _offer(wire: MessagesBody) -> caller_tools.Offer | None:
    tools: dict[str, caller_tools.Tool] = {}
    for number, offered in enumerate(wire.tools or ()):
        if _type_of(offered) != "custom":
            continue
        fields, param = Fields(offered), f"tools[{number}]"
        if (name := fields.text("name")) in tools:
            raise invalid(f"{param}.name", "Two tools have this name; rename one.")
        if not isinstance(offered.get("input_schema", {}), dict):
            raise invalid(f"{param}.input_schema", "Send a JSON Schema, which is an object.")
        tools[name] = caller_tools.make_tool(name, fields.text("description"), fields.object("input_schema").all, param)
    asked = Fields(wire.tool_choice)
    if not wire.tools and asked.text("type") in ("any", "tool"):
        raise invalid("tool_choice", "A tool call is required, but `tools` is empty.")
    if not tools:
        return None
    choice = _choice(asked, list(tools), [Fields(tool).text("name") for tool in wire.tools or ()])
    return caller_tools.Offer(
        tools=tuple(tools.values()), choice=choice, parallel=not asked.flag("disable_parallel_tool_use")
    )


def _choice(asked: Fields, names: list[str], all_names: list[str]) -> caller_tools.ToolChoice:
    name = asked.text("name")
    match asked.text("type"):
        case "auto" | "":
            return caller_tools.AutoTool()
        case "none":
            return caller_tools.NoTool()
        case "any":
            return caller_tools.RequiredTool()
        case "tool" if name in names:
            return caller_tools.NamedTool(name)
        case "tool" if name not in all_names:
            there = f"there are {', '.join(names)}"
            raise invalid("tool_choice.name", f"{name[:100]!r} is not one of the tools; {there}.")
        case "tool":
            return caller_tools.AutoTool()  # one of Anthropic's own tools
        case _:
            raise invalid("tool_choice.type", one_of(("auto", "any", "tool", "none")))


def _format(wire: MessagesBody) -> Format | None:
    format, param = Fields(wire.output_config).object("format"), "output_config.format"
    if not format.all:
        format, param = Fields(wire.output_format), "output_format"
    if not format.all:
        return None
    if format.text("type") != "json_schema":
        raise invalid(f"{param}.type", "Send json_schema.")
    return read_format(format.object("schema").all, f"{param}.schema", strict=True)


# --- Claude Code ------------------------------------------------------------------------------------


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


# --- the dialect ----------------------------------------------------------------------------------------


MESSAGE_STREAM = StreamForm(SSE.media_type, PING)


def messages_dialect(max_images: int, actions: ActionDisplay, text: TextStyle = "exact") -> Dialect:
    """`actions`: how the agent's own tools are shown, and `text`: whether the gateway adds to the agent's, unless a
    request says so."""
    read = partial(_read, max_images=max_images, actions=actions, text=text)
    return Dialect(
        routes=[Route("/v1/messages", "messages", read)],
        computed=[Route("/v1/messages/count_tokens", "count_tokens", _count_tokens)],
        replays=[Replay("messages", MESSAGE_STREAM, partial(_resumed, actions=actions))],
        errors=ANTHROPIC_ERRORS,
        header="anthropic-version",
        description="cursor_gateway.dialects.messages.openapi",
        answer_id=answer_id,
    )


# --- replies ----------------------------------------------------------------------------------------


class MessagesReply(JsonReply, Struct, frozen=True, kw_only=True):
    model: str  # as the client calls it
    display: Display
    stop: tuple[str, ...] = ()
    max_tokens: int | None = None
    form: StreamForm = MESSAGE_STREAM

    def stream(self, run: RunView, start: ReplyStart) -> Encoder:
        return MessageEncoder(_head(run, start, self.model), self.composer(run, start))

    def whole(self, run: RunView, start: ReplyStart) -> "WholeMessage":
        return WholeMessage(self, run, start)

    def composer(self, run: RunView, start: ReplyStart) -> Composer:
        return Composer(run.info.id, self.display, self._cutter(), context_tokens(run, start))

    def _cutter(self) -> Cutter | None:
        return Cutter(self.stop, self.max_tokens) if self.stop or self.max_tokens is not None else None


class WholeMessage(ReplyState):
    def __init__(self, reply: MessagesReply, run: RunView, start: ReplyStart) -> None:
        self.after = start.after
        self._head, self._composer = _head(run, start, reply.model), reply.composer(run, start)
        super().__init__(self._composer.deltas)
        self._steps: list[BlockStep] = []

    def push(self, event: DocumentEvent, /) -> None:
        self._steps += self._composer.push(event)

    def body(self) -> bytes:
        return msgspec.json.encode(message_of(self._head, self._steps))


def _head(run: RunView, start: ReplyStart, model: str) -> MessageHead:
    return MessageHead(
        id=message_id(run.info.id, start.after),
        model=model,
        signature=run.info.id,
        input_tokens=context_tokens(run, start),
        request_id=start.request_id,
    )


def _resumed(run: RunView, after: int, actions: ActionDisplay) -> tuple[Encoder, int]:
    display = Display(thinking=True, actions=actions)

    def message(pause: int) -> MessageEncoder:
        head = _head(run, ReplyStart(pause), run.info.model or "")
        return MessageEncoder(head, Composer(run.info.id, display))

    return Resumed(message, after), 0


# --- starting a run -----------------------------------------------------------------------------------


def _count_tokens(body: bytes, headers: Mapping[str, str]) -> bytes:
    return msgspec.json.encode({"input_tokens": sum(map(estimate_tokens_by_sample, countable(body)))})


def _read(
    body: bytes, headers: Mapping[str, str], max_images: int, actions: ActionDisplay, text: TextStyle
) -> StartRun:
    asked = read_request(body, max_images)
    options = with_headers(asked.cursor, headers)
    messages = asked.conversation.messages
    session = session_of(headers, asked.user_id)
    is_own = is_claude_code(headers)
    side = _side(asked, names_mode=options.mode is not None) if is_own else None
    reply = MessagesReply(
        model=asked.model,
        display=_display(asked, options.actions or actions, side, options.text or text),
        stop=asked.stop,
        max_tokens=asked.max_tokens,
    )
    start = StartRun(
        messages=messages,
        reply=reply,
        check=None if asked.format is None else Check(asked.format, asked.stop, asked.max_tokens),
        stream=asked.stream,
        attempt="unknown" if is_own else numbered_attempt(headers),  # Claude Code gives each attempt the number 0
        images=asked.conversation.images,
        instructions=instructions(asked.format) if asked.format is not None else "",
        clients_retry=True,
        has_full_history=options.conversation_id is None,
        client_session=session,
        offer=asked.offer,
        has_own_tools=bool(session) or quotes_calls(messages),
        model=asked.model,
        workspace_if_allowed=folder_of(messages) if is_own else None,
        **run_options(options),
    )
    return start if side is None else _beside(start, side)


def _side(asked: MessagesRequest, *, names_mode: bool) -> Side | None:
    last = asked.conversation.messages[-1]
    text = last.text if isinstance(last, UserMessage) else ""
    has_format = asked.format is not None
    return side_request(asked.tool_types, has_format=has_format, last_text=text, names_mode=names_mode)


def _beside(start: StartRun, side: Side) -> StartRun:
    """In a conversation of its own, without the caller's tools, and without writing."""
    is_simple = side == "search" or start.check is not None
    return msgspec.structs.replace(
        start,
        messages=without_call_ids(start.messages),
        instructions="\n\n".join(filter(None, [instructions_for(side), start.instructions])),
        has_full_history=False,
        client_session=f"{start.client_session} {side}",
        offer=None,
        model=CHEAPEST if is_simple else start.model,
        mode="ask",
        conversation_id=None,
    )


def _display(asked: MessagesRequest, actions: ActionDisplay, side: Side | None, text: TextStyle) -> Display:
    """Nothing is inserted into an answer that must have a format."""
    is_free = asked.format is None
    if side is not None:
        return Display(actions="search" if side == "search" and is_free else "none")
    is_shown = (actions == "text" or asked.takes_blocks) and (actions == "thinking" or is_free)
    has_notes = text == "readable" and is_free
    return Display(thinking=asked.thinking, actions=actions if is_shown else "none", notes=has_notes)
