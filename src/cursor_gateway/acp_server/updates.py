"""The events of a run in; the session updates that show them in an editor, out.

Joined, the message chunks of a run are its text (`ChatResponse.text`). The same events give the same updates, so a
session that is loaded again looks as it did.
"""

from collections.abc import Sequence
from posixpath import join
from typing import Any, TypeAlias, TypedDict, Unpack

import msgspec
from msgspec import UNSET, UnsetType

from cursor_gateway.acp_server import shapes
from cursor_gateway.errors import RunCancelled
from cursor_gateway.model import document_events, documents
from cursor_gateway.stages.summary import in_one_line, main_argument
from cursor_gateway.stages.usage import window_of

_TAIL = 4_000  # characters of the output of a command that still runs: each update repeats it
_LONGEST = 10_000  # characters of a tool's result that are shown; `rawOutput` has all of it
_DEMO = "DEMO: this answer is a recording. No agent ran, and no files were changed."
_OF_THE_RUN = ("agent", "gateway")  # sources of an error that is no tool's: a tool's own call says that it failed

_KINDS: dict[str, shapes.ToolKind] = {
    "read_file": "read",
    "list_dir": "read",
    "read_lints": "read",
    "read_mcp_resource": "read",
    "todo_read": "read",
    "grep": "search",
    "glob_file_search": "search",
    "codebase_search": "search",
    "web_search": "fetch",
    "exa_search": "fetch",
    "web_fetch": "fetch",
    "exa_fetch": "fetch",
    "fetch": "fetch",
    "apply_agent_diff": "edit",
    "write_shell_stdin": "execute",
    "computer_use": "execute",
    "task": "think",
    "reflect": "think",
}
_PATHS = ("target_file", "path", "target_directory", "file_path")  # arguments that name a file or folder
_OPERATIONS: dict[documents.Operation, tuple[shapes.ToolKind, str]] = {
    "create": ("edit", "Create"),
    "edit": ("edit", "Edit"),
    "delete": ("delete", "Delete"),
    "rename": ("move", "Rename"),
}
_ENTRY_STATES: dict[documents.TodoStatus, shapes.EntryStatus] = {
    "pending": "pending",
    "in_progress": "in_progress",
    "completed": "completed",
}  # cancelled ones are not shown


_Contents: TypeAlias = list[shapes.ToolContent] | UnsetType


class _Details(TypedDict, total=False):
    locations: list[shapes.Location] | UnsetType
    raw_input: Any
    raw_output: Any


class _Changed(_Details, total=False):
    title: str
    kind: shapes.ToolKind


