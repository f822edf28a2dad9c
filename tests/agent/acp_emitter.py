"""What the agent says and does in; session updates and requests of the Agent Client Protocol out.

Shapes are those of shared/captures/2026.10.01-acp-*.jsonl: searches and edits start without arguments, which follow in
an update; few results say more than that there is one.
"""

import re
import threading
from collections.abc import Callable

from tests.agent.config import Permissions
from tests.agent.emitter import Call, Emitter, Record, to_line

TYPE_CHECKING = False  # as in `typing`, whose import takes long
if TYPE_CHECKING:
    from tests.agent.acp import Session

_KINDS = {
    "shell": "execute", "read": "read", "edit": "edit", "write": "edit", "delete": "delete",
    "grep": "search", "glob": "search", "ls": "search", "webFetch": "fetch",
}  # fmt: skip
_TITLES = {"updateTodos": "Update TODOs", "createPlan": "Create Plan", "askQuestion": "Ask Question"}
_FIRST_TITLES = {"grep": "grep", "glob": "Find", "edit": "Edit File", "write": "Edit File"}
_GIVEN = {
    "grep": ("pattern", "path"),
    "glob": ("globPattern", "targetDirectory"),
    "edit": ("path",),
    "write": ("path",),
}


class Stopped(BaseException):
    """The client has cancelled the turn."""


