"""Custom tools that the host offers in; calls of them, held open as long as the host likes, out.

The bridge shows them to its agent as a server of this name, and posts each call to the host.
"""

import http.client
import json
from typing import Any
from urllib.parse import urlsplit

from tests.agent.emitter import Call, Record
from tests.agent.natives import Job, Outcome
from tests.agent.program import Player, _progress
from tests.agent.servers import NoTool, Servers, _item, _text
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
        if tool not in self._definitions or not self._turn.tools.has("mcp"):
            raise NoTool(f"no tool {tool}")
        id = call_id(self._turn.model)
        args: Record = {"args": arguments, "providerIdentifier": SERVER, "toolName": tool}
        return Job(Call("mcp", id, args), lambda: self._called(tool, arguments, id))

    def close(self) -> None:
        pass

    def _called(self, tool: str, arguments: Record, id: str) -> Outcome:
        assert self._callback is not None, "the host offers tools, and does not say where"
        request: Record = {"agentId": self._turn.agent.session, "toolName": tool, "args": arguments, "toolCallId": id}
        try:
            result = self._callback.call(request)
        except (OSError, http.client.HTTPException) as error:
            return Outcome({"error": {"error": str(error)}}, str(error))
        items = result.get("content", [])
        success: Record = {"content": [_item(one) for one in items], "isError": result.get("isError") is True}
        return Outcome({"success": success}, "\n".join(map(_text, items)))


class BridgePlayer(Player):
    def __init__(self, turn: Turn, definitions: dict[str, Any], callback: Callback | None) -> None:
        super().__init__(turn, _progress(turn))
        self._tools = CustomTools(turn, definitions, callback)

    @property
    def _servers(self) -> Servers:
        return self._tools


def play_program(turn: Turn, definitions: dict[str, Any], callback: Callback | None) -> int | None:
    player = BridgePlayer(turn, definitions, callback)
    player._progress.keep(turn)
    turn.begin()
    status = player.play()
    if status is None:
        turn.finish()
    return status
