"""A tool's arguments and result as the CLI writes them in; the fewer and other fields that the SDK has of them out."""

from typing import Any

from tests.agent.emitter import Record

_ARGUMENTS = {
    "createPlan": ("plan",),
    "delete": ("path",),
    "edit": ("path",),
    "glob": ("targetDirectory", "globPattern"),
    "grep": ("pattern", "path", "glob", "outputMode", "caseInsensitive", "type", "headLimit", "multiline"),
    "ls": ("path", "ignore"),
    "mcp": ("args", "providerIdentifier", "toolName"),
    "read": ("path",),
    "shell": ("command",),
    "write": ("path", "fileText"),
}
_VALUES = {
    "createPlan": (),
    "delete": ("fileSize",),
    "edit": ("linesAdded", "linesRemoved", "diffString"),
    "glob": ("files", "totalFiles", "clientTruncated", "ripgrepTruncated"),
    "ls": ("directoryTreeRoot",),
    "mcp": ("content", "isError"),
    "read": ("content", "totalLines", "fileSize"),
    "shell": ("exitCode", "signal", "stdout", "stderr", "executionTime"),
    "write": ("path", "linesCreated", "fileSize"),
}
_WHERE = ("path", "command", "workingDirectory")
_STATUS = {"TODO_STATUS_IN_PROGRESS": "inProgress", "TODO_STATUS_COMPLETED": "completed"}


def arguments(tool: str, args: Record) -> Record:
    if tool == "updateTodos":
        return {"todos": _todos(args)}
    return _only(_ARGUMENTS.get(tool), args)


def result(tool: str, reply: Record) -> Record:
    match reply:
        case {"success": dict(value)} | {"failure": dict(value)}:
            return {"status": "success", "value": _value(tool, value)}
        case _:
            kind, about = next((key, value) for key, value in reply.items() if key != "isBackground")
            reason = "error" if tool == "read" else "rejected" if tool == "ls" else _reason(kind, about)
            where = {name: about[name] for name in _WHERE if isinstance(about, dict) and name in about}
            return {"status": "error", "error": {"message": reason, **where}}


def _value(tool: str, value: Record) -> Record:
    match tool:
        case "updateTodos":
            return {"todos": _todos(value), "totalCount": value["totalCount"]}
        case "grep":
            return {"workspaceResults": _grep(value["workspaceResults"])}
        case "delete":
            return {"fileSize": int(str(value["fileSize"]))}
        case _:
            return _only(_VALUES.get(tool), value)


def live_output(tool: str, reply: Record) -> dict[str, str]:
    """What a command wrote, as far as it was run. It comes before the command's end, and without its call."""
    match tool, reply:
        case "shell", {"success": dict(ran)} | {"failure": dict(ran)}:
            return {name: str(ran[name]) for name in ("stdout", "stderr") if ran.get(name)}
        case _:
            return {}


def empty(args: Record) -> Record:
    """The arguments of a call that the model is still writing."""
    return {name: "" if isinstance(value, str) else {} for name, value in args.items() if isinstance(value, str | dict)}


def _only(names: tuple[str, ...] | None, fields: Record) -> Record:
    return fields if names is None else {name: fields[name] for name in names if name in fields}


def _todos(reply: Record) -> list[Record]:
    todos: Any = reply["todos"]
    return [{"content": todo["content"], "status": _STATUS.get(todo["status"], "pending")} for todo in todos]


def _grep(workspaces: Any) -> Record:
    """The SDK loses the lines, and counts nothing."""
    return {
        root: {
            "type": "content",
            "output": {"matches": [{"file": file["file"]} for file in below["content"]["matches"]], "totalMatches": 0},
        }
        for root, below in workspaces.items()
    }


def _reason(kind: str, about: object) -> str:
    if not isinstance(about, dict):
        return str(about)
    names = ("error", "errorMessage", "clientVisibleError", "reason")
    return next((str(about[name]) for name in names if about.get(name)), kind)
