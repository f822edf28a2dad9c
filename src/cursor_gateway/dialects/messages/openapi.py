"""The description of Anthropic's Messages API: `POST /v1/messages` and `/v1/messages/count_tokens`.

The schemas are written here, not generated: the reader is lenient, and a description has to say what to send.
"""

from typing import get_args

from cursor_gateway.dialects import openapi as api
from cursor_gateway.dialects.base import Description, Sample
from cursor_gateway.dialects.errors import for_retrying_clients
from cursor_gateway.dialects.messages.blocks import Display
from cursor_gateway.dialects.messages.dialect import MessagesReply
from cursor_gateway.dialects.messages.request import IGNORED, MessagesOptions
from cursor_gateway.dialects.messages.shapes import ErrorType, StopReason, error_response
from cursor_gateway.dialects.openapi import Fields, Json
from cursor_gateway.errors import TooManyRequests

_ENVELOPE = api.Envelope("MessagesError", error_response, shown=for_retrying_clients)


def describe(sample: Sample) -> Description:
    reply = MessagesReply(model="auto", display=Display())
    events = api.stream(
        "The name of each event is its type. `ping` events keep a silent stream open.",
        api.sse_event(("MessagesEvent",), event=api.TEXT),
        api.stream_example(sample, reply),
    )
    message = api.json_content(api.ref("Message"), api.whole_example(sample, reply))
    create = api.operation(
        "createMessage",
        "Create a message",
        "Takes the whole conversation and returns a message. If the agent calls one of `tools`, the message ends with "
        "`tool_use`, and the request with the results continues the same run. Almost nothing is rejected; options that "
        "cannot be honoured are ignored, as noted below. `?beta=true` changes nothing.",
        body=_BODY,
        replies=api.ok("The answer.", message | {"text/event-stream": events}, api.RUN_HEADERS),
        errors=api.run_errors(),
        failed_run="MessagesError",
        parameters=[
            api.IDEMPOTENCY_KEY,
            api.header("X-Claude-Code-Session-Id", "Claude Code's session id."),
            api.header("X-Claude-Code-Agent-Id", "The id of a Claude Code subagent, which has its own conversation."),
            *api.cursor_headers(MessagesOptions),
        ],
        envelope=_ENVELOPE,
    )
    count = api.operation(
        "countTokens",
        "Count tokens",
        "Returns an estimate without running the agent.",
        body=api.json_body(
            "MessagesCountRequest",
            question=("A question", {"messages": [{"role": "user", "content": "Who are you?"}]}),
        ),
        replies=api.json_ok("The count.", "MessagesTokenCount", {"input_tokens": 4}),
        errors=(*api.OF_BODIES, TooManyRequests),
        envelope=_ENVELOPE,
    )
    return Description(
        "Anthropic",
        "For any client of Anthropic's API, such as Claude Code.",
        {"POST /v1/messages": create, "POST /v1/messages/count_tokens": count},
        _schemas(),
    )


_QUESTION = [{"role": "user", "content": "What does this project do?"}]
_BODY = api.json_body(
    "MessagesRequest",
    question=("A question", {"model": "claude-sonnet-4-5", "max_tokens": 32000, "messages": _QUESTION}),
    stream=(
        "A streamed answer with thinking",
        {
            "model": "auto",
            "max_tokens": 32000,
            "stream": True,
            "thinking": {"type": "enabled", "budget_tokens": 1024},
            "messages": _QUESTION,
        },
    ),
    tools=(
        "A caller's tool",
        {
            "model": "auto",
            "max_tokens": 32000,
            "tools": [
                {
                    "name": "weather",
                    "description": "The weather in a city.",
                    "input_schema": {"type": "object", "properties": {"city": api.TEXT}},
                }
            ],
            "messages": [{"role": "user", "content": "What is the weather in Oslo?"}],
        },
    ),
)


# --- schemas ----------------------------------------------------------------------------------------

_CONTENT: Json = {"anyOf": [api.TEXT, {"type": "array", "items": api.OBJECT}]}


