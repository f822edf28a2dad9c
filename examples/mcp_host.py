"""An MCP host that delegates a task to Cursor's agent through `cursor-gateway mcp`.

A real host has a model that decides which tool to call; here it is you. Needs the package `mcp`.
"""

import asyncio
import json
import os
import sys

from mcp import Client, StdioServerParameters
from mcp.types import CallToolResult, TextContent


async def show(progress: float, total: float | None, message: str | None) -> None:
    print(f"  {progress:.0f}. {message}")


def text_of(result: CallToolResult) -> str:
    return "\n".join(block.text for block in result.content if isinstance(block, TextContent))


async def main(task: str) -> int:
    server = StdioServerParameters(command="cursor-gateway", args=["mcp"], env=dict(os.environ))
    async with Client(server) as client:
        print("Tools:", ", ".join(tool.name for tool in (await client.list_tools()).tools))
        result = await client.call_tool("run", {"prompt": task}, progress_callback=show)
        while not result.is_error and result.structured_content["metadata"].get("waitingFor"):
            print(text_of(result))  # what the agent asks, and an example of the answer as JSON
            answer = json.loads(input("answer: "))
            result = await client.call_tool("answer", answer, progress_callback=show)
    print(text_of(result))
    if result.is_error:
        return 1
    edits = [one["metadata"] for one in result.structured_content["documents"] if one["type"] == "file_edit"]
    for edit in edits:
        print(f"{edit['operation']}: {edit['filePath']}")
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(" ".join(sys.argv[1:]))))
