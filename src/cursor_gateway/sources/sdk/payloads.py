"""Translate a tool's arguments and result from the SDK into the agent's protocol, for `sources.cursor.tools`.

The SDK keeps fewer fields than the protocol, and renames some of them.
"""

import re
from typing import Any

from cursor_gateway.wire.payload import Fields

_HEADING = re.compile(r"^#+ +(.+?) *#*$", re.MULTILINE)
_NO_REASON = ("error", "rejected")  # where the SDK loses the reason
_NOTE = "\n\nAgent note: "  # after the reason of a hook that blocks a call
_NEW_FILE = re.compile(r"--- /dev/null$|@@ -0,0 ", re.MULTILINE)


def protocol_arguments(tool: str, args: object) -> Any:
    match tool:
        case "updateTodos":
            return {**Fields(args).all, "todos": _todos(Fields(args)), "merge": False}  # a complete list, without ids
        case "createPlan":
            fields = Fields(args)
            heading = _HEADING.search(fields.text("plan"))
            return {"name": heading[1] if heading else "", **fields.all}
        case _:
            return args


def protocol_result(tool: str, result: object) -> Any:
    """Turns `{status, value | error}` into an object with the outcome as its key. Other values are unchanged."""
    match result:
        case {"status": "success", **rest}:
            value = rest.get("value")
            match tool:
                case "shell" if Fields(value).integer("exitCode"):
                    return {"failure": value}
                case "grep":
                    return {"success": _grep(Fields(value))}
                case "edit":
                    return {"success": _edit(Fields(value))}
                case "updateTodos":
                    return {"success": {**Fields(value).all, "todos": _todos(Fields(value))}}
                case _:
                    return {"success": value}
        case {"status": "error", "error": {"message": str(message), **rest}} if _NOTE in message:
            return {"rejected": {**rest, "reason": message.partition(_NOTE)[0]}}
        case {"status": "error", **rest}:
            if Fields(error := rest.get("error")).text("message") in _NO_REASON:
                return {"error": {**Fields(error).all, "message": "The tool failed; Cursor's SDK does not say why."}}
            return {"error": error}
        case _:
            return result


def _todos(fields: Fields) -> list[dict[str, Any]]:
    return [
        {**todo.all, "status": "IN_PROGRESS" if todo.text("status") == "inProgress" else todo.all.get("status")}
        for todo in fields.objects("todos")
    ]


def _edit(value: Fields) -> dict[str, Any]:
    """A new file is recognized by its patch."""
    patch = value.text("diffString")
    if not _NEW_FILE.match(patch):
        return value.all
    added = [line[1:] for line in patch.split("\n") if line.startswith("+") and not line.startswith("+++ ")]
    return {**value.all, "afterFullFileContent": "".join(f"{line}\n" for line in added)}


def _grep(value: Fields) -> dict[str, Any]:
    workspaces = value.object("workspaceResults").all
    return {
        "workspaceResults": {root: _found(Fields(found)) for root, found in workspaces.items()},
        "activeEditorResult": _found(value.object("activeEditorResult")),
    }


def _found(found: Fields) -> dict[str, Any]:
    output = found.object("output")
    match found.text("type"):
        case "content":
            matches = output.objects("matches")
            lines = [_match(match) for match in matches if "line" in match.all]
            # The SDK loses the lines that were found, but not where.
            files = [match.text("file") for match in matches if "line" not in match.all]
            return {"content": {"matches": lines}, "files": {"files": list(dict.fromkeys(files))}}
        case "files":
            return {"files": output.all}
        case "count":
            return {"count": output.all}
        case _:
            return found.all


def _match(match: Fields) -> dict[str, Any]:
    """One matching line, with its context."""
    number, before = match.integer("lineNumber"), match.texts("beforeContext")
    lines = [*before, match.text("line"), *match.texts("afterContext")]
    return {
        "file": match.text("file"),
        "matches": [
            {
                "lineNumber": None if number is None else number + place,
                "content": line,
                "isContextLine": place != 0,
            }
            for place, line in enumerate(lines, -len(before))
        ],
    }
