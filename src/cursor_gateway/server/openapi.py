"""The gateway's version in; the description of its HTTP API, an OpenAPI 3.1 document, out.

Schemas come from the types, errors from the classes in `errors`, and the examples of replies from a short
recording through our own encoders, so none of them can fall behind.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any, TypeAlias, get_args

import msgspec

from cursor_gateway import errors
from cursor_gateway.dialects.actions import ActionDisplay
from cursor_gateway.dialects.chat.encoder import ChunkEncoder, CompletionFold, CompletionHead
from cursor_gateway.dialects.documents.encoder import NdjsonEncoder, SseEncoder, encode_response
from cursor_gateway.dialects.errors import error_body
from cursor_gateway.dialects.messages.blocks import Composer, Display
from cursor_gateway.dialects.messages.encoder import MessageEncoder, MessageHead, message_of
from cursor_gateway.dialects.messages.errors import error_response
from cursor_gateway.errors import (
    AgentError,
    AgentLooped,
    AgentMissing,
    AgentUnconfined,
    AnswerUnfit,
    Failure,
    GatewayError,
    GatewayFault,
    HeadTooLarge,
    HostExhausted,
    IdempotencyMismatch,
    InvalidRequest,
    KeyRefused,
    MediaTypeRefused,
    MethodRefused,
    ModelUnavailable,
    NotFound,
    RequestForbidden,
    RequestTooLarge,
    RequestTooSlow,
    RunCancelled,
    SessionLost,
    SettingsError,
    ShuttingDown,
    StoreUnavailable,
    ToolNotCalled,
    TooManyConnections,
    TooManyRequests,
    UnusableInput,
    WebSocketRefused,
    WorkspaceForbidden,
    WorkspaceUntrusted,
)
from cursor_gateway.model.documents import Mode
from cursor_gateway.model.run_info import Fences, RunInfo, WhenClientLeaves
from cursor_gateway.reader import read_events, read_response
from cursor_gateway.server.api_page import api_page, api_style
from cursor_gateway.server.models import CodexModel, ModelEntry
from cursor_gateway.server.openapi_messages import COUNT_EXAMPLES, MESSAGES_EXAMPLES, message_schemas
from cursor_gateway.server.openapi_responses import (
    COMPACT_EXAMPLES,
    COMPACTION,
    ITEMS,
    RESPONSE_EXAMPLES,
    ResponseReplies,
    response_schemas,
)
from cursor_gateway.server.openapi_responses import COUNT_EXAMPLES as RESPONSE_COUNT_EXAMPLES
from cursor_gateway.server.openapi_schemas import ref, schemas

__all__ = ["api_page", "api_style", "openapi_document"]

Json = dict[str, Any]

_ABOUT = """\
Cursor's agent over HTTP. The agent works in a folder on the gateway's machine. Its answers are ordered lists of typed \
**documents**, or have the form of **OpenAI's** or **Anthropic's API**, whole or streamed.

