"""A turn in; the tools of its MCP servers, and calls of them, out.

A server is used only if `--approve-mcps` was given, or if a plugin has it; a call needs --force or a rule
Mcp(server:tool), and is rejected in the modes that change nothing. What is denied stays denied.
"""

import json
from _collections_abc import Collection  # without `collections`, which takes longer

from tests.agent.emitter import Call, Record
from tests.agent.mcp_client import McpClient, McpFailure, configured, of_plugin
from tests.agent.natives import NOT_AVAILABLE, Job, Outcome
from tests.agent.turn import Turn, call_id


def tool_named(name: str, known: Collection[str]) -> str:
    """A model reads the list, and takes the gateway's tool for questions, whose name ends as nobody can guess."""
    if name != "ask_user" or name in known:
        return name
    return next((one for one in known if one.startswith("ask_user_")), name)


class NoTool(Exception):
    """No server has it; says which servers could not be asked."""


class Servers:
    """Connected at the first need, and listed once."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        found = configured(turn.workspace, turn.configuration)
        plugged = [address for plugin in turn.plugins for address in of_plugin(plugin)]
        self._addresses = [*found, *plugged] if turn.approves_servers else plugged
        self._not_approved = "" if turn.approves_servers or not found else found[0].name
        self._connected = False
        self._found: list[tuple[McpClient, Record]] = []
        self._open: list[McpClient] = []
        self._failed: list[str] = []

    def tools(self) -> list[Record]:
        """As `tools/list` has them, of all servers."""
        self._connect()
        return [tool for _, tool in self._found]

    def job(self, tool: str, arguments: Record) -> Job:
        self._connect()
        tool = tool_named(tool, [str(known.get("name")) for _, known in self._found])
        client = next((client for client, known in self._found if known.get("name") == tool), None)
        if client is None and self._not_approved:
            said = f'MCP server "{self._not_approved}" has not been approved'
            refused = Outcome({"error": {"error": said}}, said)
            return Job(self._call(self._not_approved, tool, arguments), lambda: refused)
        if client is None:
            raise NoTool("; ".join([f"no tool {tool}", *self._failed]))
        server = client.name
        return Job(
            self._call(server, tool, arguments),
            lambda: self._refusal(server, tool, arguments) or _called(client, tool, arguments),
        )

    def close(self) -> None:
        for client in self._open:
            client.close()

    def _call(self, server: str, tool: str, arguments: Record) -> Call:
        id = call_id(self._turn.model)
        args: Record = {"name": f"{server}-{tool}", "args": arguments, "toolCallId": id}
        return Call("mcp", id, {**args, "providerIdentifier": server, "toolName": tool})

    def _refusal(self, server: str, tool: str, arguments: Record) -> Outcome | None:
        turn = self._turn
        if reason := turn.blocked(f"MCP:{tool}", arguments):
            return Outcome({"permissionDenied": {"error": reason, "isReadonly": False}}, reason)
        if not turn.tools.has("mcp"):
            return _rejected(NOT_AVAILABLE)
        if turn.read_only or not turn.permissions.permits("Mcp", f"{server}:{tool}"):
            return _rejected(f"MCP tool execution rejected by user: {server}-{tool} ")
        return None

    def _connect(self) -> None:
        if self._connected:
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
