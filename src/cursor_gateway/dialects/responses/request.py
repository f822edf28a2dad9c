"""Read OpenAI's request for a response: its body and its headers.

Unknown fields are ignored, as clients send new ones all the time. `IGNORED` are those that are known and change nothing
here; `REFUSED` are those whose answer would be wrong. `cursor` is the gateway's own; there, an unknown name is an
error.
"""

from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import UNSET, Meta, Struct

from cursor_gateway.dialects import requests
from cursor_gateway.dialects.deltas import TextStyle
from cursor_gateway.dialects.responses.conversation import (
    SUMMARY_REQUEST,
    Forms,
    Placed,
    ResponsesConversation,
    Toolbox,
    compacted_response,
    declared_tools,
    read_conversation,
    read_items,
    read_tools,
    without_retried,
)
from cursor_gateway.dialects.responses.shapes import ConversationReference, Echo
from cursor_gateway.errors import InvalidRequest
from cursor_gateway.model.requests import NonEmpty
from cursor_gateway.prompting.structured import Format, JsonObject, read_format
from cursor_gateway.wire.json_body import read_json
from cursor_gateway.wire.payload import Fields

# --- Codex ------------------------------------------------------------------------------------------


_TURN = "x-codex-turn-metadata"
_PARENT = "x-codex-parent-thread-id"


class Codex(Struct, frozen=True):
    session: str = ""  # of the thread, or of one of its subagents
    turn: str = ""  # the id of what the user has asked for; all attempts have the same
    workspace: str | None = None
    is_compaction: bool = False  # it asks for a summary of the conversation


def is_codex(headers: Mapping[str, str]) -> bool:
    """Its programs have different originators, such as `codex-tui`, `codex_exec` and `codex_vscode`, which users can
    change; each of them describes its turns."""
    return headers.get("originator", "").lower().startswith("codex") or _TURN in headers


def read_codex(headers: Mapping[str, str], metadata: Mapping[str, Any], cache_key: str | None) -> Codex | None:
    """None: it is another client."""
    if not is_codex(headers):
        return None
    turn = Fields({**_object(metadata.get(_TURN)), **_object(headers.get(_TURN))})
    thread = headers.get("session-id") or headers.get("thread-id") or cache_key or ""
    subagent = (turn.text("agent_name"), headers.get(_PARENT) or Fields(metadata).text(_PARENT))
    return Codex(
        session="/".join(filter(None, (thread, *subagent))),
        turn=turn.text("turn_id"),
        workspace=next(iter(turn.object("workspaces").all), None),
        is_compaction=turn.text("request_kind") == "compaction",
    )


def _object(value: Any) -> dict[str, Any]:
    """JSON in a string, or the object itself."""
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return {}
    return value if isinstance(value, dict) else {}


# --- the request ----------------------------------------------------------------------------------------


IGNORED: dict[str, str] = {
    "temperature": requests.NO_SETTING,
    "top_p": requests.NO_SETTING,
    "top_logprobs": requests.NO_SETTING,
    "truncation": "The agent itself shortens a conversation that is too long.",
    "context_management": "The agent itself shortens a conversation that is too long.",
    "reasoning": "The names of Cursor's models include the effort: choose it with `model`. Summaries are always sent.",
    "text.verbosity": requests.NO_SETTING,
    "max_tool_calls": requests.NO_SETTING,
    "stream_options": requests.NO_EFFECT,
    "service_tier": requests.NO_EFFECT,
    "prompt_cache_key": requests.NO_EFFECT,
    "prompt_cache_retention": requests.NO_EFFECT,
    "safety_identifier": requests.NO_EFFECT,
    "user": "Conversations belong to the API key.",
    "tools[].strict": "Arguments are always checked against the tool's schema.",
    "tools[].defer_loading": "The agent knows all tools from the start.",
}

REFUSED: dict[str, str] = {
    "prompt": "This gateway stores no prompt templates; send `input` and `instructions`.",
    "conversation": "Send either `conversation` or `previous_response_id`, not both.",
    "background": "It needs `store: true`: a response that is not stored could not be looked up.",
    "input[].content[].file_id": "This gateway stores no files; send a data: URI, or the text.",
    "text.format.type": "Send text, json_object or json_schema.",
}


# --- what is asked for ------------------------------------------------------------------------------


class KeptRequest(Struct, frozen=True, kw_only=True):
    """What a response depends on beside the run. It is kept, so that the response can be made again."""

    model: str = ""
    echo: Echo = Echo()
    input: list[dict[str, Any]] = []  # as it came
    forms: Forms = Forms()
    max_tokens: int | None = None
    is_codex: bool = False
    knows_searches: bool = False  # it declares a tool for them; to others they are actions like any other
    is_compaction: bool = False  # the answer becomes one compaction item
    has_encrypted_content: bool = False
    is_json: bool = False  # the answer is the JSON in the agent's text
    text: TextStyle = "exact"  # readable: with a last line if a person can allow what was not run


