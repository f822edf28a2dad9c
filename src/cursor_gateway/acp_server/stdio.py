"""JSON-RPC messages on standard input and output."""

from cursor_gateway.sources.acp.rpc import Message, line_of, message_of
from cursor_gateway.stdio import TOO_LONG, StdioLines, is_cut, unread_id

_PARSE_ERROR = -32700
_UNREADABLE = "This line is no JSON-RPC message; send one message in each line."


class StdioTransport:
    def __init__(self, lines: StdioLines) -> None:
        self._lines = lines
        self.drained, self.close = lines.drained, lines.close

    def send(self, message: Message) -> None:
        self._lines.send(line_of(message))

    async def receive(self) -> Message | None:
        while (line := await self._lines.receive()) is not None:
            if not is_cut(line) and (message := message_of(line)) is not None:
                return message
            if line.strip():
                error = {"code": _PARSE_ERROR, "message": TOO_LONG if is_cut(line) else _UNREADABLE}
                self.send({"jsonrpc": "2.0", "id": unread_id(line), "error": error})
        return None
