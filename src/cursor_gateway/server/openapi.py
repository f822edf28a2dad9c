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
Cursor's agent over HTTP. The agent works in a folder on the machine where the gateway runs; what it says and does \
comes back as an ordered list of typed **documents**, or in the form of **OpenAI's** or **Anthropic's API**, at once \
or as it happens.

- Requests are JSON and say so: `Content-Type: application/json`.
- A gateway with API keys wants one in every request: `Authorization: Bearer …`.
- Every reply has an `X-Request-Id`; the log has the same. A request may bring its own.
- Errors have OpenAI's form (Anthropic's below `/v1/messages`), a stable `code` and a sentence that says what to do.
- A streaming reply waits for the first sign of the agent, so that a run that cannot start has its own status. \
After that, an error is the last thing that the stream tells. A silent stream is kept \
open by comments, NDJSON by white space before the next line.
"""

_TAGS = {
    "Documents": "The answer as an ordered list of typed documents.",
    "History": "What was said before.",
    "Permissions": "What callers have allowed the agent to do.",
    "Workspace": "The folders that the agent may work in.",
    "OpenAI": "The same agent for any client of OpenAI's API.",
    "Anthropic": "The same agent for any client of Anthropic's API, Claude Code among them.",
    "Operation": "For operators, and about the API itself.",
}


def openapi_document(version: str) -> Json:
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "cursor-gateway",
            "version": version,
            "summary": "Cursor's agent as documents, and as OpenAI's and Anthropic's APIs.",
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
                "bearer": {"type": "http", "scheme": "bearer", "description": "A key that `cursor-gateway key` made."},
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
                "Ask the agent",
                "Runs the agent with one message. The answer is a `ChatResponse`; with `stream` it comes as it "
                "happens: Server-Sent Events, or NDJSON for `Accept: application/x-ndjson`. A client that leaves "
                "cancels the run, unless the operator has decided otherwise. Where the agent calls one of `tools`, the "
                "reply ends: its `status` is `streaming`, `metadata.waitingFor` has the calls, and their results go to "
                "`/v1/chat/{id}/answer`.",
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
                        "The run has begun; for `Prefer: respond-async`. Read it at `/v1/chat/{id}/events`.",
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
                "Look at an answer",
                "The whole answer, or what there is of it now: then its `status` is `streaming`, and a tool that has "
                "not ended has the `state` `running`, or `waiting` where its caller is to run it.",
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
                "Read an answer's stream, or read on",
                "From the beginning, or after the event that the reader had last: while the run goes on, after it has "
                "ended, after the gateway was restarted. Any number of readers see the same events. Who has them all "
                "gets 204, which tells an `EventSource` not to come again. A number that the run does not have gets "
                "400.",
                None,
                _reply("The stream.", _streams(examples), _RUN_HEADERS),
                {*_ANYWHERE, KeyRefused, InvalidRequest, NotFound, StoreUnavailable},
                parameters=[_CHAT_ID, *_READING],
                more={"204": _reply("There is nothing after that event, and there will be nothing.", {})},
            )
        },
        "/v1/chat/{id}/answer": {
            "post": _operation(
                "answerChat",
                "Documents",
                "Answer the agent",
                "With the results of the caller's tools, for which a run waits: the same run goes on, and the reply is "
                "like that of `POST /v1/chat`, a stream from where the run had paused. The same results again have the "
                "same reply; results for a run that is gone start a new one in its conversation, which knows them. "
                "Answers to the agent's questions and the decision on its plan are the next message of the "
                "conversation, when the run has ended. So is a decision about a command that was rejected; if the "
                "run waits for it, the run goes on.",
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
                        "The run goes on; for `Prefer: respond-async`. Read it at `/v1/chat/{id}/events`.",
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
                "Stops the agent and all that it has started, and waits for its end. A run that is over stays as it "
                "is. The body may be empty, but it needs its `Content-Type`.",
                # Marked as required although an empty one is taken: clients would leave out its type otherwise.
                {
                    "required": True,
                    "content": {"application/json": {"schema": {"type": "object"}, "example": {}}},
                },
                _reply("What the run's `done` says.", _json(ref("DonePayload"), examples.cancelled)),
                {*_ANYWHERE, KeyRefused, MediaTypeRefused, NotFound, StoreUnavailable},
                parameters=[_CHAT_ID],
            )
        },
        "/v1/conversations": {
            "get": _operation(
                "listConversations",
                "History",
                "List or search the conversations",
                "The newest first. With `q` those in which all its words were said, run or written: in messages, "
                "documents, commands and paths.",
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
                "Look at a conversation",
                "All that was said in it; the documents of its answers are at `/v1/chat/{id}`.",
                None,
                _reply("The conversation.", _json(ref("ConversationDetail"), _DETAIL)),
                {*_ANYWHERE, KeyRefused, NotFound, StoreUnavailable},
                parameters=[_CONVERSATION_ID],
            ),
            "patch": _operation(
                "changeConversation",
                "History",
                "Rename or pin a conversation",
                "What is left out stays as it is.",
                _body("ConversationChange", {"Rename and pin": {"value": {"title": "Login", "pinned": True}}}),
                _reply("The conversation as it is now.", _json(ref("ConversationEntry"), _CONVERSATION)),
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
                "With its answers, its images and the agent's own copies on this machine. A run in it is stopped. "
                "Not deleted: recordings (`record_dir`), what the agent has changed in the workspace, and what was "
                "sent to Cursor.",
                None,
                None,
                {*_ANYWHERE, KeyRefused, NotFound, StoreUnavailable},
                parameters=[_CONVERSATION_ID],
                more={
                    "202": _reply(
                        "It is gone from the history; the agents' own copies are deleted as soon as possible.",
                        _json(_PENDING, {"message": "The conversation is deleted. …"}),
                    ),
                    "204": _reply("It is gone.", {}),
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
                "List the newest runs",
                "Of all conversations.",
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
                "List what the agent may do",
                "The caller's own decisions, the newest first, and the operator's rules.",
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
                "From the next run on. The document can be decided on again.",
                None,
                None,
                {*_ANYWHERE, KeyRefused, NotFound},
                parameters=[_path("id", "The permission's id.", "perm_3b1d")],
                more={"204": _reply("It is revoked.", {})},
            ),
        },
        "/v1/chat/completions": {
            "post": _operation(
                "createChatCompletion",
                "OpenAI",
                "Ask the agent, as OpenAI's clients do",
                "The whole conversation in, the agent's text out. Thinking, and a line for each thing that the agent "
                "did, come as `reasoning_content`. Where the agent calls one of `tools`, the reply ends with "
                "`tool_calls`, and the request that brings their results goes on with the same run. What would make "
                "the answer wrong is refused; what only cannot be honoured is ignored, and says so below.",
                _body("ChatCompletionRequest", _COMPLETIONS),
                _reply(
                    "The answer.",
                    {
                        "application/json": {"schema": ref("ChatCompletion"), "example": examples.completion},
                        "text/event-stream": _stream(
                            "The data of each event is a `ChatCompletionChunk`, or an `ErrorReply` when the run "
                            "fails; the last is `[DONE]`. Its id is its number in the run, for "
                            "`/v1/chat/{id}/events?dialect=openai`; with `stop`, `max_tokens` or `response_format` "
                            "there are none.",
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
                "Ask the agent, as Anthropic's clients do",
                "The whole conversation in, a message out. Where the agent calls one of `tools`, the message ends with "
                "`tool_use`, and the request that brings the results goes on with the same run. Almost nothing is "
                "refused; what cannot be honoured is ignored, and says so below. `?beta=true` changes nothing.",
                _body("MessagesRequest", MESSAGES_EXAMPLES),
                _reply(
                    "The answer.",
                    {
                        "application/json": {"schema": ref("Message"), "example": examples.message},
                        "text/event-stream": _stream(
                            "Each event has its type as its name. A silent stream is kept open by `ping`.",
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
                "Count the tokens of a request",
                "At once, by an estimate, without the agent.",
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
                "List the models",
                "Those of the agent's account. The list is kept for a while. A request with `anthropic-version` gets a "
                "`ModelPage`.",
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
                "Look up a model",
                "One of the list, also by one of Claude's names.",
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
                "See whether it works",
                "Whether the gateway is there, and what answers. 503 while the agent is gone, with the same facts.",
                None,
                _reply("It is there.", _json(ref("Health"), _HEALTH)),
                {*_ANYWHERE, AgentMissing},
                is_open=True,
            )
        },
        "/metrics": {
            "get": _operation(
                "getMetrics",
                "Operation",
                "Read the figures",
                "Runs, tokens, failures, requests and times, for Prometheus.",
                None,
                _reply("The figures.", _text("text/plain", _METRICS)),
                {*_ANYWHERE, KeyRefused},
            )
        },
        "/openapi.json": {
            "get": _operation(
                "getOpenapi",
                "Operation",
                "Read this description",
                "This document, for programs.",
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
                "Read this page",
                "This document, for people.",
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
        "Each event has its type as its name. A silent stream is kept open by `keepalive`.",
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
                "Ask the agent, as OpenAI's newer clients do",
                "The whole conversation in, or what follows `previous_response_id`; items out. Where the agent calls "
                "one of `tools`, the response ends with the calls, each in the form in which its tool was declared, "
                "and the request that brings their results goes on with the same run. What cannot be honoured is "
                "ignored, and says so below.",
                _body("ResponsesRequest", RESPONSE_EXAMPLES),
                _reply("The response.", both, _RUN_HEADERS),
                _all_errors(),
                failed=[ref("ErrorReply")],
                parameters=[_IDEMPOTENCY, *_SESSION_HEADERS, *_CURSOR_HEADERS],
            ),
            "get": _operation(
                "refuseWebSocket",
                "OpenAI",
                "Not served",
                "The API over WebSocket is not served; clients then use HTTP.",
                None,
                None,
                {*_ANYWHERE, KeyRefused, WebSocketRefused},
            ),
        },
        "/v1/responses/{id}": {
            "get": _operation(
                "getResponse",
                "OpenAI",
                "Look at a response",
                "As it is now; with `stream=true` its events, from the first or after `starting_after`, while the run "
                "goes on and after it has ended.",
                None,
                _reply("The response.", both, _RUN_HEADERS),
                stored,
                parameters=[
                    _RESPONSE_ID,
                    _query("stream", "`true` for a stream.", {"enum": ["true", "false"]}),
                    _query("starting_after", "The `sequence_number` of the last event that the reader has.", _NUMBER),
                ],
            ),
            "delete": _operation(
                "deleteResponse",
                "OpenAI",
                "Delete a response",
                "It cannot be looked up any more. Its conversation stays in the history: see `/v1/conversations/{id}`.",
                None,
                _reply("It is gone.", _json(ref("ResponseDeleted"), _DELETED)),
                stored,
                parameters=[_RESPONSE_ID],
            ),
        },
        "/v1/responses/{id}/cancel": {
            "post": _operation(
                "cancelResponse",
                "OpenAI",
                "Stop a response",
                "Stops the agent and waits for its end. A response that has ended stays as it is.",
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
                "List the items that a response answers",
                "A page of what was sent as `input`.",
                None,
                _reply("The items.", _json(ref("ResponseInputItems"), ITEMS)),
                stored,
                parameters=[
                    _RESPONSE_ID,
                    _limit(20),
                    _query("order", "The latest first, or last.", {"enum": ["asc", "desc"], "default": "desc"}),
                    _query("after", "A page's `last_id`: the page after it.", {"type": "string"}),
                ],
            )
        },
        "/v1/responses/input_tokens": {
            "post": _operation(
                "countInputTokens",
                "OpenAI",
                "Count the tokens of a request for a response",
                "At once, by an estimate, without the agent.",
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
                "Pack a conversation into one item",
                "At once, without the agent. The item stands for the conversation wherever it is sent in its place.",
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
    "id", "The answer's id, from `X-Chat-Id` or its `id`; that of a chat completion will do.", "chat_7f3a2b1c"
)
_RESPONSE_ID = _path("id", "The response's id.", "resp_7f3a2b1c")
_DELETED: Json = {"id": "resp_7f3a2b1c", "object": "response", "deleted": True}
_CONVERSATION_ID = _path("id", "The conversation's id.", "conv_9e8d7c6b")
_PENDING: Json = {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]}
_IDEMPOTENCY: Json = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "A name of the caller's for this request. The same request with the same key joins the run that it "
    "has started, however often it comes, also later.",
    "schema": {"type": "string", "pattern": "^[!-~]{1,255}$"},
}
_PREFER = _header_parameter(
    "Prefer", "`respond-async`: reply at once with the run's id; it goes on, whoever reads it, unless told otherwise."
)
_SESSION_HEADERS = [
    _header_parameter(name, "The client's own name for its session: two of the same opening are told apart by it.")
    for name in ("X-Session-Id", "X-Session-Affinity")
]
_CLAUDE_CODE_HEADERS = [
    _header_parameter("X-Claude-Code-Session-Id", "Claude Code's own name for its session."),
    _header_parameter("X-Claude-Code-Agent-Id", "Its subagent, which has a conversation of its own."),
]
_NUMBER: Json = {"type": "integer", "minimum": 0, "maximum": 1_000_000_000}
_READING: list[Json] = [
    {
        "name": "Last-Event-ID",
        "in": "header",
        "description": "The number of the last event that the reader has, as an `EventSource` sends it.",
        "schema": _NUMBER,
    },
    _query("after", "The same, for readers who cannot send a header.", _NUMBER),
    _query(
        "dialect",
        "`documents`; `ndjson`; `openai` for chunks as of `/v1/chat/completions`, up to the next pause; `responses` "
        "and `messages` for events as of `/v1/responses` and `/v1/messages`, likewise; `html` for what a page must do "
        "to show it.",
        {"enum": ["documents", "ndjson", "openai", "responses", "messages", "html"]},
    ),
]

_MODEL_PAGES: list[Json] = [
    _header_parameter("anthropic-version", "Any: the list comes as Anthropic's clients read it."),
    _query("limit", "The most of them, for Anthropic's clients.", {"type": "integer", "minimum": 1, "maximum": 1000}),
    _query("after_id", "Those after this one, for Anthropic's clients.", {"type": "string"}),
    _query("before_id", "Those before this one, for Anthropic's clients.", {"type": "string"}),
]


def _limit(default: int) -> Json:
    schema = {"type": "integer", "minimum": 1, "maximum": 100, "default": default}
    return _query("limit", "The most of them.", schema)


_LISTING: list[Json] = [
    _query("q", "Words to search for; the last may be the beginning of one.", {"type": "string", "maxLength": 1000}),
    _limit(20),
    _query("before", "A page's `next`: the page after it. Another text is refused.", {"type": "string"}),
    _query("pinned", "`true` for all pinned conversations, on one page.", {"enum": ["true"]}),
]


# --- replies --------------------------------------------------------------------------------------------

_HEADERS = {
    "X-Request-Id": "The request's id, as in the log: the caller's own, or a new one.",
    "X-Cursor-Gateway-Source": "What answers: `cli`, `acp` or `sdk` for the agent, `replay` or `demo` for recordings, "
    "`history` for a run that has ended.",
    "X-Chat-Id": "The answer's id, there before the answer is.",
    "X-Conversation-Id": "The conversation, to go on with as `conversationId`.",
    "X-Should-Retry": "`false` where the same request would fail again; OpenAI's own clients obey it.",
    "Retry-After": "How many seconds to wait before another try, where that is known.",
    "WWW-Authenticate": "`Bearer`, where a key of the gateway's is missing.",
    "Allow": "The methods that the path knows.",
    "Location": "Where the run is: `/v1/chat/{id}`.",
}
_EVERY_REPLY = ("X-Request-Id", "X-Cursor-Gateway-Source")
_RUN_HEADERS = ("X-Chat-Id", "X-Conversation-Id")

_PARAMETERS: Json = {
    "X-Request-Id": {
        "name": "X-Request-Id",
        "in": "header",
        "description": "An id of the caller's for this request: up to 128 letters, digits, `.`, `_`, `:` and `-`. Any "
        "other is replaced.",
        "schema": {"type": "string"},
        "example": "my-request-1",
    }
}
_CURSOR_HEADERS: list[Json] = [
    {
        "name": f"X-Cursor-{name}",
        "in": "header",
        "description": f"For clients that cannot send `{field}`, which wins over it.{more}",
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
    "description": "For clients that cannot send `cursor.actions`, which wins over it.",
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
            "Each event has the name and the data of a `StreamEvent`, and a number of its own.",
            _event(_PAYLOADS, event=ref("StreamEventType"), id={"type": "string"}),
            examples.sse,
        ),
        "application/x-ndjson": _stream(
            "Each line is a `StreamEvent`, with its number. None is empty: a silent stream is kept open by white space "
            "before the next line.",
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
    return sentence if error.retry_after is None else f"{sentence} `Retry-After` says when to try again."


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
        "summary": "The answer as it happens",
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
    "summary": "A tool that the caller runs",
    "value": {"message": "Do I need an umbrella in Bergen?", "tools": [_WEATHER]},
}
_ANSWERS: Json = {
    "results": {
        "summary": "What the caller's tool gave",
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
    "plan": {"summary": "A plan that is accepted", "value": {"plan": "accept", "stream": True}},
    "permissions": {
        "summary": "A command that is allowed",
        "value": {"permissions": [{"documentId": "doc_002", "decision": "conversation"}], "stream": True},
    },
    "denied": {
        "summary": "A command that is denied",
        "value": {"permissions": [{"documentId": "doc_002", "decision": "deny", "reason": "Use pnpm here."}]},
    },
}
_ASKED: list[Json] = [{"role": "user", "content": _QUESTION}]
_COMPLETIONS: Json = {
    "question": {"summary": "A question", "value": {"model": "auto", "messages": _ASKED}},
    "stream": {
        "summary": "The answer as it happens, and its tokens",
        "value": {
            "model": "auto",
            "messages": _ASKED,
            "stream": True,
            "stream_options": {"include_usage": True},
        },
    },
    "json": {
        "summary": "An answer that is JSON",
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
    "summary": "The result of a tool that the caller has run",
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
