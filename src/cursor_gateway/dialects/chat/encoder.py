"""OpenAI's chat completions: document events in; chunks as Server-Sent Events, or one completion, out.

Both are made of the same deltas. The rules that real clients depend on:
a role in the first delta; one id, model and time in all chunks; a known finish reason or an error,
never a bare end; a tool call's id, type and name in its first delta only; usage in a chunk of its own.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Struct, UnsetType

from cursor_gateway.errors import Failure
from cursor_gateway.model.document_events import (
    ContentDelta,
    DocumentEnded,
    DocumentEvent,
    DocumentStarted,
    Done,
    Paused,
    Reasoning,
    ToolCallArguments,
    ToolCallEnded,
    ToolCallStarted,
    context_usage,
    source_text,
)
from cursor_gateway.model.documents import (
    ClarificationDocument,
    CodeBlockDocument,
    CodeReferenceDocument,
    Document,
    ErrorDocument,
    FileEditDocument,
    FileEditMetadata,
    PlanDocument,
    TerminalCommandDocument,
    TextDocument,
    ThinkingDocument,
    TodoUpdateDocument,
    ToolCallDocument,
    Usage,
    WaitingCall,
)
from cursor_gateway.stages.cutting import Cutter
from cursor_gateway.stages.summary import one_line
from cursor_gateway.stages.tokens import estimate_tokens_by_sample
from cursor_gateway.wire.sse import frame

AgentTools: TypeAlias = Literal["reasoning", "tool_calls", "none"]
FinishReason: TypeAlias = Literal["stop", "length", "tool_calls"]

_encode = msgspec.json.encode
_DONE = frame(b"[DONE]")
_PIECE = 1024  # characters of a call's arguments in one chunk


class CompletionHead(Struct, frozen=True):
    """What every chunk of a reply repeats."""

    id: str
    created: int  # seconds since 1970
    model: str


# --- shapes -----------------------------------------------------------------------------------------


class Function(Struct, frozen=True):
    name: str
    arguments: str


class ToolCall(Struct, frozen=True):
    id: str
    function: Function
    type: Literal["function"] = "function"


class Message(Struct, frozen=True, kw_only=True):
    role: Literal["assistant"] = "assistant"
    content: str | None
    refusal: None = None
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[ToolCall] | UnsetType = UNSET


class Choice(Struct, frozen=True, kw_only=True):
    index: int = 0
    message: Message
    logprobs: None = None
    finish_reason: FinishReason


class PromptTokensDetails(Struct, frozen=True):
    cached_tokens: int


class CompletionTokensDetails(Struct, frozen=True):
    reasoning_tokens: int = 0


class CompletionUsage(Struct, frozen=True, kw_only=True):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails = CompletionTokensDetails()
    estimated: bool | UnsetType = UNSET  # ours: these are not the agent's own figures


class CursorFields(Struct, frozen=True, kw_only=True):
    """Ours: what OpenAI's API has no place for."""

    usage: CompletionUsage  # all model calls of the run added up, as the agent reports it


class ErrorBody(Struct, frozen=True):
    message: str
    type: str
    param: str | None
    code: str
    details: str | UnsetType = UNSET  # ours: what the agent said about it


class ChatCompletion(Struct, frozen=True, kw_only=True):
    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[Choice]
    usage: CompletionUsage  # of the last model call: clients take it for the size of the conversation
    cursor: CursorFields | UnsetType = UNSET
    error: ErrorBody | UnsetType = UNSET  # ours: beside what had arrived when the run failed


def error_body(failure: Failure) -> ErrorBody:
    match failure.status:
        case 401:
            kind = "authentication_error"
        case 403:
            kind = "permission_error"
        case 429:
            kind = "insufficient_quota" if failure.code == "insufficient_quota" else "rate_limit_error"
        case status if status < 500:
            kind = "invalid_request_error"
        case _:
            kind = "api_error"
    return ErrorBody(failure.message, kind, failure.param, failure.code, failure.details or UNSET)


