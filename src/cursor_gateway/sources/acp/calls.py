"""Translate a tool call from ACP into the name, arguments and result that `sources.cursor.tools` reads.

ACP has little information: a title, a kind, and input and output whose shapes differ between builds. Those of 2026.08
have `{"command"}` or nothing as input; newer ones name the tool (`_toolName`) and the server of an MCP tool.
"""

import re
from typing import Any

from msgspec import Struct

from cursor_gateway.model.actions import Action, OtherTool, Outcome
from cursor_gateway.sources.cursor.tools import read_call, read_result
from cursor_gateway.wire.payload import Fields

_MCP_TITLE = re.compile(r"(\S+)-(\S+): \2")
_QUOTED = re.compile(r"`(.+)`", re.DOTALL)
_OLD_HEADER = re.compile(r"-- (/dev/null|a/.*)")
_NEW_HEADER = re.compile(r"\+\+ (/dev/null|b/.*)")
_BY_KIND = {
    "execute": "shell",
    "edit": "edit",
    "delete": "delete",
    "move": "rename",
    "read": "read",
    "fetch": "webFetch",
}
_REPORTS_RESULT = frozenset({"shell", "edit", "write", "delete", "rename", "webFetch", "webSearch", "mcp"})
_OUTCOMES = ("success", "rejected", "failure", "timeout", "permissionDenied", "writePermissionDenied")
REJECTED: dict[str, Any] = {"rejected": {}}


class ToolCall(Struct):
    """An unfinished call: updates contain only changes."""

    id: str
    tool: str  # Cursor's name without its suffix; empty: unknown
    title: str
    kind: str
    args: dict[str, Any]
    payload: dict[str, Any] = {}  # as it was first reported
    is_denied: bool = False  # the gateway refused permission
    is_reported: bool = False  # its start was an event
    started_ms: float | None = None

    @property
    def server(self) -> str:
        """The server of an MCP tool; empty for other tools."""
        return Fields(self.args).text("providerIdentifier") if self.tool == "mcp" else ""

    @property
    def has_own_message(self) -> bool:
        """Todos, plans and questions have their own messages, with more detail."""
        return self.tool in ("updateTodos", "createPlan", "askQuestion")


def call_of(update: Fields) -> ToolCall:
    title, kind, given = update.text("title"), update.text("kind"), update.object("rawInput")
    tool = _tool(title, kind, given)
    args = {name: value for name, value in given.all.items() if name != "_toolName"}
    subject = found[1] if (found := _QUOTED.search(title)) else ""
    path = next((place.text("path") for place in update.objects("locations")), "") or subject
    match tool:
        case "mcp" if (found := _MCP_TITLE.fullmatch(title)) and "providerIdentifier" not in args:
            args = {"providerIdentifier": found[1], "toolName": found[2], "args": args}
        case "shell" if subject and not args.get("command"):
            args["command"] = subject
        case "read" | "edit" | "write" | "delete" if path and not args.get("path"):
            args["path"] = path
    return ToolCall(update.text("toolCallId"), tool, title, kind, args, payload=update.all)


def _tool(title: str, kind: str, given: Fields) -> str:
    if named := given.text("_toolName"):
        words = named.removesuffix("ToolCall").removesuffix("_tool_call").split("_")
        return words[0] + "".join(word.capitalize() for word in words[1:])
    if given.text("providerIdentifier") or (kind in ("other", "") and _MCP_TITLE.fullmatch(title)):
        return "mcp"
    if kind == "search":
        return "glob" if "globPattern" in given.all else "grep" if "pattern" in given.all else ""
    if kind == "other" and (found := re.search(r"\b(todo|plan|question)", title, re.IGNORECASE)):
        return {"todo": "updateTodos", "plan": "createPlan", "question": "askQuestion"}[found[1].lower()]
    return _BY_KIND.get(kind, "")


def learn(call: ToolCall, update: Fields) -> None:
    """Adds what an update contains."""
    call.title = update.text("title") or call.title
    more = update.object("rawInput").all
    call.args |= {name: value for name, value in more.items() if name != "_toolName" and not call.args.get(name)}


def started(call: ToolCall) -> Action:
    if not call.tool:
        return OtherTool(tool=_plain(call), arguments=call.args)
    return read_call(call.tool, call.args)


def ended(call: ToolCall, update: Fields) -> tuple[Action, Outcome]:
    if call.is_denied:
        return _read(call, REJECTED)
    if (diff := _diff(update)) is not None and call.tool in ("edit", "write", "delete", ""):
        return _edited(diff, call)
    output, text = update.all.get("rawOutput"), _text(update)
    if update.text("status") == "failed":
        return _read(call, {"error": {"error": Fields(output).text("error", "message") or text or "The tool failed."}})
    match output:
        case {"error": str(error)}:
            return _read(call, {"error": {"error": error}})
        case {"exitCode": int(status)} if status != 0 and call.tool == "shell":
            return _read(call, {"failure": output})
        case dict() if any(name in output for name in _OUTCOMES):
            return _read(call, output)
        case dict() if output:
            return _read(call, {"success": output})
        case _:
            pass
    if text:
        return _read(call, {"success": {"content": text}})
    # A call that was denied completes without a result, and so do tools whose results are not reported.
    return _read(call, REJECTED if call.tool in _REPORTS_RESULT and output is None else {"success": {}})


def _read(call: ToolCall, result: dict[str, Any]) -> tuple[Action, Outcome]:
    if call.tool:
        return read_result(call.tool, call.args, result)
    action, outcome = read_result(_plain(call), {}, result)
    data = action.data if isinstance(action, OtherTool) else None
    return OtherTool(tool=_plain(call), arguments=call.args, data=data), outcome


def _plain(call: ToolCall) -> str:
    """A name for an unknown tool."""
    words = re.findall(r"[a-z0-9]+", _QUOTED.sub("", call.title).casefold())
    return "_".join(words[:4]) or call.kind or "tool"


def _diff(update: Fields) -> Fields | None:
    return next((part for part in update.objects("content") if part.text("type") == "diff"), None)


def _edited(diff: Fields, call: ToolCall) -> tuple[Action, Outcome]:
    """The texts are a patch's lines without their first character, so they include its header (2026.08.11)."""
    path = diff.text("path") or Fields(call.args).text("path")
    old_header, old = _without_header(_OLD_HEADER, diff.text("oldText"))
    new_header, new = _without_header(_NEW_HEADER, diff.text("newText"))
    if new_header == "/dev/null":
        return read_result("delete", {"path": path}, {"success": {"path": path}})
    if old_header == "/dev/null" or (old_header is None and diff.all.get("oldText") is None):
        written = Fields(call.args).text("streamContent", "fileText")  # with the last line end, if any
        created = {"afterFullFileContent": written if written.removesuffix("\n") == new else new, "path": path}
        return read_result("edit", {"path": path}, {"success": created})
    return read_result("edit", {"path": path, "oldText": old, "newText": new}, {"success": {"path": path}})


def _without_header(header: re.Pattern[str], text: str) -> tuple[str | None, str]:
    first, _, rest = text.partition("\n")
    found = header.fullmatch(first)
    return (found[1], rest) if found else (None, text)


def _text(update: Fields) -> str:
    parts = [part.object("content").text("text") for part in update.objects("content")]
    return "\n".join(part for part in parts if part)