class AcpEmitter(Emitter):
    def __init__(self, session: "Session", prompt_id: object, write: Callable[[bytes], None]) -> None:
        super().__init__(write, lambda text: None, session.id, format="stream-json", partial=True)
        self._of = session
        self._prompt_id = prompt_id
        self._lock = threading.Lock()
        self._calls: dict[str, Call] = {}
        self.is_stopped = False
        self.is_answered = False
        self.has_begun = False

    # messages

    def update(self, update: Record) -> None:
        with self._lock:  # so that nothing follows the answer to the prompt
            if self.is_stopped:
                raise Stopped
            self._of.server.send("session/update", {"sessionId": self._of.id, "update": update})

    def answer(self, **answer: object) -> None:
        with self._lock:
            if not self.is_answered:
                self.is_answered = True
                self._of.server.reply(self._prompt_id, answer)

    def stop(self) -> None:
        self.is_stopped = True
        self.answer(result={"stopReason": "cancelled"})

    # what scenarios use

    def begin(self, cwd: str, key_source: str, model: str, prompt: str) -> None:
        self.has_begun = True
        title = " ".join(prompt.strip().partition("\n")[0].split()[:5]).title() or "Okay"
        self.update({"sessionUpdate": "session_info_update", "title": title})

    def say(self, delta: str) -> None:
        self.said += delta
        self._chunk("agent_message_chunk", delta)

    def think(self, delta: str) -> None:
        self._chunk("agent_thought_chunk", delta)

    def stop_thinking(self) -> None:
        pass

    def start(self, call: Call) -> None:
        self._calls[call.id] = call
        about = self.described(call)
        begun = {**about, "title": _FIRST_TITLES.get(call.tool, about["title"])}
        self.update({"sessionUpdate": "tool_call", **begun, "status": "pending", **_given(call)})
        if call.tool in _FIRST_TITLES:
            later: Record = {name: call.args[name] for name in _GIVEN[call.tool] if name in call.args}
            told = {"toolCallId": call.id, "title": about["title"], "rawInput": later}
            self.update({"sessionUpdate": "tool_call_update", **told})
        if call.tool not in (*_TITLES, "shell", "mcp"):  # these may need permission first
            self.proceed(call)

    def proceed(self, call: Call) -> None:
        self.update({"sessionUpdate": "tool_call_update", "toolCallId": call.id, "status": "in_progress"})

    def complete(self, call: Call, result: Record) -> None:
        self._calls.pop(call.id, None)
        end: Record = {"sessionUpdate": "tool_call_update", "toolCallId": call.id, "status": "completed"}
        self.update({**end, **_result(call, result)})
        if call.tool == "updateTodos":
            todos = call.args["todos"]
            assert isinstance(todos, list)
            reply = [{**todo, "status": str(todo["status"]).removeprefix("TODO_STATUS_").lower()} for todo in todos]
            self._of.server.ask("cursor/update_todos", {"toolCallId": call.id, "todos": reply, "merge": False})
            self.entries(reply)

    def reject(self, call: Call, rejected: Record) -> None:
        """Nothing says so."""
        if call.id not in self._calls:
            self.start(call)
        self._calls.pop(call.id)
        self.update({"sessionUpdate": "tool_call_update", "toolCallId": call.id, "status": "completed"})

    def ask(self, name: str, query: Record, answer: Record) -> None:
        pass  # the program's question to itself; questions to the client are in `acp_scenarios`

    def lose_connection(self, attempt: int) -> None:
        pass

    def reconnect(self) -> None:
        pass

    def retry(self, attempt: int, *, resumes: bool) -> None:
        pass

    def finish(self, usage: Record | None, *, end: bytes = b"\n") -> None:
        reply: Record = {"stopReason": self._of.server.knobs.text("acp_stop", "end_turn")}
        if self._of.server.knobs.flag("acp_usage"):
            self._of.spent += 100
            reply["usage"] = {"inputTokens": self._of.spent, "outputTokens": 7, "totalTokens": self._of.spent + 7}
        self.answer(result=reply)

    def fail_result(self, message: str) -> None:
        self.fail(message)
        self.finish(None)

    def fail(self, message: str) -> None:
        """A failure is the last thing that is said."""
        self.say(f"\n\nError: {message.removeprefix('Error: ')}")

    def record(self, record: object) -> None:
        assert isinstance(record, dict)
        self._write(to_line(record))

    def raw(self, data: bytes) -> None:
        self._write(data)

    # calls

    def entries(self, todos: list[Record]) -> None:
        reply = [{"content": todo["content"], "priority": "medium", "status": todo["status"]} for todo in todos]
        self.update({"sessionUpdate": "plan", "entries": reply})

    def described(self, call: Call) -> Record:
        title = _TITLES.get(call.tool, call.tool)
        if call.tool == "shell":
            title = f"`{call.args['command']}`"
        elif call.tool == "mcp":
            title = f"{call.args['name']}: {call.args['toolName']}"
        elif call.tool == "read":
            title = f"Read {str(call.args['path']).rpartition('/')[2]}"
        elif call.tool == "grep":
            title = f'grep "{call.args["pattern"]}"'
        elif call.tool == "glob":
            title = f"Find `{call.args['globPattern']}`"
        elif call.tool == "webFetch":
            title = f"Fetch {call.args['url']}"
        elif "path" in call.args:
            title = f"{'Edit' if call.tool == 'write' else call.tool.capitalize()} `{call.args['path']}`"
        return {"toolCallId": call.id, "title": title, "kind": _KINDS.get(call.tool, "other")}

    def open_call(self, tool: str, subject: str) -> Call | None:
        """The latest of that tool whose arguments name the subject."""
        calls = [call for call in self._calls.values() if call.tool == tool]
        naming = [call for call in calls if subject in str(call.args.get("command", call.args.get("name", "")))]
        return next(reversed(naming or calls), None)

    def _chunk(self, name: str, text: str) -> None:
        self.update({"sessionUpdate": name, "content": {"type": "text", "text": text}})


