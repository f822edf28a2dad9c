"""Translate document events into the deltas that every text dialect encodes, and join them into an answer.

Six kinds: the agent's text, its reasoning, a tool call, a question that is left open, a line of the gateway's own, and
the end. The end is where the run is done, where it pauses for its caller, or where a cutter says so. `Translator`
makes deltas of events, and `AnswerFold` joins them into an `WholeAnswer`. A dialect only has to encode them.
"""

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Struct

from cursor_gateway.errors import Failure
from cursor_gateway.model import document_events, documents
from cursor_gateway.model.messages import ToolCall
from cursor_gateway.stages.cutting import Cutter
from cursor_gateway.stages.diffs import diff_lines, split_lines
from cursor_gateway.stages.summary import one_line
from cursor_gateway.stages.tokens import estimate_tokens_by_sample

# --- a document as the tool call that it stands for: what the agent did itself ------------------------


ActionDisplay: TypeAlias = Literal["thinking", "text", "native", "none"]  # of the Messages API

_FILE_TOOLS = {"create": "write_file", "edit": "edit_file", "delete": "delete_file", "rename": "rename_file"}


class ToolAction(Struct, frozen=True):
    """A tool that the agent ran itself."""

    name: str
    arguments: dict[str, Any]
    output: str
    error: str | None = None  # why it did not complete


def action_of(document: documents.Document) -> ToolAction | None:
    """None for documents that are no tool's, and for tools that the caller ran."""
    match document:
        case documents.ToolCallDocument(metadata=metadata):
            if metadata.ran_by == "caller":
                return None
            error = _error(metadata) or ("The tool failed." if metadata.result.status == "error" else None)
            return ToolAction(metadata.tool_name, metadata.arguments, _text(metadata.result.data), error)
        case documents.TerminalCommandDocument(metadata=metadata):
            error = _error(metadata)
            if error is None and metadata.exit_code != 0:
                error = f"Exit status {metadata.exit_code}"
            return ToolAction("run_terminal_cmd", {"command": metadata.command}, metadata.output, error)
        case documents.FileEditDocument(metadata=metadata, content=content):
            name = _FILE_TOOLS[metadata.operation]
            return ToolAction(name, _file_arguments(metadata, content), _changes(metadata, content), _error(metadata))
        case documents.PlanDocument(metadata=metadata, content=content):
            return ToolAction("create_plan", {"name": metadata.title, "plan": content}, content, _error(metadata))
        case documents.ClarificationDocument(metadata=metadata):
            answers = _text(metadata.answers) if metadata.answers else ""
            return ToolAction("ask_question", {"questions": metadata.questions}, answers, _error(metadata))
        case documents.TodoUpdateDocument(metadata=metadata):
            return ToolAction("todo_write", {"todos": metadata.todos}, "", _error(metadata))
        case (
            documents.TextDocument()
            | documents.CodeBlockDocument()
            | documents.CodeReferenceDocument()
            | documents.ErrorDocument()
            | documents.ThinkingDocument()
        ):
            return None


def _error(trace: documents.ToolTrace) -> str | None:
    if trace.state is UNSET:
        return None
    return trace.reason or trace.state.replace("_", " ").capitalize()


def _text(data: Any) -> str:
    if data is None:
        return ""
    return data if isinstance(data, str) else msgspec.json.encode(data).decode()


def _file_arguments(metadata: documents.FileEditMetadata, content: str | None) -> dict[str, Any]:
    arguments: dict[str, Any] = {"target_file": metadata.file_path}
    if metadata.old_path:
        arguments["old_path"] = metadata.old_path
    if metadata.diff:
        return {**arguments, "old_string": metadata.diff.old_string, "new_string": metadata.diff.new_string}
    return arguments if content is None else {**arguments, "contents": content}


def _changes(metadata: documents.FileEditMetadata, content: str | None) -> str:
    """A unified diff, as far as the change is known."""
    path = metadata.file_path
    if metadata.diff:
        diff = metadata.diff
        old, new = diff_lines(diff, diff.old_string, diff.new_string)
        is_of_empty_file = diff.start_line == 1 and not diff.old_string
        return _diff(path, path, [] if is_of_empty_file else old, new, diff.start_line)
    match metadata.operation:
        case "create" if content:
            return _diff("/dev/null", path, [], split_lines(content), 1)
        case "rename":
            return f"rename from {metadata.old_path or ''}\nrename to {path}\n"
        case "create" | "edit" | "delete":
            return ""


def _diff(before: str, after: str, old: list[str], new: list[str], first: int) -> str:
    """One hunk that replaces all old lines by all new ones: comparing them could take quadratic time."""
    hunk = f"@@ -{_range(first, len(old))} +{_range(first, len(new))} @@"
    lines = [f"--- {before}", f"+++ {after}", hunk, *(f"-{line}" for line in old), *(f"+{line}" for line in new)]
    return "\n".join([*lines, ""])