- Requests are JSON, with `Content-Type: application/json`.
- If the gateway has API keys, every request needs one: `Authorization: Bearer …`.
- Every reply has an `X-Request-Id`, which is also in the log. A request may send its own.
- Errors have OpenAI's form (Anthropic's below `/v1/messages`), a stable `code` and a message that says what to do.
- A streaming reply starts when the agent produces output, so a run that cannot start has its own status. After that, \
an error ends the stream. Comments keep a silent stream open; in NDJSON, white space before the next line does.
"""

_TAGS = {
    "Documents": "Answers as ordered lists of typed documents.",
    "History": "Conversations and runs.",
    "Permissions": "What callers have allowed the agent to do.",
    "Workspace": "The folders that the agent may work in.",
    "OpenAI": "For any client of OpenAI's API.",
    "Anthropic": "For any client of Anthropic's API, such as Claude Code.",
    "Operation": "Monitoring, and the description of this API.",
}


def openapi_document(version: str) -> Json:
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "cursor-gateway",
            "version": version,
            "summary": "Cursor's agent as typed documents, and over OpenAI's and Anthropic's APIs.",
            "description": _ABOUT,
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": "/"}],
        "security": [{}, {"bearer": []}, {"header": []}],
        "tags": [{"name": name, "description": about} for name, about in _TAGS.items()],
        "paths": _paths(),
        "components": {
            "schemas": {**schemas(), **response_schemas(), **message_schemas()},
            "headers": {name: _header(about) for name, about in _HEADERS.items()},
            "parameters": _PARAMETERS,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "description": "An API key from `cursor-gateway key`."},
                "header": {"type": "apiKey", "in": "header", "name": "X-Api-Key", "description": "The same key."},
            },
        },
    }


# --- operations -----------------------------------------------------------------------------------------


def _paths() -> Json:
    examples = _Examples()
    return {
        "/v1/chat": {
            "post": _operation(
                "createChat",
                "Documents",
                "Start a run",
                "Runs the agent with one message and returns a `ChatResponse`. With `stream`, the answer is "
                "streamed as Server-Sent Events, or as NDJSON with `Accept: application/x-ndjson`. A client that "
                "disconnects cancels the run, unless configured otherwise. If the agent calls one of `tools`, the "
                "reply ends: its `status` is `streaming`, and `metadata.waitingFor` lists the calls. Send their "
                "results to `/v1/chat/{id}/answer`.",
                _body("ChatRequest", _CHATS),
                _reply(
                    "The answer.",
                    {
                        "application/json": {"schema": ref("ChatResponse"), "example": examples.response},
                        **_streams(examples),
                    },
                    _RUN_HEADERS,
                ),
                set(_all_errors()) - {AnswerUnfit},
                failed=[ref("FailedChatResponse"), ref("ErrorReply")],
                parameters=[_IDEMPOTENCY, _PREFER],
                more={
                    "202": _reply(
                        "The run has started (with `Prefer: respond-async`). Read it at `/v1/chat/{id}/events`.",
                        _json(ref("ChatResponse"), examples.begun),
                        (*_RUN_HEADERS, "Location"),
                    )
                },
            )
        },
        "/v1/chat/{id}": {
            "get": _operation(
                "getChat",
                "Documents",
                "Get an answer",
                "Returns the answer, or a snapshot while the run is active. A snapshot has the `status` "
                "`streaming`; a tool that has not ended has the `state` `running`, or `waiting` if the caller has "
                "to run it.",
                None,
                _reply(
                    "The answer.",
                    {
                        "application/json": {"schema": ref("ChatResponse"), "example": examples.response},
                        **_text("text/html"),
                        **_text("text/markdown"),
                        **_text("text/plain"),
                    },
                ),
                {*_ANYWHERE, KeyRefused, InvalidRequest, NotFound, StoreUnavailable},
                parameters=[
                    _CHAT_ID,
                    _query(
                        "dialect",
                        "`documents`; `html` for a piece of a page, `page` for a whole one; `markdown` for all that "
                        "was said and done, `text` for what was said.",
                        {"enum": ["documents", "html", "page", "markdown", "text"]},
                    ),
                ],
            )
        },
        "/v1/chat/{id}/events": {
            "get": _operation(
                "getChatEvents",
                "Documents",
                "Stream or resume a run",
                "Streams a run's events from the beginning, or after a given event: during the run, after it "
                "ended, and after a restart of the gateway. Any number of clients can read the same events. "
                "Returns 204 when the run is over and nothing is left, which stops an `EventSource`. An event "
                "number that the run does not have returns 400.",
                None,
                _reply("The stream.", _streams(examples), _RUN_HEADERS),
                {*_ANYWHERE, KeyRefused, InvalidRequest, NotFound, StoreUnavailable},
                parameters=[_CHAT_ID, *_READING],
                more={"204": _reply("The run is over, and there are no events after this one.", {})},
            )
        },
        "/v1/chat/{id}/answer": {
            "post": _operation(
                "answerChat",
                "Documents",
                "Answer a run",
                "Sends what a run waits for. After tool results, the same run continues, and the reply is like "
                "that of `POST /v1/chat`; a stream starts where the run paused. Repeating the same results returns "
                "the same reply. Results for a run that is gone start a new run in its conversation, which "
                "includes them. If the run has ended, answers to the agent's questions and the decision on its "
                "plan become the next message of the conversation. So does a decision about a command that was "
                "rejected; if the run waits for the decision, it continues.",
                _body("AnswerRequest", _ANSWERS),
                _reply(
                    "The answer.",
                    {
                        "application/json": {"schema": ref("ChatResponse"), "example": examples.response},
                        **_streams(examples),
                    },
                    _RUN_HEADERS,
                ),
                set(_all_errors()) - {AnswerUnfit, IdempotencyMismatch},
                failed=[ref("FailedChatResponse"), ref("ErrorReply")],
                parameters=[_CHAT_ID, _PREFER],
                more={
                    "202": _reply(
                        "The run continues (with `Prefer: respond-async`). Read it at `/v1/chat/{id}/events`.",
                        _json(ref("ChatResponse"), examples.begun),
                        (*_RUN_HEADERS, "Location"),
                    )
                },
            )
        },
        "/v1/chat/{id}/cancel": {
            "post": _operation(
                "cancelChat",
                "Documents",
                "Stop a run",
                "Stops the agent and every process it started, and waits until they have ended. A run that is over "
                "does not change. The body may be empty, but needs a `Content-Type`.",
                # Marked as required although an empty one is taken: clients would leave out its type otherwise.
                {
                    "required": True,
                    "content": {"application/json": {"schema": {"type": "object"}, "example": {}}},
                },
                _reply("The run's `done` payload.", _json(ref("DonePayload"), examples.cancelled)),
                {*_ANYWHERE, KeyRefused, MediaTypeRefused, NotFound, StoreUnavailable},
                parameters=[_CHAT_ID],
            )
        },
        "/v1/conversations": {
            "get": _operation(
                "listConversations",
                "History",
                "List or search conversations",
                "Newest first. With `q`, only those that contain all its words: in messages, documents, commands "
                "and paths.",
                None,
                _reply("A page.", _json(ref("ConversationList"), {"conversations": [_CONVERSATION], "next": None})),
                {*_ANYWHERE, KeyRefused, InvalidRequest, StoreUnavailable},
                parameters=_LISTING,
            )
        },
        "/v1/conversations/{id}": {
            "get": _operation(
                "getConversation",
                "History",
                "Get a conversation",
                "Returns all messages. The documents of the answers are at `/v1/chat/{id}`.",
                None,
                _reply("The conversation.", _json(ref("ConversationDetail"), _DETAIL)),
                {*_ANYWHERE, KeyRefused, NotFound, StoreUnavailable},
                parameters=[_CONVERSATION_ID],
            ),
            "patch": _operation(
                "changeConversation",
                "History",
                "Rename or pin a conversation",
                "Omitted fields do not change.",
                _body(
                    "ConversationChange",
                    {"rename": {"summary": "Rename and pin", "value": {"title": "Login", "pinned": True}}},
                ),
                _reply("The changed conversation.", _json(ref("ConversationEntry"), _CONVERSATION)),
                {
                    *_ANYWHERE,
                    KeyRefused,
                    InvalidRequest,
                    MediaTypeRefused,
                    NotFound,
                    RequestTooLarge,
                    RequestTooSlow,
                    StoreUnavailable,
                },
                parameters=[_CONVERSATION_ID],
            ),
            "delete": _operation(
                "deleteConversation",
                "History",
                "Delete a conversation",
                "Deletes its answers, its images and the agent's own copies on this machine. An active run is "
                "stopped. Recordings (`record_dir`), files that the agent has changed, and data sent to Cursor are "
                "not deleted.",
                None,
                None,
                {*_ANYWHERE, KeyRefused, NotFound, StoreUnavailable},
                parameters=[_CONVERSATION_ID],
                more={
                    "202": _reply(
                        "The conversation is deleted from the history; the agents' own copies are deleted as soon "
                        "as possible.",
                        _json(_PENDING, {"message": "The conversation is deleted. …"}),
                    ),
                    "204": _reply("Deleted.", {}),
                },
            ),
        },
        "/v1/conversations/{id}/export": {
            "get": _operation(
                "exportConversation",
                "History",
                "Export a conversation",
                "With everything that was said and done, as a file.",
                None,
                _reply(
                    "The conversation.",
                    {
                        **_text("text/markdown"),
                        **_text("text/plain"),
                        "application/json": {"schema": {"type": "object"}},
                    },
                ),
                {*_ANYWHERE, KeyRefused, InvalidRequest, NotFound, StoreUnavailable},
                parameters=[
                    _CONVERSATION_ID,
                    _query("format", "Default: `markdown`.", {"enum": ["markdown", "json", "text"]}),
                ],
            )
        },
        "/v1/conversations/{id}/changes": {
            "get": _operation(
                "getConversationChanges",
                "History",
                "List the files that the agent changed",
                "All edits of a file are combined. Changes that the agent made by running commands are not included.",
                None,
                _reply("The files.", {**_json(ref("ConversationChanges"), _CHANGES), **_text("text/html")}),
                {*_ANYWHERE, KeyRefused, InvalidRequest, NotFound, StoreUnavailable},
                parameters=[
                    _CONVERSATION_ID,
                    _query("dialect", "`html` for a piece of a page.", {"enum": ["json", "html"]}),
                ],
            )
        },
        "/v1/workspace/files": {
            "get": _operation(
                "findFiles",
                "Workspace",
                "Find files",
                "At most 20 files of a workspace, best match first. Files that git ignores are left out.",
                None,
                _reply("The files.", _json(ref("WorkspaceFiles"), {"files": ["src/app.py"]})),
                {*_ANYWHERE, KeyRefused, InvalidRequest, WorkspaceForbidden},
                parameters=[
                    _query("q", "Part of a path.", {"type": "string", "maxLength": 1000}),
                    _query("workspace", "The folder; by default the gateway's.", {"type": "string"}),
                ],
            )
        },
        "/v1/workspace/folders": {
            "get": _operation(
                "findFolders",
                "Workspace",
                "Find folders",
                "At most 20 folders that a conversation may use as its workspace.",
                None,
                _reply("The folders.", _json(ref("WorkspaceFolders"), {"folders": ["/home/me/calculator"]})),
                {*_ANYWHERE, KeyRefused},
                parameters=[_query("q", "The beginning of a path.", {"type": "string", "maxLength": 1000})],
            )
        },
        "/v1/runs": {
            "get": _operation(
                "listRuns",
                "History",
                "List recent runs",
                "Of all conversations, newest first.",
                None,
                _reply("The runs.", _json(ref("RunList"), {"runs": [_RECENT]})),
                {*_ANYWHERE, KeyRefused, InvalidRequest, StoreUnavailable},
                parameters=[_limit(50)],
            )
        },
        "/v1/permissions": {
            "get": _operation(
                "listPermissions",
                "Permissions",
                "List permissions",
                "The caller's own decisions, newest first, and the operator's rules.",
                None,
                _reply("The permissions.", _json(ref("PermissionList"), _PERMISSIONS)),
                {*_ANYWHERE, KeyRefused},
            )
        },
        "/v1/permissions/{id}": {
            "delete": _operation(
                "revokePermission",
                "Permissions",
                "Revoke a permission",
                "Applies from the next run on. The document can then be decided again.",
                None,
                None,
                {*_ANYWHERE, KeyRefused, NotFound},
                parameters=[_path("id", "The permission's id.", "perm_3b1d")],
                more={"204": _reply("Revoked.", {})},
            ),
        },
        "/v1/chat/completions": {
            "post": _operation(
                "createChatCompletion",
                "OpenAI",
                "Create a chat completion",
                "Takes the whole conversation and returns the agent's text. Thinking, and a line for each of the "
                "agent's actions, are in `reasoning_content`. If the agent calls one of `tools`, the reply ends "
                "with `tool_calls`, and the request with their results continues the same run. Options that would "
                "make the answer wrong are rejected; others that cannot be honoured are ignored, as noted below.",
                _body("ChatCompletionRequest", _COMPLETIONS),
                _reply(
                    "The answer.",
                    {
                        "application/json": {"schema": ref("ChatCompletion"), "example": examples.completion},
                        "text/event-stream": _stream(
                            "The data of each event is a `ChatCompletionChunk`, or an `ErrorReply` if the run "
                            "fails; the last is `[DONE]`. The id of an event is its number in the run, for "
                            "`/v1/chat/{id}/events?dialect=openai`; with `stop`, `max_tokens` or "
                            "`response_format`, events have no ids.",
                            _event(("ChatCompletionChunk", "ErrorReply")),
                            examples.chunks,
                        ),
                    },
                    _RUN_HEADERS,
                ),
                _all_errors(),
                failed=[ref("ErrorReply")],
                parameters=[_IDEMPOTENCY, *_SESSION_HEADERS, *_CURSOR_HEADERS],
            )
        },
        "/v1/messages": {
            "post": _operation(
                "createMessage",
                "Anthropic",
                "Create a message",
                "Takes the whole conversation and returns a message. If the agent calls one of `tools`, the "
                "message ends with `tool_use`, and the request with the results continues the same run. Almost "
                "nothing is rejected; options that cannot be honoured are ignored, as noted below. `?beta=true` "
                "changes nothing.",
                _body("MessagesRequest", MESSAGES_EXAMPLES),
                _reply(
                    "The answer.",
                    {
                        "application/json": {"schema": ref("Message"), "example": examples.message},
                        "text/event-stream": _stream(
                            "The name of each event is its type. `ping` events keep a silent stream open.",
                            _event(("MessagesEvent",), event={"type": "string"}),
                            examples.message_events,
                        ),
                    },
                    _RUN_HEADERS,
                ),
                _all_errors(),
                failed=[ref("MessagesError")],
                parameters=[_IDEMPOTENCY, *_CLAUDE_CODE_HEADERS, *_CURSOR_HEADERS, _ACTIONS_HEADER],
                envelope=_MESSAGES_ENVELOPE,
            )
        },
        "/v1/messages/count_tokens": {
            "post": _operation(
                "countTokens",
                "Anthropic",
                "Count tokens",
                "Returns an estimate without running the agent.",
                _body("MessagesCountRequest", COUNT_EXAMPLES),
                _reply("The count.", _json(ref("MessagesTokenCount"), {"input_tokens": 4})),
                {*_ANYWHERE, KeyRefused, MediaTypeRefused, RequestTooLarge, TooManyRequests},
                envelope=_MESSAGES_ENVELOPE,
            )
        },
        **_response_paths(examples),
        "/v1/models": {
            "get": _operation(
                "listModels",
                "OpenAI",
                "List models",
                "Lists the models of the agent's account. The list is cached for a while. A request with "
                "`anthropic-version` gets a `ModelPage`.",
                None,
                _reply("The models.", _json({"anyOf": [ref("ModelList"), ref("ModelPage")]}, _MODELS)),
                _MODEL_ERRORS,
                parameters=_MODEL_PAGES,
            )
        },
        "/v1/models/{id}": {
            "get": _operation(
                "getModel",
                "OpenAI",
                "Get a model",
                "Returns a model of the list. Claude's model names are accepted too.",
                None,
                _reply("The model.", _json(ref("Model"), _MODEL)),
                {*_MODEL_ERRORS, ModelUnavailable},
                parameters=[_path("id", "The model's id.", "auto")],
            )
        },
        "/health": {
            "get": _operation(
                "getHealth",
                "Operation",
                "Health",
                "Shows that the gateway is running, and which agent answers. Returns 503, with the same fields, if "
                "the agent is not installed any more.",
                None,
                _reply("The gateway is running.", _json(ref("Health"), _HEALTH)),
                {*_ANYWHERE, AgentMissing},
                is_open=True,
            )
        },
        "/metrics": {
            "get": _operation(
                "getMetrics",
                "Operation",
                "Metrics",
                "Runs, tokens, failures, requests and times, in Prometheus format.",
                None,
                _reply("The metrics.", _text("text/plain", _METRICS)),
                {*_ANYWHERE, KeyRefused},
            )
        },
        "/openapi.json": {
            "get": _operation(
                "getOpenapi",
                "Operation",
                "OpenAPI document",
                "This API as an OpenAPI document.",
                None,
                _reply("An OpenAPI 3.1 document.", {"application/json": {"schema": {"type": "object"}}}),
                _ANYWHERE,
                is_open=True,
            )
        },
        "/docs": {
            "get": _operation(
                "getDocs",
                "Operation",
                "API documentation",
                "This API as a web page.",
                None,
                _reply("A page.", _text("text/html")),
                _ANYWHERE,
                is_open=True,
            )
        },
    }


def _response_paths(examples: "_Examples") -> Json:
    """OpenAI's Responses API."""
    body = {"schema": ref("Response"), "example": examples.responses_body}
    stream = _stream(
        "The name of each event is its type. `keepalive` events keep a silent stream open.",
        _event(("ResponseEvent",), event={"type": "string"}),
        examples.responses.events,
    )
    both = {"application/json": body, "text/event-stream": stream}
    stored = {*_ANYWHERE, KeyRefused, NotFound, StoreUnavailable}
    computed = {*_ANYWHERE, KeyRefused, MediaTypeRefused, RequestTooLarge, TooManyRequests}
    return {
        "/v1/responses": {
            "post": _operation(
                "createResponse",
                "OpenAI",
                "Create a response",
                "Takes the whole conversation, or what follows `previous_response_id`, and returns items. If the "
                "agent calls one of `tools`, the response ends with the calls, each in the form in which its tool "
                "was declared, and the request with their results continues the same run. Options that cannot be "
                "honoured are ignored, as noted below.",
                _body("ResponsesRequest", RESPONSE_EXAMPLES),
                _reply("The response.", both, _RUN_HEADERS),
                _all_errors(),
                failed=[ref("ErrorReply")],
                parameters=[_IDEMPOTENCY, *_SESSION_HEADERS, *_CURSOR_HEADERS],
            ),
            "get": _operation(
                "refuseWebSocket",
                "OpenAI",
                "WebSocket (not supported)",
                "WebSocket is not supported, so clients use HTTP.",
                None,
                None,
                {*_ANYWHERE, KeyRefused, WebSocketRefused},
            ),
        },
        "/v1/responses/{id}": {
            "get": _operation(
                "getResponse",
                "OpenAI",
                "Get a response",
                "Returns the response in its current state. With `stream=true`, streams its events, from the first "
                "or after `starting_after`, during the run and after it ended.",
                None,
                _reply("The response.", both, _RUN_HEADERS),
                stored,
                parameters=[
                    _RESPONSE_ID,
                    _query("stream", "`true` for a stream.", {"enum": ["true", "false"]}),
                    _query("starting_after", "The `sequence_number` of the last event received.", _NUMBER),
                ],
            ),
            "delete": _operation(
                "deleteResponse",
                "OpenAI",
                "Delete a response",
                "The response can no longer be looked up. Its conversation stays in the history: see "
                "`/v1/conversations/{id}`.",
                None,
                _reply("Deleted.", _json(ref("ResponseDeleted"), _DELETED)),
                stored,
                parameters=[_RESPONSE_ID],
            ),
        },
        "/v1/responses/{id}/cancel": {
            "post": _operation(
                "cancelResponse",
                "OpenAI",
                "Stop a response",
                "Stops the agent and waits until it has ended. A response that is complete does not change.",
                {
                    "required": True,
                    "content": {"application/json": {"schema": {"type": "object"}, "example": {}}},
                },
                _reply("The response.", {"application/json": body}, _RUN_HEADERS),
                {*stored, MediaTypeRefused},
                parameters=[_RESPONSE_ID],
            )
        },
        "/v1/responses/{id}/input_items": {
            "get": _operation(
                "listInputItems",
                "OpenAI",
                "List input items",
                "Lists the items that were sent as `input`.",
                None,
                _reply("The items.", _json(ref("ResponseInputItems"), ITEMS)),
                stored,
                parameters=[
                    _RESPONSE_ID,
                    _limit(20),
                    _query("order", "`desc` is newest first.", {"enum": ["asc", "desc"], "default": "desc"}),
                    _query("after", "The `last_id` of the previous page.", {"type": "string"}),
                ],
            )
        },
        "/v1/responses/input_tokens": {
            "post": _operation(
                "countInputTokens",
                "OpenAI",
                "Count input tokens",
                "Returns an estimate without running the agent.",
                _body("ResponsesRequest", RESPONSE_COUNT_EXAMPLES),
                _reply(
                    "The count.",
                    _json(ref("ResponseTokenCount"), {"object": "response.input_tokens", "input_tokens": 6}),
                ),
                computed,
            )
        },
        "/v1/responses/compact": {
            "post": _operation(
                "compactResponse",
                "OpenAI",
                "Compact a conversation",
                "Packs a conversation into one item, without running the agent. Send the item in place of the "
                "conversation.",
                _body("ResponsesRequest", COMPACT_EXAMPLES),
                _reply("The item.", _json(ref("ResponseCompaction"), COMPACTION)),
                computed,
            )
        },
    }


