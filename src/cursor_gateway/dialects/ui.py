"""What the AI SDK and AG-UI have in common: the parts of a message as a user interface shows it, and its requests.

Document events become texts, thoughts, calls and documents. The agent's prose with its code is text, byte for byte. Its
commands and tools are calls. Plans, to-dos and changed files are shown as the documents that they are. Where the run
waits for its caller, the message ends with what it waits for; the answer to that has the same ids, and continues the
message.
"""

import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from cursor_gateway.dialects.base import SSE, ContinueRun, Encoder, ReplyStart, RunAction, RunView, StartRun
from cursor_gateway.dialects.deltas import action_of
from cursor_gateway.dialects.replies import EventEncoder, JsonReply, Resumed, numbered
from cursor_gateway.dialects.requests import convert_field, invalid, option_hints, with_headers
from cursor_gateway.errors import Failure
from cursor_gateway.model import document_events, documents
from cursor_gateway.model.answers import (
    Decision,
    Permission,
    PermissionDecisions,
    PlanDecision,
    QuestionAnswers,
    RunAnswer,
    SeveralAnswers,
)
from cursor_gateway.model.caller_tools import Offer, Tool, make_tool
from cursor_gateway.model.documents import ClarificationAnswer
from cursor_gateway.model.messages import AssistantMessage, Message, ToolCall, ToolMessage
from cursor_gateway.model.requests import INTERACTIVE, NonEmpty, RunOptions, run_options

ProseKind: TypeAlias = Literal["text", "reasoning"]
AskKind: TypeAlias = Literal["question", "permission", "plan"]
ASK_TOOLS: dict[AskKind, str] = {"question": "ask_question", "permission": "request_permission", "plan": "accept_plan"}

_SHOWN = ("file_edit", "plan", "todo_update")  # as the documents that they are


# --- ids --------------------------------------------------------------------------------------------


def call_id(run_id: str, document_id: str) -> str:
    """Of what a document does or asks. The agent's own ids are the same in every run, and clients want them unique."""
    return f"{run_id}.{document_id}"


def asked_in(id: str) -> tuple[str, str] | None:
    """The run and the document of such an id; None for the id of a caller's own call."""
    run, dot, document = id.partition(".")
    return (run, document) if dot and run.startswith("chat_") and document.startswith("doc_") else None


# --- parts ------------------------------------------------------------------------------------------


class ProseOpened(Struct, frozen=True, gc=False):
    kind: ProseKind
    id: str


class ProseGrew(Struct, frozen=True, gc=False):
    kind: ProseKind
    id: str
    text: str


class ProseClosed(Struct, frozen=True, gc=False):
    kind: ProseKind
    id: str


class CallMade(Struct, frozen=True):
    id: str
    name: str
    input: Any
    by_caller: bool = False  # its caller has to run it


class CallReturned(Struct, frozen=True):
    id: str
    output: Any
    error: str | None = None
    is_denied: bool = False  # by the person who was asked
    by_caller: bool = False  # as in its `CallMade`


class Shown(Struct, frozen=True):
    """A document of its own, whole; the same id again replaces it."""

    type: str
    id: str
    value: Any


class TransientPart(Struct, frozen=True):
    """For people who watch: it is not part of the message."""

    name: str
    value: dict[str, Any]


class Ask(Struct, frozen=True):
    """What a person has to answer before the run continues. It was made as a call, too."""

    id: str
    kind: AskKind
    message: str


class MessageEnded(Struct, frozen=True):
    """The run is done, or waits for its caller."""

    usage: documents.Usage  # of this reply
    envelope: documents.Envelope
    failure: Failure | None = None
    is_paused: bool = False
    calls: tuple[str, ...] = ()  # the ids of those that the caller has to run
    asked: tuple[Ask, ...] = ()


MessagePart: TypeAlias = (
    ProseOpened | ProseGrew | ProseClosed | CallMade | CallReturned | Shown | TransientPart | MessageEnded
)


class _Open(Struct):
    """A document that has begun and not ended."""

    start: document_events.DocumentStarted
    tool_name: str = ""
    call: str = ""  # the id of its call, once that was made

    @property
    def known(self) -> document_events.KnownMetadata:
        return self.start.metadata or document_events.KnownMetadata()


