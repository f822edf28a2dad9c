"""Encode document events as OpenAI's chat completions: chunks as Server-Sent Events, or one completion.

Both are made of the same deltas. The rules that real clients depend on:
a role in the first delta; one id, model and time in all chunks; a known finish reason or an error,
never a bare end; a tool call's id, type and name in its first delta only; usage in a chunk of its own.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from cursor_gateway.dialects.deltas import (
    AgentTools,
    AnswerFold,
    AnswerText,
    Called,
    Delta,
    Ended,
    FinishReason,
    Noted,
    OpenQuestion,
    ReplyState,
    TextStyle,
    Thought,
    Translator,
    WholeAnswer,
    cached_tokens,
    marked,
)
from cursor_gateway.dialects.errors import ErrorBody, error_in_stream
from cursor_gateway.dialects.replies import EventEncoder, numbered
from cursor_gateway.errors import Failure
from cursor_gateway.model.document_events import (
    ContentDelta,
    DocumentEvent,
    Reasoning,
    TerminalOutput,
    ToolCallArguments,
    ToolCallEnded,
    ToolCallStarted,
)
from cursor_gateway.model.documents import RefusedCall, Usage
from cursor_gateway.model.messages import ToolCall
from cursor_gateway.stages.cutting import Cutter
from cursor_gateway.wire.sse import frame

_encode = msgspec.json.encode
_DONE = frame(b"[DONE]")
_SILENT = (ToolCallStarted, ToolCallArguments, ToolCallEnded, TerminalOutput)  # they give no delta
_PIECE = 1024  # characters of a call's arguments in one chunk


class CompletionHead(Struct, frozen=True):
    """What every chunk of a reply repeats."""

    id: str
    created: int  # seconds since 1970
    model: str

    @property
    def run(self) -> str:
        """A name for the run, for the ids of its calls."""
        return self.id.removeprefix("chatcmpl-")


# --- shapes -----------------------------------------------------------------------------------------


class Function(Struct, frozen=True):
    """The function and its arguments."""

    name: Annotated[str, "The function's name."]
    arguments: Annotated[str, "JSON, as the model wrote it."]


class CompletionToolCall(Struct, frozen=True):
    """A tool call."""

    id: Annotated[str, "The call's id."]
    function: Annotated[Function, "The function, and its arguments."]
    type: Annotated[Literal["function"], "The object type."] = "function"


class CompletionMessage(Struct, frozen=True, kw_only=True):
    """The message."""

    role: Annotated[Literal["assistant"], "The role of the message."] = "assistant"
    content: Annotated[str | None, "The agent's own text, byte for byte; null if there are only tool calls."]
    refusal: None = None
    reasoning_content: Annotated[
        str | UnsetType, "Thinking, and a line for each of the agent's actions. An extension that many clients read."
    ] = UNSET
    tool_calls: Annotated[list[CompletionToolCall] | UnsetType, "Tool calls."] = UNSET


class CompletionChoice(Struct, frozen=True, kw_only=True):
    """The answer."""

    index: Annotated[int, "Always 0."] = 0
    message: CompletionMessage
    logprobs: None = None
    finish_reason: Annotated[
        FinishReason,
        "`stop`, `length` if the answer was cut off, or `tool_calls` if the caller has to run tools; the run then "
        "waits for their results.",
    ]


class PromptTokensDetails(Struct, frozen=True):
    """More about the tokens read."""

    cached_tokens: Annotated[int, "Tokens from the cache."]


class CompletionTokensDetails(Struct, frozen=True):
    """More about the tokens written."""

    reasoning_tokens: Annotated[int, "Tokens of thinking; 0 if they are not reported."] = 0


class CompletionUsage(Struct, frozen=True, kw_only=True):
    """Tokens read and written."""

    prompt_tokens: Annotated[int, "Tokens read, including those from the cache."]
    completion_tokens: Annotated[int, "Tokens written."]
    total_tokens: Annotated[int, "The sum of both."]
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails = CompletionTokensDetails()
    estimated: Annotated[bool | UnsetType, "Gateway extension: true if these are not the agent's own figures."] = UNSET
    cost: Annotated[float | UnsetType, "Gateway extension: in US dollars, if the model has a price."] = UNSET


class CompletionCursor(Struct, frozen=True, kw_only=True):
    """Gateway data."""

    usage: Annotated[
        CompletionUsage | UnsetType, "The total of all model calls of the run, as reported by the agent."
    ] = UNSET
    refused_count: Annotated[
        int | UnsetType,
        "The number of the agent's tool calls that were not run because nothing allowed them, whatever the answer "
        "claims.",
    ] = UNSET
    refused: Annotated[
        list[RefusedCall] | UnsetType,
        "The first 20 of them: what was not run, the rules that would allow it, the reason, and a link to this "
        "gateway's page where a person can allow it.",
    ] = UNSET


class ChatCompletion(Struct, frozen=True, kw_only=True):
    """A chat completion."""

    id: Annotated[str, "The id of this answer, `chatcmpl-…`."]
    object: Annotated[Literal["chat.completion"], "The object type."] = "chat.completion"
    created: Annotated[int, "When the run started, in seconds since 1970."]
    model: Annotated[str, "The model that answered."]
    choices: Annotated[list[CompletionChoice], "The answer; always one choice."]
    usage: Annotated[CompletionUsage, "What the model wrote in this reply, and in total the size of the conversation."]
    cursor: CompletionCursor | UnsetType = UNSET
    error: ErrorBody | UnsetType = UNSET  # gateway extension: beside what had arrived when the run failed


def _cursor(end: Ended) -> CompletionCursor | UnsetType:
    if end.total is None:
        return UNSET
    return CompletionCursor(
        usage=_usage(end.total), refused_count=end.refused_count or UNSET, refused=list(end.refused) or UNSET
    )


def error_frames(failure: Failure) -> bytes:
    """The end of a stream that failed."""
    return frame(msgspec.json.encode({"error": error_in_stream(failure)})) + _DONE


def completion_of(head: CompletionHead, answer: WholeAnswer) -> ChatCompletion:
    """A failed run's says `length` (it is cut short) and carries the error. An open question takes the place of a
    text; before it there is white space at most."""
    end, text = answer.end, answer.text + (marked(answer.question) if answer.question else "")
    message = CompletionMessage(
        content=text or (None if answer.calls else ""),
        reasoning_content=answer.reasoning or UNSET,
        tool_calls=[CompletionToolCall(call.id, Function(call.name, call.arguments)) for call in answer.calls] or UNSET,
    )
    return ChatCompletion(
        id=head.id,
        created=head.created,
        model=head.model,
        choices=[CompletionChoice(message=message, finish_reason="length" if end.failure else end.reason)],
        usage=_usage(end.usage),
        cursor=_cursor(end),
        error=error_in_stream(end.failure) if end.failure else UNSET,
    )


def encode_completion(completion: ChatCompletion) -> bytes:
    return _encode(completion)


def _usage(usage: Usage) -> CompletionUsage:
    return CompletionUsage(
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        total_tokens=usage.total_tokens,
        prompt_tokens_details=PromptTokensDetails(cached_tokens(usage)),
        completion_tokens_details=CompletionTokensDetails(usage.reasoning_tokens or 0),
        estimated=usage.estimated,
        cost=usage.cost,
    )


# --- the two replies --------------------------------------------------------------------------------


class ChunkEncoder(ReplyState, EventEncoder):
    """The streaming reply: frames, the last of them `[DONE]`; then it is over, and the connection can be closed.

    It ends where the run pauses for its caller. With a cutter it may be over before the run is, which then serves
    nobody; `prompt_tokens` estimates the context of such a reply.

    Each frame has the number of its event in the run as its id; of an event that gives several frames, the last one
    has it, so a reader that got only some of them gets them all again. With a cutter there are no ids: text that is
    held back belongs to an event whose number was sent already. `has_ids` is false where the events are not the run's.
    """

    def __init__(
        self,
        head: CompletionHead,
        *,
        include_usage: bool = False,
        agent_tools: AgentTools = "reasoning",
        cutter: Cutter | None = None,
        prompt_tokens: int = 0,
        text: TextStyle = "exact",
        after: int = 0,
        has_ids: bool = True,
    ) -> None:
        """`after` is the number of the last event before this reply."""
        super().__init__(Translator(head.run, agent_tools, cutter, prompt_tokens, text))
        self._number = after
        self._has_ids = has_ids and cutter is None
        self._include_usage = include_usage
        self._begun = False
        self._is_plain = False  # begun, not over, with ids, and not where texts may have to be separated
        # Every chunk is these bytes around its delta: 34 times as fast as encoding it each time.
        self._envelope = b'data: {"id":%b,"object":"chat.completion.chunk","created":%d,"model":%b,"choices":[' % (
            _encode(head.id),
            head.created,
            _encode(head.model),
        )
        self._before = self._envelope + b'{"index":0,"delta":'
        self._content = self._before + b'{"content":'
        self._reasoning = self._before + b'{"reasoning_content":'
        self._after = b',"finish_reason":null}]}\n\n'
        self._content_end = b"}" + self._after

    def push(self, event: DocumentEvent, /) -> bytes:
        self._number += 1
        if event.__class__ is ContentDelta and event.raw is None and self._is_plain:  # nearly every event
            self.deltas.last_text = event.text
            return b"id: %d\n%b%b%b" % (self._number, self._content, _encode(event.text), self._content_end)
        if event.__class__ is Reasoning and not event.opens and self._is_plain:
            self.deltas.note_reasoning(event.text)
            return b"id: %d\n%b%b%b" % (self._number, self._reasoning, _encode(event.text), self._content_end)
        if self.deltas.end is not None or (event.__class__ in _SILENT and self._begun):
            return b""
        deltas = self.deltas.push(event)
        self._is_plain = self._has_ids and not self.deltas.is_after_tool and self.deltas.end is None
        if not deltas and self._begun:
            return b""
        frames = b"".join(map(self._frames, deltas))
        if not self._begun:
            self._begun = True
            frames = self._role() + frames
        return numbered(frames, self._number) if self._has_ids else frames

    def _role(self) -> bytes:
        return self._chunk(b'{"role":"assistant","content":""}')

    def _frames(self, delta: Delta) -> bytes:
        match delta:
            case AnswerText(text=text):
                return self._content + _encode(text) + self._content_end
            case Thought(text=text):
                return self._reasoning + _encode(text) + self._content_end
            case Called(index=index, call=call):
                return self._call(index, call)
            case OpenQuestion(text=text):
                return self._content + _encode(marked(text)) + self._content_end
            case Ended(failure=Failure() as failure):
                return error_frames(failure)
            case Noted(text=text):
                return self._content + _encode(self.deltas.on_a_line(text)) + self._content_end
            case Ended(usage=usage, reason=reason, refused_count=count, refused=refused):
                told = b""
                if count:
                    told = b',"cursor":%b' % _encode(
                        CompletionCursor(refused_count=count, refused=list(refused) or UNSET)
                    )
                finish = b'%b{},"finish_reason":%b}]%b}\n\n' % (self._before, _encode(reason), told)
                cursor = _cursor(delta)
                extension = b',"cursor":%b' % _encode(cursor) if cursor else b""
                counted = b'%b],"usage":%b%b}\n\n' % (self._envelope, _encode(_usage(usage)), extension)
                return finish + (counted if self._include_usage else b"") + _DONE

    def _call(self, index: int, call: ToolCall) -> bytes:
        function = {"name": call.name, "arguments": ""}
        deltas: list[dict[str, object]] = [{"index": index, "id": call.id, "type": "function", "function": function}]
        for at in range(0, len(call.arguments), _PIECE):
            deltas.append({"index": index, "function": {"arguments": call.arguments[at : at + _PIECE]}})
        return b"".join(self._chunk(_encode({"tool_calls": [delta]})) for delta in deltas)

    def _chunk(self, delta: bytes) -> bytes:
        return self._before + delta + self._after


class CompletionFold(AnswerFold):
    """The non-streaming reply. It is over where the run pauses; with a cutter perhaps before."""

    def __init__(
        self,
        head: CompletionHead,
        *,
        agent_tools: AgentTools = "reasoning",
        cutter: Cutter | None = None,
        prompt_tokens: int = 0,
        text: TextStyle = "exact",
        after: int = 0,
    ) -> None:
        """`after` is the number of the last event before this reply."""
        super().__init__(head.run, agent_tools, cutter, prompt_tokens, text)
        self.after = after
        self._head = head

    def completion(self) -> ChatCompletion | None:
        """None until the run is done, or cut."""
        answer = self.answer()
        return None if answer is None else completion_of(self._head, answer)

    def body(self) -> bytes:
        completion = self.completion()
        if completion is None:
            raise ValueError("the answer is not over yet")
        return encode_completion(completion)