class SessionTodos:
    """The to-dos of a session, which each update of the plan lists in full."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[str, documents.TodoStatus]] = {}

    def replace(self, todos: list[documents.PlanTodo]) -> shapes.PlanUpdate:
        self._found = {todo.id: (todo.content, todo.status) for todo in todos}
        return self._update()

    def change(self, todos: list[documents.TodoChange], *, replaces: bool) -> shapes.PlanUpdate:
        before = self._found
        self._found = {} if replaces else dict(before)
        for todo in todos:
            known, _ = before.get(todo.id, ("", "pending"))
            self._found[todo.id] = (todo.content or known or todo.id, todo.status)
        return self._update()

    def _update(self) -> shapes.PlanUpdate:
        entries = [
            shapes.PlanEntry(content=content, status=_ENTRY_STATES[status])
            for content, status in self._found.values()
            if status in _ENTRY_STATES
        ]
        return shapes.PlanUpdate(entries=entries)


class _Joined:
    """Texts of several documents as one, with an empty line between two."""

    def __init__(self) -> None:
        self._last = ""

    def push(self, document_id: str, text: str) -> str:
        gap = "\n\n" if self._last not in ("", document_id) else ""
        self._last = document_id
        return gap + text


class RunUpdates:
    def __init__(self, run_id: str, workspace: str, todos: SessionTodos) -> None:
        """`workspace` completes relative paths: an editor knows only absolute ones."""
        self._run_id, self._workspace, self._todos = run_id, workspace, todos
        self._text, self._thoughts = _Joined(), _Joined()
        self._open: dict[str, document_events.DocumentStarted] = {}
        self._outputs: dict[str, str] = {}  # the ends of those of commands that still run
        self._calls: dict[str, str] = {}  # of documents that continue another one's call
        self._decided: dict[str, shapes.ToolCallUpdate] = {}  # by commands that have not begun: the ends of their calls
        self._tools: dict[str, str] = {}  # the names of those that are used now

    def push(self, event: document_events.DocumentEvent, /) -> list[shapes.SessionUpdate]:
        match event:
            case document_events.DocumentStarted():
                self._open[event.id] = event
                return self._started(event, event.metadata or document_events.KnownMetadata())
            case document_events.ContentDelta(id=id, text=text):
                return self._grown(id, text)
            case document_events.TerminalOutput(id=id, text=text):
                shown = self._outputs[id] = (self._outputs.get(id, "") + text)[-_TAIL:]
                return [self._change(id, content=[_code(shown)])]
            case document_events.ToolCallStarted(id=id, tool_name=name):
                self._tools[id] = name
                return [self._call(id, name, _KINDS.get(name, "other"), "in_progress")]
            case document_events.ToolCallArguments(id=id, arguments=arguments):
                title = self._tool_title(self._tools.get(id, "tool"), arguments)
                places = self._locations(arguments)
                return [self._change(id, title=title, locations=places, raw_input=arguments)]
            case document_events.DocumentEnded(document=document):
                for kept in (self._open, self._outputs, self._tools):
                    kept.pop(document.id, None)
                return self._ended(document)
            case document_events.Reasoning(text=text):
                return [self._thought("reasoning", text)]
            case document_events.Done(envelope=envelope):
                demo = [self._call("demo", _DEMO, "other", "completed")] if envelope.metadata.recording else []
                return [*self._decided.values(), *demo, *_used(event)]
            case document_events.ToolCallEnded() | document_events.Paused():
                return []

    def call_id(self, document_id: str) -> str:
        """Of the tool call that shows this document; unique in the session."""
        return self._calls.get(document_id) or f"{self._run_id}/{document_id}"

    # --- a document starts, and grows -----------------------------------------------------------------

    def _started(
        self, event: document_events.DocumentStarted, known: document_events.KnownMetadata
    ) -> list[shapes.SessionUpdate]:
        match event.type:
            case "terminal_command":
                return self._command(event.id, known)
            case "file_edit":
                title = f"Edit {self._short(known.file_path) if known.file_path else 'a file'}"
                places = [shapes.Location(path=self._absolute(known.file_path))] if known.file_path else UNSET
                return [self._call(event.id, title, "edit", "in_progress", locations=places)]
            case "plan":
                started = self._call(event.id, f"Plan: {known.title}" if known.title else "Plan", "think", "pending")
                return [started, self._todos.replace(known.todos)] if known.todos else [started]
            case "clarification" if known.permission:
                return [self._call(event.id, known.permission.subject, "execute", "pending")]
            case "clarification":
                asked = " / ".join(question.text for question in known.questions or [])
                return [self._call(event.id, asked or "A question", "other", "pending")]
            # A tool's name comes with the next event; the others are no tools, or known only at their end.
            case "tool_call" | "text" | "thinking" | "code_block" | "code_reference" | "todo_update" | "error":
                return []

    def _command(self, id: str, known: document_events.KnownMetadata) -> list[shapes.SessionUpdate]:
        command = known.command or "A command"
        details: dict[str, Any] = {"command": command}
        if known.working_directory:
            details["cwd"] = known.working_directory
        if (decided := self._decided.pop(command, None)) is not None:
            self._calls[id] = decided.tool_call_id
            return [shapes.ToolCallUpdate(tool_call_id=decided.tool_call_id, status="in_progress", raw_input=details)]
        return [self._call(id, command, "execute", "in_progress", raw_input=details)]

    def _grown(self, id: str, text: str) -> list[shapes.SessionUpdate]:
        started = self._open.get(id)
        match started.type if started is not None else "":
            case "text":
                return [self._said(id, text)]
            case "thinking":
                return [self._thought(id, text)]
            case "plan":  # which comes in one piece
                return [self._change(id, content=[_text(text)])]
            case _:
                return []

    # --- a document ends ------------------------------------------------------------------------------

    def _ended(self, document: documents.Document) -> list[shapes.SessionUpdate]:
        match document:
            case documents.TextDocument() | documents.ThinkingDocument():
                return []
            case documents.CodeBlockDocument() | documents.CodeReferenceDocument():
                return [self._said(document.id, documents.said_in(document) or "")]
            case documents.TerminalCommandDocument(metadata=metadata):
                content = [_code(metadata.output)] if metadata.output else []
                raw = {"exitCode": metadata.exit_code, "stdout": metadata.output, "stderr": ""}
                return [self._end(document.id, metadata, content, raw_output=raw)]
            case documents.FileEditDocument():
                return [self._edited(document)]
            case documents.ToolCallDocument(metadata=metadata):
                data = metadata.result.data
                shown = data if isinstance(data, str) else "" if data is None else msgspec.json.encode(data).decode()
                content, has_failed = [_code(shown)] if shown else [], metadata.result.status == "error"
                return [self._end(document.id, metadata, content, raw_output=data, has_failed=has_failed)]
            case documents.PlanDocument(metadata=metadata, content=text):
                content = [_text(text)] if text else []
                ended = self._end(document.id, metadata, content, has_failed=metadata.accepted is False)
                return [ended, self._todos.replace(metadata.todos)] if metadata.todos else [ended]
            case documents.ClarificationDocument(metadata=metadata):
                return self._answered(document.id, metadata)
            case documents.TodoUpdateDocument(metadata=metadata):
                return [self._todos.change(metadata.todos, replaces=metadata.merge is False)]
            case documents.ErrorDocument(metadata=metadata, content=text):
                if metadata.source not in _OF_THE_RUN or metadata.error_code == RunCancelled.code.upper():
                    return []
                return [self._call(document.id, text, "other", "failed", content=[_text(text)])]

    def _edited(self, document: documents.FileEditDocument) -> shapes.ToolCallUpdate:
        metadata, new = document.metadata, document.content
        kind, verb = _OPERATIONS[metadata.operation]
        path = self._absolute(metadata.file_path)
        content: list[shapes.ToolContent] = []
        line: int | UnsetType = UNSET
        if metadata.diff:
            line = max(1, metadata.diff.start_line)
            content = [shapes.ToolDiff(path=path, old_text=metadata.diff.old_string, new_text=metadata.diff.new_string)]
        elif metadata.operation == "create" and new is not None:
            content = [shapes.ToolDiff(path=path, old_text=None, new_text=new)]
        what = self._short(metadata.file_path)
        what = f"{self._short(metadata.old_path)} to {what}" if metadata.old_path else what
        title, places = in_one_line(f"{verb} {what}"), [shapes.Location(path=path, line=line)]
        return self._end(document.id, metadata, content, title=title, kind=kind, locations=places)

    def _answered(self, id: str, metadata: documents.ClarificationMetadata) -> list[shapes.SessionUpdate]:
        chosen = {answer.question_id: answer for answer in metadata.answers or []}
        if metadata.permission:
            decisions = [option for answer in chosen.values() for option in answer.selected_option_ids]
            ended = self._end(id, metadata, [], has_failed="deny" in decisions)
            if any(not rule.startswith("Shell(") for rule in metadata.permission.rules):
                return [ended]  # another tool, which has a call of its own
            # The command, run or not, continues this call. Clients take an end for final.
            before = self._decided.pop(metadata.permission.subject, None)
            self._decided[metadata.permission.subject] = ended
            return [] if before is None else [before]
        lines: list[str] = []
        for question in metadata.questions:
            answer = chosen.get(question.id)
            labels = {option.id: option.label for option in question.options}
            given = [labels.get(one, one) for one in answer.selected_option_ids] if answer else []
            given += [answer.text] if answer and answer.text else []
            lines.append(f"{question.text} {', '.join(given) or '(no answer)'}")
        return [self._end(id, metadata, [_text("\n\n".join(lines))])]

    # --- their parts ----------------------------------------------------------------------------------

    def _said(self, id: str, text: str) -> shapes.AgentMessageChunk:
        return shapes.AgentMessageChunk(
            content=shapes.TextContent(text=self._text.push(id, text)), message_id=self._run_id
        )

    def _thought(self, id: str, text: str) -> shapes.AgentThoughtChunk:
        joined = self._thoughts.push(id, text)
        return shapes.AgentThoughtChunk(content=shapes.TextContent(text=joined), message_id=f"{self._run_id}/{id}")

    def _call(
        self,
        id: str,
        title: str,
        kind: shapes.ToolKind,
        status: shapes.ToolStatus,
        content: _Contents = UNSET,
        **more: Unpack[_Details],
    ) -> shapes.ToolCallStart:
        call_id, title = self.call_id(id), in_one_line(title)
        return shapes.ToolCallStart(
            tool_call_id=call_id, title=title, kind=kind, status=status, content=content, **more
        )

    def _change(
        self,
        id: str,
        content: _Contents = UNSET,
        status: shapes.ToolStatus | UnsetType = UNSET,
        **more: Unpack[_Changed],
    ) -> shapes.ToolCallUpdate:
        return shapes.ToolCallUpdate(tool_call_id=self.call_id(id), status=status, content=content, **more)

    def _end(
        self,
        id: str,
        trace: documents.ToolTrace,
        content: Sequence[shapes.ToolContent],
        *,
        has_failed: bool = False,
        **more: Unpack[_Changed],
    ) -> shapes.ToolCallUpdate:
        """With the reason, if it did not simply complete."""
        reason = [_text(trace.reason)] if trace.reason else []
        is_failed = has_failed or trace.state is not UNSET
        return self._change(id, [*content, *reason] or UNSET, "failed" if is_failed else "completed", **more)

    def _locations(self, arguments: dict[str, Any]) -> list[shapes.Location] | UnsetType:
        path = next((path for name in _PATHS if isinstance(path := arguments.get(name), str) and path), None)
        return UNSET if path is None else [shapes.Location(path=self._absolute(path))]

    def _tool_title(self, name: str, arguments: dict[str, Any]) -> str:
        about = self._short(main_argument(arguments))
        return in_one_line(f"{name}: {about}" if about else name)

    def _absolute(self, path: str) -> str:
        return join(self._workspace, path)

    def _short(self, path: str) -> str:
        """Without the workspace."""
        return path.removeprefix(f"{self._workspace.rstrip('/')}/")


def _used(done: document_events.Done) -> list[shapes.SessionUpdate]:
    """The size of the context, if it is known of how much: only some models' names say that."""
    used, size = done.envelope.metadata.context_tokens, window_of(done.envelope.model)
    return [shapes.UsageUpdate(used=used, size=size)] if used is not UNSET and size else []


def _text(text: str) -> shapes.ToolText:
    return shapes.ToolText(content=shapes.TextContent(text=text))


def _code(output: str) -> shapes.ToolText:
    """As Markdown, in which editors show a tool's text."""
    shown = output if len(output) <= _LONGEST else f"{output[:_LONGEST]}\n… {len(output) - _LONGEST:,} characters more"
    mark = "```"
    while mark in shown:
        mark += "`"
    return _text(f"{mark}\n{shown.removesuffix(chr(10))}\n{mark}")
