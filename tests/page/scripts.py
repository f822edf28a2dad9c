"""What an agent does, with gates in between, in; a file that the player plays, and its prompt, out."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, TypeAlias

from cursor_gateway.demo import recordings
from tests.agent.actions import SKIPPED
from tests.agent.emitter import Call, Emitter, Record
from tests.agent.natives import Ran, edit_result, read_result, shell_result

Status: TypeAlias = Literal["PENDING", "IN_PROGRESS", "COMPLETED"]

_SESSION = "00000000-0000-4000-8000-000000000000"


class Script:
    """Its steps are written when they are called; `prompt` makes the stand-in play them."""

    def __init__(self, folder: Path, name: str = "script") -> None:
        self._folder, self._name = folder, name
        self._lines: list[bytes] = []
        self._calls = 0
        self.agent = Emitter(self._lines.append, print, _SESSION, format="stream-json", partial=True)

    # --- what the agent does --------------------------------------------------------------------------

    def say(self, *deltas: str) -> "Script":
        for delta in deltas:
            self.agent.say(delta)
        return self

    def call(self, tool: str, args: Record, result: Record, *, gate: str = "", query: str = "") -> "Script":
        """With a gate, the call goes on until that is opened. With a query, the program asks itself first."""
        self._calls += 1
        call = Call(tool, f"tool_{self._calls:08}", args)
        if query:
            self.agent.ask(query, {"args": args, "toolCallId": call.id}, {"result": result})
        self.agent.start(call)
        if gate:
            self.gate(gate)
        self.agent.complete(call, result)
        return self

    def read(self, path: str, content: str, *, gate: str = "") -> "Script":
        return self.call("read", {"path": path}, read_result(path, content), gate=gate)

    def edit(self, path: str, before: str, after: str) -> "Script":
        return self.call("edit", {"path": path, "streamContent": after}, edit_result(path, before, after))

    def shell(self, command: str, output: str, *, gate: str = "") -> "Script":
        args: Record = {"command": command, "workingDirectory": "", "timeout": 30000, "description": "Run it"}
        return self.call("shell", args, shell_result(command, Ran(0, output, "")), gate=gate)

    def plan(self, name: str, todos: Iterable[tuple[str, str]]) -> "Script":
        args: Record = {
            "plan": f"# {name}\n\nStep by step.\n",
            "todos": [_todo(id, content, "PENDING") for id, content in todos],
            "overview": "One after the other",
            "name": name,
            "isProject": False,
            "phases": [],
        }
        made: Record = {"success": {}, "planUri": ""}
        return self.call("createPlan", args, made, query="createPlanRequestQuery")

    def todos(self, *todos: tuple[str, str, Status]) -> "Script":
        reply = [_todo(*todo) for todo in todos]
        done: Record = {"success": {"todos": reply, "totalCount": len(reply), "wasMerge": True}}
        return self.call("updateTodos", {"todos": reply, "merge": True}, done)

    def question(self, text: str, *options: str) -> "Script":
        choices = [{"id": option, "label": option} for option in options]
        asked: Record = {"id": "q", "prompt": text, "options": choices, "allowMultiple": False}
        args: Record = {"title": "A question", "questions": [asked], "runAsync": False, "asyncOriginalToolCallId": ""}
        skipped: Record = {"rejected": {"reason": SKIPPED}}
        return self.call("askQuestion", args, skipped, query="askQuestionInteractionQuery")

    # --- when it goes on ------------------------------------------------------------------------------

    def gate(self, name: str) -> "Script":
        """The agent waits here until the gate is opened."""
        self._lines.append(json.dumps({"wait": str(self._gate(name))}).encode() + b"\n")
        return self

    def open(self, name: str) -> None:
        self._gate(name).touch()

    def _gate(self, name: str) -> Path:
        return self._folder / f"{self._name}.{name}.open"

    # --- what is asked for ----------------------------------------------------------------------------

    def prompt(self, words: str = "Go on, please.") -> str:
        """Writes the file."""
        self.agent.finish({"inputTokens": 1200, "outputTokens": 345, "cacheReadTokens": 0, "cacheWriteTokens": 0})
        return self._written(words)

    def unfinished_prompt(self, words: str = "Go on, please.") -> str:
        """Of an agent that ends without a result."""
        return self._written(words)

    def _written(self, words: str) -> str:
        file = self._folder / f"{self._name}.ndjson"
        file.write_bytes(b"".join(self._lines))
        return f"{words} standin: play file={file}"

    def demo(self, name: str, gates: dict[int, str]) -> "Script":
        """A built-in recording, with gates before its lines of those numbers. It has its own end."""
        for number, line in enumerate(recordings()[name].splitlines(keepends=True)):
            if number in gates:
                self.gate(gates[number])
            if b'"type":"system"' not in line and b'"type":"user"' not in line:
                self._lines.append(line)
        return self


def _todo(id: str, content: str, status: Status) -> Record:
    stamps = {"createdAt": "1791066622985", "updatedAt": "1791066622985"}
    return {"id": id, "content": content, "status": f"TODO_STATUS_{status}", **stamps, "dependencies": []}