class MessageParts:
    """It may begin after a pause: what ends then without having begun is part of the message already."""

    def __init__(self, run_id: str, after: int = 0) -> None:
        """`after`: the number of the last event before the first one."""
        self._run, self._number = run_id, after
        self._prose: tuple[ProseKind, str] | None = None  # the open part of text or reasoning
        self._blank = ""  # white space, which does not begin a part by itself
        self._thinking = ""  # the id of the open document of thinking
        self._open: dict[str, _Open] = {}

    def push(self, event: document_events.DocumentEvent) -> list[MessagePart]:
        self._number += 1
        parts = self._said(text) if (text := document_events.source_text(event)) else []
        match event:
            case document_events.ContentDelta(id=id, text=text) if id == self._thinking:
                parts += self._write("reasoning", text)
            case document_events.Reasoning(text=text, opens=opens):
                parts += self._close() if opens else []
                parts += self._write("reasoning", text)
            case document_events.DocumentStarted():
                parts += self._started(event)
            case document_events.ToolCallStarted(id=id, tool_name=name):
                if (open := self._open.get(id)) is not None:
                    open.tool_name = name
            case document_events.ToolCallArguments(id=id, arguments=arguments):
                open = self._open.get(id)
                parts += self._call(open, arguments) if open is not None and open.known.state != "waiting" else []
            case document_events.DocumentEnded(document=document):
                parts += self._ended(document)
            case document_events.TerminalOutput(id=id, text=text):
                parts.append(TransientPart("terminal_output", {"toolCallId": call_id(self._run, id), "text": text}))
            case document_events.Paused():
                parts += self._paused(event) if document_events.ends_reply(event) else []
            case document_events.Done(envelope=envelope, failure=failure):
                parts += [*self._flush(), MessageEnded(document_events.reply_usage(event), envelope, failure)]
            case document_events.ContentDelta() | document_events.ToolCallEnded():
                pass
        return parts

    # --- prose --------------------------------------------------------------------------------------

    def _said(self, text: str) -> list[MessagePart]:
        text, self._blank = self._blank + text, ""
        if text.isspace() and (self._prose is None or self._prose[0] != "text"):
            self._blank = text
            return []
        return self._write("text", text)

    def _write(self, kind: ProseKind, text: str) -> list[MessagePart]:
        parts: list[MessagePart] = []
        if self._prose is None or self._prose[0] != kind:
            parts += self._close()
            self._prose = (kind, f"{self._run}-{self._number}")
            parts.append(ProseOpened(*self._prose))
        return [*parts, ProseGrew(*self._prose, text)]

    def _close(self) -> list[MessagePart]:
        closed, self._prose = self._prose, None
        return [] if closed is None else [ProseClosed(*closed)]

    def _flush(self) -> list[MessagePart]:
        """The end of the message: nothing of the text is left out."""
        blank, self._blank = self._blank, ""
        return [*(self._write("text", blank) if blank else []), *self._close()]

    # --- documents ----------------------------------------------------------------------------------

    def _started(self, event: document_events.DocumentStarted) -> list[MessagePart]:
        match event.type:
            case "text" | "code_block" | "code_reference" | "error":
                return []
            case "thinking":
                self._thinking = event.id
                return self._close()
            case "terminal_command":
                open = self._open[event.id] = _Open(event, "run_terminal_cmd")
                return self._call(open, {"command": open.known.command or ""})
            case "file_edit" | "plan" | "todo_update" | "clarification" | "tool_call":
                self._open[event.id] = _Open(event)
                return [*self._close(), *self._begun(event)]

    def _begun(self, event: document_events.DocumentStarted) -> list[MessagePart]:
        if event.type not in _SHOWN or event.metadata is None:
            return []
        metadata = {"state": "running", **msgspec.to_builtins(event.metadata)}
        value = {"id": event.id, "type": event.type, "sequence": event.sequence, "content": None, "metadata": metadata}
        return [Shown(event.type, call_id(self._run, event.id), value)]

    def _call(self, open: _Open, input: Any, name: str = "", *, by_caller: bool = False) -> list[MessagePart]:
        if open.call:
            return []
        open.call = call_id(self._run, open.start.id)
        return [*self._close(), CallMade(open.call, name or open.tool_name, input, by_caller)]

    def _ended(self, document: documents.Document) -> list[MessagePart]:
        open = self._open.pop(document.id, None)
        made = open.call if open is not None else call_id(self._run, document.id)
        match document:
            case documents.ThinkingDocument():
                self._thinking = ""
                return self._close()
            case documents.FileEditDocument() | documents.TodoUpdateDocument():
                return [*self._close(), self._shown(document)]
            case documents.PlanDocument(metadata=metadata):
                answer: list[MessagePart] = []
                if made:  # somebody was asked about it
                    is_accepted = metadata.accepted is True
                    answer = [CallReturned(made, {"accepted": is_accepted}, is_denied=not is_accepted)]
                return [*self._close(), *answer, self._shown(document)]
            case documents.ClarificationDocument(metadata=metadata):
                parts = self._call(open, *_question(metadata)) if open is not None and not made else []
                return [*parts, _answered(metadata, made or call_id(self._run, document.id), was_asked=bool(made))]
            case documents.ToolCallDocument(metadata=metadata) if metadata.ran_by == "caller" and open is None:
                return []  # who sent the result has it
            case documents.ToolCallDocument(metadata=metadata):
                parts = self._call(open, metadata.arguments, metadata.tool_name) if open is not None else []
                return [*parts, _returned(document, made or call_id(self._run, document.id))]
            case documents.TerminalCommandDocument():
                return [_returned(document, made)]
            case (
                documents.TextDocument()
                | documents.CodeBlockDocument()
                | documents.CodeReferenceDocument()
                | documents.ErrorDocument()
            ):
                return []

    def _shown(self, document: documents.Document) -> Shown:
        return Shown(
            documents.document_type(document.metadata), call_id(self._run, document.id), msgspec.to_builtins(document)
        )

    # --- a pause ------------------------------------------------------------------------------------

    def _paused(self, event: document_events.Paused) -> list[MessagePart]:
        parts, calls, asked = self._flush(), list[str](), list[Ask]()
        for call in event.envelope.metadata.waiting_for or ():
            open = self._open.get(call.document_id)
            match "tool_call" if open is None else open.start.type:
                case "tool_call":
                    if open is None or not open.call:
                        parts.append(CallMade(call.tool_call_id, call.tool_name, call.arguments, by_caller=True))
                    if open is not None:
                        open.call = call.tool_call_id
                    calls.append(call.tool_call_id)
                case "clarification" | "plan" if open is not None:
                    kind, message, input = _ask(open)
                    parts += self._call(open, input, ASK_TOOLS[kind], by_caller=kind == "question")
                    asked.append(Ask(open.call, kind, message))
                case _:
                    pass
        # What ends after the pause needs a call: who continues the message cannot know whether it was asked.
        for open in self._open.values():
            match open.start.type:
                case "clarification" | "plan":
                    kind, _, input = _ask(open)
                    parts += self._call(open, input, ASK_TOOLS[kind])
                case "tool_call" if open.known.ran_by != "caller":
                    parts += self._call(open, {})
                case _:
                    pass
        ended = MessageEnded(document_events.reply_usage(event), event.envelope, None, True, tuple(calls), tuple(asked))
        return [*parts, ended]


