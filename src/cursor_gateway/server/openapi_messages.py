"""The schemas of Anthropic's Messages API for the OpenAPI document, each with its meaning.

They are written here and not made of the types: the reader is lenient, and who reads a description wants to know what
to send.
"""

from typing import Any, get_args

from cursor_gateway.dialects.actions import ActionDisplay
from cursor_gateway.dialects.messages.errors import ErrorType
from cursor_gateway.dialects.messages.message import StopReason
from cursor_gateway.dialects.messages.request import IGNORED
from cursor_gateway.model.documents import Mode

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_NAME: Schema = {"type": "string", "minLength": 1}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_ANY: Schema = {"type": "object"}
_CONTENT: Schema = {"anyOf": [_TEXT, {"type": "array", "items": _ANY}]}


def _told(schema: Schema, about: str) -> Schema:
    return {**schema, "description": about}


def _ref(name: str, about: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}", "description": about}


def _object(title: str, about: str, properties: Schema, required: list[str]) -> Schema:
    return {"title": title, "description": about, "type": "object", "properties": properties, "required": required}


def message_schemas() -> dict[str, Schema]:
    """By name."""
    found = [
        _object(
            "MessagesRequest", "A request of Anthropic's Messages API.", _request(), ["model", "max_tokens", "messages"]
        ),
        _object(
            "MessagesCountRequest",
            "A request for counting tokens.",
            {name: _request()[name] for name in ("messages", "system", "tools")},
            ["messages"],
        ),
        _object(
            "MessagesTokenCount",
            "The size of a request.",
            {"input_tokens": _told(_COUNT, "An estimate.")},
            ["input_tokens"],
        ),
        _object(
            "MessagesMessage",
            "One message of the conversation.",
            {
                "role": _told({"enum": ["user", "assistant", "system"]}, "The role of the message."),
                "content": _told(
                    _CONTENT,
                    "A text, or blocks: `text`, `image`, `document`, `tool_use`, `tool_result`, `search_result`. "
                    + IGNORED["messages[].content[].type"],
                ),
            },
            ["role", "content"],
        ),
        _object(
            "MessagesTool",
            "A caller's tool.",
            {
                "name": _told(
                    {"type": "string", "pattern": "^[A-Za-z0-9_./:-]{1,128}$"}, "Its name, which must be unique."
                ),
                "description": _told(_TEXT, "What it does, for the model."),
                "input_schema": _told(
                    {"type": "object", "properties": {"type": {"const": "object"}}}, "The JSON Schema of its input."
                ),
                "type": _told(_TEXT, "`custom`, or a tool of Anthropic's own. " + IGNORED["tools[].type"]),
            },
            ["name"],
        ),
        _object("Message", "A message of Anthropic's Messages API.", _message(), list(_message())),
        _object("MessagesUsage", "The tokens of the last model call.", _usage(), list(_usage())),
        _object(
            "MessagesEvent",
            "One event of a stream: `message_start`, then for each block `content_block_start`, "
            "`content_block_delta` and `content_block_stop`, then `message_delta` and `message_stop`; `ping` between "
            "them; `error` instead of the rest if the run fails.",
            {"type": _told(_TEXT, "The type of the event, as in its `event` line.")},
            ["type"],
        ),
        _object(
            "MessagesError",
            "An error in Anthropic's form.",
            {
                "type": _told({"const": "error"}, "Always `error`."),
                "error": _ref("MessagesErrorBody", "The error."),
                "request_id": _told(_NAME, "The id of the request, as in the header `request-id`."),
            },
            ["type", "error"],
        ),
        _object(
            "MessagesErrorBody",
            "The error, and what to do.",
            {
                "type": _told({"enum": list(get_args(ErrorType))}, "The error type, which follows from the status."),
                "message": _told(_NAME, "A message that says what to do."),
            },
            ["type", "message"],
        ),
    ]
    return {schema["title"]: schema for schema in found}