def _schemas() -> dict[str, Json]:
    options = api.read_schemas([MessagesOptions], {".actions": "How the agent's own actions are shown."})
    return {
        **api.record("MessagesRequest", "A request of Anthropic's Messages API.", _REQUEST | _OPTIONS, _REQUIRED),
        **api.record("MessagesCountRequest", "A request to count tokens.", _REQUEST, ["messages"]),
        **api.record("MessagesTokenCount", "The size of a request.", {"input_tokens": (api.COUNT, "An estimate.")}),
        **api.record("MessagesMessage", "One message of the conversation.", _WIRE_MESSAGE),
        **api.record("MessagesTool", "A caller's tool.", _TOOL, ["name"]),
        **options,
        **api.record("Message", "A message of Anthropic's Messages API.", _MESSAGE),
        **api.record("MessagesUsage", "The tokens of this message.", _USAGE),
        **api.record(
            "MessagesEvent",
            "One event of a stream: `message_start`, then for each block `content_block_start`, `content_block_delta` "
            "and `content_block_stop`, then `message_delta` and `message_stop`; `ping` between them; `error` instead "
            "of the rest if the run fails.",
            {"type": (api.TEXT, "The type of the event, as in its `event` line.")},
        ),
        **api.record(
            "MessagesError",
            "An error in Anthropic's form.",
            {
                "type": ({"const": "error"}, "Always `error`."),
                "error": (api.ref("MessagesErrorBody"), "The error."),
                "request_id": (api.NAME, "The id of the request, as in the header `request-id`."),
            },
            ["type", "error"],
        ),
        **api.record(
            "MessagesErrorBody",
            "The error, and what to do.",
            {
                "type": ({"enum": list(get_args(ErrorType))}, "The error type, which follows from the status."),
                "message": (api.NAME, "A message that says what to do."),
            },
        ),
    }


_REQUIRED = ["model", "max_tokens", "messages"]
_REQUEST: Fields = {
    "messages": (
        {**api.list_of("MessagesMessage"), "minItems": 1},
        "The whole conversation. If the last message is the assistant's, the answer continues it.",
    ),
    "system": (_CONTENT, "The instructions: a string, or text blocks."),
    "tools": (api.list_of("MessagesTool"), "The caller's tools. They replace the agent's own."),
}
_OPTIONS: Fields = {
    "model": (
        api.NAME,
        "A model id from `GET /v1/models`, or any Claude model name, which the setting `model_aliases` maps.",
    ),
    "max_tokens": (
        {"type": "integer", "minimum": 1},
        "The maximum number of tokens in the answer's text (an estimate). Values of 16,000 and more set no limit.",
    ),
    "stream": (api.FLAG, "Whether to stream the answer."),
    "stop_sequences": ({"type": "array", "items": api.NAME}, "Sequences at which the answer ends."),
    "tool_choice": (
        api.OBJECT,
        "`auto`, `any`, `none`, or `tool` with a `name`; `disable_parallel_tool_use` for one call at a time.",
    ),
    "thinking": (
        api.OBJECT,
        "`enabled` or `adaptive` shows the agent's thinking. `budget_tokens`: " + IGNORED["thinking.budget_tokens"],
    ),
    "output_config": (
        api.OBJECT,
        "With a `format` of type `json_schema` the answer is JSON. `effort`: " + IGNORED["output_config.effort"],
    ),
    "metadata": (api.OBJECT, "`user_id` may contain the session id, as in Claude Code."),
    "cursor": (api.ref("MessagesOptions"), "Gateway options."),
    **api.ignored(IGNORED),
}
_WIRE_MESSAGE: Fields = {
    "role": ({"enum": ["user", "assistant", "system"]}, "The role of the message."),
    "content": (
        _CONTENT,
        "A text, or blocks: `text`, `image`, `document`, `tool_use`, `tool_result`, `search_result`. "
        + IGNORED["messages[].content[].type"],
    ),
}
_TOOL: Fields = {
    "name": ({"type": "string", "pattern": "^[A-Za-z0-9_./:-]{1,128}$"}, "Its name, which must be unique."),
    "description": (api.TEXT, "What it does, for the model."),
    "input_schema": ({"type": "object", "properties": {"type": {"const": "object"}}}, "The JSON Schema of its input."),
    "type": (api.TEXT, "`custom`, or one of Anthropic's own tools. " + IGNORED["tools[].type"]),
}
_MESSAGE: Fields = {
    "id": ({"type": "string", "pattern": "^msg_"}, "The answer's id."),
    "type": ({"const": "message"}, "Always `message`."),
    "role": ({"const": "assistant"}, "Always `assistant`."),
    "model": (api.TEXT, "The model, as in the request."),
    "content": ({"type": "array", "items": api.OBJECT}, "Blocks: `text`, `thinking`, `tool_use`, server tools."),
    "stop_reason": ({"enum": [*get_args(StopReason), None]}, "Why the answer ended."),
    "stop_sequence": ({"type": ["string", "null"]}, "The stop sequence that was found."),
    "usage": (
        api.ref("MessagesUsage"),
        "What the model wrote in this message, and in total the size of the conversation.",
    ),
}
_USAGE: Fields = {
    "input_tokens": (api.COUNT, "Tokens read, excluding those from the cache."),
    "cache_creation_input_tokens": (api.COUNT, "Always 0."),
    "cache_read_input_tokens": (api.COUNT, "Tokens read from the cache."),
    "output_tokens": (api.COUNT, "Tokens in the answer."),
}
