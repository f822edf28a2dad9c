"""Agent events in, document events out: the grammar of a run.

Whatever comes in, the output is well formed: every document starts once and ends once, at most one document of prose
(text, code or thinking) is open, any number of tools may be open, and `Done` is emitted once, last. Starting a tool
ends the open prose, so text after it is a new document.

White space is never lost, but a document neither starts with blank lines nor ends with line ends. White space after
text is held back (`_space`) until more text follows; if the document ends first, it is attached to the next event as
raw text (`_loose`). Joined over a run, the raw texts are what the agent wrote, byte for byte.
"""

import re
from collections.abc import Container, Iterable
from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType, structs

from cursor_gateway.errors import AgentCrashed, Failure
from cursor_gateway.markdown.fences import (
    Code,
    CodeTag,
    FenceClosed,
    FenceOpened,
    FenceSplitter,
    Piece,
    Prose,
    ReferenceTag,
    Tag,
)
from cursor_gateway.model import agent_events, document_events, documents
from cursor_gateway.model.costs import priced
from cursor_gateway.model.requests import RunInfo
from cursor_gateway.stages import tool_documents
from cursor_gateway.stages.tool_documents import Refusals, language_of
from cursor_gateway.stages.usage import RunUsage, Turns, is_sane

_BLANK_LINES = re.compile(r"(?:[ \t]*(?:\r\n|\n|\r))*")
_LINE_END = re.compile(r"[\r\n]")
_SPACE = " \t\n\r\f\v"  # as CommonMark has it
_SAFE_ID = re.compile(r"[A-Za-z0-9_.:-]{1,64}")

# Characters of live output, of a command and of a run: it is stored, and the end of the command repeats it.
_LIVE_OUTPUT = 64 * 1024
_LIVE_OUTPUTS = 256 * 1024

_PURPOSE: dict[documents.Mode, documents.Purpose] = {
    "agent": "new_code",
    "debug": "new_code",
    "plan": "suggestion",
    "ask": "example",
}


class OpenProse(Struct):
    """The open document of text, code or thinking."""

    id: str
    sequence: int
    metadata: documents.Metadata
    pieces: list[str]


class OpenTool(Struct):
    """An open call."""

    id: str
    sequence: int
    call_id: str  # as clients see it
    action: agent_events.Action
    waits: bool = False  # for an answer
    by_caller: bool = False
    content: str | None = None  # sent at the start, where the call waits: a plan must be seen to be decided on
    parent_id: str | UnsetType = UNSET  # the document of the sub-agent that made the call