class ResponsesRequest(Struct, frozen=True, kw_only=True):
    asked: KeptRequest
    model: str | None
    conversation: ResponsesConversation
    instructions: str  # for this turn alone
    toolbox: Toolbox
    format: Format | None
    stream: bool
    background: bool
    store: bool
    follows: str | None
    conversation_id: str | None
    codex: Codex | None
    known: frozenset[str]  # the items that the client has got before
    cursor: requests.CursorOptions


# --- the body's shape -------------------------------------------------------------------------------


class _TextFormat(Struct, frozen=True, tag_field="type", tag="text"):
    pass


class _ObjectFormat(Struct, frozen=True, tag_field="type", tag="json_object"):
    pass


class _SchemaFormat(Struct, frozen=True, tag_field="type", tag="json_schema"):
    name: str = ""
    description: str | None = None
    schema: dict[str, Any] | None = None
    strict: bool | None = None


_WireFormat: TypeAlias = _TextFormat | _ObjectFormat | _SchemaFormat


class _TextOptions(Struct, frozen=True):
    format: _WireFormat | None = None


class _Reference(Struct, frozen=True):
    id: NonEmpty


_Limit: TypeAlias = Annotated[int, Meta(ge=1)]


class ResponsesBody(Struct, frozen=True, kw_only=True):
    """A request of OpenAI's Responses API."""

    input: Annotated[str | list[Any] | None, "The conversation, or its next message: a string, or a list of items."] = (
        None
    )
    model: Annotated[NonEmpty | None, "A model id from `GET /v1/models`. The default is the operator's setting."] = None
    instructions: Annotated[
        str | list[Any] | None, "Instructions for this response. They do not carry over to the next one."
    ] = None
    stream: Annotated[bool | None, "Whether to stream the answer."] = None
    store: Annotated[bool | None, "With `false`, the response cannot be looked up."] = None
    background: Annotated[bool | None, "Returns at once; the run continues without a client."] = None
    previous_response_id: Annotated[NonEmpty | None, "Continues after this response, which may be an older one."] = None
    conversation: Annotated[NonEmpty | _Reference | None, "Continues this conversation: its id, or `{id}`."] = None
    tools: Annotated[list[dict[str, Any]] | None, "The caller's tools. They replace the agent's own."] = None
    tool_choice: Annotated[Any, "What the agent may or must call. An object names a tool, or `allowed_tools`."] = None
    parallel_tool_calls: Annotated[bool | None, "With `false`, one call at a time."] = None
    text: Annotated[
        dict[str, Any] | None, "With a `format` of type `json_object` or `json_schema`, the answer is JSON."
    ] = None
    reasoning: dict[str, Any] | None = None
    include: Annotated[list[str] | None, "`reasoning.encrypted_content` adds it to reasoning items."] = None
    max_output_tokens: Annotated[_Limit | None, "The maximum number of tokens in the answer (an estimate)."] = None
    metadata: Annotated[dict[str, Any] | None, "Returned unchanged in the response."] = None
    prompt_cache_key: str | None = None
    client_metadata: Annotated[dict[str, Any] | None, "Codex's data about its turn."] = None
    prompt: Annotated[Any, "Not supported: this gateway stores no prompt templates."] = None
    cursor: requests.CursorOptions | None = None
    # Only echoed:
    temperature: float | None = None
    top_p: float | None = None
    top_logprobs: int | None = None
    truncation: str | None = None
    service_tier: str | None = None
    max_tool_calls: int | None = None
    safety_identifier: str | None = None
    presence_penalty: Annotated[float | None, "Returned unchanged in the response."] = None
    frequency_penalty: Annotated[float | None, "Returned unchanged in the response."] = None


_HINTS = {
    "input": "Send a text, or a list of items.",
    **requests.option_hints(requests.CursorOptions),
}


# --- reading it -------------------------------------------------------------------------------------


def read_body(body: bytes) -> ResponsesBody:
    """Raises `InvalidRequest`, with the field that is to blame."""
    return read_json(body, ResponsesBody, _HINTS)


