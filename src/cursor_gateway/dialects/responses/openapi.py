"""The description of OpenAI's Responses API: `/v1/responses` and the paths below it.

The schemas are written here, not generated: the reader is lenient, and a description has to say what to send.
"""

from typing import get_args

import msgspec

from cursor_gateway.dialects import openapi as api
from cursor_gateway.dialects.base import Description, Sample
from cursor_gateway.dialects.openapi import Fields, Json
from cursor_gateway.dialects.requests import CursorOptions
from cursor_gateway.dialects.responses.dialect import ResponsesReply
from cursor_gateway.dialects.responses.request import IGNORED, KeptRequest
from cursor_gateway.dialects.responses.shapes import ResponseStatus, estimated_input
from cursor_gateway.errors import MediaTypeRefused, TooManyRequests, WebSocketRefused


def describe(sample: Sample) -> Description:
    return Description("OpenAI", "For any client of OpenAI's API.", _operations(sample), _schemas())


def _operations(sample: Sample) -> dict[str, Json]:
    reply = ResponsesReply(asked=KeptRequest())
    whole = api.json_content(api.ref("Response"), api.whole_example(sample, reply))
    events = api.stream(
        "The name of each event is its type. While the agent is silent, comments keep the connection open; Codex gets "
        "`keepalive` events.",
        api.sse_event(("ResponseEvent",), event=api.TEXT),
        api.stream_example(sample, reply),
    )
    either = api.ok("The response.", whole | {"text/event-stream": events}, api.RUN_HEADERS)
    return {
        "POST /v1/responses": api.operation(
            "createResponse",
            "Create a response",
            "Takes the whole conversation, or what follows `previous_response_id`, and returns items. If the agent "
            "calls one of `tools`, the response ends with the calls, each in the form in which its tool was declared, "
            "and the request with their results continues the same run. Options that cannot be honoured are ignored, "
            "as noted below.",
            body=api.json_body(
                "ResponsesRequest",
                question=("A question", _QUESTION),
                stream=("A streamed answer", {**_QUESTION, "stream": True}),
                continued=(
                    "The next message after a response",
                    {"model": "auto", "input": "Now in Rust.", "previous_response_id": "resp_7f3a2b1c"},
                ),
                result=("A tool result", _RESULT),
            ),
            replies=either,
            errors=api.run_errors(),
            envelope=api.OPENAI_ENVELOPE,
            failed_run="ErrorReply",
            parameters=[api.IDEMPOTENCY_KEY, *api.SESSION_HEADERS, *api.cursor_headers(CursorOptions)],
        ),
        "GET /v1/responses": api.operation(
            "refuseWebSocket",
            "WebSocket (not supported)",
            "WebSocket is not supported, so clients use HTTP.",
            replies={},
            errors=[WebSocketRefused],
        ),
        "GET /v1/responses/{id}": api.operation(
            "getResponse",
            "Get a response",
            "Returns the response in its current state. With `stream=true`, streams its events, from the first or "
            "after `starting_after`, during the run and after it has ended.",
            replies=either,
            errors=api.OF_STORED,
            parameters=[
                _ID,
                api.query("stream", "`true` for a stream.", {"enum": ["true", "false"]}),
                api.query(
                    "starting_after",
                    "The `sequence_number` of the last event received.",
                    {**api.COUNT, "maximum": 1_000_000_000},
                ),
            ],
        ),
        "DELETE /v1/responses/{id}": api.operation(
            "deleteResponse",
            "Delete a response",
            "The response can no longer be looked up. Its conversation stays in the history: see "
            "`/v1/conversations/{id}`.",
            replies=api.json_ok(
                "Deleted.", "ResponseDeleted", {"id": "resp_7f3a2b1c", "object": "response", "deleted": True}
            ),
            errors=api.OF_STORED,
            parameters=[_ID],
        ),
        "POST /v1/responses/{id}/cancel": api.operation(
            "cancelResponse",
            "Stop a response",
            "Stops the agent and waits until it has ended. A response that is complete does not change.",
            body=api.EMPTY_BODY,
            replies=api.ok("The response.", whole, api.RUN_HEADERS),
            errors=(*api.OF_STORED, MediaTypeRefused),
            parameters=[_ID],
        ),
        "GET /v1/responses/{id}/input_items": api.operation(
            "listInputItems",
            "List input items",
            "Lists the items that were sent as `input`.",
            replies=api.json_ok("The items.", "ResponseInputItems", _ITEMS),
            errors=api.OF_STORED,
            parameters=[
                _ID,
                api.page_size(20),
                api.query("order", "`desc` is newest first.", {"enum": ["asc", "desc"], "default": "desc"}),
                api.query("after", "The `last_id` of the previous page."),
            ],
        ),
        "POST /v1/responses/input_tokens": api.operation(
            "countInputTokens",
            "Count input tokens",
            "Returns an estimate without running the agent.",
            body=api.json_body("ResponsesRequest", question=("A question", _QUESTION)),
            replies=api.json_ok(
                "The count.", "ResponseTokenCount", {"object": "response.input_tokens", "input_tokens": 6}
            ),
            errors=(*api.OF_BODIES, TooManyRequests),
        ),
        "POST /v1/responses/compact": api.operation(
            "compactResponse",
            "Compact a conversation",
            "Packs a conversation into one item, without running the agent. Send the item in place of the "
            "conversation.",
            body=api.json_body(
                "ResponsesRequest",
                conversation=(
                    "A conversation",
                    {"model": "auto", "input": [{"role": "user", "content": "What does this project do?"}]},
                ),
            ),
            replies=api.json_ok("The item.", "ResponseCompaction", _COMPACTED),
            errors=(*api.OF_BODIES, TooManyRequests),
        ),
    }