def encode_error(failure: Failure) -> bytes:
    """The body of a reply that failed before it began."""
    return b'{"error":%b}' % _encode(error_body(failure))


def error_frames(failure: Failure) -> bytes:
    """The end of a stream that failed."""
    return _error_frames(error_body(failure))


def _error_frames(error: ErrorBody) -> bytes:
    return frame(b'{"error":%b}' % _encode(error)) + _DONE


def completion_frames(completion: ChatCompletion, include_usage: bool = False) -> bytes:
    """A whole answer as a stream, for one that had to be checked before it could be shown."""
    head = CompletionHead(completion.id, completion.created, completion.model)
    return ChunkEncoder(head, include_usage=include_usage)._whole(completion)


def encode_completion(completion: ChatCompletion) -> bytes:
    return _encode(completion)


def _usage(usage: Usage) -> CompletionUsage:
    return CompletionUsage(
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        total_tokens=usage.total_tokens,
        prompt_tokens_details=PromptTokensDetails(min(usage.cached_tokens or 0, usage.prompt_tokens)),
        estimated=usage.estimated,
    )


# --- deltas -----------------------------------------------------------------------------------------


class Content(Struct, frozen=True, gc=False):
    text: str


class Thought(Struct, frozen=True, gc=False):
    text: str


class Called(Struct, frozen=True):
    index: int
    call: ToolCall


class Ended(Struct, frozen=True):
    usage: CompletionUsage
    cursor: CursorFields | UnsetType = UNSET  # once the run has ended
    failure: Failure | None = None
    reason: FinishReason = "stop"


Delta: TypeAlias = Content | Thought | Called | Ended


class _Translator:
    """Document events to deltas."""

    def __init__(self, head: CompletionHead, agent_tools: AgentTools) -> None:
        self._agent_tools = agent_tools
        self._run = head.id.removeprefix("chatcmpl-")[:24]  # an id may have 40 characters
        self._thinking = ""  # the id of the open document of thinking
        self._calls = 0
        self._reasoned = False
        self._mid_line = False  # the reasoning so far does not end with a line end

    def push(self, event: DocumentEvent) -> list[Delta]:
        deltas: list[Delta] = []
        if text := source_text(event):
            deltas.append(Content(text))
        match event:
            case ContentDelta(id=id, text=text) if id == self._thinking:
                deltas.append(self._thought(text))
            case DocumentStarted(id=id, type="thinking"):
                self._thinking = id
                deltas += self._new_block()
            case Reasoning(text=text, opens=opens):
                deltas += self._new_block() if opens else []
                deltas.append(self._thought(text))
            case DocumentEnded(document=document):
                deltas += self._told(document)
            case Paused(envelope=envelope):
                waiting = enumerate(envelope.metadata.waiting_for or (), self._calls)
                deltas += [Called(index, _asked(call)) for index, call in waiting]
                deltas.append(Ended(_usage(context_usage(event)), reason="tool_calls"))
            case Done(envelope=envelope, failure=failure):
                in_all = CursorFields(usage=_usage(envelope.usage))
                deltas.append(Ended(_usage(context_usage(event)), in_all, failure))
            case ContentDelta() | DocumentStarted() | ToolCallStarted() | ToolCallArguments() | ToolCallEnded():
                pass
        return deltas

    def thinks_on(self, text: str) -> None:
        self._reasoned = True
        self._mid_line = not text.endswith("\n")

    def _thought(self, text: str) -> Thought:
        self.thinks_on(text)
        return Thought(text)

    def _new_block(self) -> list[Delta]:
        return [self._thought("\n\n" if self._mid_line else "\n")] if self._reasoned else []

    def _told(self, document: Document) -> list[Delta]:
        """What one of the agent's own tools did."""
        if isinstance(document, ToolCallDocument) and document.metadata.ran_by == "caller":
            return []  # who ran it knows
        match self._agent_tools:
            case "reasoning":
                line = one_line(document)
                if line is None:
                    return []
                if isinstance(document, PlanDocument):
                    line = f"{line}\n\n{document.content}"  # it stands nowhere else in this dialect
                return [self._thought(("\n" if self._mid_line else "") + line + "\n")]
            case "tool_calls":
                # Not the agent's own id: some are the same in every run, and clients want them unique.
                call = _as_call(document, f"call_{self._run}_{document.sequence}")
                if call is None:
                    return []
                self._calls += 1
                return [Called(self._calls - 1, call)]
            case "none":
                return []


