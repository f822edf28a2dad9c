"""The description of OpenAI's Responses API: `/v1/responses` and the paths below it."""

from msgspec.json import decode, encode

from cursor_gateway.dialects import openapi as api
from cursor_gateway.dialects.openapi import Description, Json, Sample
from cursor_gateway.dialects.requests import CursorOptions
from cursor_gateway.dialects.responses.dialect import ResponsesReply, compact, count_tokens, deleted, list_items
from cursor_gateway.dialects.responses.request import IGNORED, KeptRequest, ResponsesBody
from cursor_gateway.dialects.responses.shapes import (
    Echo,
    Response,
    ResponseCompaction,
    ResponseDeleted,
    ResponseInputItems,
    ResponseTokenCount,
)
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
            replies=api.json_ok("Deleted.", "ResponseDeleted", decode(deleted("resp_7f3a2b1c"))),
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
            replies=api.json_ok("The items.", "ResponseInputItems", decode(list_items(_CONVERSATION["input"], {}))),
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
            replies=api.json_ok("The count.", "ResponseTokenCount", decode(count_tokens(encode(_QUESTION), {}))),
            errors=(*api.OF_BODIES, TooManyRequests),
        ),
        "POST /v1/responses/compact": api.operation(
            "compactResponse",
            "Compact a conversation",
            "Packs a conversation into one item, without running the agent. Send the item in place of the "
            "conversation.",
            body=api.json_body("ResponsesRequest", conversation=("A conversation", _CONVERSATION)),
            replies=api.json_ok(
                "The item.",
                "ResponseCompaction",
                decode(compact(encode(_CONVERSATION), {}, lambda: sample.run.created)),
            ),
            errors=(*api.OF_BODIES, TooManyRequests),
        ),
    }


_ID = api.path_id("The response's id.", "resp_7f3a2b1c")
_QUESTION: Json = {"model": "auto", "input": "What does this project do?"}
_CONVERSATION: Json = {"model": "auto", "input": [{"role": "user", "content": "What does this project do?"}]}
_RESULT: Json = {
    "model": "auto",
    "previous_response_id": "resp_7f3a2b1c",
    "input": [{"type": "function_call_output", "call_id": "call_5d1e", "output": "Rain."}],
    "tools": [{"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}}],
}


# --- schemas ----------------------------------------------------------------------------------------


def _schemas() -> dict[str, Json]:
    requests = api.read_schemas(
        [ResponsesBody], lambda name: "ResponsesRequest" if name == "ResponsesBody" else name, _EXACT_REQUEST
    )
    api.ignore(requests["ResponsesRequest"], IGNORED)
    replies = api.written_schemas(
        [Response, ResponseDeleted, ResponseInputItems, ResponseTokenCount, ResponseCompaction], exact=_EXACT_REPLIES
    )
    for name in Echo.__struct_fields__:
        replies["Response"]["properties"][name]["description"] = "As in the request, or the default."
    return {
        **requests,
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
        **replies,
        **api.record(
            "ResponseEvent",
            "One event of a stream: `response.created`, `response.in_progress`, the events of each item, then one of "
            "`response.completed`, `response.incomplete` and `response.failed`; for Codex, `keepalive` between them.",
            {
                "type": (api.TEXT, "The type of the event, as in its `event` line."),
                "sequence_number": (api.COUNT, "Its number in the stream."),
            },
        ),
    }


_OBJECT_OR_NULL: Json = {"anyOf": [api.OBJECT, api.NULL]}
_EXACT_REQUEST: dict[str, Json] = {
    "ResponsesRequest.input": {"anyOf": [api.TEXT, api.list_of("ResponsesItem"), api.NULL]},
    "ResponsesRequest.conversation": {"anyOf": [api.NAME, api.OBJECT, api.NULL]},
    "ResponsesRequest.tools": {"anyOf": [api.list_of("ResponsesTool"), api.NULL]},
    "ResponsesRequest.tool_choice": {"anyOf": [{"enum": ["none", "auto", "required"]}, api.OBJECT, api.NULL]},
    "ResponsesRequest.prompt": api.NULL,
}
_EXACT_REPLIES: dict[str, Json] = {
    "Response.error": _OBJECT_OR_NULL,
    "Response.incomplete_details": _OBJECT_OR_NULL,
    "Response.conversation": api.OBJECT,
    "Response.output": {"type": "array", "items": api.OBJECT},
    "Response.cursor": api.OBJECT,
    "ResponseUsage.input_tokens_details": api.OBJECT,
    "ResponseUsage.output_tokens_details": api.OBJECT,
    "ResponseInputItems.data": api.list_of("ResponsesItem"),
    "ResponseCompaction.output": api.list_of("ResponsesItem"),
}
