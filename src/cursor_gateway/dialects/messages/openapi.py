"""The description of Anthropic's Messages API: `POST /v1/messages` and `/v1/messages/count_tokens`."""

from cursor_gateway.dialects import openapi as api
from cursor_gateway.dialects.messages.dialect import IGNORED, Counted, MessagesBody, MessagesOptions, MessagesReply
from cursor_gateway.dialects.messages.encoder import Display
from cursor_gateway.dialects.messages.shapes import ANTHROPIC_ERRORS, AnthropicMessage, ErrorResponse
from cursor_gateway.dialects.openapi import Description, Fields, Json, Sample
from cursor_gateway.errors import TooManyRequests

_ENVELOPE = api.ErrorForm("MessagesError", ANTHROPIC_ERRORS)


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

_NAMES = {
    "MessagesBody": "MessagesRequest",
    "Counted": "MessagesCountRequest",
    "WireMessage": "MessagesMessage",
    "AnthropicMessage": "Message",
    "MessageUsage": "MessagesUsage",
    "ErrorResponse": "MessagesError",
}
_OBJECTS = {"type": "array", "items": api.OBJECT}


def _name(type: str) -> str:
    return _NAMES.get(type, type)


def _schemas() -> dict[str, Json]:
    tools: Json = {"anyOf": [api.list_of("MessagesTool"), api.NULL]}
    exact = {"MessagesRequest.tools": tools, "MessagesCountRequest.tools": tools}
    requests = api.read_schemas([MessagesBody, Counted, MessagesOptions], _name, exact)
    api.ignore(requests["MessagesRequest"], IGNORED)
    replies = api.written_schemas(
        [AnthropicMessage, ErrorResponse], _name, {"Message.content": _OBJECTS, "Message.cursor": api.OBJECT}
    )
    return {
        **requests,
        **api.record("MessagesTokenCount", "The size of a request.", {"input_tokens": (api.COUNT, "An estimate.")}),
        **api.record("MessagesTool", "A caller's tool.", _TOOL, ["name"]),
        **replies,
        **api.record(
            "MessagesEvent",
            "One event of a stream: `message_start`, then for each block `content_block_start`, `content_block_delta` "
            "and `content_block_stop`, then `message_delta` and `message_stop`; `ping` between them; `error` instead "
            "of the rest if the run fails.",
            {"type": (api.TEXT, "The type of the event, as in its `event` line.")},
        ),
    }


_TOOL: Fields = {
    "name": ({"type": "string", "pattern": "^[A-Za-z0-9_./:-]{1,128}$"}, "Its name, which must be unique."),
    "description": (api.TEXT, "What it does, for the model."),
    "input_schema": ({"type": "object", "properties": {"type": {"const": "object"}}}, "The JSON Schema of its input."),
    "type": (api.TEXT, "`custom`, or one of Anthropic's own tools. " + IGNORED["tools[].type"]),
}