class Assembler:
    def __init__(self, run: RunInfo) -> None:
        self._run = run
        self._out: list[document_events.DocumentEvent] = []
        self._done = False
        self._sequence = 0
        self._fences = FenceSplitter(run.fences)
        self._prose: OpenProse | None = None
        self._space: list[str] = []  # white space after the text so far, part of it if more text follows
        self._loose: list[str] = []  # white space that belongs to no document
        self._shows_thinking = "thinking" in run.include
        self._thinking = False  # a block of thinking is open
        self._tools: dict[str, OpenTool] = {}  # by the agent's ids
        self._ended_calls: dict[str, int | None] = {}  # what each did, as a hash; None: its end came first
        self._documents: dict[str, str] = {}  # of calls, by the agent's ids
        self._call_ids: set[str] = set()
        self._tool_call_count = 0
        self._turns = Turns()
        self._recording: documents.ReplayedRecording | UnsetType = UNSET
        self._warm: bool | UnsetType = UNSET
        self.fallback: str | UnsetType = UNSET  # the backend that answers in place of one that failed
        self._unrecognized = 0
        self._refused = Refusals()
        self._shown = 0  # characters of live output
        self._session = ""
        self._model = run.model
        self._usage = RunUsage(self._turns, run.known_tokens)
        self._model_output = self._usage.model_output

    def resume(
        self,
        *,
        sequence: int,
        prose: OpenProse | None,
        tools: Iterable[OpenTool],
        tool_calls: int,
        refused: Refusals,
        turns: Turns,
        model_output: list[str],
        prompt: str,
    ) -> None:
        """As if it had assembled the run so far; called before anything else. `sequence` is that of the last document,
        `tool_calls` the number of calls that have started, `refused` are those that were not run."""
        self._sequence, self._prose = sequence, prose
        self._tools = {tool.call_id or tool.id: tool for tool in tools}  # the agent's ids are not known
        self._tool_call_count, self._refused, self._turns = tool_calls, refused, turns
        self._usage = RunUsage(turns, self._run.known_tokens)
        self._usage.prompt, self._usage.model_output = prompt, model_output
        self._model_output = model_output

    def know(self, tokens: int) -> None:
        """The agent resumes a session of about this size. Called before anything else."""
        self._usage.known_tokens = tokens

    def envelope(self) -> documents.Envelope:
        """Of the run so far."""
        return self._envelope("streaming", None, waiting_for=self._waiting(self._tools) or UNSET)

    @property
    def model(self) -> str:
        """As requested, or as the agent reports it in its first event."""
        return self._model or "unknown"

    @property
    def prompt(self) -> str:
        return self._usage.prompt

    def push(self, event: agent_events.AgentEvent, /) -> list[document_events.DocumentEvent]:
        # Fast paths for text and thinking, nearly every event.
        if event.__class__ is agent_events.TextDelta:
            text, prose = event.text, self._prose
            if prose is not None and text and "\n" not in text and "\r" not in text:
                body = text if self._fences.flowing else self._fences.begin(text) if not self._thinking else None
                if body is not None:
                    self._model_output.append(text)
                    if self._space:
                        self._add_prose(body)
                        return self._take()
                    prose.pieces.append(body)
                    return [document_events.ContentDelta(prose.id, body)]
        elif (
            event.__class__ is agent_events.ThinkingDelta and self._thinking and not self._shows_thinking and event.text
        ):
            self._model_output.append(event.text)
            return [document_events.Reasoning(event.text)]
        if not self._done:
            self._dispatch(event)
        out, self._out = self._out, []
        return out

    def _dispatch(self, event: agent_events.AgentEvent) -> None:
        match event:
            case agent_events.TextDelta(text=text):
                self._add_text(text)
            case agent_events.ThinkingDelta(text=text):
                self._add_thinking(text)
            case agent_events.ThinkingEnded(duration_ms=duration_ms):
                self._end_thinking(duration_ms)
            case agent_events.ToolStarted(
                call_id=call_id, action=action, model_call=model_call, waits=waits, parent=parent
            ):
                if call_id in self._tools:
                    self._turns.tool(model_call)  # known from a query, which did not name the model call
                elif call_id not in self._ended_calls or self._ended_calls[call_id] not in (None, _hash(action)):
                    self._ended_calls.pop(call_id, None)
                    parent_id = self._documents.get(parent or "", UNSET)
                    self._start_tool(call_id, action, model_call, waits=waits, parent_id=parent_id)
            case agent_events.ToolEnded():
                self._end_tool(event)
            case agent_events.RunFinished():
                self._end_everything()
                self._finish("completed", event)
            case agent_events.RunStarted(session_id=session_id, model=model, recording=recording, is_warm=is_warm):
                self._warm = is_warm or UNSET
                self._usage.agent_started()
                self._session = session_id
                self._recording = recording or self._recording
                self._model = self._model or model
            case agent_events.PromptEchoed(text=text):
                self._usage.prompt = self.prompt or text  # a restarted agent echoes its own prompt
            case agent_events.CommandOutput(call_id=call_id, text=text):
                self._show_output(self._tools.get(call_id), text)
            case agent_events.CallerToolAsked(call=call):
                if call.id not in self._tools and call.id not in self._ended_calls:
                    action = agent_events.OtherTool(tool=call.name, arguments=call.arguments)
                    self._start_tool(call.id, action, None, waits=True, by_caller=True)
            case agent_events.CallerToolAnswered(call_id=call_id):
                if call_id in self._tools:
                    self._end_caller_tool(event)
            case agent_events.CallerAwaited(call_ids=call_ids, by_others=goes_on):
                self._pause(call_ids, goes_on=goes_on)
            case agent_events.Unrecognized():
                self._unrecognized += 1
            case agent_events.Notice() | agent_events.TitleGiven():
                pass
            case agent_events.RunFailed(failure=failure):
                self._fail(failure, event)

    def interrupt(self, note: str) -> list[document_events.DocumentEvent]:
        """Ends what is open, and adds a document with this text. Another agent continues the run."""
        self._end_everything()
        self._add_text(note)
        self._end_everything()
        return self._take()

    def flush(self) -> list[document_events.DocumentEvent]:
        """The end of the events. A run without an end has failed."""
        return self.push(agent_events.RunFailed(failure=AgentCrashed().failure()))

    # --- documents ----------------------------------------------------------------------------------

    def _start(
        self, type: documents.DocumentType, known: document_events.KnownMetadata | None, raw: str = ""
    ) -> tuple[str, int]:
        self._sequence += 1
        id = f"doc_{self._sequence:03d}"
        if self._loose:
            raw = _drained(self._loose) + raw
        self._out.append(document_events.DocumentStarted(id, type, self._sequence, known, raw))
        return id, self._sequence

    def _end(
        self, id: str, sequence: int, content: str | None, metadata: documents.Metadata, raw: str = ""
    ) -> documents.Document:
        document = documents.make_document(id, sequence, content, metadata)
        self._out.append(document_events.DocumentEnded(document, raw))
        return document

    # --- text and thinking --------------------------------------------------------------------------

    def _add_text(self, text: str) -> None:
        if not text:
            return
        if self._thinking:
            self._end_thinking()
        self._model_output.append(text)
        for piece in self._fences.push(text):
            self._add(piece)

    def _take(self) -> list[document_events.DocumentEvent]:
        out, self._out = self._out, []
        return out

    def _add(self, piece: Piece) -> None:
        match piece:
            case Prose(text=text):
                self._add_prose(text)
            case Code(text=text, raw=raw):
                self._grow(text, None if raw == text else raw)
            case FenceOpened(tag=tag, indent=indent, raw=raw):
                self._end_prose()
                metadata = self._fence_metadata(tag, indent or UNSET)
                self._start_prose(
                    metadata, document_events.KnownMetadata(**structs.asdict(metadata)), _drained(self._space) + raw
                )
            case FenceClosed(raw=raw):
                self._end_prose(raw)

    def _add_prose(self, text: str) -> None:
        """A document neither starts with blank lines nor ends with line ends: those are held until text follows."""
        body = text.rstrip(_SPACE)
        if not body and (self._space or self._prose is None or text[0] in "\r\n"):
            self._space.append(text)
            return
        waiting = ""
        if len(body) < len(text) and (line_end := _LINE_END.search(text, len(body))):
            body, waiting = text[: line_end.start()], text[line_end.start() :]
        else:
            body = text
        content = _drained(self._space) + body if self._space else body
        if self._prose is None:
            blank = _BLANK_LINES.match(content)
            lead = blank[0] if blank else ""
            self._start_prose(documents.TextMetadata(), None, lead)
            content = content[len(lead) :]
        self._grow(content)
        if waiting:
            self._space.append(waiting)

    def _fence_metadata(
        self, tag: Tag, indent: int | UnsetType
    ) -> documents.CodeBlockMetadata | documents.CodeReferenceMetadata:
        match tag:
            case CodeTag(language=language):
                return documents.CodeBlockMetadata(language=language, purpose=_PURPOSE[self._run.mode], indent=indent)
            case ReferenceTag(start_line=start, end_line=end, path=path):
                language = language_of(path)
                return documents.CodeReferenceMetadata(
                    file_path=path, start_line=start, end_line=end, language=language, indent=indent
                )

    def _start_prose(
        self, metadata: documents.Metadata, known: document_events.KnownMetadata | None, raw: str = ""
    ) -> None:
        if not self._turns.is_open:
            self._turns.output()
        id, sequence = self._start(documents.document_type(metadata), known, raw)
        self._prose = OpenProse(id, sequence, metadata, [])

    def _grow(self, text: str, raw: str | None = None) -> None:
        if self._prose is not None and (text or raw):
            self._prose.pieces.append(text)
            self._out.append(document_events.ContentDelta(self._prose.id, text, raw))

    def _end_prose(self, raw: str = "") -> None:
        prose, self._prose = self._prose, None
        if prose is not None:
            if self._space:
                raw = _drained(self._space) + raw
            self._end(prose.id, prose.sequence, "".join(prose.pieces), prose.metadata, raw)

    def _end_output(self) -> None:
        """Ends thinking and text. A tool or thinking ends the text: text after it is parsed as separate Markdown."""
        if self._thinking:
            self._end_thinking()
        for piece in self._fences.flush():
            self._add(piece)
        if self._prose is not None:
            self._end_prose()
        if self._space:
            self._loose += self._space
            self._space = []

    def _add_thinking(self, text: str) -> None:
        if not text:
            return
        opens = not self._thinking
        if opens:
            self._end_output()
            self._thinking = True
            if not self._turns.is_open:
                self._turns.output()
        self._model_output.append(text)
        if not self._shows_thinking:
            self._out.append(document_events.Reasoning(text, opens))
            return
        if self._prose is None:
            text = text.lstrip(_SPACE)
            if text:
                self._start_prose(documents.ThinkingMetadata(), None)
        self._grow(text, raw="")

    def _end_thinking(self, duration_ms: int | None = None) -> None:
        if self._thinking:
            self._thinking = False
            if self._prose is not None and (duration_ms or 0) > 0:
                self._prose.metadata = documents.ThinkingMetadata(duration_ms=duration_ms or UNSET)
            self._end_prose()

    # --- tools --------------------------------------------------------------------------------------

    def _start_tool(
        self,
        call_id: str,
        action: agent_events.Action,
        model_call: str | None,
        *,
        waits: bool = False,
        by_caller: bool = False,
        parent_id: str | UnsetType = UNSET,
    ) -> OpenTool:
        self._end_output()
        self._turns.tool(model_call)
        type, known = tool_documents.started(action)
        if waits:
            ran_by: Literal["caller"] | UnsetType = "caller" if by_caller else UNSET
            known = structs.replace(known or document_events.KnownMetadata(), state="waiting", ran_by=ran_by)
        if parent_id:
            known = structs.replace(known or document_events.KnownMetadata(), parent_id=parent_id)
        id, sequence = self._start(type, known)
        tool = OpenTool(id, sequence, self._own_call_id(call_id), action, waits, by_caller, parent_id=parent_id)
        self._tools[call_id], self._documents[call_id] = tool, id
        if waits and (content := tool_documents.content_of(action)):
            tool.content = content
            self._out.append(document_events.ContentDelta(id, content, raw=""))
        if isinstance(action, agent_events.OtherTool):
            self._tool_call_count += 1
            self._out.append(document_events.ToolCallStarted(id, action.tool, tool.call_id))
            if action.arguments:
                self._out.append(document_events.ToolCallArguments(id, action.arguments))
        return tool

    def _own_call_id(self, agents: str) -> str:
        """The agent's ids may contain line ends ("call_x\\nfc_y" in most captures); such a call gets a new id."""
        id, number = agents, len(self._call_ids) + 1
        while not _SAFE_ID.fullmatch(id) or id in self._call_ids:
            id = f"call_{number:03d}"
            number += 1
        self._call_ids.add(id)
        return id

    def _end_tool(self, event: agent_events.ToolEnded) -> None:
        if event.call_id in self._ended_calls:
            return
        started = self._tools.get(event.call_id)
        tool = started or self._start_tool(event.call_id, event.action, event.model_call)
        self._forget_tool(event.call_id)
        if started is None:
            self._ended_calls[event.call_id] = None
        self._close_tool(tool, event.call_id, event.action, event.outcome, event.payload)

    def _show_output(self, tool: OpenTool | None, text: str) -> None:
        """As far as there is room for it: the end of the document has all of it. A command that is interrupted keeps
        what was shown."""
        if tool is None or not isinstance(command := tool.action, agent_events.Command):
            return
        text = text[: max(0, min(_LIVE_OUTPUT - len(command.output), _LIVE_OUTPUTS - self._shown))]
        if text:
            self._shown += len(text)
            tool.action = structs.replace(command, output=command.output + text)
            self._out.append(document_events.TerminalOutput(tool.id, text))

    def _end_caller_tool(self, event: agent_events.CallerToolAnswered) -> None:
        tool, result = self._tools[event.call_id], event.result
        self._forget_tool(event.call_id)
        self._usage.caller_result(result.text)
        action, outcome = tool_documents.answered(tool.action, result, event.duration_ms)
        self._close_tool(tool, event.call_id, action, outcome, None)

    def _forget_tool(self, call_id: str) -> None:
        self._ended_calls[call_id] = _hash(self._tools.pop(call_id).action)
        self._turns.end()

    def _close_tool(
        self,
        tool: OpenTool,
        agent_call_id: str,
        action: agent_events.Action,
        outcome: agent_events.Outcome,
        payload: Any,
    ) -> None:
        if type(action) is not type(tool.action):  # a different tool than the one that started with this id
            action = tool.action
        if isinstance(action, agent_events.OtherTool) and isinstance(tool.action, agent_events.OtherTool):
            # The arguments of the start win: an end without arguments is common, a start without them is not.
            arguments = tool.action.arguments or action.arguments
            if arguments and not tool.action.arguments:
                self._out.append(document_events.ToolCallArguments(tool.id, arguments))
            action = agent_events.OtherTool(tool=tool.action.tool, arguments=arguments, data=action.data)
        if (
            isinstance(action, agent_events.Command)
            and isinstance(tool.action, agent_events.Command)
            and not action.output
        ):
            action = structs.replace(action, output=tool.action.output)  # an end without it, such as a timeout
        if outcome is not agent_events.INTERRUPTED:
            self._usage.tool_ended(action)
        metadata = tool_documents.metadata_of(
            action,
            outcome,
            call_id=tool.call_id,
            agent_call_id=agent_call_id,
            payload=payload if "raw" in self._run.include and payload is not None else UNSET,
            by_caller=tool.by_caller,
            parent_id=tool.parent_id,
        )
        if isinstance(metadata, documents.ToolCallMetadata):
            self._out.append(document_events.ToolCallEnded(tool.id, metadata.result))
        content = tool.content or tool_documents.content_of(action)
        if content and tool.content is None:
            self._out.append(document_events.ContentDelta(tool.id, content, raw=""))
        document = self._end(tool.id, tool.sequence, content, metadata)
        if outcome.state == "rejected":
            self._refused.push(document)
        if outcome.state in ("failed", "timed_out"):
            self._add_error(outcome.message, outcome.code, action.tool, outcome.details)

    def _add_error(self, message: str, code: str, source: str, details: str) -> None:
        self._end_output()
        id, sequence = self._start("error", None)
        if message:
            self._out.append(document_events.ContentDelta(id, message, raw=""))
        self._end(id, sequence, message, documents.ErrorMetadata(error_code=code, source=source, details=details))

    # --- a pause, and the end -----------------------------------------------------------------------

    def _waiting(self, call_ids: Container[str]) -> list[documents.WaitingCall]:
        return [
            documents.WaitingCall(
                tool_call_id=tool.call_id,
                tool_name=tool.action.tool,
                arguments=tool.action.arguments if isinstance(tool.action, agent_events.OtherTool) else {},
                document_id=tool.id,
            )
            for id, tool in self._tools.items()
            if id in call_ids and tool.waits
        ]

    def _pause(self, call_ids: tuple[str, ...], *, goes_on: bool) -> None:
        self._end_output()
        envelope = self._envelope("streaming", None, waiting_for=self._waiting(call_ids))
        used = self._usage.paused([tool.action for tool in self._tools.values()], ends_reply=not goes_on)
        self._out.append(document_events.Paused(envelope, _drained(self._loose), used, goes_on))

    def _end_everything(self) -> None:
        self._end_output()
        for call_id, tool in self._tools.items():
            self._close_tool(tool, call_id, tool.action, agent_events.INTERRUPTED, None)
        self._tools = {}

    def _fail(self, failure: Failure, event: agent_events.RunFailed) -> None:
        self._end_everything()
        self._add_error(failure.message, failure.code.upper(), failure.source, failure.details)
        self._finish("error", event)

    def _finish(self, status: documents.Status, event: agent_events.RunFinished | agent_events.RunFailed) -> None:
        self._done = True
        differs = (isinstance(event, agent_events.RunFinished) and event.text_differs) or UNSET
        reported = event.last_usage or event.usage
        used = self._usage.reply(reported, event.usage)
        envelope = self._envelope(
            status,
            event.usage,
            duration_ms=event.duration_ms or 0,
            result_differs=differs,
            context_tokens=used.total_tokens if "context" in self._run.include and is_sane(reported) else UNSET,
        )
        failure = event.failure if isinstance(event, agent_events.RunFailed) else None
        self._out.append(
            document_events.Done(envelope, failure, _drained(self._loose), None if used == envelope.usage else used)
        )

    def _envelope(
        self,
        status: documents.Status,
        counts: agent_events.TokenCounts | None,
        *,
        duration_ms: int = 0,
        waiting_for: list[documents.WaitingCall] | UnsetType = UNSET,
        result_differs: bool | UnsetType = UNSET,
        context_tokens: int | UnsetType = UNSET,
    ) -> documents.Envelope:
        """`counts` is what the agent reported for the run; None if unknown."""
        run = self._run
        conversation_id = run.conversation_id or f"conv_{self._session or run.id.removeprefix('chat_')}"
        refused = self._refused.calls(conversation_id, run.id, run.page_url) if self._refused.count else UNSET
        usage = self._usage.total(counts)
        return documents.Envelope(
            id=run.id,
            conversation_id=conversation_id,
            model=self.model,
            mode=run.mode,
            created=run.created,
            status=status,
            usage=priced(usage, run.prices, self.model) if run.prices else usage,
            metadata=documents.ResponseMetadata(
                duration_ms=duration_ms,
                tool_call_count=self._tool_call_count,
                turn_count=self._turns.count,
                unrecognized=self._unrecognized or UNSET,
                result_differs=result_differs,
                refused_count=self._refused.count or UNSET,
                refused=refused,
                waiting_for=waiting_for,
                recording=self._recording,
                fallback=self.fallback,
                warm=self._warm,
                context_tokens=context_tokens,
            ),
        )


def _drained(pieces: list[str]) -> str:
    """Also empties the list."""
    text = "".join(pieces)
    del pieces[:]
    return text


def _hash(action: agent_events.Action) -> int:
    """Equal for a call that is the same again, as after a lost connection. The call itself may contain a whole file."""
    return hash(action.command if isinstance(action, agent_events.Command) else repr(action))  # its output was added
