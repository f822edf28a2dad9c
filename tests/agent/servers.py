"""A turn in; the tools of its MCP servers, and calls of them, out.

A server is used only if `--approve-mcps` was given; a call needs --force or a rule Mcp(server:tool), and is rejected
in the modes that change nothing. What is denied stays denied.
"""

import json

from tests.agent.emitter import Call, Record
from tests.agent.mcp_client import McpClient, McpFailure, configured
from tests.agent.natives import NOT_AVAILABLE, Job, Outcome
from tests.agent.turn import Turn, call_id


class NoTool(Exception):
    """No server has it; says which servers could not be asked."""


class Servers:
    """Connected at the first need, and listed once."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._addresses = configured(turn.workspace, turn.configuration)
        self._connected = False
        self._found: list[tuple[McpClient, Record]] = []
        self._open: list[McpClient] = []
        self._failed: list[str] = []

    def tools(self) -> list[Record]:
        """As `tools/list` has them, of all servers."""
        self._connect()
        return [tool for _, tool in self._found]

    def job(self, tool: str, arguments: Record) -> Job:
        if not self._turn.approves_servers and self._addresses:
            said = f'MCP server "{self._addresses[0].name}" has not been approved'
            refused = Outcome({"error": {"error": said}}, said)
            return Job(self._call(self._addresses[0].name, tool, arguments), lambda: refused)
        self._connect()
        client = next((client for client, known in self._found if known.get("name") == tool), None)
        if client is None:
            raise NoTool("; ".join([f"no tool {tool}", *self._failed]))
        server = client.name
        return Job(
            self._call(server, tool, arguments),
            lambda: self._refusal(server, tool) or _called(client, tool, arguments),
        )

    def close(self) -> None:
        for client in self._open:
            client.close()

    def _call(self, server: str, tool: str, arguments: Record) -> Call:
        id = call_id(self._turn.model)
        args: Record = {"name": f"{server}-{tool}", "args": arguments, "toolCallId": id}
        return Call("mcp", id, {**args, "providerIdentifier": server, "toolName": tool})

    def _refusal(self, server: str, tool: str) -> Outcome | None:
        turn = self._turn
        if not turn.tools.has("mcp"):
            return _rejected(NOT_AVAILABLE)
        if turn.read_only or not turn.permissions.permits("Mcp", f"{server}:{tool}"):
            return _rejected(f"MCP tool execution rejected by user: {server}-{tool} ")
        return None

    def _connect(self) -> None:
        if self._connected or not self._turn.approves_servers:
            return
        self._connected = True
        knobs = self._turn.knobs
        for address in self._addresses:
            client = McpClient(
                address,
                seconds=knobs.number("mcp_seconds", 60),
                asks_for_progress=knobs.flag("mcp_progress", "1"),
                waits_longer=knobs.flag("mcp_reset_on_progress", "1"),
                listens=knobs.flag("mcp_listens", "1"),
            )
            try:
                client.open()
                self._open.append(client)
                self._found += [(client, tool) for tool in client.tools()]
            except McpFailure as failure:
                self._failed.append(f"{address.name}: {failure}")


def _rejected(reason: str) -> Outcome:
    return Outcome({"rejected": {"reason": reason, "isReadonly": False}}, reason)


def _called(client: McpClient, tool: str, arguments: Record) -> Outcome:
    try:
        result = client.call(tool, arguments)
    except McpFailure as failure:
        return Outcome({"error": {"error": str(failure)}}, str(failure))
    content = result.get("content")
    items = content if isinstance(content, list) else []
    success: Record = {"content": [_item(one) for one in items], "isError": result.get("isError") is True}
    return Outcome({"success": success}, "\n".join(map(_text, items)))


def _item(content: object) -> Record:
    match content:
        case {"type": "image", "data": str(data), "mimeType": str(kind)}:
            return {"image": {"data": data, "mimeType": kind}}
        case _:
            return {"text": {"text": _text(content)}}


def _text(content: object) -> str:
    match content:
        case {"type": "text", "text": str(text)} | {"type": "resource", "resource": {"text": str(text)}}:
            return text
        case {"type": "image", "data": str(data), "mimeType": str(kind)}:
            return f"[{kind}, {len(data)} letters of base64]"
        case _:
            return json.dumps(content)