def read_request(body: bytes, headers: Mapping[str, str], max_images: int = 50) -> ResponsesRequest:
    """Raises `InvalidRequest`."""
    wire = read_body(body)
    _check_refused(wire)
    codex = read_codex(headers, wire.client_metadata or {}, wire.prompt_cache_key)
    items = read_items(wire.input)
    received = [placed.item for placed in items]
    known: frozenset[str] = frozenset()
    if codex is not None:
        items, known = without_retried(items)
    is_compaction = bool(items) and items[-1].type == "compaction_trigger"
    if is_compaction:
        items = [*items[:-1], Placed({"type": "message", "role": "user", "content": SUMMARY_REQUEST}, "input")]
    toolbox = _toolbox(wire, items)
    if is_compaction or (codex is not None and codex.is_compaction):
        toolbox = Toolbox(toolbox.forms, None)
    guidance = _instructions(wire)
    follows = wire.previous_response_id or compacted_response(items)
    continues = follows is not None or wire.conversation is not None
    format = _format(wire)
    return ResponsesRequest(
        asked=KeptRequest(
            model=wire.model or "",
            echo=_echo(wire, is_brief=codex is not None),
            input=received,
            forms=toolbox.forms,
            max_tokens=wire.max_output_tokens,
            is_codex=codex is not None,
            knows_searches=any(str(tool.get("type")).startswith("web_search") for tool in wire.tools or ()),
            is_compaction=is_compaction,
            has_encrypted_content="reasoning.encrypted_content" in (wire.include or ()),
            is_json=format is not None,
        ),
        model=wire.model,
        # Instructions are no part of the conversation that `previous_response_id` continues.
        conversation=read_conversation(items, "" if continues else guidance, toolbox.forms, max_images),
        instructions=guidance if continues else "",
        toolbox=toolbox,
        format=None if is_compaction else format,
        stream=wire.stream or False,
        background=wire.background or False,
        store=wire.store is not False,
        follows=follows,
        conversation_id=_conversation_id(wire),
        codex=codex,
        known=known,
        cursor=requests.with_headers(wire.cursor or requests.CursorOptions(), headers),
    )


def _check_refused(wire: ResponsesBody) -> None:
    is_refused = {
        "prompt": wire.prompt is not None,
        "conversation": wire.conversation is not None and wire.previous_response_id is not None,
        "background": wire.background and wire.store is False,
    }
    for field, is_wrong in is_refused.items():
        if is_wrong:
            raise requests.invalid(field, REFUSED[field])


def _toolbox(wire: ResponsesBody, items: list[Placed]) -> Toolbox:
    declared = [(f"tools[{number}]", tool) for number, tool in enumerate(wire.tools or ())]
    parallel = wire.parallel_tool_calls is not False
    return read_tools([*declared, *declared_tools(items)], wire.tool_choice, parallel=parallel)


def _instructions(wire: ResponsesBody) -> str:
    """Also as items, as clients that repeat a response's `instructions` send them."""
    if wire.instructions is None or isinstance(wire.instructions, str):
        return wire.instructions or ""
    try:
        read = read_conversation(read_items(wire.instructions), "", Forms(), 0)
    except InvalidRequest:
        raise requests.invalid("instructions", "Send a text.") from None
    return "\n\n".join(message.text for message in read.messages)


def _conversation_id(wire: ResponsesBody) -> str | None:
    return wire.conversation.id if isinstance(wire.conversation, _Reference) else wire.conversation


def _format(wire: ResponsesBody) -> Format | None:
    match requests.convert_field(wire.text or {}, _TextOptions, "text", REFUSED["text.format.type"]).format:
        case None | _TextFormat():
            return None
        case _ObjectFormat():
            return JsonObject()
        case _SchemaFormat(name=name, description=description, schema=schema, strict=strict):
            return read_format(schema, "text.format.schema", name, description, strict=bool(strict))


# --- what is repeated -------------------------------------------------------------------------------

_DEFAULT_FORMAT: dict[str, Any] = {"format": {"type": "text"}}


def _echo(wire: ResponsesBody, *, is_brief: bool) -> Echo:
    """What was not sent has the default of `Echo`. A brief one is without what Codex sends much of, and does not read:
    it would come three times in each stream."""
    given = {name: value for name in Echo.__struct_fields__ if (value := getattr(wire, name)) is not None}
    conversation, reasoning = _conversation_id(wire), wire.reasoning or {}
    completed: dict[str, Any] = {
        "conversation": UNSET if conversation is None else ConversationReference(conversation),
        "reasoning": {**reasoning, "effort": reasoning.get("effort"), "summary": reasoning.get("summary")},
        "service_tier": wire.service_tier or "default",
        "text": {**_DEFAULT_FORMAT, **{name: value for name, value in (wire.text or {}).items() if value is not None}},
        "tools": [_echoed(tool) for tool in wire.tools or ()],
        "truncation": wire.truncation or "disabled",
    }
    return Echo(**{**given, **completed, **({"tools": [], "instructions": None} if is_brief else {})})


def _echoed(tool: dict[str, Any]) -> dict[str, Any]:
    if tool.get("type") != "function":
        return tool
    return {"description": None, "parameters": None, **tool, "strict": tool.get("strict") or False}