def _ask(open: _Open) -> tuple[AskKind, str, dict[str, Any]]:
    known = open.known
    if open.start.type == "plan":
        return "plan", known.title or "The agent asks whether to carry out its plan.", {"documentId": open.start.id}
    questions = known.questions or []
    text = "\n".join(question.text for question in questions)
    if known.permission:
        return "permission", text, msgspec.to_builtins(known.permission)
    return "question", text, {"questions": msgspec.to_builtins(questions)}


def _question(metadata: documents.ClarificationMetadata) -> tuple[dict[str, Any], str]:
    """One that nobody was asked."""
    if metadata.permission:
        return msgspec.to_builtins(metadata.permission), ASK_TOOLS["permission"]
    return {"questions": msgspec.to_builtins(metadata.questions)}, ASK_TOOLS["question"]


def _answered(metadata: documents.ClarificationMetadata, id: str, *, was_asked: bool) -> CallReturned:
    output, is_permission = {"answers": msgspec.to_builtins(metadata.answers or [])}, bool(metadata.permission)
    is_denied = is_permission and [one.selected_option_ids for one in metadata.answers or ()] == [["deny"]]
    return CallReturned(id, output, is_denied=is_denied, by_caller=was_asked and not is_permission)


def _returned(document: documents.ToolCallDocument | documents.TerminalCommandDocument, id: str) -> CallReturned:
    action = action_of(document)
    if action is None:  # a tool that the caller ran
        assert isinstance(document, documents.ToolCallDocument)
        result = document.metadata.result
        error = str(result.data) if result.status == "error" else None
        return CallReturned(id, _value(result.data), error, by_caller=asked_in(id) is None)
    if isinstance(document, documents.ToolCallDocument):
        return CallReturned(id, document.metadata.result.data, action.error)
    output = {"exitCode": document.metadata.exit_code, "output": action.output}
    return CallReturned(id, output, action.error if document.metadata.state else None)


