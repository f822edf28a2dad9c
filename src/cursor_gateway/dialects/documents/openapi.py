"""The description of the documents dialect: `POST /v1/chat` and `/v1/chat/{id}/answer`, and the paths of runs."""

from typing import get_args

from cursor_gateway.dialects import openapi as api
from cursor_gateway.dialects.base import NDJSON, SSE
from cursor_gateway.dialects.documents.dialect import DocumentsReply
from cursor_gateway.dialects.documents.request import AnswerRequest, ChatRequest
from cursor_gateway.dialects.openapi import Description, Json, Sample
from cursor_gateway.errors import AnswerUnfit, IdempotencyMismatch, LogReset, MediaTypeRefused
from cursor_gateway.model.document_events import StreamEventType


def describe(sample: Sample) -> Description:
    return Description("Documents", "Answers as ordered lists of typed documents.", _operations(sample), _schemas())


def _operations(sample: Sample) -> dict[str, Json]:
    answer = api.whole_example(sample, DocumentsReply(SSE))
    begun = api.json_content(api.ref("ChatResponse"), {**answer, "status": "streaming", "documents": []})
    cancelled = {name: value for name, value in answer.items() if name != "documents"} | {"status": "error"}
    whole, streams = api.json_content(api.ref("ChatResponse"), answer), _streams(sample)

    def replies(at_once: str) -> Json:
        about = f"{at_once} (with `Prefer: respond-async`). Read it at `/v1/chat/{{id}}/events`."
        accepted = api.reply(about, begun, (*api.RUN_HEADERS, "Location"))
        return {**api.ok("The answer.", whole | streams, api.RUN_HEADERS), "202": accepted}

    return {
        "POST /v1/chat": api.operation(
            "createChat",
            "Start a run",
            "Runs the agent with one message and returns a `ChatResponse`. With `stream`, the answer is streamed as "
            "Server-Sent Events, or as NDJSON with `Accept: application/x-ndjson`. A client that disconnects cancels "
            "the run, unless configured otherwise. If the agent calls one of `tools`, the reply ends: its `status` is "
            "`streaming`, and `metadata.waitingFor` lists the calls. Send their results to `/v1/chat/{id}/answer`.",
            body=api.json_body(
                "ChatRequest",
                question=("A question", {"message": _QUESTION, "mode": "ask"}),
                stream=("A streamed answer", {"message": _QUESTION, "stream": True}),
                continued=(
                    "The next message of a conversation",
                    {"message": "Now in Rust.", "conversationId": "conv_9e8d7c6b"},
                ),
                tools=("A caller's tool", {"message": "Do I need an umbrella in Bergen?", "tools": [api.WEATHER]}),
            ),
            replies=replies("The run has started"),
            errors=api.run_errors() - {AnswerUnfit},
            failed_run="FailedChatResponse",
            parameters=[api.IDEMPOTENCY_KEY, _PREFER, _DIALECT],
        ),
        "POST /v1/chat/{id}/answer": api.operation(
            "answerChat",
            "Answer a run",
            "Sends what a run waits for. After tool results, the same run continues, and the reply is like that of "
            "`POST /v1/chat`; a stream starts where the run paused. Repeating the same results returns the same "
            "reply. Results for a run that no longer exists start a new run in its conversation, which includes "
            "them. If the run has ended, answers to the agent's questions and the decision on its plan become the "
            "next message of the conversation. So does a decision about a command that was rejected; if the run waits "
            "for the decision, it continues.",
            body=api.json_body(
                "AnswerRequest",
                results=(
                    "A tool result",
                    {"toolResults": [{"toolCallId": "call_5d1e", "content": {"town": "Bergen", "rain": True}}]},
                ),
                failed=(
                    "A tool that failed",
                    {"toolResults": [{"toolCallId": "call_5d1e", "content": "No such town.", "isError": True}]},
                ),
                answers=(
                    "Answers to the agent's questions",
                    {"answers": [{"questionId": "q1", "selectedOptionIds": ["postgres"], "text": "Version 16."}]},
                ),
                plan=("Accepting a plan", {"plan": "accept", "stream": True}),
                permissions=(
                    "Allowing a command",
                    {"permissions": [{"documentId": "doc_002", "decision": "conversation"}], "stream": True},
                ),
                denied=(
                    "Denying a command",
                    {"permissions": [{"documentId": "doc_002", "decision": "deny", "reason": "Use pnpm here."}]},
                ),
            ),
            replies=replies("The run continues"),
            errors=api.run_errors() - {AnswerUnfit, IdempotencyMismatch},
            failed_run="FailedChatResponse",
            parameters=[_CHAT_ID, _PREFER, _DIALECT],
        ),
        "GET /v1/chat/{id}": api.operation(
            "getChat",
            "Get an answer",
            "Returns the answer, or a snapshot while the run is active. A snapshot has the `status` `streaming`; a "
            "tool that has not ended has the `state` `running`, or `waiting` if the caller has to run it.",
            replies=api.ok(
                "The answer.", whole | {f"text/{form}": {"schema": api.TEXT} for form in ("html", "markdown", "plain")}
            ),
            errors=api.OF_STORED,
            parameters=[
                _CHAT_ID,
                api.query(
                    "dialect",
                    "`documents`; `html` for an HTML fragment, `page` for a whole page; `markdown` for the whole "
                    "answer, `text` for its text only.",
                    {"enum": ["documents", "html", "page", "markdown", "text"]},
                ),
            ],
        ),
        "GET /v1/chat/{id}/events": api.operation(
            "getChatEvents",
            "Stream or resume a run",
            "Streams a run's events from the beginning, or after a given event: during the run, after it ended, and "
            "after a restart of the gateway. Any number of clients can read the same events. Returns 204 when the run "
            "is over and nothing is left, which stops an `EventSource`. For an event number that an active run "
            "does not have, it waits ten seconds, because events that the database lost may be sent again. Then, or "
            "if the run is over, it returns 409 `log_reset`: read the run again from the start.",
            replies={
                **api.ok("The stream.", streams, api.RUN_HEADERS),
                "204": api.reply("The run is over, and there are no events after this one."),
            },
            errors=(*api.OF_STORED, LogReset),
            parameters=[
                _CHAT_ID,
                api.header(
                    "Last-Event-ID", "The number of the last event received, as sent by `EventSource`.", _NUMBER
                ),
                api.query("after", "The same, for clients that cannot send headers.", _NUMBER),
                api.query(
                    "dialect",
                    "`documents`; `ndjson`; `openai` for chunks as in `/v1/chat/completions`, up to the next pause; "
                    "`responses` and `messages` for events as in `/v1/responses` and `/v1/messages`, also up to the "
                    "next pause; `ai-sdk` and `ag-ui` for the streams of `/v1/ai-sdk` and `/v1/ag-ui`, also up to the "
                    "next pause; `html` for HTML fragments.",
                    {"enum": ["documents", "ndjson", "openai", "responses", "messages", "ai-sdk", "ag-ui", "html"]},
                ),
            ],
        ),
        "POST /v1/chat/{id}/cancel": api.operation(
            "cancelChat",
            "Stop a run",
            "Stops the agent and every process it started, and waits until they have ended. A run that is over does "
            "not change. The body may be empty, but needs a `Content-Type`.",
            body=api.EMPTY_BODY,
            replies=api.json_ok("The run's `done` payload.", "DonePayload", cancelled),
            errors=(*api.OF_STORED, MediaTypeRefused),
            parameters=[_CHAT_ID],
        ),
    }


