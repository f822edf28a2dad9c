"""Parts of a message in; the AI SDK's UI message stream, version 1, out."""

from collections.abc import Sequence
from typing import Any

from cursor_gateway.dialects.base import RunView
from cursor_gateway.dialects.parts import (
    Ask,
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
from cursor_gateway.errors import RunCancelled

HEADERS = {"x-vercel-ai-ui-message-stream": "v1"}
_DONE = b"data: [DONE]\n\n"
_NEXT_STEP = data_frame({"type": "finish-step"}) + data_frame({"type": "start-step"})


class UiMessageEncoder(PartsEncoder):
    def __init__(self, run: RunView, reach: Reach, message_id: str = "") -> None:
        """`message_id`: of the message that it continues; empty: it is named after the run."""
        super().__init__(run.info.id, reach)
        self._run, self._message_id = run.info, message_id or run.info.id

    def began(self) -> bytes:
        metadata = {"chatId": self._run.id, "conversationId": self._run.conversation_id, "model": self._run.model}
        start = {"type": "start", "messageId": self._message_id, "messageMetadata": metadata}
        return data_frame(start) + data_frame({"type": "start-step"})

    def encoded(self, parts: Sequence[MessagePart], *, is_passed: bool) -> bytes:
        end = parts[-1] if parts and isinstance(parts[-1], MessageEnded) else None
        asked = {one.id: one for one in end.asked} if end is not None else {}
        frames: list[bytes] = []
        for part in parts:
            match part:
                case CallMade(id=id) if id in asked:
                    # A client sends its answers when every call of the last step has a result: others may still run.
                    frames.append(_NEXT_STEP if part.id == next(iter(asked)) else b"")
                    frames += map(data_frame, _asked(part, asked[id]))
                case MessageEnded():
                    frames.append(_NEXT_STEP if is_passed else _ended(part))
                case _:
                    frames.append(data_frame(_chunk(part)))
        return b"".join(frames)


def _chunk(
    part: ProseOpened | ProseGrew | ProseClosed | CallMade | CallReturned | Shown | TransientPart,
) -> dict[str, Any]:
    match part:
        case ProseOpened(kind=kind, id=id):
            return {"type": f"{kind}-start", "id": id}
        case ProseGrew(kind=kind, id=id, text=text):
            return {"type": f"{kind}-delta", "id": id, "delta": text}
        case ProseClosed(kind=kind, id=id):
            return {"type": f"{kind}-end", "id": id}
        case CallMade(id=id, name=name, input=input, by_caller=by_caller):
            chunk = {"type": "tool-input-available", "toolCallId": id, "toolName": name, "input": input}
            return chunk if by_caller else {**chunk, "providerExecuted": True, "dynamic": True}
        case CallReturned(id=id, is_denied=True):
            return {"type": "tool-output-denied", "toolCallId": id}
        case CallReturned(id=id, output=output, error=error, by_caller=by_caller):
            chunk = {"type": "tool-output-available", "toolCallId": id, "output": output}
            if error is not None:
                chunk = {"type": "tool-output-error", "toolCallId": id, "errorText": error}
            return chunk if by_caller else {**chunk, "dynamic": True}
        case Shown(type=type, id=id, value=value):
            return {"type": f"data-{type}", "id": id, "data": value}
        case TransientPart(name=name, value=value):
            return {"type": f"data-{name}", "data": value, "transient": True}


def _asked(call: CallMade, asked: Ask) -> list[dict[str, Any]]:
    """A question is a tool of the page, whose result is the answer; all else is approved or not."""
    chunks = [_chunk(call)]
    if asked.kind != "question":
        request = {"type": "tool-approval-request", "approvalId": call.id, "toolCallId": call.id}
        chunks.append({**request, "reason": asked.message} if asked.message else request)
    return chunks


def _ended(end: MessageEnded) -> bytes:
    metadata: dict[str, Any] = {"usage": usage_counts(end.usage)}
    if refused := end.envelope.metadata.refused:
        metadata["refused"] = refused
    chunks: list[dict[str, Any]] = [{"type": "finish-step"}]
    match end.failure:
        case None:
            reason = "tool-calls" if end.is_paused else "stop"
            chunks.append({"type": "finish", "finishReason": reason, "messageMetadata": metadata})
        case failure:
            # A client ignores what follows these.
            chunks.append({"type": "message-metadata", "messageMetadata": metadata})
            if failure.code == RunCancelled.code:
                chunks.append({"type": "abort", "reason": failure.message})
            else:
                chunks.append({"type": "error", "errorText": failure.message})
                chunks.append({"type": "finish", "finishReason": "error"})
    return b"".join(map(data_frame, chunks)) + _DONE
