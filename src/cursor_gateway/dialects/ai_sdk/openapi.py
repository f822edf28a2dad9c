"""The description of the AI SDK's dialect: `POST /v1/ai-sdk`, and the resumption of its streams."""

from cursor_gateway.dialects import openapi as api
from cursor_gateway.dialects.ai_sdk.dialect import UiReply
from cursor_gateway.dialects.ai_sdk.request import UiChatBody
from cursor_gateway.dialects.openapi import Description, ErrorForm, Json, Sample
from cursor_gateway.dialects.ui_requests import UiOptions


def describe(sample: Sample) -> Description:
    chunks = api.stream(
        "The data of each event is a chunk of the AI SDK's UI message stream, version 1; the last is `[DONE]`. The id "
        "of an event is its number in the run, for `/v1/chat/{id}/events?dialect=ai-sdk`.",
        api.sse_event(("AiSdkChunk",)),
        api.stream_example(sample, UiReply()),
    )
    streamed = api.ok("The answer.", {"text/event-stream": chunks}, api.RUN_HEADERS)
    envelope = ErrorForm("AiSdkError", lambda failure: failure.message, media_type="text/plain")
    operations = {
        "POST /v1/ai-sdk": api.operation(
            "createUiMessage",
            "Answer a chat of the AI SDK",
            "Takes what `useChat` sends, and streams the answer as a UI message. If the last message contains results "
            "of the page's tools, approvals or answers, the run that waits for them continues. The same message again "
            "joins the run that it has started.",
            body=_BODY,
            replies=streamed,
            errors=api.run_errors(),
            envelope=envelope,
            parameters=[api.IDEMPOTENCY_KEY, *api.cursor_headers(UiOptions)],
        ),
        "GET /v1/ai-sdk/{id}/stream": api.operation(
            "resumeUiMessage",
            "Resume the stream of a chat",
            "Streams the message that is being written in a chat, from its beginning.",
            replies={**streamed, "204": api.reply("The chat has no active stream.")},
            errors=api.OF_STORED,
            envelope=envelope,
            parameters=[api.path_id("The chat's id, as in the requests.", "chat-1")],
        ),
    }
    return Description("AI SDK", "For pages that use the AI SDK's `useChat`.", operations, _schemas())


_MESSAGE: Json = {"id": "m1", "role": "user", "parts": [{"type": "text", "text": "What does this project do?"}]}
_CALL: Json = {"type": "tool-weather", "toolCallId": "call_5d1e", "input": {"town": "Bergen"}}
_BODY = api.json_body(
    "AiSdkChatRequest",
    question=("A question", {"id": "chat-1", "messages": [_MESSAGE], "trigger": "submit-message"}),
    tools=(
        "The result of the page's tool",
        {
            "id": "chat-1",
            "messages": [
                {**_MESSAGE, "parts": [{"type": "text", "text": "Do I need an umbrella in Bergen?"}]},
                {
                    "id": "chat_7f3a2b1c",
                    "role": "assistant",
                    "parts": [{"type": "step-start"}, {**_CALL, "state": "output-available", "output": "Rain."}],
                },
            ],
            "tools": [api.WEATHER],
        },
    ),
)


def _name(type: str) -> str:
    return "AiSdkChatRequest" if type == "UiChatBody" else f"AiSdk{type.removeprefix('Ui')}"


def _schemas() -> dict[str, Json]:
    exact = {"AiSdkPageTool.parameters": api.TOOL_PARAMETERS}
    chunk = api.record(
        "AiSdkChunk", "A chunk.", {"type": (api.TEXT, "`text-delta`, `tool-input-available` and others.")}
    )
    error: Json = {"title": "AiSdkError", "description": "What happened, and what to do.", "type": "string"}
    return {**api.read_schemas([UiChatBody], _name, exact), **chunk, "AiSdkError": error}