def _streams(sample: Sample) -> Json:
    return {
        "text/event-stream": api.stream(
            "Each event has the name and data of a `StreamEvent`. Its id is the event number.",
            api.sse_event(_PAYLOADS, event=api.ref("StreamEventType"), id=api.TEXT),
            api.stream_example(sample, DocumentsReply(SSE)),
        ),
        "application/x-ndjson": api.stream(
            "Each line is a `StreamEvent` with its number. While the agent is silent, spaces keep the connection open.",
            api.ref("StreamEvent"),
            api.stream_example(sample, DocumentsReply(NDJSON)),
        ),
    }


_PAYLOADS = [f"{type.title().replace('_', '')}Payload" for type in get_args(StreamEventType)]
_QUESTION = "What does this project do?"
_NUMBER: Json = {**api.COUNT, "maximum": 1_000_000_000}
_CHAT_ID = api.path_id(
    "The run's id, from `X-Chat-Id` or the `id` of the answer. The id of a chat completion works too.", "chat_7f3a2b1c"
)
_PREFER = api.header(
    "Prefer",
    "`respond-async` returns the run's id at once. The run continues without a client, unless `whenClientLeaves` says "
    "otherwise. `terminal-output` adds `terminal_output` events, with what running commands write, to the stream.",
)
_DIALECT = api.query(
    "dialect",
    "`ai-sdk` or `ag-ui` for a stream in that form, whatever `stream` says.",
    {"enum": ["documents", "ai-sdk", "ag-ui"]},
)


# --- schemas ----------------------------------------------------------------------------------------


def _schemas() -> dict[str, Json]:
    """Of the requests. Those of the documents are generated by `schema`."""
    failed = {
        "title": "FailedChatResponse",
        "description": "A failed run: the partial answer and the error.",
        "allOf": [api.ref("ChatResponse"), api.ref("ErrorReply")],
    }
    exact: dict[str, Json] = {
        "ChatRequest.message": {"type": "string", "pattern": r"\S"},
        "ChatRequest.model": {"anyOf": [api.NAME, api.NULL]},
        "ChatRequest.conversationId": {
            "anyOf": [api.NAME, api.NULL],
            "description": "Continues this conversation. Without it, a new one starts.",
        },
        "ChatRequest.source": {
            "anyOf": [api.NAME, api.NULL],
            "description": "The backend to use, one of those listed by `/health`; or `interactive`, which prefers an "
            "agent that waits for decisions and answers. The default is the operator's setting.",
        },
        "ChatRequest.images": {"type": "array", "items": api.IMAGE},
        "OfferedTool": {"anyOf": [_given("name", "string"), _given("function", "object")]},
        "OfferedTool.parameters": api.TOOL_PARAMETERS,
        "OfferedFunction.parameters": api.TOOL_PARAMETERS,
        "AnswerRequest": {
            "oneOf": [
                _given("toolResults", "array"),
                _given("answers", "array"),
                _given("plan", "string"),
                _given("permissions", "array"),
            ]
        },
    }
    return {**api.read_schemas([ChatRequest, AnswerRequest], exact=exact), "FailedChatResponse": failed}


def _given(field: str, type: str) -> Json:
    return {"properties": {field: {"type": type}}, "required": [field]}
