"""A call of a program in; how the backend has the runtime carry it out, and the tool call that it reports, out.

Cursor's backend plays the model, and asks the runtime for what a tool needs of the machine: a command, a file, a
search. From the answers it makes the tool's result.
"""

import json
import os
from collections.abc import Callable, Coroutine, Mapping
from difflib import unified_diff
from typing import Any, Protocol, TypeAlias

from msgspec import Struct

from tests.agent.servers import tool_named

Json: TypeAlias = dict[str, Any]


class Machine(Protocol):
    """What a tool may use of the runtime."""

    conversation: str
    tools: Mapping[str, str]  # by name: the provider of each MCP tool

    async def execute(self, kind: str, args: Json) -> list[Json]:
        """The runtime's answers: one, or those of a stream."""
        ...

    async def ask(self, kind: str, query: Json) -> Json: ...


class Outcome(Struct, frozen=True):
    result: Json
    text: str  # what a model would read


class Tool(Struct, frozen=True):
    kind: str  # the field of `ToolCall`
    args: Json
    work: Callable[[Machine, str], Coroutine[Any, Any, Outcome]]  # with the call's id


def tool_of(call: Mapping[str, Any], machine: Machine) -> Tool | None:
    """None: no server has this tool."""
    args: Json = dict(call.get("args", {}))
    match call:
        case {"call": str(name)}:
            name = tool_named(name, machine.tools)
            return _mcp(name, args, machine.tools[name]) if name in machine.tools else None
        case {"native": "shell"}:
            return _shell(args)
        case {"native": "read"}:
            return Tool(
                "read_tool_call", {"path": args["path"]}, lambda machine, call_id: _read(machine, call_id, args)
            )
        case {"native": "edit" | "write"}:
            text = str(args.get("streamContent", args.get("fileText", "")))
            return Tool(
                "edit_tool_call",
                {"path": args["path"], "stream_content": text},
                lambda machine, call_id: _edit(machine, call_id, args["path"], text),
            )
        case {"native": "delete"}:
            return _simple("delete", {"path": args["path"]}, _deleted)
        case {"native": "ls"}:
            return _simple("ls", {"path": args["path"]}, _listed)
        case {"native": "grep"}:
            named = {_snake(name): value for name, value in args.items()}
            return _simple("grep", {"output_mode": "content", **named}, _found)
        case {"native": "glob"}:
            return _glob(args)
        case {"native": "webFetch"}:
            return Tool("web_fetch_tool_call", {"url": args["url"]}, lambda machine, _: _fetch(machine, args["url"]))
        case {"native": "task"}:
            prompt = f"standin: program\n---\n{json.dumps(args['steps'])}"
            about = {"description": "A task", "prompt": prompt, "mode": "AGENT"}
            return Tool("task_tool_call", about, lambda machine, call_id: _task(machine, call_id, prompt))
        case _:
            raise AssertionError(call)


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


def _thrown(answers: list[Json]) -> str:
    return next((one["throw"].get("error", "") for one in answers if "throw" in one), "")


def _simple(name: str, args: Json, text: Callable[[Json], str]) -> Tool:
    """A tool whose arguments and result the runtime has in the same form."""

    async def work(machine: Machine, id: str) -> Outcome:
        answers = await machine.execute(f"{name}_args", {**args, "tool_call_id": id})
        if error := _thrown(answers):
            return Outcome({"error": {"error": error}}, error)
        result = answers[-1][f"{name}_result"]
        return Outcome(result, text(result))

    return Tool(f"{name}_tool_call", args, work)


# --- commands --------------------------------------------------------------------------------------------


def _shell(args: Json) -> Tool:
    command = args["command"]

    async def work(machine: Machine, id: str) -> Outcome:
        about = {"command": command, "tool_call_id": id, "conversation_id": machine.conversation}
        if "workingDirectory" in args:
            about["working_directory"] = args["workingDirectory"]
        answers = await machine.execute("shell_stream_args", {**about, "timeout": 30000, "hard_timeout": 86400000})
        return _ran(command, answers)

    return Tool("shell_tool_call", {"command": command}, work)