def _operation(
    id: str,
    tag: str,
    summary: str,
    description: str,
    body: Json | None,
    reply: Json | None,
    errors: Iterable[type[GatewayError]],
    *,
    failed: Sequence[Json] = (),
    parameters: Iterable[Json] = (),
    more: Json | None = None,
    is_open: bool = False,
    envelope: "_Envelope | None" = None,
) -> Json:
    replies = {**({"200": reply} if reply is not None else {}), **(more or {})}
    return {
        "operationId": id,
        "tags": [tag],
        "summary": summary,
        "description": description,
        "parameters": [*parameters, *([] if is_open else [{"$ref": "#/components/parameters/X-Request-Id"}])],
        **({"requestBody": body} if body is not None else {}),
        "responses": {**replies, **_error_responses(errors, failed, envelope or _OPENAI_ENVELOPE)},
        **({"security": []} if is_open else {}),
    }


def _body(schema: str, examples: Json) -> Json:
    return {"required": True, "content": {"application/json": {"schema": ref(schema), "examples": examples}}}


def _path(name: str, about: str, example: str) -> Json:
    schema = {"type": "string", "minLength": 1}
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": about,
        "schema": schema,
        "example": example,
    }


def _header_parameter(name: str, about: str) -> Json:
    return {"name": name, "in": "header", "description": about, "schema": {"type": "string", "minLength": 1}}