def _request() -> Schema:
    ignored = {name: about for name, about in IGNORED.items() if not {".", "["} & set(name)}
    return {
        "model": _told(
            _NAME,
            "A model id from `GET /v1/models`, or any Claude model name, which the setting `model_aliases` maps.",
        ),
        "max_tokens": _told(
            {"type": "integer", "minimum": 1},
            "The maximum number of tokens of the answer's text, by estimate. Values of 16,000 and more set no limit.",
        ),
        "messages": _told(
            {"type": "array", "minItems": 1, "items": {"$ref": "#/components/schemas/MessagesMessage"}},
            "The whole conversation. If the last message is the assistant's, the answer continues it.",
        ),
        "system": _told(_CONTENT, "The instructions: a string, or text blocks."),
        "stream": _told({"type": "boolean"}, "Whether to stream the answer."),
        "stop_sequences": _told({"type": "array", "items": _NAME}, "Sequences at which the answer ends."),
        "tools": _told(
            {"type": "array", "items": {"$ref": "#/components/schemas/MessagesTool"}},
            "The caller's tools. They replace the agent's own.",
        ),
        "tool_choice": _told(
            _ANY, "`auto`, `any`, `none`, or `tool` with a `name`; `disable_parallel_tool_use` for one call at a time."
        ),
        "thinking": _told(
            _ANY,
            "`enabled` or `adaptive` shows the agent's thinking. `budget_tokens`: " + IGNORED["thinking.budget_tokens"],
        ),
        "output_config": _told(
            _ANY,
            "With a `format` of type `json_schema` the answer is JSON. `effort`: " + IGNORED["output_config.effort"],
        ),
        "metadata": _told(_ANY, "`user_id` may contain the session id, as in Claude Code."),
        "cursor": _told(
            {
                "type": "object",
                "properties": {
                    "mode": {"enum": list(get_args(Mode))},
                    "workspace": _NAME,
                    "conversationId": _NAME,
                    "actions": {"enum": list(get_args(ActionDisplay))},
                },
            },
            "Gateway options, as in `/v1/chat/completions`, and `actions`: how the agent's own actions are shown.",
        ),
        **{name: {"description": f"Ignored. {about}"} for name, about in ignored.items()},
    }


def _message() -> Schema:
    reasons = [*get_args(StopReason), None]
    return {
        "id": _told({"type": "string", "pattern": "^msg_"}, "The answer's id."),
        "type": _told({"const": "message"}, "Always `message`."),
        "role": _told({"const": "assistant"}, "Always `assistant`."),
        "model": _told(_TEXT, "The model, as in the request."),
        "content": _told({"type": "array", "items": _ANY}, "Blocks: `text`, `thinking`, `tool_use`, server tools."),
        "stop_reason": _told({"enum": reasons}, "Why the answer ends."),
        "stop_sequence": _told({"type": ["string", "null"]}, "The stop sequence that was found."),
        "usage": _ref("MessagesUsage", "The size of the conversation."),
    }


def _usage() -> Schema:
    return {
        "input_tokens": _told(_COUNT, "Tokens read, without those from the cache."),
        "cache_creation_input_tokens": _told(_COUNT, "Always 0."),
        "cache_read_input_tokens": _told(_COUNT, "Tokens read from the cache."),
        "output_tokens": _told(_COUNT, "Tokens of the answer."),
    }


MESSAGES_EXAMPLES: Schema = {
    "question": {
        "summary": "A question",
        "value": {
            "model": "claude-sonnet-4-5",
            "max_tokens": 32000,
            "messages": [{"role": "user", "content": "What does this project do?"}],
        },
    },
    "stream": {
        "summary": "A streamed answer with thinking",
        "value": {
            "model": "auto",
            "max_tokens": 32000,
            "stream": True,
            "thinking": {"type": "enabled", "budget_tokens": 1024},
            "messages": [{"role": "user", "content": "What does this project do?"}],
        },
    },
    "tools": {
        "summary": "A caller's tool",
        "value": {
            "model": "auto",
            "max_tokens": 32000,
            "tools": [
                {
                    "name": "weather",
                    "description": "The weather in a city.",
                    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
                }
            ],
            "messages": [{"role": "user", "content": "How is the weather in Oslo?"}],
        },
    },
}
COUNT_EXAMPLES: Schema = {
    "question": {"summary": "A question", "value": {"messages": [{"role": "user", "content": "Who are you?"}]}}
}
