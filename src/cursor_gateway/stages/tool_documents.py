"""Turn an action and its outcome into a document's metadata and content."""

from typing import Any, Literal, TypeAlias

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from cursor_gateway.model import documents
from cursor_gateway.model.agent_events import Action, Command, FileEdit, OtherTool, Outcome, Plan, Question, TodoUpdate
from cursor_gateway.model.caller_tools import ToolResult
from cursor_gateway.model.document_events import KnownMetadata

# --- the language of a file, by its path ------------------------------------------------------------


_BY_EXTENSION = {
    "c": "c", "h": "c", "cc": "cpp", "cpp": "cpp", "cxx": "cpp", "hpp": "cpp", "cs": "csharp",
    "clj": "clojure", "css": "css", "csv": "csv", "dart": "dart", "diff": "diff", "patch": "diff",
    "ex": "elixir", "exs": "elixir", "erl": "erlang", "go": "go", "graphql": "graphql", "hs": "haskell",
    "htm": "html", "html": "html", "ini": "ini", "cfg": "ini", "java": "java", "jl": "julia",
    "js": "javascript", "cjs": "javascript", "mjs": "javascript", "jsx": "jsx", "json": "json", "jsonc": "json",
    "jsonl": "json", "ndjson": "json", "kt": "kotlin", "kts": "kotlin", "less": "less", "lua": "lua",
    "md": "markdown", "mdx": "markdown", "ml": "ocaml", "mli": "ocaml", "mk": "makefile", "nix": "nix", "php": "php",
    "pl": "perl", "pm": "perl", "proto": "protobuf", "ps1": "powershell", "py": "python", "pyi": "python",
    "r": "r", "rb": "ruby", "rs": "rust", "rst": "rst", "sass": "sass", "scala": "scala", "scss": "scss",
    "sh": "bash", "bash": "bash", "zsh": "bash", "sql": "sql", "svelte": "svelte", "svg": "xml", "swift": "swift",
    "tex": "latex", "tf": "terraform", "toml": "toml", "ts": "typescript", "cts": "typescript",
    "mts": "typescript", "tsx": "tsx", "vue": "vue", "xml": "xml", "yaml": "yaml", "yml": "yaml", "zig": "zig",
}  # fmt: skip

_BY_NAME = {
    "cmakelists.txt": "cmake",
    "containerfile": "dockerfile",
    "dockerfile": "dockerfile",
    "gemfile": "ruby",
    "gnumakefile": "makefile",
    "makefile": "makefile",
    "rakefile": "ruby",
}


def language_of(path: str) -> str:
    """`text` if unknown."""
    name = path.replace("\\", "/").rpartition("/")[2].lower()
    _, dot, extension = name.rpartition(".")
    return _BY_NAME.get(name) or (_BY_EXTENSION.get(extension) if dot else None) or "text"


# --- calls that were not run ------------------------------------------------------------------------


_MOST = 20  # calls that are described; all are counted
_LONGEST = 500  # characters of a subject or a reason


def page_path(conversation_id: str, run_id: str, document_id: str) -> str:
    """Of a document, on the page."""
    return f"/#/c/{conversation_id}/{run_id}/{document_id}"


class Refusals(Struct):
    """Of one run."""

    count: int = 0
    first: list[documents.RefusedCall] = []  # without their links

    def push(self, document: documents.Document) -> None:
        if not documents.is_refused(document):
            return
        self.count += 1
        trace = document.metadata
        if isinstance(trace, documents.ToolTrace) and len(self.first) < _MOST:
            call = documents.RefusedCall(
                document=document.id,
                subject=_shortened(trace.permission.subject if trace.permission else _subject(trace)),
                rules=trace.permission.rules if trace.permission else UNSET,
                reason=_shortened(trace.reason) if trace.reason else UNSET,
            )
            self.first.append(call)

    def copied(self) -> "Refusals":
        return Refusals(self.count, list(self.first))

    def calls(self, conversation_id: str, run_id: str, page_url: str | None) -> list[documents.RefusedCall]:
        """The first of them; those that somebody can allow with their links. See `RunInfo` for `page_url`."""
        if page_url is None:
            return list(self.first)
        found: list[documents.RefusedCall] = []
        for call in self.first:
            if call.rules is not UNSET:
                link = page_path(conversation_id, run_id, call.document)
                call = replace(call, link=link, url=f"{page_url.rstrip('/')}{link}" if page_url else UNSET)
            found.append(call)
        return found


def _subject(trace: documents.ToolTrace) -> str:
    match trace:
        case documents.TerminalCommandMetadata(command=command):
            return command
        case documents.FileEditMetadata(file_path=path):
            return path
        case _:
            return trace.tool_name if isinstance(trace, documents.ToolCallMetadata) else ""


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


ToolType: TypeAlias = Literal["file_edit", "terminal_command", "plan", "clarification", "todo_update", "tool_call"]