class AcpPermissions(Permissions):
    """What no rule decides is asked of the client."""

    def __init__(self, rules: Permissions, emitter: AcpEmitter, session: "Session") -> None:
        super().__init__(rules._allow, rules._deny, rules.unrestricted)
        self._emitter, self._session = emitter, session

    def permits(self, kind: str, subject: str) -> bool:
        is_allowed = Permissions.permits(self, kind, subject)
        if kind != "Mcp":
            return is_allowed
        tool = subject.partition(":")[2]
        is_allowed = is_allowed or (not self.denies(kind, subject) and self._ask("mcp", tool, "```json\n{}\n```"))
        return self._proceeds("mcp", tool, is_allowed)

    def permits_shell(self, commands: list[str]) -> bool:
        if not commands or any(self.denies("Shell", command) for command in commands):
            return False
        unknown = [command for command in commands if not Permissions.permits(self, "Shell", command)]
        names = ", ".join(dict.fromkeys(command.split()[0] for command in unknown))
        is_allowed = not unknown or self._ask("shell", commands[0], f"Not in allowlist: {names}")
        return self._proceeds("shell", commands[0], is_allowed)

    def _proceeds(self, tool: str, subject: str, is_allowed: bool) -> bool:
        call = self._emitter.open_call(tool, subject)
        if is_allowed and call is not None:
            self._emitter.proceed(call)
        return is_allowed

    def _ask(self, tool: str, subject: str, reason: str) -> bool:
        call = self._emitter.open_call(tool, subject)
        if call is None:
            return False
        return is_permitted(self._session, self._emitter.described(call), reason)


def is_permitted(session: "Session", call: Record, reason: str) -> bool:
    content = [{"type": "content", "content": {"type": "text", "text": reason}}]
    options = [
        {"optionId": f"{kind}-{how}", "name": name, "kind": f"{kind}_{how}"}
        for kind, how, name in (
            ("allow", "once", "Allow once"),
            ("allow", "always", "Allow always"),
            ("reject", "once", "Reject"),
        )
    ]
    about: Record = {**call, "status": "pending", "content": content}
    params: Record = {"sessionId": session.id, "toolCall": about, "options": options}
    match session.server.ask("session/request_permission", params):
        case {"outcome": {"outcome": "selected", "optionId": "allow-once" | "allow-always"}}:
            return True
        case _:
            return False


def _given(call: Call) -> Record:
    """What a call says when it starts."""
    args = {name: value for name, value in call.args.items() if name != "toolCallId"}
    match call.tool:
        case "grep" | "glob" | "edit" | "write":
            return {"rawInput": {}}
        case "shell":
            return {"rawInput": {"command": args["command"]}}
        case "read":
            return {"rawInput": {"path": args["path"]}, "locations": [{"path": args["path"]}]}
        case "mcp" | "webFetch" | "delete" | "ls":
            return {"rawInput": args}
        case "updateTodos" | "askQuestion":
            return {"rawInput": {"_toolName": call.tool}}
        case _:
            return {"rawInput": {"_toolName": call.tool, **args}}


def _result(call: Call, result: Record) -> Record:
    """What is left of a result. Whatever failed is completed, too."""
    value = result.get("success")
    if call.tool == "edit" and isinstance(value, dict):
        return {"content": [_diff(value)]}
    if call.tool == "shell":
        value = value or result.get("failure")
        if isinstance(value, dict):
            return {"rawOutput": {name: value[name] for name in ("exitCode", "stdout", "stderr")}}
    match call.tool, value:
        case "read", {"content": content}:
            return {"rawOutput": {"content": content}}
        case "grep", {}:
            return {"rawOutput": {"totalMatches": str(value).count("lineNumber"), "truncated": False}}
        case "glob", {"totalFiles": total}:
            return {"rawOutput": {"totalFiles": total, "truncated": False}}
        case _, dict():
            return {"rawOutput": value}
        case _:
            pass
    for name, reply in result.items():
        if name not in ("rejected", "permissionDenied", "writePermissionDenied") and isinstance(reply, dict):
            return {"rawOutput": {"error": reply.get("error") or reply.get("errorMessage") or name}}
    return {}


def _diff(edited: Record) -> Record:
    """Whole files. Of a new one, its patch's lines without their first letter, and those of the header."""
    old, new = edited.get("beforeFullFileContent"), edited["afterFullFileContent"]
    if old is None:
        lines = [line for line in str(edited["diffString"]).split("\n") if not re.match("@@", line)]
        old, new = ("\n".join(line[1:] for line in lines if line.startswith(sign)) for sign in "-+")
    return {"type": "diff", "path": edited["path"], "oldText": old, "newText": new}
