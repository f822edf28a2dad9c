"""Parts of a message in; the events of AG-UI 1.0 out."""

from collections.abc import Sequence
from typing import Any

import msgspec

from cursor_gateway.dialects.base import RunView
from cursor_gateway.dialects.parts import (
    Ask,
    AskKind,
    CallMade,
    CallReturned,
    MessageEnded,
    MessagePart,
    PartsEncoder,
    ProseClosed,
    ProseGrew,
    ProseOpened,
    Reach,
    Shown,
    TransientPart,
    data_frame,
    usage_counts,
)
from cursor_gateway.errors import Failure, RunCancelled

Json = dict[str, Any]

# What a client may send as the payload of its answer, by what was asked.
_APPROVAL: Json = {
    "type": "object",
    "properties": {"approved": {"type": "boolean"}, "reason": {"type": "string"}},
    "required": ["approved"],
}
_ANSWERS: Json = {
    "type": "object",
    "properties": {
        "answers": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "questionId": {"type": "string"},
                    "selectedOptionIds": {"type": "array", "items": {"type": "string"}},
                    "text": {"type": "string"},
                },
                "required": ["questionId"],
            },
        }
    },
    "required": ["answers"],
}
_RESPONSES: dict[AskKind, Json] = {"question": _ANSWERS, "permission": _APPROVAL, "plan": _APPROVAL}
_REASONS: dict[AskKind, str] = {"question": "input_required", "permission": "tool_call", "plan": "confirmation"}


class AgUiEncoder(PartsEncoder):
    def __init__(self, run: RunView, reach: Reach, thread_id: str = "", run_id: str = "") -> None:
        """`thread_id` and `run_id`: as the client names them; empty: as the gateway does."""
        super().__init__(run.info.id, reach)
        self._ids = {
            "threadId": thread_id or run.info.conversation_id or run.info.id,
            "runId": run_id or run.info.id,
        }

    def began(self) -> bytes:
        return data_frame({"type": "RUN_STARTED", **self._ids})

    def encoded(self, parts: Sequence[MessagePart], *, is_passed: bool) -> bytes:
        return b"".join(data_frame(event) for part in parts for event in self._events(part, is_passed))

    def _events(self, part: MessagePart, is_passed: bool) -> list[Json]:
        match part:
            case ProseOpened(kind="text", id=id):
                return [{"type": "TEXT_MESSAGE_START", "messageId": id, "role": "assistant"}]
            case ProseGrew(kind="text", id=id, text=text):
                return [{"type": "TEXT_MESSAGE_CONTENT", "messageId": id, "delta": text}]
            case ProseClosed(kind="text", id=id):
                return [{"type": "TEXT_MESSAGE_END", "messageId": id}]
            case ProseOpened(id=id):
                started = {"type": "REASONING_MESSAGE_START", "messageId": id, "role": "reasoning"}
                return [{"type": "REASONING_START", "messageId": id}, started]
            case ProseGrew(id=id, text=text):
                return [{"type": "REASONING_MESSAGE_CONTENT", "messageId": id, "delta": text}]
            case ProseClosed(id=id):
                return [{"type": "REASONING_MESSAGE_END", "messageId": id}, {"type": "REASONING_END", "messageId": id}]
            case CallMade(id=id, name=name, input=input):
                return [
                    {"type": "TOOL_CALL_START", "toolCallId": id, "toolCallName": name},
                    {"type": "TOOL_CALL_ARGS", "toolCallId": id, "delta": msgspec.json.encode(input).decode()},
                    {"type": "TOOL_CALL_END", "toolCallId": id},
                ]
            case CallReturned():
                return [_result(part)]
            case Shown(type=type, id=id, value=value):
                snapshot = {"type": "ACTIVITY_SNAPSHOT", "messageId": id, "activityType": type}
                return [{**snapshot, "content": value, "replace": True}]
            case TransientPart(name=name, value=value):
                return [{"type": "CUSTOM", "name": name, "value": value}]
            case MessageEnded():
                return [] if is_passed else [self._ended(part)]

    def _ended(self, end: MessageEnded) -> Json:
        usage = [{"model": end.envelope.model, **usage_counts(end.usage)}]
        if end.failure is not None and end.failure.code != RunCancelled.code:
            return {**error_event(end.failure), "usage": usage}
        outcome: Json = {"type": "success"}
        if end.failure is not None:
            outcome = {"type": "cancelled"}
        elif end.asked:
            outcome = {"type": "interrupt", "interrupts": [_interrupt(one) for one in end.asked]}
        elif end.calls:
            outcome["pendingToolCallIds"] = end.calls
        return {"type": "RUN_FINISHED", **self._ids, "outcome": outcome, "usage": usage}


def error_event(failure: Failure) -> Json:
    return {"type": "RUN_ERROR", "message": failure.message, "code": failure.code}


def _interrupt(asked: Ask) -> Json:
    interrupt = {"id": f"{asked.kind}:{asked.id}", "reason": _REASONS[asked.kind], "toolCallId": asked.id}
    said = {"message": asked.message} if asked.message else {}
    return {**interrupt, **said, "responseSchema": _RESPONSES[asked.kind]}


def _result(returned: CallReturned) -> Json:
    output, is_error = returned.output, returned.error is not None or returned.is_denied
    text = output if isinstance(output, str) else msgspec.json.encode(output).decode()
    event = {
        "type": "TOOL_CALL_RESULT",
        "messageId": f"{returned.id}.result",
        "toolCallId": returned.id,
        "content": returned.error or text,
        "role": "tool",
    }
    return {**event, "metadata": {"isError": True}} if is_error else event