class _Cutting:
    """Document events to deltas, up to where a cutter ends the answer.

    What the agent had used when its answer was cut is not known, so the usage is then an estimate: of what was said,
    beside the estimate of the context that is handed in.
    """

    def __init__(self, translator: _Translator, cutter: Cutter, prompt_tokens: int) -> None:
        self._translator = translator
        self._cutter = cutter
        self._prompt_tokens = prompt_tokens
        self._said: list[str] = []

    def push(self, event: DocumentEvent) -> list[Delta]:
        deltas: list[Delta] = []
        for delta in self._translator.push(event):
            match delta:
                case Content(text=text):
                    deltas += self._say(self._cutter.push(text))
                case Called() | Ended():
                    deltas += self._say(self._cutter.flush())
                    if self._cutter.reason is None:
                        deltas.append(delta)
                case Thought():
                    deltas.append(delta)
            if self._cutter.reason is not None:
                return [*deltas, self._cut_short(self._cutter.reason)]
        return deltas

    def _say(self, text: str) -> list[Delta]:
        self._said.append(text)
        return [Content(text)] if text else []

    def _cut_short(self, reason: FinishReason) -> Ended:
        said = estimate_tokens_by_sample("".join(self._said))
        usage = Usage(
            prompt_tokens=self._prompt_tokens,
            completion_tokens=said,
            total_tokens=self._prompt_tokens + said,
            estimated=True,
        )
        return Ended(_usage(usage), reason=reason)


_FILE_TOOLS = {"create": "write_file", "edit": "edit_file", "delete": "delete_file", "rename": "rename_file"}


def _as_call(document: Document, id: str) -> ToolCall | None:
    """A tool that the agent ran, in the form of a call; None for documents that are no tool's."""
    match document:
        case ToolCallDocument(metadata=metadata):
            return _call(id, metadata.tool_name, metadata.arguments)
        case TerminalCommandDocument(metadata=metadata):
            return _call(id, "run_terminal_cmd", {"command": metadata.command})
        case FileEditDocument(metadata=metadata, content=content):
            return _call(id, _FILE_TOOLS[metadata.operation], _file_arguments(metadata, content))
        case PlanDocument(metadata=metadata, content=content):
            return _call(id, "create_plan", {"name": metadata.title, "plan": content})
        case ClarificationDocument(metadata=metadata):
            return _call(id, "ask_question", {"questions": metadata.questions})
        case TodoUpdateDocument(metadata=metadata):
            return _call(id, "todo_write", {"todos": metadata.todos})
        case TextDocument() | CodeBlockDocument() | CodeReferenceDocument() | ErrorDocument() | ThinkingDocument():
            return None


def _file_arguments(metadata: FileEditMetadata, content: str | None) -> dict[str, Any]:
    arguments: dict[str, Any] = {"target_file": metadata.file_path}
    if metadata.old_path:
        arguments["old_path"] = metadata.old_path
    if metadata.diff:
        return {**arguments, "old_string": metadata.diff.old_string, "new_string": metadata.diff.new_string}
    return arguments if content is None else {**arguments, "contents": content}


def _asked(call: WaitingCall) -> ToolCall:
    return _call(call.tool_call_id, call.tool_name, call.arguments)


def _call(id: str, name: str, arguments: dict[str, Any]) -> ToolCall:
    return ToolCall(id, Function(name, _encode(arguments).decode()))


