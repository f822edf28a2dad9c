"""A recording of an ACP session in; the agent's side of it, played to whoever is the client, out.

A recording has one message in a line: `{"dir", "msg"}` with `c2a` or `out` for the client's messages and `a2c` or `in`
for the agent's, or the agent's messages alone. The client must send the requests of `AWAITED` in the recorded order.
What it asks besides (its mode, its model, whether the agent is alive) is answered as an agent with the recorded options
would.
"""

import json
import os
from itertools import count

from tests.agent.emitter import Record, to_line

AWAITED = ("initialize", "session/new", "session/load", "session/prompt")
_OF_CLIENTS, _OF_AGENTS = ("c2a", "out"), ("a2c", "in")


def messages_of(lines: list[str]) -> list[tuple[bool, Record]]:
    """Each message, and whether it is the client's."""
    found: list[tuple[bool, Record]] = []
    for line in lines:
        record = json.loads(line)
        if "dir" not in record:
            found.append((False, record))
        elif record["dir"] in (*_OF_CLIENTS, *_OF_AGENTS):
            found.append((record["dir"] in _OF_CLIENTS, record["msg"]))
    return found


class Player:
    def __init__(self, path: str) -> None:
        with open(path, encoding="utf-8") as file:
            self._messages = messages_of([line for line in file if line.strip()])
        self._lines: list[bytes] = []
        self._rest = b""
        self._ids: dict[object, object] = {}  # of the client's requests: recorded -> real
        self._unanswered: list[object] = []  # where only the agent's messages were recorded
        self._answered: set[object] = set()  # requests of ours
        self._options: list[Record] = []
        self._has_client = any(is_clients for is_clients, _ in self._messages)

    def play(self) -> int:
        for number, (is_clients, message) in enumerate(self._messages):
            match message:
                case {"method": method, "id": id} if is_clients and method in AWAITED:
                    self._ids[id] = self._wait_for(str(method))
                case {"method": "session/cancel"} if is_clients:
                    self._wait_for("session/cancel")
                case {"method": _}:
                    if not is_clients:
                        self._write(message)
                case {"id": id} if is_clients:
                    while id not in self._answered:
                        self._receive()
                case {"id": id} if not self._has_client:
                    while not self._unanswered:
                        self._receive(keeps=True)
                    self._write({**message, "id": self._unanswered.pop(0)})
                case {"id": id} if id in self._ids:
                    self._note(message)
                    self._write({**message, "id": self._ids[id]})
                case _:
                    assert "id" in message, f"line {number + 1} is no message"
        while True:  # such an agent does not end with its input
            self._receive()

    def _wait_for(self, method: str) -> object:
        while True:
            message = self._receive(awaited=method)
            if message is not None:
                return message.get("id")

    def _receive(self, *, awaited: str = "", keeps: bool = False) -> Record | None:
        """Reads one message; answers it unless it is the awaited one, or is kept."""
        while not self._lines:
            piece = os.read(0, 65536)
            if not piece:
                os._exit(0)
            *self._lines, self._rest = (self._rest + piece).split(b"\n")
        message: Record = json.loads(self._lines.pop(0))
        match message:
            case {"method": method} if method == awaited:
                return message
            case {"method": _, "id": id} if keeps or not self._has_client:
                self._unanswered.append(id)
            case {"method": method, "id": id, "params": dict(params)}:
                self._write({"jsonrpc": "2.0", "id": id, **self._answer(str(method), params)})
            case {"id": id}:
                self._answered.add(id)
            case _:
                pass
        return None

    def _answer(self, method: str, params: Record) -> Record:
        match method, params:
            case "session/set_mode", _:
                return {"result": {}}
            case "session/list", _:
                return {"result": {"sessions": []}}
            case "session/set_config_option", {"configId": name, "value": value}:
                option = next((option for option in self._options if option.get("id") == name), None)
                values = option.get("options") if option is not None else None
                if isinstance(values, list) and value not in [one.get("value") for one in values]:
                    invalid = {"code": -32602, "message": "Invalid params", "data": {"message": f"Invalid: {value}"}}
                    return {"error": invalid}
                if option is not None:
                    option["currentValue"] = value
                return {"result": {"configOptions": self._options}}
            case _:
                return {"error": {"code": -32601, "message": "Method not found"}}

    def _note(self, message: Record) -> None:
        match message:
            case {"result": {"configOptions": list(options)}}:
                self._options = options
            case _:
                pass

    def _write(self, message: Record) -> None:
        data = to_line(message)
        while data:
            data = data[os.write(1, data) :]


def whole_session(lines: list[str]) -> list[tuple[bool, Record]]:
    """Single messages as one turn of a session, each request with an id of its own and its answer after it."""
    ids = count(100)
    hello: Record = {"protocolVersion": 1, "agentCapabilities": {}, "authMethods": []}
    session: Record = {"sessionId": "s", "modes": {"currentModeId": "agent"}, "configOptions": []}
    found: list[tuple[bool, Record]] = []
    for id, method, result in ((1, "initialize", hello), (2, "session/new", session), (3, "session/prompt", None)):
        found.append((True, {"id": id, "method": method}))
        found += [(False, {"jsonrpc": "2.0", "id": id, "result": result})] if result is not None else []
    for is_clients, message in messages_of(lines):
        params = message.get("params")
        if is_clients or "method" not in message or not isinstance(params, dict):
            continue
        if "sessionId" in params or message["method"] == "session/update":
            message = {**message, "params": {**params, "sessionId": "s"}}
        if "id" in message:
            message = {**message, "id": next(ids)}
        found.append((False, message))
        found += [(True, {"id": message["id"], "result": {}})] if "id" in message else []
    return [*found, (False, {"jsonrpc": "2.0", "id": 3, "result": {"stopReason": "end_turn"}})]
