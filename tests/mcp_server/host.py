"""An MCP host for tests: the official client, with `cursor-gateway mcp` as its server, usable from blocking code."""

from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from anyio.from_thread import BlockingPortal, start_blocking_portal
from jsonschema import Draft202012Validator
from mcp import Client, StdioServerParameters
from mcp.types import CallToolResult, TextContent, Tool

from tests.gateways import RunningGateway
from tests.preloaded import command


class Host:
    def __init__(self, portal: BlockingPortal, client: Client) -> None:
        self._portal, self._client = portal, client
        self.tools: dict[str, Tool] = {tool.name: tool for tool in portal.call(client.list_tools).tools}

    def start(self, tool: str, progress: list[tuple[float, str]] | None = None, **arguments: Any) -> "Future[Any]":
        """Cancelling it cancels the request."""
        lines = [] if progress is None else progress

        async def report(progress: float, total: float | None, message: str | None) -> None:
            lines.append((progress, message or ""))

        async def call() -> CallToolResult:
            return await self._client.call_tool(tool, arguments, progress_callback=report)

        return self._portal.start_task_soon(call)

    def call(self, tool: str, progress: list[tuple[float, str]] | None = None, **arguments: Any) -> dict[str, Any]:
        """The structured content, which fits the tool's schema."""
        result = self.result(tool, progress, **arguments)
        assert not result.is_error, text_of(result)
        content: dict[str, Any] = result.structured_content
        Draft202012Validator(self.tools[tool].output_schema or False).validate(content)
        return content

    def result(self, tool: str, progress: list[tuple[float, str]] | None = None, **arguments: Any) -> CallToolResult:
        result: CallToolResult = self.start(tool, progress, **arguments).result(timeout=300)
        return result

    def error(self, tool: str, **arguments: Any) -> str:
        result = self.result(tool, **arguments)
        assert result.is_error
        return text_of(result)


def text_of(result: CallToolResult) -> str:
    return "\n\n".join(block.text for block in result.content if isinstance(block, TextContent))


@contextmanager
def mcp_host(
    folder: Path,
    environment: Mapping[str, str],
    *flags: str,
    mode: Literal["auto", "legacy"] = "auto",
) -> Iterator[Host]:
    program, *words = command(environment)
    parameters = StdioServerParameters(command=program, args=[*words, "mcp", *flags], env=dict(environment), cwd=folder)
    with start_blocking_portal() as portal:
        client = Client(parameters, mode=mode)
        with portal.wrap_async_context_manager(client):
            yield Host(portal, client)


def environment_of(gateway: RunningGateway) -> dict[str, str]:
    """With which the commands find this gateway."""
    return {
        "HOME": str(gateway.home),
        "CURSOR_GATEWAY_DATA_DIR": str(gateway.data),
        "CURSOR_GATEWAY_PORT": str(urlsplit(gateway.url).port),
    }