_ID = api.path_id("The response's id.", "resp_7f3a2b1c")
_QUESTION: Json = {"model": "auto", "input": "What does this project do?"}
_RESULT: Json = {
    "model": "auto",
    "previous_response_id": "resp_7f3a2b1c",
    "input": [{"type": "function_call_output", "call_id": "call_5d1e", "output": "Rain."}],
    "tools": [{"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}}],
}
_COMPACTED: Json = {
    "id": "resp_0d1f",
    "object": "response.compaction",
    "created_at": 1771842600,
    "output": [{"type": "compaction", "id": "cmp_0d1f", "encrypted_content": "cg1.eJyL…"}],
    "usage": msgspec.to_builtins(estimated_input(6)),
}
_ITEMS: Json = {
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


# --- schemas ----------------------------------------------------------------------------------------


def _schemas() -> dict[str, Json]:
    return {
        **api.record("ResponsesRequest", "A request of OpenAI's Responses API.", _REQUEST, ()),
        **api.record(
            "ResponsesItem",
            "One item of a conversation: `message`, `function_call`, `function_call_output`, `custom_tool_call`, "
            "`custom_tool_call_output`, `compaction`, `additional_tools`; without `type`, a message. Items of other "
            "types are skipped.",
            {"type": (api.TEXT, "The type of the item.")},
            (),
        ),
        **api.record(
            "ResponsesTool",
            "A caller's tool: `function` or `custom`, or a `namespace` of these. Other types are accepted and ignored, "
            "because the agent has its own tools.",
            {"type": (api.TEXT, "Its type."), "name": (api.TEXT, "Its name.")},
            ["type"],
        ),
        **api.record("Response", "A response of OpenAI's Responses API.", _RESPONSE),
        **api.record("ResponseUsage", "The tokens of this response.", _USAGE),
        **api.record(
            "ResponseEvent",
            "One event of a stream: `response.created`, `response.in_progress`, the events of each item, then one of "
            "`response.completed`, `response.incomplete` and `response.failed`; for Codex, `keepalive` between them.",
            {
                "type": (api.TEXT, "The type of the event, as in its `event` line."),
                "sequence_number": (api.COUNT, "Its number in the stream."),
            },
        ),
        **api.record(
            "ResponseDeleted",
            "A deleted response.",
            {
                "id": (api.TEXT, "The response."),
                "object": ({"const": "response"}, "Always `response`."),
                "deleted": (api.FLAG, "Always true."),
            },
        ),
        **api.record(
            "ResponseInputItems",
            "A page of the input items of a response.",
            {
                "object": ({"const": "list"}, "Always `list`."),
                "data": (api.list_of("ResponsesItem"), "The items."),
                "first_id": (api.TEXT, "The first id on the page; empty if there is none."),
                "last_id": (api.TEXT, "The last id on the page, for `after`; empty if there is none."),
                "has_more": (api.FLAG, "Whether there is another page."),
            },
        ),
        **api.record(
            "ResponseTokenCount",
            "The size of a request.",
            {
                "object": ({"const": "response.input_tokens"}, "Always `response.input_tokens`."),
                "input_tokens": (api.COUNT, "An estimate."),
            },
        ),
        **api.record(
            "ResponseCompaction",
            "A conversation as one item.",
            {
                "id": (api.TEXT, "Its id."),
                "object": ({"const": "response.compaction"}, "Always `response.compaction`."),
                "created_at": (api.COUNT, "Seconds since 1970."),
                "output": (api.list_of("ResponsesItem"), "What to send instead of the conversation."),
                "usage": (api.ref("ResponseUsage"), "An estimate."),
            },
        ),
    }


_REQUEST: Fields = {
    "input": (
        {"anyOf": [api.TEXT, api.list_of("ResponsesItem")]},
        "The conversation, or its next message: a string, or a list of items.",
    ),
    "model": (api.NAME, "A model id from `GET /v1/models`. The default is the operator's setting."),
    "instructions": (api.TEXT, "Instructions for this response. They do not carry over to the next one."),
    "stream": (api.FLAG, "Whether to stream the answer."),
    "store": (api.FLAG, "With `false`, the response cannot be looked up."),
    "background": (api.FLAG, "Returns at once; the run continues without a client."),
    "previous_response_id": (api.NAME, "Continues after this response, which may be an older one."),
    "conversation": ({"anyOf": [api.NAME, api.OBJECT]}, "Continues this conversation: its id, or `{id}`."),
    "tools": (api.list_of("ResponsesTool"), "The caller's tools. They replace the agent's own."),
    "tool_choice": (
        {"anyOf": [{"enum": ["none", "auto", "required"]}, api.OBJECT]},
        "What the agent may or must call. An object names a tool, or `allowed_tools`.",
    ),
    "parallel_tool_calls": (api.FLAG, "With `false`, one call at a time."),
    "text": (api.OBJECT, "With a `format` of type `json_object` or `json_schema`, the answer is JSON."),
    "include": ({"type": "array", "items": api.TEXT}, "`reasoning.encrypted_content` adds it to reasoning items."),
    "max_output_tokens": (
        {"type": "integer", "minimum": 1},
        "The maximum number of tokens in the answer (an estimate).",
    ),
    "metadata": (api.OBJECT, "Returned unchanged in the response."),
    "client_metadata": (api.OBJECT, "Codex's data about its turn."),
    "cursor": (api.ref("CursorOptions"), "Gateway options."),
    **api.ignored(IGNORED),
}
_RESPONSE: Fields = {
    "id": (api.NAME, "Its id, for `previous_response_id` and `/v1/responses/{id}`."),
    "object": ({"const": "response"}, "Always `response`."),
    "created_at": (api.COUNT, "Seconds since 1970."),
    "completed_at": ({"anyOf": [api.COUNT, api.NULL]}, "When it was completed."),
    "status": ({"enum": list(get_args(ResponseStatus))}, "The state of the response."),
    "error": ({"anyOf": [api.OBJECT, api.NULL]}, "Why it failed: `code` and `message`."),
    "incomplete_details": ({"anyOf": [api.OBJECT, api.NULL]}, "Why it is incomplete: `reason`."),
    "model": (api.TEXT, "The model."),
    "output": (
        {"type": "array", "items": api.OBJECT},
        "The agent's text (`message`), thinking (`reasoning`) and own actions (`mcp_call` of the server `cursor`, "
        "`web_search_call`), and the calls for the caller to run (`function_call`, `custom_tool_call`).",
    ),
    "usage": ({"anyOf": [api.ref("ResponseUsage"), api.NULL]}, "Null until the response has ended."),
}
_USAGE: Fields = {
    "input_tokens": (api.COUNT, "Tokens in the whole conversation."),
    "input_tokens_details": (api.OBJECT, "`cached_tokens`: those read from the cache."),
    "output_tokens": (api.COUNT, "Tokens in the answer."),
    "output_tokens_details": (
        api.OBJECT,
        "`reasoning_tokens`: those of thinking; 0 if they are not reported.",
    ),
    "total_tokens": (api.COUNT, "The sum of both."),
}
