"""Readers of our streams that share no code with the writers: plain JSON in, plain JSON out.

The documents' reader is written from the specification's table of events alone, the chat reader from
what real clients do with a chunk.
"""

import json
from typing import Any, TypeAlias

from cursor_gateway.wire.sse import SseDecoder, SseEvent

Json: TypeAlias = dict[str, Any]


def frames_of(stream: bytes) -> list[SseEvent]:
    return SseDecoder().push(stream)


def fold_documents(events: list[tuple[str, Json]]) -> Json:
    """The specification's events to a ChatResponse. A run that waits for its caller is not over: it may go on."""
    documents: dict[str, Json] = {}
    response: Json = {}
    for name, data in events:
        assert response.get("status") in (None, "streaming"), f"{name} after done"
        match name:
            case "document_start":
                assert data["id"] not in documents
                documents[data["id"]] = {
                    "id": data["id"],
                    "type": data["type"],
                    "sequence": data["sequence"],
                    "content": None,
                    "metadata": {},
                }
            case "content_delta":
                document = documents[data["documentId"]]
                document["content"] = (document["content"] or "") + data["delta"]
            case "terminal_output":  # an extension, for people who watch: the end has all of it
                assert set(data) == {"documentId", "text"}
                assert documents[data["documentId"]]["type"] == "terminal_command"
            case "tool_call_start":
                documents[data["documentId"]]["metadata"] |= {
                    "toolName": data["toolName"],
                    "toolCallId": data["toolCallId"],
                    "arguments": {},
                }
            case "tool_call_arguments":
                documents[data["documentId"]]["metadata"]["arguments"] = data["arguments"]
            case "tool_result":
                documents[data["documentId"]]["metadata"]["result"] = data["result"]
            case "document_end":
                document = documents[data["documentId"]]
                final = data.get("finalContent")
                assert (document["content"] or "") == (final or ""), "the deltas are not the final content"
                document["content"] = final
                for key, value in document["metadata"].items():
                    assert data["metadata"][key] == value, f"{key} was told otherwise before"
                document["metadata"] = data["metadata"]
            case "done":
                response = {**data, "documents": list(documents.values())}
            case _:
                raise AssertionError(f"{name} is no event of the specification")
    return response


def read_sse(stream: bytes) -> list[tuple[str, Json]]:
    return [(frame.event, json.loads(frame.data)) for frame in frames_of(stream)]


def read_ndjson(stream: bytes) -> list[tuple[str, Json]]:
    *lines, rest = stream.decode().split("\n")
    assert rest == ""
    events = [json.loads(line) for line in lines]  # none of them is empty
    for event in events:
        about = event["data"].get("documentId") or event["data"].get("id")
        assert event.get("documentId") == (None if event["type"] == "done" else about)
    return [(event["type"], event["data"]) for event in events]


def fold_chunks(stream: bytes, *, include_usage: bool) -> Json:
    """Chat chunks to a completion, with every rule that some client breaks on."""
    *frames, last = frames_of(stream)
    assert last.data == "[DONE]"
    assert {frame.event for frame in frames} == {"message"}
    chunks = [json.loads(frame.data) for frame in frames]
    error = chunks.pop()["error"] if "error" in chunks[-1] else None
    heads = [{key: chunk[key] for key in ("id", "object", "created", "model")} for chunk in chunks]
    assert all(head == heads[0] for head in heads)
    assert heads[0]["object"] == "chat.completion.chunk"
    counted: Json = {}
    if include_usage and error is None:
        final = chunks.pop()
        assert final["choices"] == []
        counted = {key: final[key] for key in ("usage", "cursor") if key in final}
    assert not any("usage" in chunk for chunk in chunks)
    choices = [chunk["choices"] for chunk in chunks]
    assert all(len(choice) == 1 and choice[0]["index"] == 0 for choice in choices)
    reasons = [choice[0]["finish_reason"] for choice in choices]
    reason = reasons.pop()
    assert reason in ((None,) if error else ("stop", "tool_calls")), "one finish reason, last, or an error"
    assert set(reasons) <= {None}
    deltas = [choice[0]["delta"] for choice in choices]
    assert deltas[0] == {"role": "assistant", "content": ""}
    message: Json = {"role": "assistant", "content": "", "refusal": None}
    calls: list[Json] = []
    for delta in deltas[1:]:
        assert set(delta) <= {"content", "reasoning_content", "tool_calls"}
        message["content"] += delta.get("content", "")
        if "reasoning_content" in delta:
            message["reasoning_content"] = message.get("reasoning_content", "") + delta["reasoning_content"]
        for call in delta.get("tool_calls", []):
            _fold_call(calls, call)
    if calls:
        message["content"] = message["content"] or None
        message["tool_calls"] = calls
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "length" if error else reason}
    completion = {**heads[0], "object": "chat.completion", "choices": [choice]}
    return completion | counted | ({"error": error} if error else {})


def _fold_call(calls: list[Json], call: Json) -> None:
    index = call["index"]
    if index == len(calls):
        assert set(call) == {"index", "id", "type", "function"}
        assert call["type"] == "function"
        assert set(call["function"]) == {"name", "arguments"}
        assert call["function"]["arguments"] == ""
        calls.append({"id": call["id"], "type": "function", "function": dict(call["function"])})
    else:
        assert set(call) == {"index", "function"}
        assert set(call["function"]) == {"arguments"}
        calls[index]["function"]["arguments"] += call["function"]["arguments"]