def _range(first: int, count: int) -> str:
    return f"{first if count else first - 1},{count}"


# --- text that the gateway adds, marked so that it is recognized when a client sends it back --------


# The second character is invisible: no agent writes it by chance.
MARK = "▸\u2063 "
_LONGEST_COMMAND = 120  # characters of a command in a line


def marked(text: str) -> str:
    return f"{MARK}{text}"


def is_marked(text: str) -> bool:
    return text.lstrip().startswith(MARK)


def without_marked(text: str) -> str:
    """The agent's own text: empty if this one is marked; without a last line that is."""
    if is_marked(text):
        return ""
    said, mark, line = text.rpartition(MARK)
    return said.rstrip() if mark and said[-1:].isspace() and "\n" not in line.strip() else text


def refusal_line(calls: Sequence[documents.RefusedCall]) -> str:
    """What was not run, and where a person can allow it, in one line; empty if nobody can."""
    allowed = [call for call in calls if call.link]
    if not allowed:
        return ""
    first, others = allowed[0], len(allowed) - 1
    subject = " ".join(first.subject.split()).replace("`", "'")
    shown = subject if len(subject) <= _LONGEST_COMMAND else f"{subject[: _LONGEST_COMMAND - 1]}…"
    more = f" (and {others} more)" if others else ""
    where = first.url or f"on the gateway's page, at {first.link}"
    return marked(f"The agent was not allowed to run `{shown}`{more}. Allow it: {where}")


def question_of(document: documents.Document) -> str:
    """What the agent asks the user, and nobody has answered; empty for anything else.

    A request for permission is not included: it cannot be granted by the next message.
    """
    match document:
        case documents.ClarificationDocument(metadata=metadata) if not metadata.answers and not metadata.permission:
            return "\n\n".join(map(_question, metadata.questions))
        case _:
            return ""


def _question(question: documents.ClarificationQuestion) -> str:
    return "\n".join([question.text, *(f"- {option.label}" for option in question.options)])


AgentTools: TypeAlias = Literal["reasoning", "tool_calls", "none"]  # how the agent's own tools are shown
FinishReason: TypeAlias = Literal["stop", "length", "tool_calls"]
# exact: the agent's text, byte for byte. readable: with a blank line where a tool call lies between two texts, and a
# last line if a person can allow what was not run.
TextStyle: TypeAlias = Literal["exact", "readable"]

# What the agent has said is no action, and no question that waits for an answer.
_SAID = (documents.TextDocument, documents.CodeBlockDocument, documents.CodeReferenceDocument)
_ID_CHARACTERS = 24  # of a run's name in the id of a call: such an id may have 40


class AnswerText(Struct, frozen=True, gc=False):
    text: str


class Thought(Struct, frozen=True, gc=False):
    text: str


class Called(Struct, frozen=True):
    index: int
    call: ToolCall


class OpenQuestion(Struct, frozen=True):
    """The agent asked this and wrote no text at all. An empty answer would hide the question, and clients retry it."""

    text: str


class Noted(Struct, frozen=True):
    """A last line for people, which is marked; the agent did not write it."""

    text: str


class Ended(Struct, frozen=True):
    usage: documents.Usage  # of this reply; its total is the size of the conversation
    total: documents.Usage | None = None  # of all model calls of the run, once it has ended
    failure: Failure | None = None
    reason: FinishReason = "stop"
    refused_count: int = 0  # tool calls that were not run
    refused: tuple[documents.RefusedCall, ...] = ()  # the first of them


Delta: TypeAlias = AnswerText | Thought | Called | OpenQuestion | Noted | Ended