def _ran(command: str, answers: list[Json]) -> Outcome:
    events = [one["shell_stream"] for one in answers if "shell_stream" in one]
    for kind in ("rejected", "permission_denied"):
        for event in events:
            if kind in event:
                about = event[kind]
                reason = about.get("reason") or about.get("error") or ""
                return Outcome({kind: about}, reason)
    if error := _thrown(answers):
        return Outcome({"spawn_error": {"command": command, "error": error}}, error)
    out, err = ("".join(event[name].get("data", "") for event in events if name in event) for name in _OUTPUTS)
    ends = [event["exit"] for event in events if "exit" in event]
    if not ends:
        return Outcome({"spawn_error": {"command": command, "error": "no exit"}}, "no exit")
    code = ends[-1].get("code", 0)
    spent = ends[-1].get("local_execution_time_ms", 0)
    result = {"command": command, "exit_code": code, "stdout": out, "stderr": err, "execution_time": spent}
    return Outcome({"failure" if code else "success": result}, out + err)


_OUTPUTS = ("stdout", "stderr")


# --- files -----------------------------------------------------------------------------------------------


async def _content(machine: Machine, id: str, path: str) -> tuple[Json, str | None, str]:
    """The runtime's answer, the file's text, and why there is none."""
    answers = await machine.execute("read_args", {"path": path, "tool_call_id": id})
    if error := _thrown(answers):
        return {}, None, error
    match answers[-1]["read_result"]:
        case {"success": success}:
            return success, success.get("content", ""), ""
        case {"file_not_found": _}:
            return {}, None, f"File not found: {path}"
        case other:
            ((kind, about),) = other.items()
            return {}, None, about.get("reason") or about.get("error") or kind


async def _read(machine: Machine, id: str, args: Json) -> Outcome:
    success, content, error = await _content(machine, id, args["path"])
    if content is None:
        return Outcome({"error": {"error_message": error}}, error)
    about = {"content": content, "total_lines": success.get("total_lines", 0), "file_size": success.get("file_size", 0)}
    return Outcome({"success": {**about, "path": args["path"]}}, content)


async def _edit(machine: Machine, id: str, path: str, after: str) -> Outcome:
    """A hook may refuse the reading, too: then the edit is refused."""
    _, before, error = await _content(machine, id, path)
    if before is None and not error.startswith("File not found"):
        return Outcome({"error": {"path": path, "error": error}}, error)
    answers = await machine.execute("write_args", {"path": path, "file_text": after, "tool_call_id": id})
    if error := _thrown(answers):
        return Outcome({"error": {"path": path, "error": error}}, error)
    match answers[-1]["write_result"]:
        case {"success": _}:
            pass
        case other:
            ((kind, about),) = other.items()
            error = about.get("reason") or about.get("error") or kind
            return Outcome({"error": {"path": path, "error": error}}, error)
    # A new file is told as one empty line that was replaced: seen in 2026.07.20.
    old, new = (before or "\n").splitlines(), after.splitlines()
    diff = list(unified_diff(old, new, "/dev/null" if before is None else f"a/{path}", f"b/{path}", lineterm=""))
    added, removed = (sum(line.startswith(sign) for line in diff[2:]) for sign in "+-")
    message = f"Wrote contents to {path}"
    about = {"path": path, "lines_added": added, "lines_removed": removed, "diff_string": "\n".join(diff)}
    whole = {"after_full_file_content": after, **({} if before is None else {"before_full_file_content": before})}
    return Outcome({"success": {**about, **whole, "message": message}}, message)


def _deleted(result: Json) -> str:
    ((kind, about),) = result.items()
    path = about.get("path", "")
    return {"success": f"Deleted {path}", "file_not_found": f"File not found: {path}"}.get(kind, str(about))