def _query(name: str, about: str, schema: Json) -> Json:
    return {"name": name, "in": "query", "description": about, "schema": schema}


_CHAT_ID = _path(
    "id",
    "The run's id, from `X-Chat-Id` or the `id` of the answer. The id of a chat completion works too.",
    "chat_7f3a2b1c",
)
_RESPONSE_ID = _path("id", "The response's id.", "resp_7f3a2b1c")
_DELETED: Json = {"id": "resp_7f3a2b1c", "object": "response", "deleted": True}
_CONVERSATION_ID = _path("id", "The conversation's id.", "conv_9e8d7c6b")
_PENDING: Json = {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]}
_IDEMPOTENCY: Json = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "A unique key for this request. Repeating the request with the same key joins the existing run "
    "instead of starting another.",
    "schema": {"type": "string", "pattern": "^[!-~]{1,255}$"},
}
_PREFER = _header_parameter(
    "Prefer",
    "`respond-async` returns the run's id at once. The run continues without a client, unless "
    "`whenClientLeaves` says otherwise.",
)
_SESSION_HEADERS = [
    _header_parameter(name, "The client's session id. It separates conversations that start with the same messages.")
    for name in ("X-Session-Id", "X-Session-Affinity")
]
_CLAUDE_CODE_HEADERS = [
    _header_parameter("X-Claude-Code-Session-Id", "Claude Code's session id."),
    _header_parameter("X-Claude-Code-Agent-Id", "The id of a Claude Code subagent, which has its own conversation."),
]
_NUMBER: Json = {"type": "integer", "minimum": 0, "maximum": 1_000_000_000}
_READING: list[Json] = [
    {
        "name": "Last-Event-ID",
        "in": "header",
        "description": "The number of the last event received, as sent by `EventSource`.",
        "schema": _NUMBER,
    },
    _query("after", "The same, for clients that cannot send headers.", _NUMBER),
    _query(
        "dialect",
        "`documents`; `ndjson`; `openai` for chunks as in `/v1/chat/completions`, up to the next pause; "
        "`responses` and `messages` for events as in `/v1/responses` and `/v1/messages`, also up to the next "
        "pause; `html` for HTML fragments.",
        {"enum": ["documents", "ndjson", "openai", "responses", "messages", "html"]},
    ),
]