# --- the two replies --------------------------------------------------------------------------------


class ChunkEncoder:
    """The streaming reply: frames, the last of them `[DONE]`; then it is over, and the connection is to be closed.

    It ends where the run pauses for its caller. With a cutter it may be over before the run is, which then serves
    nobody; `prompt_tokens` estimates the context of such a reply.

    Each frame has the number of its event in the run as its id; of an event that gives several frames, the last one
    has it, so a reader that got only some of them gets them all again. With a cutter there are no ids: text that is
    held back belongs to an event whose number was sent already.
    """

    is_slow = False

    def __init__(
        self,
        head: CompletionHead,
        *,
        include_usage: bool = False,
        agent_tools: AgentTools = "reasoning",
        cutter: Cutter | None = None,
        prompt_tokens: int = 0,
        after: int = 0,
    ) -> None:
        """`after` is the number of the last event before this reply."""
        self.is_over = False
        self._number = after
        self._cutter = cutter
        self._translator = _Translator(head, agent_tools)
        self._deltas = self._translator if cutter is None else _Cutting(self._translator, cutter, prompt_tokens)
        self._include_usage = include_usage
        self._begun = False
        self._says_all = False  # begun, not over, and without a cutter
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

    @property
    def is_cut(self) -> bool:
        """The rest is of no use."""
        return self._cutter is not None and self._cutter.reason is not None

    def push(self, event: DocumentEvent, /) -> bytes:
        self._number += 1
        if event.__class__ is ContentDelta and event.raw is None and self._says_all:  # nearly every event
            return b"id: %d\n%b%b%b" % (self._number, self._content, _encode(event.text), self._content_end)
        if event.__class__ is Reasoning and not event.opens and self._says_all:
            self._translator.thinks_on(event.text)
            return b"id: %d\n%b%b%b" % (self._number, self._reasoning, _encode(event.text), self._content_end)
        if self.is_over:
            return b""
        deltas = self._deltas.push(event)
        frames = [self._frames(delta) for delta in deltas]
        if not self._begun:
            self._begun = True
            frames.insert(0, self._role())
        self.is_over = bool(deltas) and isinstance(deltas[-1], Ended)
        self._says_all = self._deltas is self._translator and not self.is_over
        return self._numbered(b"".join(frames))

    def _numbered(self, frames: bytes) -> bytes:
        if not frames or self._cutter is not None:
            return frames
        last = frames.rfind(b"\n\n", 0, -2) + 2 if b"\n\n" in frames[:-2] else 0
        return b"%bid: %d\n%b" % (frames[:last], self._number, frames[last:])

    def push_all(self, events: Sequence[DocumentEvent], /) -> bytes:
        return b"".join(map(self.push, events))

    def _whole(self, completion: ChatCompletion) -> bytes:
        """All frames of an answer that is there already."""
        (choice,) = completion.choices
        deltas: list[Delta] = []
        if choice.message.reasoning_content:
            deltas.append(Thought(choice.message.reasoning_content))
        if choice.message.content:
            deltas.append(Content(choice.message.content))
        deltas += [Called(index, call) for index, call in enumerate(choice.message.tool_calls or ())]
        frames = [self._role(), *(self._frames(delta) for delta in deltas)]
        if completion.error:
            frames.append(_error_frames(completion.error))
        else:
            frames.append(self._frames(Ended(completion.usage, completion.cursor, reason=choice.finish_reason)))
        self.is_over = True
        return b"".join(frames)

    def _role(self) -> bytes:
        return self._chunk(b'{"role":"assistant","content":""}')

    def _frames(self, delta: Delta) -> bytes:
        match delta:
            case Content(text=text):
                return self._content + _encode(text) + self._content_end
            case Thought(text=text):
                return self._reasoning + _encode(text) + self._content_end
            case Called(index=index, call=call):
                opening = {"id": call.id, "type": "function", "function": {"name": call.function.name, "arguments": ""}}
                told: list[dict[str, object]] = [{"index": index, **opening}]
                for at in range(0, len(arguments := call.function.arguments), _PIECE):
                    told.append({"index": index, "function": {"arguments": arguments[at : at + _PIECE]}})
                return b"".join(self._chunk(_encode({"tool_calls": [one]})) for one in told)
            case Ended(failure=Failure() as failure):
                return error_frames(failure)
            case Ended(usage=usage, cursor=cursor, reason=reason):
                finish = b'%b{},"finish_reason":%b}]}\n\n' % (self._before, _encode(reason))
                ours = b',"cursor":%b' % _encode(cursor) if cursor else b""
                counted = b'%b],"usage":%b%b}\n\n' % (self._envelope, _encode(usage), ours)
                return finish + (counted if self._include_usage else b"") + _DONE

    def _chunk(self, delta: bytes) -> bytes:
        return self._before + delta + self._after