class Translator:
    """Document events to deltas, up to where a cutter ends the answer, if there is one.

    What the agent had used when its answer was cut is not known, so the usage is then an estimate: of what was said,
    beside `prompt_tokens`, which estimates the context.
    """

    def __init__(
        self,
        run: str,
        agent_tools: AgentTools,
        cutter: Cutter | None = None,
        prompt_tokens: int = 0,
        text: TextStyle = "exact",
        *,
        notes: bool = False,
    ) -> None:
        """`run` is part of the ids of the agent's own calls; `notes` adds the last line of a readable text alone."""
        self.end: Ended | None = None  # the last delta
        self.cutter = cutter
        self._prompt_tokens = prompt_tokens
        self._said: list[str] = []  # if there is a cutter
        self._agent_tools = agent_tools
        self._run = run[:_ID_CHARACTERS]
        self._thinking = ""  # the id of the open document of thinking
        self._calls = 0
        self._question = ""  # without an answer so far
        self._has_text = False
        self._reasoned = False
        self._mid_line = False  # the reasoning so far does not end with a line end
        self._is_readable = text == "readable"
        self._has_notes = notes or self._is_readable
        self.last_text = ""  # the latest text; set by a dialect that encodes it without `push`
        self.is_after_tool = False  # and a tool call came after it

    def push(self, event: document_events.DocumentEvent) -> list[Delta]:
        deltas: list[Delta] = []
        source = event.raw if event.__class__ in document_events.WITH_RAW else ""
        if source is None and event.__class__ is document_events.ContentDelta:
            source = event.text
        if source:
            deltas.append(AnswerText(self._separated(source) if self._is_readable else source))
        match event:  # the most frequent ones first
            case document_events.ContentDelta(id=id, text=text):
                if id == self._thinking:
                    deltas.append(self._thought(text))
            case document_events.DocumentEnded(document=document):
                if document.__class__ not in _SAID:
                    deltas += self._action(document)
                    self._question = question_of(document) or self._question
            case document_events.DocumentStarted(id=id, type=type):
                if type == "thinking":
                    self._thinking = id
                    deltas += self._new_block()
                elif type in ("text", "code_block", "code_reference"):
                    self._has_text = True
                elif document_events.is_tool(event):
                    self.is_after_tool = self._is_readable
            case document_events.Reasoning(text=text, opens=opens):
                if opens:
                    deltas += self._new_block()
                deltas.append(self._thought(text))
            case (
                document_events.ToolCallStarted()
                | document_events.ToolCallArguments()
                | document_events.ToolCallEnded()
            ):
                pass
            case document_events.TerminalOutput() | document_events.Paused(goes_on=True):
                pass  # a command's output comes with its end
            case document_events.Paused(envelope=envelope):
                for index, call in enumerate(envelope.metadata.waiting_for or (), self._calls):
                    deltas.append(Called(index, _call(call.tool_call_id, call.tool_name, call.arguments)))
                self.end = Ended(document_events.reply_usage(event), reason="tool_calls")
                deltas.append(self.end)
            case document_events.Done(envelope=envelope, failure=failure):
                refused = tuple(envelope.metadata.refused or ())
                if self._question and not self._has_text and failure is None:
                    deltas.append(OpenQuestion(self._question))
                elif self._has_notes and failure is None and (line := refusal_line(refused)):
                    deltas.append(Noted(line))
                count = envelope.metadata.refused_count or 0
                self.end = Ended(
                    document_events.reply_usage(event), envelope.usage, failure, refused_count=count, refused=refused
                )
                deltas.append(self.end)
        return deltas if self.cutter is None else self._cut(deltas, self.cutter)

    def note_reasoning(self, text: str) -> None:
        """That a dialect encodes without `push`."""
        self._reasoned = True
        self._mid_line = not text.endswith("\n")

    def _separated(self, text: str) -> str:
        """Where a tool call lies between two texts, and no white space, a blank line is inserted."""
        if self.is_after_tool and self.last_text and not (self.last_text[-1].isspace() or text[0].isspace()):
            text = f"\n\n{text}"
        self.last_text, self.is_after_tool = text, False
        return text

    def on_a_line(self, note: str) -> str:
        """A note after what the agent has said, in the same text."""
        return f"\n\n{note}" if self._has_text else note

    def _thought(self, text: str) -> Thought:
        self._reasoned, self._mid_line = True, not text.endswith("\n")
        return Thought(text)

    def _new_block(self) -> list[Delta]:
        return [self._thought("\n\n" if self._mid_line else "\n")] if self._reasoned else []

    def _action(self, document: documents.Document) -> list[Delta]:
        """What one of the agent's own tools did."""
        match self._agent_tools:
            case "reasoning":
                line = action_text(document)
                if line is None:
                    return []
                return [self._thought(("\n" if self._mid_line else "") + line + "\n")]
            case "tool_calls":
                action = action_of(document)
                if action is None:
                    return []
                self._calls += 1
                # Not the agent's own id: some are the same in every run, and clients want them unique.
                id = f"call_{self._run}_{document.sequence}"
                return [Called(self._calls - 1, _call(id, action.name, action.arguments))]
            case "none":
                return []

    def _cut(self, deltas: list[Delta], cutter: Cutter) -> list[Delta]:
        kept: list[Delta] = []
        for delta in deltas:
            match delta:
                case AnswerText(text=text):
                    kept += self._say(cutter.push(text))
                case Called() | OpenQuestion() | Noted() | Ended():
                    kept += self._say(cutter.flush())
                    if cutter.reason is None:
                        kept.append(delta)
                case Thought():
                    kept.append(delta)
            if cutter.reason is not None:
                self.end = self._cut_short(cutter.reason)
                return [*kept, self.end]
        return kept

    def _say(self, text: str) -> list[Delta]:
        self._said.append(text)
        return [AnswerText(text)] if text else []

    def _cut_short(self, reason: FinishReason) -> Ended:
        said = estimate_tokens_by_sample("".join(self._said))
        usage = documents.Usage(
            prompt_tokens=self._prompt_tokens,
            completion_tokens=said,
            total_tokens=self._prompt_tokens + said,
            estimated=True,
        )
        return Ended(usage, reason=reason)