def _value(data: Any) -> Any:
    """The result as its caller has sent it: a value that is no text was sent as JSON."""
    if not isinstance(data, str) or data[:1] not in ("{", "["):
        return data
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError:
        return data


# --- their encoder ----------------------------------------------------------------------------------


class PartsEncoder(EventEncoder):
    """Each event's number is its id, so that a reader can resume after it."""

    is_cut = False

    def __init__(self, run_id: str, after: int = 0, through: int = 0) -> None:
        """`after`: the number of the last event before the first one. A pause up to `through` does not end the message:
        it was answered."""
        self.is_over = self._has_begun = False
        self._number, self._through, self._parts = after, through, MessageParts(run_id, after)

    def push(self, event: document_events.DocumentEvent, /) -> bytes:
        if self.is_over:
            return b""
        frames = b"" if self._has_begun else self.began()
        self._number, self._has_begun = self._number + 1, True
        parts = self._parts.push(event)
        has_ended = any(isinstance(part, MessageEnded) for part in parts)
        self.is_over = has_ended and self._number > self._through
        frames += self.encoded(parts, is_passed=has_ended and not self.is_over)
        return numbered(frames, self._number)

    @abstractmethod
    def began(self) -> bytes: ...

    @abstractmethod
    def encoded(self, parts: Sequence[MessagePart], *, is_passed: bool) -> bytes:
        """`is_passed`: its end is that of a pause after which the message continues."""
        ...


def usage_counts(usage: documents.Usage) -> dict[str, int]:
    """As both protocols name them."""
    counts = {
        "inputTokens": usage.prompt_tokens,
        "outputTokens": usage.completion_tokens,
        "totalTokens": usage.total_tokens,
        "cachedInputTokens": usage.cached_tokens or 0,
        "reasoningTokens": usage.reasoning_tokens or 0,
    }
    return {name: count for name, count in counts.items() if count or name == "totalTokens"}


def data_frame(value: object) -> bytes:
    return b"data: %b\n\n" % msgspec.json.encode(value)


class StreamedReply(JsonReply):
    """Of a dialect that has only streams: a whole answer is the stream, once it has ended."""

    media_type = SSE.media_type

    def stream(self, run: RunView, start: ReplyStart) -> PartsEncoder:
        """Each dialect has its own."""
        raise NotImplementedError

    def resumed(self, run: RunView, after: int) -> tuple[Encoder, int]:
        return Resumed(lambda pause: self.stream(run, ReplyStart(pause)), after, has_numbers=True), 0

    def whole(self, run: RunView, start: ReplyStart) -> "WholeStream":
        return WholeStream(self.stream(run, start), start.after)


class WholeStream:
    is_cut = False
    failure: Failure | None = None  # the stream reports it

    def __init__(self, encoder: PartsEncoder, after: int) -> None:
        self.after, self._encoder, self._frames = after, encoder, list[bytes]()

    @property
    def is_over(self) -> bool:
        return self._encoder.is_over

    def push(self, event: document_events.DocumentEvent, /) -> None:
        self._frames.append(self._encoder.push(event))

    def error_body(self, failure: Failure) -> bytes | None:
        return None

    def body(self) -> bytes:
        return b"".join(self._frames)


# --- options ----------------------------------------------------------------------------------------


