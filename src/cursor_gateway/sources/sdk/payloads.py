"""Turn what the SDK reports into plain data of the agent's protocol: events, and a tool's arguments and result.

The SDK keeps fewer fields than the protocol, and renames some of them.
"""

import re
from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any

from cursor_gateway.sources.cursor.outcomes import CODES
from cursor_gateway.wire.payload import Fields

_HEADING = re.compile(r"^#+ +(.+?) *#*$", re.MULTILINE)
_BLOCKED = "Command execution was blocked by a hook"
_NOTE = "\n\nAgent note: "  # after the reason of a hook that blocks a call
_NEW_FILE = re.compile(r"--- /dev/null$|@@ -0,0 ", re.MULTILINE)
_BEFORE_LINES = re.compile(r"(?:--- .*\n\+\+\+ .*\n)?(?:@@ .*\n)?")
_NO_LINE_END = "\\ No newline at end of file"

# Only the kind of these is used: the deltas have the content.
_WHOLE_MESSAGES = frozenset({"assistant", "thinking", "tool_call"})


def plain(event: Any) -> Mapping[str, Any]:
    """`event` is a `RunStreamEvent`; its attributes depend on its `kind`."""
    match event.kind:
        case "interaction_update":
            return _fields(event.interaction_update)
        case "sdk_message":
            message = _fields(event.sdk_message)
            if message.get("type") in _WHOLE_MESSAGES:
                return {"type": message["type"]}
            return {name: _plain(value) for name, value in message.items()}
        case "result":
            return _fields(event.result)
        case _:
            return {}


def size_of(update: Mapping[str, Any]) -> int:
    """About its size on the wire, in characters. Not recursive: a tool's result may be nested deeply."""
    size, rest = 0, [update]
    while rest:
        value: Any = rest.pop()
        if isinstance(value, str):
            size += len(value)
        elif isinstance(value, Mapping):
            size += sum(map(len, value))
            rest += value.values()
        elif isinstance(value, list | tuple):
            rest += value
        elif is_dataclass(value):
            rest.append(vars(value))
        else:
            size += 8
    return size


def _fields(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else vars(value)


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {name: _plain(below) for name, below in vars(value).items()}
    if isinstance(value, tuple):
        return [_plain(below) for below in value]
    return value


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
                case "shell" if Fields(value).integer("exitCode") or Fields(value).text("signal"):
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
        case {"status": "error", "error": {"message": str(message), **rest}} if message.startswith(_BLOCKED):
            return {"rejected": {**rest, "reason": message}}
        case {"status": "error", "error": {"message": str(outcome), **rest}} if outcome in CODES:
            return {outcome: rest}  # the outcome's name is all that the SDK leaves
        case {"status": "error", "error": {"message": "error", **rest}}:
            return {"error": {**rest, "message": "The tool failed; Cursor's SDK does not say why."}}
        case {"status": "error", **rest}:
            return {"error": rest.get("error")}
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
    found = _BEFORE_LINES.match(patch)
    lines = patch[found.end() if found else 0 :].split("\n")
    added = "".join(f"{line[1:]}\n" for line in lines if line.startswith("+"))
    return {**value.all, "afterFullFileContent": added.removesuffix("\n") if _NO_LINE_END in lines else added}


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