class ReplyState:
    """Whether a reply that is made of deltas is over, cut or failed."""

    def __init__(self, deltas: Translator) -> None:
        self.deltas = deltas

    @property
    def is_over(self) -> bool:
        return self.deltas.end is not None

    @property
    def is_cut(self) -> bool:
        """It is over although the run is not: the rest of the run is not needed."""
        return self.deltas.cutter is not None and self.deltas.cutter.reason is not None

    @property
    def failure(self) -> Failure | None:
        return None if self.deltas.end is None else self.deltas.end.failure

    def error_body(self, failure: Failure) -> bytes | None:
        """Of a whole reply: the error alone."""
        return None


def action_text(document: documents.Document) -> str | None:
    """In one line, and a plan with its text. None for documents that are no tool's, and for tools that the caller
    ran."""
    match document:
        case documents.TextDocument() | documents.ThinkingDocument() | documents.CodeBlockDocument():
            return None
        case documents.ToolCallDocument(metadata=metadata) if metadata.ran_by == "caller":
            return None
        case documents.PlanDocument(content=content):
            return f"{one_line(document)}\n\n{content}"
        case _:
            return one_line(document)


def _call(id: str, name: str, arguments: dict[str, Any]) -> ToolCall:
    return ToolCall(id, name, msgspec.json.encode(arguments).decode())


class WholeAnswer(Struct, frozen=True):
    """All deltas of one reply."""

    text: str
    reasoning: str
    calls: tuple[ToolCall, ...]
    end: Ended
    question: str = ""  # that is open
    last: str = ""  # the text after the agent's last action

    def deltas(self) -> list[Delta]:
        """The deltas of the same answer, joined. The question is not one of them."""
        deltas: list[Delta] = [Thought(self.reasoning)] if self.reasoning else []
        deltas += [AnswerText(self.text)] if self.text else []
        return [*deltas, *(Called(index, call) for index, call in enumerate(self.calls)), self.end]


class AnswerFold(ReplyState):
    """Deltas joined. It is over where the run pauses; with a cutter perhaps before."""

    def __init__(
        self,
        run: str,
        agent_tools: AgentTools = "reasoning",
        cutter: Cutter | None = None,
        prompt_tokens: int = 0,
        text: TextStyle = "exact",
    ) -> None:
        """`prompt_tokens` estimates the context of a reply that is cut."""
        super().__init__(Translator(run, agent_tools, cutter, prompt_tokens, text))
        self._text: list[str] = []
        self._last = 0  # index in `_text` of the first after the agent's last action
        self._reasoning: list[str] = []
        self._calls: list[ToolCall] = []
        self._question = ""

    def push(self, event: document_events.DocumentEvent, /) -> None:
        if self.is_over:
            return
        if isinstance(event, document_events.DocumentStarted) and document_events.is_tool(event):
            self._last = len(self._text)
        for delta in self.deltas.push(event):
            match delta:
                case AnswerText(text=text):
                    self._text.append(text)
                case Thought(text=text):
                    self._reasoning.append(text)
                case Called(call=call):
                    self._calls.append(call)
                case OpenQuestion(text=text):
                    self._question = text
                case Noted(text=text):
                    self._text.append(self.deltas.on_a_line(text))
                case Ended():
                    pass

    def answer(self) -> WholeAnswer | None:
        """None until it is over."""
        end = self.deltas.end
        if end is None:
            return None
        text, last = "".join(self._text), "".join(self._text[self._last :])
        return WholeAnswer(text, "".join(self._reasoning), tuple(self._calls), end, self._question, last)


def add_usage(first: documents.Usage, second: documents.Usage) -> documents.Usage:
    """What two runs took."""
    costs = [usage.cost for usage in (first, second) if isinstance(usage.cost, float)]
    return documents.Usage(
        prompt_tokens=first.prompt_tokens + second.prompt_tokens,
        completion_tokens=first.completion_tokens + second.completion_tokens,
        total_tokens=first.total_tokens + second.total_tokens,
        cached_tokens=cached_tokens(first) + cached_tokens(second),
        reasoning_tokens=(first.reasoning_tokens or 0) + (second.reasoning_tokens or 0),
        estimated=first.estimated or second.estimated,
        cost=round(sum(costs), 6) if costs else UNSET,
    )


def cached_tokens(usage: documents.Usage) -> int:
    """Never more than the prompt has, whatever the agent reports."""
    return min(usage.cached_tokens or 0, usage.prompt_tokens)
