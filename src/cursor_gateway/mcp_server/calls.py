"""Perform a tool call: call the gateway, and return the response.

A run that was started here and is no longer wanted (the host cancelled its request, or ended) is stopped.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Set
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from cursor_gateway.client.asynchronous import AsyncClient, AsyncStream
from cursor_gateway.client.failures import CallFailed
from cursor_gateway.mcp_server.results import progress_line
from cursor_gateway.mcp_server.tools import (
    AnswerArguments,
    AskArguments,
    CancelArguments,
    RunArguments,
    StatusArguments,
    ToolArguments,
)
from cursor_gateway.model.document_events import Done, Paused
from cursor_gateway.model.documents import ChatResponse
from cursor_gateway.model.requests import INTERACTIVE

if TYPE_CHECKING:
    from cursor_gateway.client.calls import AnswerFields
    from cursor_gateway.client.connection import ChatOptions

_LOOKS, _LOOK_SECONDS = 200, 0.05  # for an agent that takes its time with an answer

Report: TypeAlias = Callable[[str], Awaitable[None]]


class ConnectedGateway(Struct, frozen=True):
    client: AsyncClient
    folder: str | None = None  # to work in by default; None: the gateway's own default


async def perform(gateway: ConnectedGateway, arguments: ToolArguments, report: Report) -> ChatResponse:
    """Raises `CallFailed`."""
    client = gateway.client
    match arguments:
        case AskArguments() | RunArguments():
            return await _send(gateway, arguments, report)
        case StatusArguments(run_id=id, wait_seconds=seconds):
            return await _status(client, id, seconds, report)
        case AnswerArguments(run_id=id, background=True):
            return await client.response(await client.answer(id, **_fields(arguments)))
        case AnswerArguments(run_id=id):
            async with _stopped_if_cancelled(client, id):
                answered: Set[str] = frozenset()
                with suppress(CallFailed):  # `answer` says what is wrong
                    answered = _open_calls(await client.response(id))
                continued = await client.answer(id, **_fields(arguments))
            async with _stopped_if_cancelled(client, continued), client.events(continued) as stream:
                return await _follow(client, stream, report, answered)
        case CancelArguments(run_id=id):
            await client.cancel(id)
            return await client.response(id)


async def _send(gateway: ConnectedGateway, message: AskArguments | RunArguments, report: Report) -> ChatResponse:
    # A conversation has its own folder.
    folder = message.workspace or (None if message.conversation_id else gateway.folder)
    options: ChatOptions = {
        "conversation_id": message.conversation_id,
        "model": message.model,
        "workspace": folder,
        "mode": "ask",
    }
    if isinstance(message, RunArguments):
        options = {**options, "mode": message.mode, "may_ask": True, "source": INTERACTIVE}
        if message.background:
            return await gateway.client.response(await gateway.client.start(message.prompt, **options))
    options["when_client_leaves"] = "cancel"  # a host may kill this process soon after it has closed its input
    async with gateway.client.stream(message.prompt, **options) as stream:
        return await _follow(gateway.client, stream, report)


@asynccontextmanager
async def _stopped_if_cancelled(client: AsyncClient, id: str) -> AsyncIterator[None]:
    try:
        yield
    except asyncio.CancelledError:
        with suppress(CallFailed):
            await client.cancel(id)
        raise


async def _status(client: AsyncClient, id: str, seconds: int, report: Report) -> ChatResponse:
    if seconds:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds), client.events(id) as stream:
                await _until_pause(client, stream, report)
    return await client.response(id)


async def _follow(
    client: AsyncClient, stream: AsyncStream, report: Report, answered: Set[str] = frozenset()
) -> ChatResponse:
    """Until the run is over, or waits for another answer than to these calls."""
    paused = await _until_pause(client, stream, report, answered)
    if paused is None:
        return await stream.result()
    stream.let_finish()
    return paused


async def _until_pause(
    client: AsyncClient, stream: AsyncStream, report: Report, answered: Set[str] = frozenset()
) -> ChatResponse | None:
    """None at the end of the run."""
    async for events in stream.batches():
        for event in events:
            if line := progress_line(event):
                await report(line)
        if isinstance(events[-1], Done):
            return None
        if any(isinstance(event, Paused) for event in events):
            response = await _response_after(client, stream.id, answered)
            if response.metadata.waiting_for:  # else it is an earlier pause, or it was answered
                return response
    return None


async def _response_after(client: AsyncClient, id: str, answered: Set[str]) -> ChatResponse:
    """Until the agent has taken the answer, the run still seems to wait for it."""
    for _ in range(_LOOKS):
        response = await client.response(id)
        if not answered or _open_calls(response) != answered:
            return response
        await asyncio.sleep(_LOOK_SECONDS)
    return await client.response(id)


def _open_calls(response: ChatResponse) -> Set[str]:
    return frozenset(call.tool_call_id for call in response.metadata.waiting_for or ())


def _fields(answer: AnswerArguments) -> "AnswerFields":
    return {
        "answers": answer.answers,
        "plan": answer.plan,
        "text": answer.text,
        "permissions": answer.permissions,
    }
