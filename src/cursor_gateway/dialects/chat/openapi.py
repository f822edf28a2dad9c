"""The description of OpenAI's chat completions: `POST /v1/chat/completions`."""

from typing import Annotated, Literal

from msgspec import UNSET, Struct, UnsetType

from cursor_gateway.dialects import openapi as api
from cursor_gateway.dialects.chat.dialect import IGNORED, ChatReply, CompletionBody
from cursor_gateway.dialects.chat.encoder import ChatCompletion, CompletionCursor, CompletionUsage
from cursor_gateway.dialects.deltas import FinishReason
from cursor_gateway.dialects.openapi import Description, Json, Sample
from cursor_gateway.dialects.requests import CursorOptions


def describe(sample: Sample) -> Description:
    reply = ChatReply(agent_tools="reasoning", include_usage=True)
    chunks = api.stream(
        "The data of each event is a `ChatCompletionChunk`, or an `ErrorReply` if the run fails; the last is "
        "`[DONE]`. The id of an event is its number in the run, for `/v1/chat/{id}/events?dialect=openai`; with "
        "`stop`, `max_tokens` or `response_format`, events have no ids.",
        api.sse_event(("ChatCompletionChunk", "ErrorReply")),
        api.stream_example(sample, reply),
    )
    completion = api.json_content(api.ref("ChatCompletion"), api.whole_example(sample, reply))
    create = api.operation(
        "createChatCompletion",
        "Create a chat completion",
        "Takes the whole conversation and returns the agent's text. Thinking, and a line for each of the agent's "
        "actions, are in `reasoning_content`. If the agent calls one of `tools`, the reply ends with `tool_calls`, and "
        "the request with their results continues the same run. Options that would make the answer wrong are rejected; "
        "others that cannot be honoured are ignored, as noted below.",
        body=_BODY,
        replies=api.ok("The answer.", completion | {"text/event-stream": chunks}, api.RUN_HEADERS),
        errors=api.run_errors(),
        envelope=api.OPENAI_ENVELOPE,
        failed_run="ErrorReply",
        parameters=[api.IDEMPOTENCY_KEY, *api.SESSION_HEADERS, *api.cursor_headers(CursorOptions)],
    )
    return Description("OpenAI", "For any client of OpenAI's API.", {"POST /v1/chat/completions": create}, _schemas())


_QUESTION: list[Json] = [{"role": "user", "content": "What does this project do?"}]
_BODY = api.json_body(
    "ChatCompletionRequest",
    question=("A question", {"model": "auto", "messages": _QUESTION}),
    stream=(
        "A streamed answer with usage",
        {"model": "auto", "messages": _QUESTION, "stream": True, "stream_options": {"include_usage": True}},
    ),
    json=(
        "A JSON answer",
        {
            "model": "auto",
            "messages": [{"role": "user", "content": "Which languages is this project written in?"}],
            "response_format": {
                "type": "json_schema",
                "json_schema": {
                    "name": "languages",
                    "schema": {
                        "type": "object",
                        "properties": {"languages": {"type": "array", "items": api.TEXT}},
                        "required": ["languages"],
                    },
                },
            },
            "cursor": {"mode": "ask"},
        },
    ),
    tools=(
        "A tool result",
        {
            "model": "auto",
            "messages": [
                {"role": "user", "content": "Do I need an umbrella in Bergen?"},
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [
                        {
                            "id": "call_5d1e",
                            "type": "function",
                            "function": {"name": "weather", "arguments": '{"town":"Bergen"}'},
                        }
                    ],
                },
                {"role": "tool", "tool_call_id": "call_5d1e", "content": "Rain."},
            ],
            "tools": [{"type": "function", "function": api.WEATHER}],
        },
    ),
)


# --- schemas ----------------------------------------------------------------------------------------


class FunctionDelta(Struct, frozen=True):
    """The function's name, only at the start of a call, and its arguments."""

    name: Annotated[str | UnsetType, "The function's name, only at the start of a call."] = UNSET
    arguments: Annotated[str | UnsetType, "The next piece of the JSON."] = UNSET