_MODEL_PAGES: list[Json] = [
    _header_parameter("anthropic-version", "Any value returns the list in Anthropic's form."),
    _query("limit", "The page size, for Anthropic clients.", {"type": "integer", "minimum": 1, "maximum": 1000}),
    _query("after_id", "Returns the models after this one, for Anthropic clients.", {"type": "string"}),
    _query("before_id", "Returns the models before this one, for Anthropic clients.", {"type": "string"}),
]


def _limit(default: int) -> Json:
    schema = {"type": "integer", "minimum": 1, "maximum": 100, "default": default}
    return _query("limit", "The page size.", schema)


_LISTING: list[Json] = [
    _query("q", "Words to search for; the last one may be a prefix.", {"type": "string", "maxLength": 1000}),
    _limit(20),
    _query("before", "The `next` of the previous page. Other values are rejected.", {"type": "string"}),
    _query("pinned", "`true` for all pinned conversations, on one page.", {"enum": ["true"]}),
]


# --- replies --------------------------------------------------------------------------------------------

_HEADERS = {
    "X-Request-Id": "The request's id, as in the log: the one that the client sent, or a new one.",
    "X-Cursor-Gateway-Source": "What answered: `cli`, `acp` or `sdk` for the agent, `replay` or `demo` for "
    "recordings, `history` for a run that has ended.",
    "X-Chat-Id": "The run's id, sent before the answer.",
    "X-Conversation-Id": "The conversation's id. Send it as `conversationId` to continue.",
    "X-Should-Retry": "`false` if the same request would fail again. OpenAI's SDKs obey it.",
    "Retry-After": "Seconds to wait before a retry, if known.",
    "WWW-Authenticate": "`Bearer`, if an API key is missing.",
    "Allow": "The methods that the path supports.",
    "Location": "The URL of the run: `/v1/chat/{id}`.",
}
_EVERY_REPLY = ("X-Request-Id", "X-Cursor-Gateway-Source")
_RUN_HEADERS = ("X-Chat-Id", "X-Conversation-Id")