class UiOptions(RunOptions, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Gateway options."""

    may_ask: Annotated[
        bool | None,
        "Whether the page shows the agent's questions and requests for permission, and sends the answers. If true, an "
        "agent that can wait is preferred. The default is false.",
    ] = None


def options_of(options: UiOptions | None, headers: Mapping[str, str]) -> dict[str, Any]:
    """As arguments of a `StartRun`."""
    options = with_headers(options or UiOptions(), headers)
    if options.may_ask and options.source is None:
        options = replace(options, source=INTERACTIVE)
    return {**run_options(options), "may_be_asked": bool(options.may_ask)}


OPTION_HINTS = option_hints(UiOptions)


def run_action(
    answer: "UiAnswer | None",
    reply: "StreamedReply",
    options: dict[str, Any],
    *,
    follows: str | None,
    question_id: str,
    stream_name: str = "",
    **asked: Any,
) -> RunAction:
    """To continue the run that waits for the answer, or to start one. `asked` are fields of a `StartRun`."""
    if answer is not None:
        return ContinueRun(
            given=answer.given,
            run_id=answer.run_id,
            reply=reply,
            stream=True,
            stream_name=stream_name,
            when_client_leaves=options["when_client_leaves"],
        )
    is_named = options["conversation_id"] is not None
    return StartRun(
        reply=reply,
        stream=True,
        stream_name=stream_name,
        has_full_history=not is_named,
        follows=None if is_named else follows,
        attempt="unknown" if question_id else "only",
        question_id=question_id,
        **asked,
        **options,
    )


# --- tools ------------------------------------------------------------------------------------------


class PageTool(Struct, frozen=True, kw_only=True):
    """A tool that the page runs."""

    name: Annotated[NonEmpty, "The tool's name."]
    description: Annotated[str | None, "What it does, for the model."] = None
    parameters: Annotated[
        dict[str, Any] | None,
        "The JSON Schema of its arguments, which must be an object. Arguments are checked against it.",
    ] = None


def offer_of(tools: Sequence[PageTool]) -> Offer | None:
    """Raises `InvalidRequest`."""
    offered: dict[str, Tool] = {}
    for number, tool in enumerate(tools):
        param = f"tools[{number}]"
        if tool.name in offered:
            raise invalid(param, "Two tools have this name; rename one.")
        offered[tool.name] = make_tool(tool.name, tool.description, tool.parameters, param)
    return Offer(tools=tuple(offered.values())) if offered else None


# --- the conversation -------------------------------------------------------------------------------


_RUN = re.compile(r"chat_[0-9a-f]+")


def run_in(id: str) -> str | None:
    """The run that a message or a part with this id came from; None: it is not one of ours."""
    found = _RUN.match(id)
    return found.group() if found else None


class QuotedMessages:
    """A conversation as it is read, part by part. Texts of one answer are joined, whatever the agent did in between;
    the results of calls that were made together follow them all."""

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._results: list[ToolMessage] = []

    def add(self, message: Message) -> None:
        self._messages += [*self._results, message]
        self._results = []

    @property
    def next(self) -> int:
        """The number of the message that is added next."""
        return len(self._messages) + len(self._results)

    def say(self, text: str) -> None:
        """The agent did."""
        match self._messages[-1:]:
            case [AssistantMessage(text=before, calls=()) as last] if not self._results:
                self._messages[-1] = replace(last, text=before + text)
            case _:
                self.add(AssistantMessage(text))

    def call(self, call: ToolCall) -> None:
        match self._messages[-1:]:
            case [AssistantMessage(calls=calls) as last]:
                self._messages[-1] = replace(last, calls=(*calls, call))
            case _:
                self.add(AssistantMessage("", (call,)))

    def result(self, result: ToolMessage) -> None:
        self._results.append(result)

    def all(self) -> list[Message]:
        return [*self._messages, *self._results]


# --- answers ----------------------------------------------------------------------------------------


UNANSWERED = "A question needs an answer; send one, for example with a `text`."
# Else the agent would be asked the last question again.
NOTHING_NEW = "There is nothing new for the agent; add a message, a tool's result, or the answer to what the run asked."


class UiAnswer(Struct, frozen=True):
    """What the page answers a run that waits."""

    run_id: str
    given: RunAnswer


class Approval(Struct, frozen=True, kw_only=True):
    """A decision on a command or a plan."""

    approved: bool
    reason: str = ""
    decision: Decision | None = None  # instead of `once`


class _Answer(Struct, frozen=True, kw_only=True, rename="camel"):
    question_id: str
    selected_option_ids: list[str] = []
    text: str = ""


class _Answers(Struct, frozen=True):
    answers: Annotated[list[_Answer], msgspec.Meta(min_length=1)]


def all_answers(permissions: Mapping[str, Permission], asked: Sequence[QuestionAnswers | PlanDecision]) -> RunAnswer:
    """Of one message."""
    given = [*([PermissionDecisions(permissions)] if permissions else ()), *asked]
    return given[0] if len(given) == 1 else SeveralAnswers(given)


def permission_of(approval: Approval) -> Permission:
    if not approval.approved:
        return Permission("deny", approval.reason)
    return Permission(approval.decision or "once")


def question_answers(value: object, param: str) -> QuestionAnswers:
    """Raises `InvalidRequest`."""
    given = convert_field(value, _Answers, param, "Send {answers: [{questionId, selectedOptionIds, text}]}.")
    return QuestionAnswers(
        [
            ClarificationAnswer(
                question_id=answer.question_id,
                selected_option_ids=answer.selected_option_ids,
                text=answer.text or msgspec.UNSET,
            )
            for answer in given.answers
        ]
    )
