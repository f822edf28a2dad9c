"""Readers of the AI SDK's and AG-UI's streams that share no code with the writers: each checks the protocol's order,
and keeps what its client would show."""

import json
from typing import Any, TypeAlias

from cursor_gateway.wire.sse import SseDecoder

Json: TypeAlias = dict[str, Any]


def frames_of(stream: bytes) -> list[str]:
    return [frame.data for frame in SseDecoder().push(stream)]


class AiSdkMessage:
    """One message, which several streams may continue."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.reasoning: list[str] = []
        self.calls: dict[str, Json] = {}  # by id: the chunk that made it, with its `state`
        self.data: dict[str, Json] = {}  # by id
        self.transient: list[Json] = []
        self.metadata: Json = {}
        self.id = ""
        self.finish: str | None = None
        self.error: str | None = None
        self._open: dict[str, str] = {}  # the kinds of open parts, by id

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def read(self, stream: bytes, *, is_whole: bool = True) -> "AiSdkMessage":
        *frames, last = frames_of(stream)
        assert not is_whole or last == "[DONE]"
        chunks = [json.loads(frame) for frame in (frames if last == "[DONE]" else [*frames, last])]
        if is_whole:
            assert [chunk["type"] for chunk in chunks[:2]] == ["start", "start-step"]
            assert chunks[-1]["type"] in ("finish", "abort")
        for chunk in chunks:
            self._push(chunk)
        assert not is_whole or not self._open, "a part never ended"
        return self

    def _push(self, chunk: Json) -> None:
        match chunk["type"].partition("-")[::2]:
            case "start", "":
                self.id, self.metadata = chunk["messageId"], {**self.metadata, **chunk["messageMetadata"]}
            case ("text" | "reasoning") as kind, "start":
                assert not self._open, "two parts are open"
                self._open[chunk["id"]] = kind
                (self.texts if kind == "text" else self.reasoning).append("")
            case ("text" | "reasoning") as kind, "delta":
                assert self._open[chunk["id"]] == kind
                assert chunk["delta"]
                (self.texts if kind == "text" else self.reasoning)[-1] += chunk["delta"]
            case ("text" | "reasoning") as kind, "end":
                assert self._open.pop(chunk["id"]) == kind
            case "tool", "input-available":
                assert not self._open, "a call within a part"
                known = self.calls.get(chunk["toolCallId"])  # it may be asked again
                assert known is None or known["toolName"] == chunk["toolName"]
                assert chunk["toolName"]
                self.calls[chunk["toolCallId"]] = {**chunk, "state": "called"}
            case "tool", ("output-available" | "output-error" | "output-denied" | "approval-request") as state:
                self.calls[chunk["toolCallId"]] |= {**chunk, "state": state}
            case "data", _ if chunk.get("transient"):
                self.transient.append(chunk)
            case "data", _:
                self.data[chunk["id"]] = chunk
            case (("start" | "finish"), "step"):
                assert not self._open
            case "finish", "":
                self.finish, self.metadata = chunk["finishReason"], self.metadata | chunk.get("messageMetadata", {})
            case "message", "metadata":
                self.metadata |= chunk["messageMetadata"]
            case "error", "":
                self.error = chunk["errorText"]
            case "abort", "":
                self.finish = "abort"
            case other:
                raise AssertionError(other)


class AgUiThread:
    """The events of one thread: a run for each stream."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.reasoning: list[str] = []
        self.calls: dict[str, Json] = {}  # by id: name, arguments, result
        self.activities: dict[str, Json] = {}
        self.custom: list[Json] = []
        self.started: Json = {}
        self.finished: Json = {}  # the last event
        self._open: dict[str, str] = {}
        self._made: set[str] = set()  # the messages that were made

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def read(self, stream: bytes, *, is_whole: bool = True) -> "AgUiThread":
        events = [json.loads(frame) for frame in frames_of(stream)]
        if is_whole:
            assert events[0]["type"] == "RUN_STARTED"
            assert events[-1]["type"] in ("RUN_FINISHED", "RUN_ERROR")
            assert sum(event["type"].startswith("RUN_") for event in events) == 2
        for event in events:
            self._push(event)
        assert not is_whole or not self._open
        return self

    def _push(self, event: Json) -> None:
        match event["type"]:
            case "RUN_STARTED":
                self.started = event
            case "RUN_FINISHED" | "RUN_ERROR":
                self.finished = event
            case "TEXT_MESSAGE_START" | "REASONING_MESSAGE_START" as kind:
                prose = kind.removesuffix("_START")
                assert event["role"] == ("assistant" if prose == "TEXT_MESSAGE" else "reasoning")
                self._make(event["messageId"])
                self._open[prose] = event["messageId"]
                self._prose(prose).append("")
            case "TEXT_MESSAGE_CONTENT" | "REASONING_MESSAGE_CONTENT" as kind:
                prose = kind.removesuffix("_CONTENT")
                assert self._open[prose] == event["messageId"]
                assert event["delta"]
                self._prose(prose)[-1] += event["delta"]
            case "TEXT_MESSAGE_END" | "REASONING_MESSAGE_END" as kind:
                assert self._open.pop(kind.removesuffix("_END")) == event["messageId"]
            case "REASONING_START":
                assert not self._open
                self._open["span"] = event["messageId"]
            case "REASONING_END":
                assert self._open.pop("span") == event["messageId"]
            case "TOOL_CALL_START":
                assert not self._open
                known = self.calls.get(event["toolCallId"])  # it may be asked again
                assert known is None or known["name"] == event["toolCallName"]
                self.calls[event["toolCallId"]] = {"name": event["toolCallName"], "arguments": ""}
                self._open["call"] = event["toolCallId"]
            case "TOOL_CALL_ARGS":
                assert self._open["call"] == event["toolCallId"]
                self.calls[event["toolCallId"]]["arguments"] += event["delta"]
            case "TOOL_CALL_END":
                assert self._open.pop("call") == event["toolCallId"]
            case "TOOL_CALL_RESULT":
                self._make(event["messageId"])
                self.calls[event["toolCallId"]]["result"] = event["content"]
                self.calls[event["toolCallId"]]["is_error"] = event.get("metadata", {}).get("isError", False)
            case "ACTIVITY_SNAPSHOT":
                assert event["replace"]
                self.activities[event["messageId"]] = event
            case "CUSTOM":
                self.custom.append(event)
            case other:
                raise AssertionError(other)

    def _prose(self, kind: str) -> list[str]:
        return self.texts if kind == "TEXT_MESSAGE" else self.reasoning

    def _make(self, id: str) -> None:
        assert id not in self._made, "two messages have this id"
        self._made.add(id)