_PARAMETERS: Json = {
    "X-Request-Id": {
        "name": "X-Request-Id",
        "in": "header",
        "description": "The client's id for this request: up to 128 letters, digits, `.`, `_`, `:` and `-`. An "
        "invalid one is replaced.",
        "schema": {"type": "string"},
        "example": "my-request-1",
    }
}
_CURSOR_HEADERS: list[Json] = [
    {
        "name": f"X-Cursor-{name}",
        "in": "header",
        "description": f"For clients that cannot send `{field}`, which takes precedence.{more}",
        "schema": schema,
    }
    for name, field, schema, more in [
        ("Mode", "cursor.mode", {"enum": list(get_args(Mode))}, ""),
        ("Workspace", "cursor.workspace", {"type": "string", "minLength": 1}, ""),
        ("Fences", "cursor.fences", {"enum": list(get_args(Fences))}, ""),
        (
            "Include",
            "cursor.include",
            {"type": "string", "pattern": "^(thinking|raw)( *, *(thinking|raw))*$"},
            " Separated by commas.",
        ),
        ("Conversation-Id", "cursor.conversationId", {"type": "string", "minLength": 1}, ""),
        ("When-Client-Leaves", "cursor.whenClientLeaves", {"enum": list(get_args(WhenClientLeaves))}, ""),
    ]
]

_ACTIONS_HEADER: Json = {
    "name": "X-Cursor-Actions",
    "in": "header",
    "description": "For clients that cannot send `cursor.actions`, which takes precedence.",
    "schema": {"enum": list(get_args(ActionDisplay))},
}


def _header(about: str) -> Json:
    return {"description": about, "schema": {"type": "string"}}


def _reply(about: str, content: Json, headers: Iterable[str] = ()) -> Json:
    told = {name: {"$ref": f"#/components/headers/{name}"} for name in (*_EVERY_REPLY, *headers)}
    return {"description": about, "headers": told, **({"content": content} if content else {})}


def _json(schema: Json, example: Json) -> Json:
    return {"application/json": {"schema": schema, "example": example}}


def _text(media_type: str, example: str = "") -> Json:
    return {media_type: {"schema": {"type": "string"}, **({"example": example} if example else {})}}


def _stream(about: str, item: Json, example: str) -> Json:
    # What a stream consists of is `itemSchema` from OpenAPI 3.2 on; a `schema` would be about all of it at once.
    return {"x-itemSchema": {**item, "description": about}, "example": example}


def _event(data: Iterable[str], **fields: Json) -> Json:
    """A Server-Sent Event whose data is JSON of one of these schemas."""
    content = {"anyOf": [ref(name) for name in data]}
    told = {"type": "string", "contentMediaType": "application/json", "contentSchema": content}
    return {"type": "object", "properties": {**fields, "data": told}, "required": [*fields, "data"]}


def _streams(examples: "_Examples") -> Json:
    return {
        "text/event-stream": _stream(
            "Each event has the name and data of a `StreamEvent`. Its id is the event number.",
            _event(_PAYLOADS, event=ref("StreamEventType"), id={"type": "string"}),
            examples.sse,
        ),
        "application/x-ndjson": _stream(
            "Each line is a `StreamEvent` with its number. Lines are never empty: white space before the next line "
            "keeps a silent stream open.",
            ref("StreamEvent"),
            examples.ndjson,
        ),
    }


_PAYLOADS = (
    "DocumentStartPayload",
    "ContentDeltaPayload",
    "ToolCallStartPayload",
    "ToolCallArgumentsPayload",
    "ToolResultPayload",
    "DocumentEndPayload",
    "DonePayload",
)


# --- errors ---------------------------------------------------------------------------------------------

_Errors: TypeAlias = tuple[type[GatewayError], ...]
_LOCAL: _Errors = (SettingsError, UnusableInput)  # of the command line and the library
_ANYWHERE: _Errors = (
    InvalidRequest,
    RequestForbidden,
    MethodRefused,
    RequestTooSlow,
    HeadTooLarge,
    GatewayFault,
    HostExhausted,
    ShuttingDown,
    TooManyConnections,
)
_OF_RUNS: _Errors = (
    AgentLooped,
    AgentUnconfined,
    AnswerUnfit,
    ModelUnavailable,
    RunCancelled,
    SessionLost,
    ToolNotCalled,
    WorkspaceUntrusted,
)


def _all_errors(of: type[GatewayError] = GatewayError) -> list[type[GatewayError]]:
    """Those that a reply of a run may have, by status."""
    return sorted(set(_raised(of)) - {*_LOCAL, WebSocketRefused}, key=lambda error: (error.status, error.code))