class ToolCallDelta(Struct, frozen=True):
    """The start of a call, or the next piece of its arguments."""

    index: Annotated[int, "The index of the call."]
    id: Annotated[str | UnsetType, "The call's id, only at its start."] = UNSET
    type: Annotated[Literal["function"] | UnsetType, "Only at the start of a call."] = UNSET
    function: Annotated[FunctionDelta | UnsetType, "The function, and its arguments."] = UNSET


class ChunkDelta(Struct, frozen=True):
    """The changes."""

    role: Annotated[Literal["assistant"] | UnsetType, "The role of the message."] = UNSET
    content: Annotated[str | UnsetType, "The next piece of the text."] = UNSET
    reasoning_content: Annotated[
        str | UnsetType, "Thinking, and a line for each of the agent's actions. An extension that many clients read."
    ] = UNSET
    tool_calls: Annotated[list[ToolCallDelta] | UnsetType, "Tool calls."] = UNSET


class ChunkChoice(Struct, frozen=True):
    """The changes."""

    index: Annotated[int, "Always 0."]
    delta: Annotated[ChunkDelta, "The changes; the first chunk has the role."]
    finish_reason: Annotated[FinishReason | None, "Why the answer ends; null until then."]


class Chunk(Struct, frozen=True):  # the encoder writes it from templates
    """One event of a stream."""

    id: Annotated[str, "The same for all chunks."]
    object: Annotated[Literal["chat.completion.chunk"], "The object type."]
    created: Annotated[int, "When the run started, in seconds since 1970."]
    model: Annotated[str, "The model that answered."]
    choices: Annotated[list[ChunkChoice], "The changes; empty in the chunk with the usage."]
    usage: Annotated[CompletionUsage | UnsetType, "The tokens of this reply, in the last chunk, if requested."] = UNSET
    cursor: Annotated[CompletionCursor | UnsetType, "Gateway data, with `usage`."] = UNSET


_NAMES = {"ChatCompletion": "ChatCompletion", "CompletionBody": "ChatCompletionRequest"}


def _name(type: str) -> str:
    return _NAMES.get(type) or f"ChatCompletion{type.removeprefix('Completion')}"


def _schemas() -> dict[str, Json]:
    requests = api.read_schemas([CompletionBody], _name, _EXACT)
    api.ignore(requests["ChatCompletionRequest"], IGNORED)
    thinking = {name.removeprefix("messages[]."): why for name, why in IGNORED.items() if name.startswith("messages")}
    api.ignore(requests["ChatCompletionAssistantMessage"], thinking)
    replies = api.written_schemas([ChatCompletion, Chunk], _name)
    del replies["ChatCompletion"]["properties"]["error"]  # over HTTP an error has its own reply
    return requests | replies


_TEXT_PARTS = {
    "type": "array",
    "items": {"anyOf": [api.ref("ChatCompletionTextPart"), api.ref("ChatCompletionRefusalPart")]},
}
_ONLY_TEXT = [api.TEXT, _TEXT_PARTS]  # images are for messages of the user and of tools
_EXACT: dict[str, Json] = {
    "ChatCompletionSystemMessage.content": {"anyOf": _ONLY_TEXT},
    "ChatCompletionDeveloperMessage.content": {"anyOf": _ONLY_TEXT},
    "ChatCompletionAssistantMessage.content": {"anyOf": [*_ONLY_TEXT, api.NULL]},
    "ChatCompletionFunctionMessage.content": {"anyOf": [*_ONLY_TEXT, api.NULL]},
    "ChatCompletionImagePart.image_url": {"anyOf": [api.IMAGE, api.ref("ChatCompletionImageAddress")]},
    "ChatCompletionImageAddress.url": api.IMAGE,
    "ChatCompletionFunctionDefinition.parameters": api.TOOL_PARAMETERS,
    "ChatCompletionRequest.functions": {"anyOf": [{"type": "array", "maxItems": 0}, api.NULL]},
    "ChatCompletionRequest.n": {"enum": [1, None]},
    "ChatCompletionRequest.logprobs": {"enum": [False, None]},
    "ChatCompletionRequest.top_logprobs": {"enum": [0, None]},
    "ChatCompletionRequest.modalities": {"anyOf": [{"type": "array", "items": {"const": "text"}}, api.NULL]},
}