# --- searches --------------------------------------------------------------------------------------------


def _listed(result: Json) -> str:
    if "success" not in result:
        return str(next(iter(result.values())))
    root = result["success"].get("directory_tree_root", {})
    folders = [f"{os.path.basename(one['abs_path'])}/" for one in root.get("children_dirs", [])]
    return "\n".join(sorted([*folders, *(one.get("name", "") for one in root.get("children_files", []))]))


def _found(result: Json) -> str:
    if "success" not in result:
        return str(next(iter(result.values())))
    lines = [
        f"{file['file'].removeprefix('./')}:{match.get('line_number', 0)}:{match.get('content', '')}"
        for workspace in result["success"].get("workspace_results", {}).values()
        for file in workspace.get("content", {}).get("matches", [])
        for match in file.get("matches", [])
    ]
    return "\n".join(lines)


def _glob(args: Json) -> Tool:
    where, pattern = args.get("targetDirectory", ""), args["globPattern"]

    async def work(machine: Machine, id: str) -> Outcome:
        search = {"pattern": "", "glob": pattern, "path": where, "output_mode": "files_with_matches"}
        answers = await machine.execute("grep_args", {**search, "tool_call_id": id})
        if error := _thrown(answers):
            return Outcome({"error": {"error": error}}, error)
        result = answers[-1]["grep_result"]
        if "success" not in result:
            return Outcome(result, str(result))
        found = [
            file.removeprefix("./")
            for workspace in result["success"].get("workspace_results", {}).values()
            for file in workspace.get("files", {}).get("files", [])
        ]
        about = {"pattern": pattern, "path": where, "files": found, "total_files": len(found)}
        return Outcome({"success": about}, "\n".join(found))

    return Tool("glob_tool_call", {"target_directory": where, "glob_pattern": pattern}, work)


# --- MCP, the web, sub-agents ------------------------------------------------------------------------------


def _mcp(name: str, args: Json, provider: str) -> Tool:
    about = {"name": f"{provider}-{name}", "args": args, "provider_identifier": provider, "tool_name": name}

    async def work(machine: Machine, id: str) -> Outcome:
        answers = await machine.execute("mcp_args", {**about, "tool_call_id": id})
        if error := _thrown(answers):
            return Outcome({"error": {"error": error}}, error)
        match answers[-1]["mcp_result"]:
            case {"success": success}:
                texts = [one.get("text", {}).get("text", "") for one in success.get("content", [])]
                return Outcome({"success": success}, "\n".join(texts))
            case other:
                ((kind, told),) = other.items()
                error = told.get("error") or told.get("reason") or kind
                return Outcome({"error": {"error": error}}, error)

    return Tool("mcp_tool_call", about, work)


async def _fetch(machine: Machine, url: str) -> Outcome:
    """Done by Cursor's servers; the runtime is asked whether it may be."""
    answer = await machine.ask("web_fetch_request_query", {"args": {"url": url}})
    if "approved" not in answer.get("web_fetch_request_response", {}):
        return Outcome({"rejected": {"reason": "User Rejected"}}, "User Rejected")
    return Outcome({"success": {"url": url, "markdown": "# A page\n"}}, "# A page\n")


async def _task(machine: Machine, id: str, prompt: str) -> Outcome:
    """A sub-agent, which the runtime runs with a stream of its own."""
    args = {"tool_call_id": id, "subagent_type": "generalPurpose", "prompt": prompt}
    answers = await machine.execute("subagent_args", {**args, "parent_conversation_id": machine.conversation})
    if error := _thrown(answers):
        return Outcome({"error": {"error": error}}, error)
    match answers[-1]["subagent_result"]:
        case {"success": success}:
            said = success.get("final_message", "")
            return Outcome({"success": {"agent_id": success.get("agent_id", "")}}, said)
        case other:
            return Outcome({"error": {"error": str(other)}}, str(other))
