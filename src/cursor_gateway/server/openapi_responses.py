"""The schemas of OpenAI's Responses API for the OpenAPI document, each with its meaning, and examples.

They are written here and not made of the types: the reader is lenient, and who reads a description wants to know what
to send.
"""

from collections.abc import Sequence
from typing import Any, get_args

from cursor_gateway.dialects.responses.encoder import ResponseStream, WholeResponse
from cursor_gateway.dialects.responses.output import Head
from cursor_gateway.dialects.responses.request import IGNORED, Asked
from cursor_gateway.dialects.responses.shapes import ResponseStatus
from cursor_gateway.model.document_events import DocumentEvent
from cursor_gateway.model.documents import MODES
from cursor_gateway.model.run_info import Fences, Include, WhenClientLeaves

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_NAME: Schema = {"type": "string", "minLength": 1}
_NUMBER: Schema = {"type": "integer", "minimum": 0}
_OBJECT: Schema = {"type": "object"}
_FLAG: Schema = {"type": "boolean"}
_NULL: Schema = {"type": "null"}

RESPONSE_EXAMPLES: Schema = {
    "question": {"summary": "A question", "value": {"model": "auto", "input": "What does this project do?"}},
    "stream": {
        "summary": "A streamed answer",
        "value": {"model": "auto", "input": "What does this project do?", "stream": True},
    },
    "continued": {
        "summary": "The next message after a response",
        "value": {"model": "auto", "input": "Now in Rust.", "previous_response_id": "resp_7f3a2b1c"},
    },
    "result": {
        "summary": "A tool result",
        "value": {
            "model": "auto",
            "previous_response_id": "resp_7f3a2b1c",
            "input": [{"type": "function_call_output", "call_id": "call_5d1e", "output": "Rain."}],
            "tools": [{"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}}],
        },
    },
}
COUNT_EXAMPLES: Schema = {
    "question": {"summary": "A question", "value": {"model": "auto", "input": "What does this project do?"}}
}
COMPACT_EXAMPLES: Schema = {
    "conversation": {
        "summary": "A conversation",
        "value": {"model": "auto", "input": [{"role": "user", "content": "What does this project do?"}]},
    }
}
COMPACTION: Schema = {
    "id": "resp_0d1f",
    "object": "response.compaction",
    "created_at": 1771842600,
    "output": [{"type": "compaction", "id": "cmp_0d1f", "encrypted_content": "cg1.eJyL…"}],
    "usage": {
        "input_tokens": 6,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": 0,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 6,
        "estimated": True,
    },
}
ITEMS: Schema = {
    "object": "list",
    "data": [
        {
            "type": "message",
            "id": "msg_input_0",
            "role": "user",
            "status": "completed",
            "content": [{"type": "input_text", "text": "What does this project do?"}],
        }
    ],
    "first_id": "msg_input_0",
    "last_id": "msg_input_0",
    "has_more": False,
}


class ResponseReplies:
    """A run as a response: the examples of replies."""

    def __init__(self, run_id: str, created: int, events: Sequence[DocumentEvent]) -> None:
        head = Head(run_id, 0, created, "auto", Asked())
        whole = WholeResponse(head)
        for event in events:
            whole.push(event)
        self.body = whole.body()
        self.events = ResponseStream(head).push_all(events).decode()


def response_schemas() -> dict[str, Schema]:
    """By name."""
    found = [
        _object("ResponsesRequest", "A request of OpenAI's Responses API.", _request(), []),
        _object(
            "ResponsesItem",
            "One item of a conversation: `message`, `function_call`, `function_call_output`, `custom_tool_call`, "
            "`custom_tool_call_output`, `compaction`, `additional_tools`; without `type`, a message. Items of other "
            "types are skipped.",
            {"type": _told(_TEXT, "The type of the item.")},
            [],
        ),
        _object(
            "ResponsesTool",
            "A caller's tool: `function` or `custom`, or a `namespace` of these. Other types are accepted and "
            "ignored, because the agent has its own.",
            {"type": _told(_TEXT, "Its type."), "name": _told(_TEXT, "Its name.")},
            ["type"],
        ),
        _object("Response", "A response of OpenAI's Responses API.", _response(), list(_response())),
        _object("ResponseUsage", "The tokens of the last model call.", _usage(), list(_usage())),
        _object(
            "ResponseEvent",
            "One event of a stream: `response.created`, `response.in_progress`, the events of each item, then one of "
            "`response.completed`, `response.incomplete` and `response.failed`; `keepalive` between them.",
            {
                "type": _told(_TEXT, "The type of the event, as in its `event` line."),
                "sequence_number": _told(_NUMBER, "Its number in the stream."),
            },
            ["type", "sequence_number"],
        ),
        _object(
            "ResponseDeleted",
            "A deleted response.",
            {
                "id": _told(_TEXT, "The response."),
                "object": _told({"const": "response"}, "Always `response`."),
                "deleted": _told(_FLAG, "Always true."),
            },
            ["id", "object", "deleted"],
        ),
        _object(
            "ResponseInputItems",
            "A page of the input items of a response.",
            {
                "object": _told({"const": "list"}, "Always `list`."),
                "data": _told({"type": "array", "items": _ref("ResponsesItem")}, "The items."),
                "first_id": _told(_TEXT, "The first id on the page; empty if there is none."),
                "last_id": _told(_TEXT, "The last id on the page, for `after`; empty if there is none."),
                "has_more": _told(_FLAG, "Whether there is another page."),
            },
            ["object", "data", "first_id", "last_id", "has_more"],
        ),
        _object(
            "ResponseTokenCount",
            "The size of a request.",
            {
                "object": _told({"const": "response.input_tokens"}, "Always `response.input_tokens`."),
                "input_tokens": _told(_NUMBER, "An estimate."),
            },
            ["object", "input_tokens"],
        ),
        _object(
            "ResponseCompaction",
            "A conversation as one item.",
            {
                "id": _told(_TEXT, "Its id."),
                "object": _told({"const": "response.compaction"}, "Always `response.compaction`."),
                "created_at": _told(_NUMBER, "Seconds since 1970."),
                "output": _told(
                    {"type": "array", "items": _ref("ResponsesItem")}, "What to send instead of the conversation."
                ),
                "usage": _told(_ref("ResponseUsage"), "An estimate."),
            },
            ["id", "object", "created_at", "output", "usage"],
        ),
    ]
    return {schema["title"]: schema for schema in found}


def _told(schema: Schema, about: str) -> Schema:
    return {**schema, "description": about}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _object(title: str, about: str, properties: Schema, required: list[str]) -> Schema:
    return {"title": title, "description": about, "type": "object", "properties": properties, "required": required}


def _request() -> Schema:
    ignored = {name: about for name, about in IGNORED.items() if not {".", "["} & set(name)}
    items = {"type": "array", "items": _ref("ResponsesItem")}
    return {
        "input": _told(
            {"anyOf": [_TEXT, items]}, "The conversation, or its next message: a string, or a list of items."
        ),
        "model": _told(_NAME, "A model id from `GET /v1/models`. The default is the operator's setting."),
        "instructions": _told(_TEXT, "Instructions for this response. They do not carry over to the next one."),
        "stream": _told(_FLAG, "Whether to stream the answer."),
        "store": _told(_FLAG, "With `false`, the response cannot be looked up."),
        "background": _told(_FLAG, "Returns at once; the run continues without a client."),
        "previous_response_id": _told(_NAME, "Continues after this response, which may be an older one."),
        "conversation": _told({"anyOf": [_NAME, _OBJECT]}, "Continues this conversation: its id, or `{id}`."),
        "tools": _told(
            {"type": "array", "items": _ref("ResponsesTool")},
            "The caller's tools. They replace the agent's own.",
        ),
        "tool_choice": _told(
            {"anyOf": [{"enum": ["none", "auto", "required"]}, _OBJECT]},
            "What the agent may or must call. An object names a tool, or `allowed_tools`.",
        ),
        "parallel_tool_calls": _told(_FLAG, "With `false`, one call at a time."),
        "text": _told(_OBJECT, "With a `format` of type `json_object` or `json_schema`, the answer is JSON."),
        "include": _told({"type": "array", "items": _TEXT}, "`reasoning.encrypted_content` adds it to reasoning."),
        "max_output_tokens": _told(
            {"type": "integer", "minimum": 1}, "The maximum number of tokens of the answer, by estimate."
        ),
        "metadata": _told(_OBJECT, "Repeated in the response."),
        "client_metadata": _told(_OBJECT, "Codex's data about its turn."),
        "cursor": _told(_cursor(), "Gateway options."),
        **{name: {"description": f"Ignored. {about}"} for name, about in ignored.items()},
    }


def _cursor() -> Schema:
    properties = {
        "mode": {"enum": list(MODES)},
        "workspace": _NAME,
        "fences": {"enum": list(get_args(Fences))},
        "include": {"type": "array", "items": {"enum": list(get_args(Include))}},
        "conversationId": _NAME,
        "whenClientLeaves": {"enum": list(get_args(WhenClientLeaves))},
        "source": _NAME,
    }
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _response() -> Schema:
    return {
        "id": _told(_NAME, "Its id, for `previous_response_id` and `/v1/responses/{id}`."),
        "object": _told({"const": "response"}, "Always `response`."),
        "created_at": _told(_NUMBER, "Seconds since 1970."),
        "completed_at": _told({"anyOf": [_NUMBER, _NULL]}, "When it was completed."),
        "status": _told({"enum": list(get_args(ResponseStatus))}, "The state of the response."),
        "error": _told({"anyOf": [_OBJECT, _NULL]}, "Why it failed: `code` and `message`."),
        "incomplete_details": _told({"anyOf": [_OBJECT, _NULL]}, "Why it is incomplete: `reason`."),
        "model": _told(_TEXT, "The model."),
        "output": _told(
            {"type": "array", "items": _OBJECT},
            "The agent's text (`message`), thinking (`reasoning`) and own actions (`mcp_call` of the server "
            "`cursor`, `web_search_call`), and the calls for the caller to run (`function_call`, "
            "`custom_tool_call`).",
        ),
        "usage": _told({"anyOf": [_ref("ResponseUsage"), _NULL]}, "Null until the response has ended."),
    }


def _usage() -> Schema:
    return {
        "input_tokens": _told(_NUMBER, "Tokens of the whole conversation."),
        "input_tokens_details": _told(_OBJECT, "`cached_tokens` are from the cache."),
        "output_tokens": _told(_NUMBER, "Tokens of the answer."),
        "output_tokens_details": _told(
            _OBJECT, "`reasoning_tokens` is always 0, because the agent does not report it."
        ),
        "total_tokens": _told(_NUMBER, "Both."),
    }