class ResumedChunks:
    """The chunks after the event that the reader had last.

    All events are pushed, also those before: what was sent already decides how it goes on. A run that paused has
    several replies: `encoder` makes the one for each, by the number of the pause before it.
    """

    is_slow = False

    def __init__(self, encoder: Callable[[int], ChunkEncoder], after: int) -> None:
        self._make, self._encoder, self._after, self._number = encoder, encoder(0), after, 0

    @property
    def is_over(self) -> bool:
        return self._encoder.is_over

    @property
    def is_cut(self) -> bool:
        return self._encoder.is_cut

    def push(self, event: DocumentEvent, /) -> bytes:
        self._number += 1
        frames = self._encoder.push(event)
        if self._number > self._after:
            return frames
        if isinstance(event, Paused):
            self._encoder = self._make(self._number)
        return b""

    def push_all(self, events: Sequence[DocumentEvent], /) -> bytes:
        return b"".join(map(self.push, events))


class CompletionFold:
    """The non-streaming reply. It is over where the run pauses; with a cutter perhaps before."""

    def __init__(
        self,
        head: CompletionHead,
        *,
        agent_tools: AgentTools = "reasoning",
        cutter: Cutter | None = None,
        prompt_tokens: int = 0,
    ) -> None:
        self._head, self._agent_tools, self._cutter = head, agent_tools, cutter
        translator = _Translator(head, agent_tools)
        self._deltas = translator if cutter is None else _Cutting(translator, cutter, prompt_tokens)
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[ToolCall] = []
        self._ended: Ended | None = None

    @property
    def is_over(self) -> bool:
        return self._ended is not None

    @property
    def is_cut(self) -> bool:
        return self._cutter is not None and self._cutter.reason is not None

    @property
    def failure(self) -> Failure | None:
        return self._ended.failure if self._ended is not None else None

    def again(self) -> "CompletionFold":
        """For another run that is to give the same reply."""
        return CompletionFold(self._head, agent_tools=self._agent_tools)

    def push(self, event: DocumentEvent, /) -> None:
        if self.is_over:
            return
        for delta in self._deltas.push(event):
            match delta:
                case Content(text=text):
                    self._content.append(text)
                case Thought(text=text):
                    self._reasoning.append(text)
                case Called(call=call):
                    self._calls.append(call)
                case Ended():
                    self._ended = delta

    def completion(self) -> ChatCompletion | None:
        """None until the run is done, or cut. A failed run's says `length` (it is cut short) and carries the error."""
        if self._ended is None:
            return None
        failure = self._ended.failure
        message = Message(
            content="".join(self._content) or (None if self._calls else ""),
            reasoning_content="".join(self._reasoning) or UNSET,
            tool_calls=self._calls or UNSET,
        )
        return ChatCompletion(
            id=self._head.id,
            created=self._head.created,
            model=self._head.model,
            choices=[Choice(message=message, finish_reason="length" if failure else self._ended.reason)],
            usage=self._ended.usage,
            cursor=self._ended.cursor,
            error=error_body(failure) if failure else UNSET,
        )
