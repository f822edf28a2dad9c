"""MCP hosts for tests: the official client, with `cursor-gateway mcp` or `/mcp` as its server, for blocking code."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Literal, TypeAlias
from urllib.parse import urlsplit

import httpx2
from anyio.from_thread import BlockingPortal, start_blocking_portal
from jsonschema import Draft202012Validator
from mcp import Client, StdioServerParameters
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.client.streamable_http import streamable_http_client
from mcp.types import (
    CallToolResult,
    ElicitRequestParams,
    ElicitResult,
    Request,
    RequestParams,
    Result,
    TextContent,
    Tool,
)

from tests.agent.install import install
from tests.agent.records import records
from tests.gateways import RunningGateway
from tests.preloaded import command

TASKS = "io.modelcontextprotocol/tasks"

Mode: TypeAlias = Literal["auto", "legacy"]
Action: TypeAlias = Literal["accept", "decline", "cancel"]


class Host:
    def __init__(self, portal: BlockingPortal, client: Client, user: "User", tasks: "Tasks") -> None:
        self._portal, self._client = portal, client
        self.user, self.tasks = user, tasks
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


class User:
    """Fills each form with what is given for its fields, or with the first choice."""

    def __init__(self, action: Action = "accept", **given: Any) -> None:
        self.action, self.given = action, given
        self.asked: list[str] = []

    async def __call__(self, context: object, params: ElicitRequestParams) -> ElicitResult:
        schema = params.model_dump(by_alias=True)["requestedSchema"]
        return self.fill(params.message, schema)

    def fill(self, message: str, schema: Mapping[str, Any]) -> ElicitResult:
        Draft202012Validator.check_schema(schema)
        self.asked.append(message)
        if self.action != "accept":
            return ElicitResult(action=self.action)
        content = {name: self.given.get(name, _first(field)) for name, field in schema["properties"].items()}
        return ElicitResult(action="accept", content={name: value for name, value in content.items() if value})


def _first(field: Mapping[str, Any]) -> Any:
    match field:
        case {"enum": [first, *_]} | {"oneOf": [{"const": first}, *_]}:
            return first
        case {"items": {"anyOf": [{"const": first}, *_]}}:
            return [first]
        case _:
            return ""


# --- the extension for tasks, which the official client has no part of yet --------------------------


class CreatedTask(Result):
    result_type: Literal["task"] = "task"
    task_id: str
    status: str
    ttl_ms: int | None
    poll_interval_ms: int
    created_at: str
    last_updated_at: str


class _Params(RequestParams):
    task_id: str
    input_responses: dict[str, Any] | None = None


class _Fields(Result):
    """As they are."""

    model_config = {**Result.model_config, "extra": "allow"}


class _Request(Request[_Params, str]):
    name_param = "taskId"  # as the header `Mcp-Name`


class Tasks(ClientExtension):
    """As the specification says: polls, and shows each form once."""

    identifier = TASKS

    def __init__(self, user: User) -> None:
        self._user = user
        self.seen: list[dict[str, Any]] = []  # of `tasks/get`

    def claims(self) -> Sequence[ResultClaim[Any]]:
        return [ResultClaim(result_type="task", model=CreatedTask, resolve=self._resolve)]

    async def _resolve(self, created: CreatedTask, context: ClaimContext) -> CallToolResult:
        assert created.status == "working"
        shown: set[str] = set()
        while True:
            task = await self._send(context, "tasks/get", task_id=created.task_id)
            self.seen.append(task)
            match task["status"]:
                case "completed":
                    return CallToolResult.model_validate(task["result"])
                case "input_required":
                    new = {key: form for key, form in task["inputRequests"].items() if key not in shown}
                    shown |= new.keys()
                    filled = {key: self._filled(form).model_dump(exclude_none=True) for key, form in new.items()}
                    if filled:
                        await self._send(context, "tasks/update", task_id=created.task_id, input_responses=filled)
                case "working":
                    await asyncio.sleep(0.05)
                case ended:
                    raise RuntimeError(ended)

    def _filled(self, form: Mapping[str, Any]) -> ElicitResult:
        assert form["method"] == "elicitation/create"
        return self._user.fill(form["params"]["message"], form["params"]["requestedSchema"])

    async def _send(self, context: ClaimContext, method: str, **params: Any) -> dict[str, Any]:
        request = _Request(method=method, params=_Params(**params))
        result = await context.session.send_request(request, _Fields)
        return result.model_extra or {}


# --- hosts ---------------------------------------------------------------------------------------------


@contextmanager
def mcp_host(
    folder: Path,
    environment: Mapping[str, str],
    *flags: str,
    mode: Mode = "auto",
    user: User | None = None,
    has_tasks: bool = False,
) -> Iterator[Host]:
    """Over standard input and output."""
    program, *words = command(environment)
    parameters = StdioServerParameters(command=program, args=[*words, "mcp", *flags], env=dict(environment), cwd=folder)
    with _host(parameters, mode, user, has_tasks) as host:
        yield host


@contextmanager
def http_host(
    url: str, *, key: str = "", mode: Mode = "auto", user: User | None = None, has_tasks: bool = False
) -> Iterator[Host]:
    """With the gateway at this address as its server."""
    headers = {"authorization": f"Bearer {key}"} if key else {}

    @asynccontextmanager
    async def connected() -> AsyncIterator[Any]:
        async with (
            httpx2.AsyncClient(headers=headers, timeout=300) as http,
            streamable_http_client(f"{url}/mcp", http_client=http) as streams,
        ):
            yield streams

    with _host(connected(), mode, user, has_tasks) as host:
        yield host


@contextmanager
def _host(
    server: StdioServerParameters | AbstractAsyncContextManager[Any], mode: Mode, user: User | None, has_tasks: bool
) -> Iterator[Host]:
    tasks = Tasks(user or User("cancel"))
    with start_blocking_portal() as portal:
        client = Client(server, mode=mode, elicitation_callback=user, extensions=[tasks] if has_tasks else None)
        with portal.wrap_async_context_manager(client):
            yield Host(portal, client, user or User("cancel"), tasks)


def environment_alone(home: Path) -> dict[str, str]:
    """Of a machine on which no gateway runs. The agent cannot wait for answers."""
    install(home / "bin", knobs={"log": str(home / "agent.log")})
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    return {
        "HOME": str(home),
        "PATH": f"{home / 'bin'}:/usr/bin:/bin",
        "CURSOR_GATEWAY_DATA_DIR": str(home / "data"),
        "CURSOR_GATEWAY_PORT": str(port),
        "CURSOR_GATEWAY_SOURCE": "cli",
        "CURSOR_GATEWAY_GRACE_SECONDS": "0.5",
    }


def prompted_agents(home: Path) -> list[dict[str, Any]]:
    """The starts of agents with a prompt, on such a machine."""
    return [record for record in records(home / "agent.log") if record["prompt"]]


def environment_of(gateway: RunningGateway) -> dict[str, str]:
    """With which the commands find this gateway."""
    return {
        "HOME": str(gateway.home),
        "CURSOR_GATEWAY_DATA_DIR": str(gateway.data),
        "CURSOR_GATEWAY_PORT": str(urlsplit(gateway.url).port),
    }