def _raised(error: type[GatewayError]) -> Iterator[type[GatewayError]]:
    children = [child for child in error.__subclasses__() if child.__module__ == errors.__name__]
    if not children:
        yield error
    for child in children:
        yield from _raised(child)


_MODEL_ERRORS = {*_ANYWHERE, KeyRefused, ShuttingDown, *_all_errors(AgentError)} - set(_OF_RUNS)


class _Envelope(msgspec.Struct, frozen=True):
    """The form of a path's errors."""

    schema: str
    example: Callable[[Failure], object]


_OPENAI_ENVELOPE = _Envelope("ErrorReply", lambda failure: {"error": error_body(failure)})
_MESSAGES_ENVELOPE = _Envelope("MessagesError", error_response)


def _error_responses(errors: Iterable[type[GatewayError]], failed: Sequence[Json], envelope: _Envelope) -> Json:
    grouped: dict[str, list[type[GatewayError]]] = {}
    for error in sorted(errors, key=lambda error: (error.status, error.code)):
        grouped.setdefault(str(error.status), []).append(error)
    return {status: _error_response(group, failed, envelope) for status, group in grouped.items()}


def _error_response(errors: list[type[GatewayError]], failed: Sequence[Json], envelope: _Envelope) -> Json:
    """`failed` are the forms of the body when it is a run that has failed."""
    is_of_run = bool(failed) and any(issubclass(error, AgentError) for error in errors)
    headers = [
        *(_RUN_HEADERS if is_of_run else ()),
        "X-Should-Retry",
        *(["Retry-After"] if any(error.retry_after is not None for error in errors) else ()),
        *(["WWW-Authenticate"] if KeyRefused in errors else ()),
        *(["Allow"] if MethodRefused in errors else ()),
    ]
    told = {error: _sentence(error) for error in errors}
    schema = {"anyOf": list(failed)} if is_of_run and len(failed) > 1 else ref(envelope.schema)
    examples = {
        error.code: {"summary": sentence, "value": _error_example(error, sentence, envelope)}
        for error, sentence in told.items()
    }
    return _reply(
        " ".join(f"`{error.code}`: {sentence}" for error, sentence in told.items()),
        {"application/json": {"schema": schema, "examples": examples}},
        headers,
    )


def _sentence(error: type[GatewayError]) -> str:
    sentence = _meanings().get(error.__name__) or f"{error.code.replace('_', ' ').capitalize()}."
    return sentence if error.retry_after is None else f"{sentence} `Retry-After` says when to retry."


@cache
def _meanings() -> dict[str, str]:
    """By class: the tree in the docstring of `errors` says what each is. Python's -OO leaves it out."""
    found = re.findall(r"(\w+) +\d{3} +(.+)$", errors.__doc__ or "", re.MULTILINE)
    return {name: f"{meaning[:1].upper()}{meaning[1:]}." for name, meaning in found}


def _error_example(error: type[GatewayError], message: str, envelope: _Envelope) -> Json:
    failure = Failure(code=error.code, message=message, status=error.status)
    example: Json = msgspec.to_builtins(envelope.example(failure))
    return example


# --- examples -------------------------------------------------------------------------------------------

