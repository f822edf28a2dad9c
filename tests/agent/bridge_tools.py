"""Custom tools that the host offers in; calls of them, held open as long as the host likes, out.

The bridge shows them to its agent as a server of this name, and posts each call to the host.
"""

import http.client
import json
from typing import Any
from urllib.parse import urlsplit

from tests.agent.bridge_emitter import BridgeEmitter
from tests.agent.emitter import Call, Record
from tests.agent.failures import Failure
from tests.agent.natives import Job, Outcome
from tests.agent.program import Player, _progress
from tests.agent.servers import NoTool, Servers, _item, _text, tool_named
from tests.agent.sessions import new_id
from tests.agent.turn import Turn, call_id

SERVER = "custom-user-tools"
_METHOD = "sdk.v1.SdkCustomToolCallbackService/CallCustomTool"


class Callback:
    """Where the host is to be called."""

    def __init__(self, url: str, token: str) -> None:
        self.url, self.token = url, token

    def call(self, request: Record) -> dict[str, Any]:
        """Without any time limit. Raises `OSError` or `HTTPException` where the host is gone."""
        place = urlsplit(self.url)
        connection = http.client.HTTPConnection(place.hostname or "", place.port)
        headers = {
            "Authorization": f"Bearer {self.token}",
            "Connect-Protocol-Version": "1",
            "Content-Type": "application/json",
        }
        try:
            connection.request("POST", f"{place.path.rstrip('/')}/{_METHOD}", json.dumps(request), headers)
            answer = connection.getresponse()
            body = json.loads(answer.read())
        finally:
            connection.close()
        if answer.status != 200:
            raise http.client.HTTPException(body.get("message", "no reason"))
        result = body.get("result", {})
        return result if isinstance(result, dict) else {}


class CustomTools(Servers):
    def __init__(self, turn: Turn, definitions: dict[str, Any], callback: Callback | None) -> None:
        self._turn, self._definitions, self._callback = turn, definitions, callback

    def tools(self) -> list[Record]:
        return [{"name": name, **definition} for name, definition in self._definitions.items()]

    def job(self, tool: str, arguments: Record) -> Job:
        tool = tool_named(tool, self._definitions)
        if tool not in self._definitions or not self._turn.tools.has("mcp"):
            raise NoTool(f"no tool {tool}")
        id = call_id(self._turn.model)
        args: Record = {"args": arguments, "providerIdentifier": SERVER, "toolName": tool}
        return Job(Call("mcp", id, args), lambda: self._called(tool, arguments, id))

    def close(self) -> None:
        pass

    def _called(self, tool: str, arguments: Record, id: str) -> Outcome:
        assert self._callback is not None, "the host offers tools, and does not say where"
        if reason := self._turn.blocked(f"MCP:{tool}", arguments):
            return Outcome({"permissionDenied": {"error": reason, "isReadonly": False}}, reason)
        request: Record = {"agentId": self._turn.agent.session, "toolName": tool, "args": arguments, "toolCallId": id}
        try:
            result = self._callback.call(request)
        except (OSError, http.client.HTTPException) as error:
            return Outcome({"error": {"error": str(error)}}, str(error))
        items = result.get("content", [])
        success: Record = {"content": [_item(one) for one in items], "isError": result.get("isError") is True}
        return Outcome({"success": success}, "\n".join(map(_text, items)))


_STEPS = frozenset(
    ["checkpoint", "cut", "fail", "native", "notice", "plan", "question", "summary", "todos", "usage", "web"]
)


class BridgePlayer(Player):
    """Also plays most of the steps that tests.backend.stream adds: what the runtime tells of them."""

    def __init__(self, turn: Turn, definitions: dict[str, Any], callback: Callback | None) -> None:
        super().__init__(turn, _progress(turn, _STEPS))
        self._tools = CustomTools(turn, definitions, callback)
        self.usage: Record | None = None

    def _own_step(self, step: Record) -> bool:
        turn = self._turn
        match step:
            case {"todos": list(todos)}:
                items = [{"content": text, "status": f"TODO_STATUS_{status}"} for text, status in todos]
                turn.use(
                    turn.call("updateTodos", {"todos": items}), {"success": {"todos": items, "totalCount": len(items)}}
                )
            case {"plan": str(plan)}:
                turn.use(turn.call("createPlan", {"plan": plan}), {"success": {}})
            case {"native": "task", "args": {"steps": steps}}:
                prompt = f"standin: program\n---\n{json.dumps(steps)}"
                args: Record = {"description": "A task", "prompt": prompt, "mode": "agent"}
                about: Record = {"agentId": new_id(), "backgroundReason": "unspecified", "isBackground": False}
                turn.use(turn.call("task", args), {"success": about})
            case {"notice": str(text)}:
                turn.agent.say(text)
            case {"summary": str(text)}:
                assert isinstance(turn.agent, BridgeEmitter)
                turn.agent.message("task", text=text)
            case {"usage": dict(usage)}:
                self.usage = {_camel(name): value for name, value in usage.items()}
            case {"fail": str(code)}:
                words = [str(step[name]) for name in ("title", "detail") if step.get(name)]
                raise Failure(" ".join(words) or f"[{code}] {step.get('message', '')}", 1)
            case {"checkpoint": _} | {"cut": _} | {"question": _} | {"web": _}:
                pass  # nothing is told
            case _:
                return False
        return True

    @property
    def _servers(self) -> Servers:
        return self._tools


def play_program(turn: Turn, definitions: dict[str, Any], callback: Callback | None) -> int | None:
    player = BridgePlayer(turn, definitions, callback)
    player._progress.keep(turn)
    turn.begin()
    status = player.play()
    if status is None:
        turn.finish(player.usage)
    return status


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
