"""The clients that `launch` starts and `connect` configures, as values."""

from cursor_gateway.cli.clients.chat_clients import AIDER, CLINE, CN, LLM, PI, QWEN
from cursor_gateway.cli.clients.coding_agents import CLAUDE, CODEX, KILO, OPENCODE
from cursor_gateway.cli.clients.editors import ANY, CLINE_EDITOR, CONTINUE, JETBRAINS, MCP, ZED

_ALL = (
    CLAUDE,
    CODEX,
    OPENCODE,
    QWEN,
    PI,
    CN,
    CLINE,
    AIDER,
    LLM,
    KILO,
    ZED,
    CONTINUE,
    CLINE_EDITOR,
    JETBRAINS,
    MCP,
    ANY,
)

CLIENTS = {client.name: client for client in _ALL}
LAUNCHED = {client.name: client for client in _ALL if client.launch is not None}