_QUESTION = "What does this project do?"
_CHATS: Json = {
    "question": {"summary": "A question", "value": {"message": _QUESTION, "mode": "ask"}},
    "stream": {
        "summary": "A streamed answer",
        "value": {"message": _QUESTION, "stream": True},
    },
    "continued": {
        "summary": "The next message of a conversation",
        "value": {"message": "Now in Rust.", "conversationId": "conv_9e8d7c6b"},
    },
}
_WEATHER: Json = {
    "name": "weather",
    "description": "The weather in a town.",
    "parameters": {"type": "object", "properties": {"town": {"type": "string"}}, "required": ["town"]},
}
_CHATS["tools"] = {
    "summary": "A caller's tool",
    "value": {"message": "Do I need an umbrella in Bergen?", "tools": [_WEATHER]},
}
_ANSWERS: Json = {
    "results": {
        "summary": "A tool result",
        "value": {"toolResults": [{"toolCallId": "call_5d1e", "content": {"town": "Bergen", "rain": True}}]},
    },
    "failed": {
        "summary": "A tool that failed",
        "value": {"toolResults": [{"toolCallId": "call_5d1e", "content": "No such town.", "isError": True}]},
    },
    "answers": {
        "summary": "Answers to the agent's questions",
        "value": {"answers": [{"questionId": "q1", "selectedOptionIds": ["postgres"], "text": "Version 16."}]},
    },
    "plan": {"summary": "Accepting a plan", "value": {"plan": "accept", "stream": True}},
    "permissions": {
        "summary": "Allowing a command",
        "value": {"permissions": [{"documentId": "doc_002", "decision": "conversation"}], "stream": True},
    },
    "denied": {
        "summary": "Denying a command",
        "value": {"permissions": [{"documentId": "doc_002", "decision": "deny", "reason": "Use pnpm here."}]},
    },
}
_ASKED: list[Json] = [{"role": "user", "content": _QUESTION}]
_COMPLETIONS: Json = {
    "question": {"summary": "A question", "value": {"model": "auto", "messages": _ASKED}},
    "stream": {
        "summary": "A streamed answer with usage",
        "value": {
            "model": "auto",
            "messages": _ASKED,
            "stream": True,
            "stream_options": {"include_usage": True},
        },
    },
    "json": {
        "summary": "A JSON answer",
        "value": {
            "model": "auto",
            "messages": [{"role": "user", "content": "Which languages is this project written in?"}],
            "response_format": {
                "type": "json_schema",
                "json_schema": {
                    "name": "languages",
                    "schema": {
                        "type": "object",
                        "properties": {"languages": {"type": "array", "items": {"type": "string"}}},
                        "required": ["languages"],
                    },
                },
            },
            "cursor": {"mode": "ask"},
        },
    },
}
_COMPLETIONS["tools"] = {
    "summary": "A tool result",
    "value": {
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
        "tools": [{"type": "function", "function": _WEATHER}],
    },
}
_MODEL: Json = msgspec.to_builtins(
    ModelEntry(id="auto", created=1771842600, name="Auto", display_name="Auto", created_at="2026-02-23T10:30:00Z")
)
_CODEX = CodexModel(slug="auto", display_name="Auto", description="Auto, by Cursor", priority=0)
_MODELS: Json = {
    "object": "list",
    "data": [_MODEL],
    "models": [msgspec.json.decode(msgspec.json.encode(_CODEX))],
    "has_more": False,
    "first_id": "auto",
    "last_id": "auto",
}
_HEALTH: Json = {
    "status": "ok",
    "version": "0.1.0",
    "source": {"name": "cli", "detail": "cursor-agent 2026.02.20", "demo": False},
    "mode": "agent",
    "model": "auto",
    "runs": {"running": 0, "limit": 8},
}
_CONVERSATION: Json = {
    "id": "conv_9e8d7c6b",
    "title": "What does this project do?",
    "created": "2026-02-23T10:30:00.000Z",
    "updated": "2026-02-23T10:30:02.400Z",
    "workspace": "/home/me/calculator",
    "mode": "ask",
    "model": "auto",
    "isRunning": False,
    "pinned": False,
}
_CHANGES: Json = {
    "files": [
        {
            "path": "src/app.py",
            "operation": "edit",
            "language": "python",
            "diffs": [{"oldString": "x = 1", "newString": "x = 2", "startLine": 3, "endLine": 3}],
        }
    ]
}
_RUN_ENTRY: Json = {
    "id": "chat_7f3a2b1c",
    "state": "completed",
    "model": "auto",
    "mode": "ask",
    "created": "2026-02-23T10:30:00Z",
    "firstEventMs": 900,
    "durationMs": 2400,
    "usage": {"promptTokens": 1510, "completionTokens": 9, "totalTokens": 1519, "cachedTokens": 1200},
    "errorCode": None,
}
_DETAIL: Json = {
    **_CONVERSATION,
    "messages": [
        {"role": "user", "text": _QUESTION, "chatId": "chat_7f3a2b1c", "created": "2026-02-23T10:30:00.000Z"},
        {
            "role": "assistant",
            "text": "It is a calculator for the terminal.",
            "chatId": "chat_7f3a2b1c",
            "created": "2026-02-23T10:30:02.400Z",
        },
    ],
    "runs": [_RUN_ENTRY],
}
_PERMISSIONS: Json = {
    "permissions": [
        {
            "id": "perm_3b1d",
            "decision": "workspace",
            "rules": ["Shell(npm)"],
            "subject": "npm test",
            "reason": "",
            "workspace": "/home/ada/shop",
            "conversationId": "conv_9e8d7c6b",
            "chatId": "chat_7f3a2b1c",
            "documentId": "doc_002",
            "created": "2026-10-01T12:00:00Z",
        }
    ],
    "settings": ["Shell(git)"],
    "canAllow": True,
    "allowsEverything": False,
}
_RECENT: Json = {
    **_RUN_ENTRY,
    "conversationId": "conv_9e8d7c6b",
    "title": _QUESTION,
    "prompt": _QUESTION,
    "toolCalls": 0,
}
_METRICS = """\
# HELP cursor_gateway_runs_running Runs whose agent is there.
# TYPE cursor_gateway_runs_running gauge
cursor_gateway_runs_running 0.0
"""
_RUN = RunInfo(
    id="chat_7f3a2b1c", conversation_id="conv_9e8d7c6b", created="2026-02-23T10:30:00Z", mode="ask", model="auto"
)
_HEAD = CompletionHead(id="chatcmpl-7f3a2b1c", created=1771842600, model="auto")
_MESSAGE = MessageHead(id="msg_7f3a2b1c", model="auto", signature="chat_7f3a2b1c", input_tokens=20)
_SAID = ("It is a calculator ", "for the terminal.")
_RECORDING: list[Json] = [
    {"type": "system", "subtype": "init", "session_id": "9e8d7c6b", "model": "Auto"},
    *(
        {"type": "assistant", "message": {"content": [{"type": "text", "text": text}]}, "timestamp_ms": number}
        for number, text in enumerate(_SAID, 1)
    ),
    {
        "type": "result",
        "subtype": "success",
        "result": "".join(_SAID),
        "duration_ms": 2400,
        "usage": {"inputTokens": 310, "outputTokens": 9, "cacheReadTokens": 1200, "cacheWriteTokens": 0},
    },
]


class _Examples:
    """What a short run gives."""

    def __init__(self) -> None:
        lines = [msgspec.json.encode(event) + b"\n" for event in _RECORDING]
        events = list(read_events(lines, _RUN))
        fold = CompletionFold(_HEAD)
        for event in events:
            fold.push(event)
        self.response: Json = msgspec.json.decode(encode_response(read_response(lines, _RUN)))
        envelope = {name: value for name, value in self.response.items() if name != "documents"}
        self.cancelled: Json = {**envelope, "status": "error"}
        self.begun: Json = {**self.response, "status": "streaming", "documents": []}
        self.completion: Json = msgspec.json.decode(msgspec.json.encode(fold.completion()))
        self.sse = b"".join(map(SseEncoder().push, events)).decode()
        self.ndjson = b"".join(map(NdjsonEncoder().push, events)).decode()
        self.chunks = b"".join(map(ChunkEncoder(_HEAD, include_usage=True).push, events)).decode()
        composer = Composer(_RUN.id, Display())
        steps = [step for event in events for step in composer.push(event)]
        self.message: Json = msgspec.json.decode(msgspec.json.encode(message_of(_MESSAGE, steps)))
        self.message_events = MessageEncoder(_MESSAGE, Composer(_RUN.id, Display())).push_all(events).decode()
        self.responses = ResponseReplies(_RUN.id, _HEAD.created, events)
        self.responses_body: Json = msgspec.json.decode(self.responses.body)
