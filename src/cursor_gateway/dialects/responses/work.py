"""Show what the agent does itself in a response: as a line of status, or as a web search."""

import msgspec

from cursor_gateway.dialects.actions import ToolAction
from cursor_gateway.dialects.responses.shapes import OpenPage, Search, WebSource
from cursor_gateway.model.document_events import DocumentStarted
from cursor_gateway.wire.payload import Fields

_PAGES = ("web_fetch", "fetch", "exa_fetch")
_SEARCHES = ("web_search", "exa_search")
_LONGEST = 100  # characters of a command or a path


def doing(started: DocumentStarted) -> str:
    """What the agent does now; empty for a document that is not one of its actions."""
    about, known = "", started.metadata
    if known is not None:
        if known.ran_by == "caller":
            return ""
        about = " ".join((known.command or known.file_path or "").split())[:_LONGEST]
    match started.type:
        case "terminal_command":
            return f"Running `{about}`" if about else "Running a command"
        case "file_edit":
            return f"Editing {about}" if about else "Editing a file"
        case "plan":
            return "Planning"
        case "tool_call":
            return "Using a tool"
        case _:
            return ""


def web_action(action: ToolAction) -> Search | OpenPage | None:
    """None: it is something else."""
    if action.name in _PAGES:
        return OpenPage(url=Fields(action.arguments).text("url"))
    if action.name in _SEARCHES:
        query = Fields(action.arguments).text("search_term", "query")
        sources = tuple(WebSource(url=url) for url in _results(action.output))
        return Search(query=query, queries=(query,), sources=sources)
    return None


def pages_of(action: ToolAction) -> dict[str, str]:
    """The web pages that it found or opened: their titles by their addresses."""
    if action.name in _PAGES:
        url = Fields(action.arguments).text("url")
        return {url: url} if url else {}
    return _results(action.output) if action.name in _SEARCHES else {}


def _results(output: str) -> dict[str, str]:
    try:
        found = msgspec.json.decode(output)
    except msgspec.DecodeError:
        return {}
    pages = [Fields(page) for page in found if isinstance(page, dict)] if isinstance(found, list) else []
    return {url: page.text("title") or url for page in pages if (url := page.text("url"))}
