"""Show what the agent's own tools did in a message: as a line of text, or as the blocks of a server tool.

Blocks of server tools have run already, so no client runs them again. Only kinds that every client accepts are used:
some reject a server tool that they do not know.
"""

from typing import TypeAlias

import msgspec
from msgspec import UNSET, Raw

from cursor_gateway.dialects.deltas import action_text
from cursor_gateway.dialects.marked import MARK
from cursor_gateway.dialects.messages.message import (
    BashError,
    BashOutput,
    BashResult,
    CreateOutput,
    EditorError,
    EditorResult,
    ReplaceOutput,
    ServerTool,
    ServerToolResult,
    ServerToolUseBlock,
    WebSearchError,
    WebSearchHit,
    WebSearchResult,
)
from cursor_gateway.model.documents import (
    Diff,
    Document,
    FileEditDocument,
    PlanDocument,
    TerminalCommandDocument,
    ToolCallDocument,
)
from cursor_gateway.stages.summary import main_argument
from cursor_gateway.wire.payload import Fields

NOTHING_SAID = "The agent finished without a message."
_SEARCH = "web_search"

ServerToolBlocks: TypeAlias = tuple[ServerToolUseBlock, ServerToolResult]


def text_of(document: Document) -> str | None:
    """What was done; None for documents that are not about a tool of the agent's own."""
    line = action_text(document)
    return None if line is None else f"{MARK}{line}\n"


def closing_text(document: Document) -> str | None:
    """What a reader must see of this document even if the agent says nothing; None: nothing."""
    return document.content if isinstance(document, PlanDocument) else None


def search_of(document: Document, id: str) -> ServerToolBlocks | None:
    """A web search; None for anything else."""
    match document:
        case ToolCallDocument(metadata=metadata) if metadata.tool_name == _SEARCH and not metadata.ran_by:
            found = metadata.result.data if metadata.result.status == "success" else None
            hits = [_hit(Fields(reference)) for reference in found] if isinstance(found, list) else WebSearchError()
            return _use(id, "web_search", {"query": main_argument(metadata.arguments)}), WebSearchResult(id, hits)
        case _:
            return None


def _hit(reference: Fields) -> WebSearchHit:
    return WebSearchHit(url=reference.text("url"), title=reference.text("title"))


def blocks_of(document: Document, id: str) -> ServerToolBlocks | None:
    """As a server tool's call and result; None for what no server tool does."""
    match document:
        case TerminalCommandDocument(metadata=metadata):
            use = _use(id, "bash_code_execution", {"command": metadata.command})
            if metadata.state in (UNSET, "completed"):
                return use, BashResult(id, BashOutput(metadata.output, "", metadata.exit_code))
            is_late = metadata.state == "timed_out"
            return use, BashResult(id, BashError("execution_time_exceeded" if is_late else "unavailable"))
        case FileEditDocument():
            return _edit(document, id)
        case _:
            return search_of(document, id)


def _edit(document: FileEditDocument, id: str) -> ServerToolBlocks | None:
    metadata = document.metadata
    output: CreateOutput | ReplaceOutput
    match metadata.operation, metadata.diff:
        case "create", _:
            given = {"command": "create", "path": metadata.file_path, "file_text": document.content or ""}
            output = CreateOutput(is_file_update=False)
        case "edit", Diff() as diff:
            given = {
                "command": "str_replace",
                "path": metadata.file_path,
                "old_str": diff.old_string,
                "new_str": diff.new_string,
            }
            output = _replaced(diff)
        case _:
            return None
    use = _use(id, "text_editor_code_execution", given)
    if metadata.state not in (UNSET, "completed"):
        return use, EditorResult(id, EditorError(error_message=metadata.reason or None))
    return use, EditorResult(id, output)


def _replaced(diff: Diff) -> ReplaceOutput:
    old, new = diff.old_string.splitlines(), diff.new_string.splitlines()
    return ReplaceOutput(
        lines=[*(f"-{line}" for line in old), *(f"+{line}" for line in new)],
        old_start=diff.start_line,
        old_lines=len(old),
        new_start=diff.start_line,
        new_lines=len(new),
    )


def _use(id: str, name: ServerTool, given: dict[str, str]) -> ServerToolUseBlock:
    return ServerToolUseBlock(id, name, Raw(msgspec.json.encode(given)))