def started(action: Action) -> tuple[documents.DocumentType, KnownMetadata | None]:
    """The type of an action's document, and what is known about it before it ends."""
    match action:
        case FileEdit(path=path):
            return "file_edit", KnownMetadata(file_path=path, language=language_of(path))
        case Command(command=command, working_directory=directory):
            return "terminal_command", KnownMetadata(command=command, working_directory=directory or UNSET)
        case Plan(title=title, overview=overview, todos=todos):
            return "plan", KnownMetadata(title=title, overview=overview, todos=todos)
        case Question(questions=questions, permission=permission):
            return "clarification", KnownMetadata(questions=questions, permission=permission or UNSET)
        case TodoUpdate():
            return "todo_update", None
        case OtherTool():
            return "tool_call", None


def action_of(type: ToolType, known: KnownMetadata, content: str) -> Action:
    """The action of a document that has started and not ended, as far as its events show it: the inverse of `started`.
    The name and the arguments of other tools are not part of `known`."""
    match type:
        case "file_edit":
            return FileEdit(tool="", path=known.file_path or "", operation="edit", content=content or None)
        case "terminal_command":
            return Command(tool="", command=known.command or "", working_directory=known.working_directory or "")
        case "plan":
            title, overview = known.title or "", known.overview or ""
            return Plan(tool="", title=title, overview=overview, markdown=content, todos=known.todos or [])
        case "clarification":
            permission = known.permission or None
            return Question(tool="", title=content, questions=known.questions or [], permission=permission)
        case "todo_update":
            return TodoUpdate(tool="", todos=[])
        case "tool_call":
            return OtherTool(tool="", arguments={})


def content_of(action: Action) -> str | None:
    match action:
        case FileEdit(content=content):
            return content
        case Plan(markdown=markdown):
            return markdown
        case Question(title=title):
            return title or None
        case Command() | TodoUpdate() | OtherTool():
            return None


def answered(action: Action, result: ToolResult, duration_ms: int) -> tuple[Action, Outcome]:
    """A call of the caller's tool as it ended."""
    data = result.text if result.structured is UNSET else result.structured
    if result.images:
        data = {"text": result.text, "images": [image.media_type for image in result.images]}
    action = OtherTool(tool=action.tool, arguments={}, data=data)  # the start had the arguments
    if not result.is_error:
        return action, Outcome(duration_ms=duration_ms)
    message = result.text or "The caller's tool failed."
    return action, Outcome(state="failed", code="TOOL_ERROR", message=message, duration_ms=duration_ms)


def metadata_of(
    action: Action,
    outcome: Outcome,
    *,
    call_id: str,
    agent_call_id: str,
    payload: Any,
    by_caller: bool = False,
    parent_id: str | UnsetType = UNSET,
) -> documents.Metadata:
    """`call_id` is what clients see; the agent's own id is added where it differs. `payload` is UNSET by default."""
    plain = outcome.state == "completed"
    trace: dict[str, Any] = {"parent_id": parent_id}  # the fields of `ToolTrace` that are set
    if permission := action.permission if isinstance(action, Question) else outcome.permission:
        trace["permission"] = permission
    if payload is not UNSET:
        trace["raw"] = payload
    if not plain:
        has_ended = outcome.state not in ("running", "waiting")
        trace |= {"state": outcome.state, "reason": outcome.message if has_ended else UNSET}
    match action:
        case FileEdit():
            return documents.FileEditMetadata(
                file_path=action.path,
                operation=action.operation,
                language=language_of(action.path),
                diff=action.diff or UNSET,
                old_path=action.old_path or UNSET,
                **trace,
            )
        case Command():
            return documents.TerminalCommandMetadata(
                command=action.command,
                working_directory=action.working_directory or UNSET,
                exit_code=action.exit_code,
                output=action.output,
                duration_ms=outcome.duration_ms or 0,
                permissions=action.permissions,
                **trace,
            )
        case Plan():
            accepted = action.is_accepted or UNSET
            return documents.PlanMetadata(
                title=action.title, overview=action.overview, todos=action.todos, accepted=accepted, **trace
            )
        case Question():
            return documents.ClarificationMetadata(questions=action.questions, answers=action.answers or UNSET, **trace)
        case TodoUpdate():
            return documents.TodoUpdateMetadata(todos=action.todos, merge=UNSET if action.merge else False, **trace)
        case OtherTool():
            data = action.data if plain else action.data or outcome.message or None
            return documents.ToolCallMetadata(
                tool_name=action.tool,
                tool_call_id=call_id,
                arguments=action.arguments,
                result=documents.ToolCallResult(status="success" if plain else "error", data=data),
                duration_ms=outcome.duration_ms or 0,
                agent_call_id=UNSET if agent_call_id == call_id else agent_call_id,
                ran_by="caller" if by_caller else UNSET,
                **trace,
            )
