"""The description of OpenAI's chat completions: `POST /v1/chat/completions`."""

from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from cursor_gateway.dialects import openapi as api
from cursor_gateway.dialects.base import Description, Sample
from cursor_gateway.dialects.chat.dialect import ChatReply
from cursor_gateway.dialects.chat.encoder import ChatCompletion, CompletionCursorFields, CompletionUsage
from cursor_gateway.dialects.chat.request import IGNORED, _Request
from cursor_gateway.dialects.deltas import FinishReason
from cursor_gateway.dialects.openapi import Json, Meanings
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
    name: str | UnsetType = UNSET
    arguments: str | UnsetType = UNSET


class ToolCallDelta(Struct, frozen=True):
    index: int
    id: str | UnsetType = UNSET
    type: Literal["function"] | UnsetType = UNSET
    function: FunctionDelta | UnsetType = UNSET


class Delta(Struct, frozen=True):
    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[ToolCallDelta] | UnsetType = UNSET


class ChunkChoice(Struct, frozen=True):
    index: int
    delta: Delta
    finish_reason: FinishReason | None


class Chunk(Struct, frozen=True):  # the encoder writes it from templates
    """One event of a stream."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    choices: list[ChunkChoice]
    usage: CompletionUsage | UnsetType = UNSET
    cursor: CompletionCursorFields | UnsetType = UNSET


def _schemas() -> dict[str, Json]:
    requests = api.read_schemas([_Request], MEANINGS, prefix=_PREFIX, names=_NAMES, exact=_EXACT)
    for name, why in IGNORED.items():
        owner = "AssistantMessage" if name.startswith("messages[].") else "Request"
        properties = requests[_PREFIX + owner]["properties"]
        properties.setdefault(name.removeprefix("messages[]."), {})["description"] = f"Ignored. {why}"
    replies = api.written_schemas([ChatCompletion, Chunk], MEANINGS, prefix=_PREFIX, names=_NAMES)
    del replies["ChatCompletion"]["properties"]["error"]  # over HTTP an error has its own reply
    shared = ("CursorOptions", "Error", "RefusedCall")  # which other descriptions have
    return {name: schema for name, schema in (requests | replies).items() if name not in shared}


_PREFIX = "ChatCompletion"
_NAMES = {
    "_ToolCall": "ChatCompletionRequestToolCall",
    "_Function": "ChatCompletionRequestFunction",
    "ChatCompletion": "ChatCompletion",
    "CompletionUsage": "ChatCompletionUsage",
    "CompletionChoice": "ChatCompletionChoice",
    "CompletionMessage": "ChatCompletionMessage",
    "CompletionToolCall": "ChatCompletionToolCall",
    "CompletionCursorFields": "ChatCompletionCursor",
}
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
MEANINGS: Meanings = {
    "ChatCompletionRequest": "A chat completion request. Unknown fields are ignored, so that any client works.",
    "ChatCompletionRequest.messages": "The conversation. At least one message must not be empty.",
    "ChatCompletionRequest.model": "A model id from `GET /v1/models`. The default is the operator's setting.",
    "ChatCompletionRequest.stream": "Whether to stream the answer.",
    "ChatCompletionRequest.max_tokens": "The maximum length of the answer. If both limits are given, the smaller "
    "one applies.",
    "ChatCompletionRequest.max_completion_tokens": "The maximum length of the answer.",
    "ChatCompletionRequest.stop": "Sequences at which the answer ends.",
    "ChatCompletionRequest.response_format": "The format of the answer. It is checked, and requested once more if "
    "it does not match.",
    "ChatCompletionRequest.tools": "Functions that the caller runs, with unique names. They replace the agent's "
    "own tools. If the agent calls one, the reply ends with `tool_calls`, and the request with the results "
    "continues the same run.",
    "ChatCompletionRequest.tool_choice": "Whether the agent may call the caller's tools (`auto`, `none`), must "
    "call one (`required`), or must call the named one.",
    "ChatCompletionRequest.parallel_tool_calls": "Whether a reply may contain several tool calls.",
    "ChatCompletionRequest.functions": "The old form of `tools`. Not supported, because its results name no call; "
    "use `tools`.",
    "ChatCompletionRequest.cursor": "Gateway options. Clients that cannot send them can use headers.",
    "ChatCompletionRequest.n": "Must be 1.",
    "ChatCompletionRequest.logprobs": "Not supported by Cursor's agent.",
    "ChatCompletionRequest.top_logprobs": "Not supported by Cursor's agent.",
    "ChatCompletionRequest.modalities": "Only text is supported.",
    "ChatCompletionSystemMessage": "Instructions.",
    "ChatCompletionDeveloperMessage": "Instructions; the newer name of a system message.",
    "ChatCompletionUserMessage": "A user message, which may contain images.",
    "ChatCompletionUserMessage.name": "Distinguishes several users.",
    "ChatCompletionAssistantMessage": "An earlier answer.",
    "ChatCompletionAssistantMessage.content": "The text; may be null if there are tool calls.",
    "ChatCompletionAssistantMessage.refusal": "The refusal, if there was one.",
    "ChatCompletionAssistantMessage.tool_calls": "The tool calls.",
    "ChatCompletionAssistantMessage.function_call": "The old form of `tool_calls`.",
    "ChatCompletionToolMessage": "The result of one of the caller's tools.",
    "ChatCompletionToolMessage.tool_call_id": "The id of the tool call.",
    "ChatCompletionToolMessage.name": "The tool's name.",
    "ChatCompletionFunctionMessage": "The old form of a tool message.",
    "ChatCompletionFunctionMessage.name": "The function's name.",
    ".role": "The role of the message.",
    ".content": "A string, or a list of parts.",
    "ChatCompletionTextPart": "A text part.",
    "ChatCompletionTextPart.text": "The text.",
    "ChatCompletionRefusalPart": "A refusal part.",
    "ChatCompletionRefusalPart.refusal": "The text.",
    "ChatCompletionImagePart": "An image part.",
    "ChatCompletionImagePart.image_url": "The image as a data: URI, as a string or in an object. Other URLs are "
    "not fetched.",
    "ChatCompletionImageAddress": "An image in the request itself.",
    "ChatCompletionImageAddress.url": "A data: URI: png, jpeg, gif or webp in base64.",
    "ChatCompletionTool": "A caller's tool.",
    "ChatCompletionTool.function": "The function.",
    "ChatCompletionFunctionDefinition": "A function that the agent can call.",
    "ChatCompletionFunctionDefinition.name": "The tool's name.",
    "ChatCompletionFunctionDefinition.description": "What it does, for the model.",
    "ChatCompletionFunctionDefinition.parameters": "The JSON Schema of its arguments, which must be an object. "
    "Arguments are checked against it.",
    "ChatCompletionFunctionDefinition.strict": "Accepted; arguments are checked either way.",
    "ChatCompletionToolChoice": "The one function that must be called.",
    "ChatCompletionToolChoice.function": "The function's name.",
    "ChatCompletionFunctionName": "A function's name.",
    "ChatCompletionStreamOptions": "Options of a stream.",
    "ChatCompletionStreamOptions.include_usage": "Whether a last chunk contains the usage.",
    "ChatCompletionJsonSchemaFormat": "JSON that is valid against a schema.",
    "ChatCompletionJsonSchemaFormat.json_schema": "The schema, and its name.",
    "ChatCompletionJsonSchema": "A schema, and its name.",
    "ChatCompletionJsonSchema.name": "The name of the format.",
    "ChatCompletionJsonSchema.description": "A description of the format.",
    "ChatCompletionJsonSchema.schema": "The JSON Schema. References must stay within it.",
    ".strict": "Accepted; answers are checked either way.",
    "ChatCompletionRequestToolCall": "An earlier tool call.",
    "ChatCompletionRequestFunction": "The function that was called.",
    "ChatCompletion": "A chat completion.",
    "ChatCompletion.id": "The id of this answer, `chatcmpl-…`.",
    "ChatCompletion.choices": "The answer; always one choice.",
    "ChatCompletionChoice": "The answer.",
    "ChatCompletionMessage": "The message.",
    "ChatCompletionMessage.content": "The agent's own text, byte for byte; null if there are only tool calls.",
    "ChatCompletionToolCall": "A tool call.",
    "ChatCompletionFunction": "The function and its arguments.",
    "ChatCompletion.usage": "What the model wrote in this reply, and in total the size of the conversation.",
    "ChatCompletionCursor.refused_count": "The number of the agent's tool calls that were not run because nothing "
    "allowed them, whatever the answer claims.",
    "ChatCompletionCursor.refused": "The first 20 of them: what was not run, the rules that would allow it, the "
    "reason, and a link to this gateway's page where a person can allow it.",
    "ChatCompletionCursor.usage": "The total of all model calls of the run, as reported by the agent.",
    "ChatCompletionUsage": "Tokens read and written.",
    "ChatCompletionUsage.prompt_tokens": "Tokens read, including those from the cache.",
    "ChatCompletionUsage.completion_tokens": "Tokens written.",
    "ChatCompletionUsage.total_tokens": "The sum of both.",
    "ChatCompletionUsage.estimated": "Gateway extension: true if these are not the agent's own figures.",
    "ChatCompletionPromptTokensDetails": "More about the tokens read.",
    "ChatCompletionPromptTokensDetails.cached_tokens": "Tokens from the cache.",
    "ChatCompletionCompletionTokensDetails": "More about the tokens written.",
    "ChatCompletionCompletionTokensDetails.reasoning_tokens": "Tokens of thinking; 0 if they are not reported.",
    "ChatCompletionChunk.id": "The same for all chunks.",
    "ChatCompletionChunk.choices": "The changes; empty in the chunk with the usage.",
    "ChatCompletionChunk.usage": "The tokens of this reply, in the last chunk, if requested.",
    "ChatCompletionChunk.cursor": "Gateway data, with `usage`.",
    "ChatCompletionChunkChoice": "The changes.",
    "ChatCompletionChunkChoice.delta": "The changes; the first chunk has the role.",
    "ChatCompletionChunkChoice.finish_reason": "Why the answer ends; null until then.",
    "ChatCompletionDelta": "The changes.",
    "ChatCompletionDelta.content": "The next piece of the text.",
    "ChatCompletionToolCallDelta": "The start of a call, or the next piece of its arguments.",
    "ChatCompletionToolCallDelta.index": "The index of the call.",
    "ChatCompletionToolCallDelta.id": "The call's id, only at its start.",
    "ChatCompletionToolCallDelta.type": "Only at the start of a call.",
    "ChatCompletionFunctionDelta": "The function's name, only at the start of a call, and its arguments.",
    "ChatCompletionFunctionDelta.name": "The function's name, only at the start of a call.",
    "ChatCompletionFunctionDelta.arguments": "The next piece of the JSON.",
    ".object": "The object type.",
    ".created": "When the run started, in seconds since 1970.",
    ".model": "The model that answered.",
    ".index": "Always 0.",
    ".finish_reason": "`stop`, `length` if the answer was cut off, or `tool_calls` if the caller has to run tools; "
    "the run then waits for their results.",
    ".reasoning_content": "Thinking, and a line for each of the agent's actions. An extension that many clients read.",
    ".tool_calls": "Tool calls.",
    ".id": "The call's id.",
    ".type": "The object type.",
    ".function": "The function, and its arguments.",
    ".name": "The function's name.",
    ".arguments": "JSON, as the model wrote it.",
}
