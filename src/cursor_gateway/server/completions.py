"""OpenAI's API over HTTP: chat completions and models."""

import time
from collections.abc import Mapping
from functools import partial
from typing import Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from cursor_gateway.dialects.chat.encoder import (
    AgentTools,
    ChunkEncoder,
    CompletionFold,
    encode_completion,
)
from cursor_gateway.dialects.chat.request import ChatRequest, CursorOptions, read_request
from cursor_gateway.errors import Failure, InvalidRequest, unknown_model
from cursor_gateway.model.documents import Usage
from cursor_gateway.prompting.prompt import quotes_calls
from cursor_gateway.prompting.structured import instructions
from cursor_gateway.runs.continuing import Continuing
from cursor_gateway.runs.handle import RunHandle
from cursor_gateway.runs.run_request import RunRequest
from cursor_gateway.runs.service import Service
from cursor_gateway.server.answers import Answer, CheckedAnswer, LateStream, WholeAnswer
from cursor_gateway.server.bodies import idempotency_key, parse_body, read_body
from cursor_gateway.server.guard import error_response
from cursor_gateway.server.streaming import SSE, EventStream, Reading, completion_head, run_headers
from cursor_gateway.settings import Settings
from cursor_gateway.sources.base import Model
from cursor_gateway.stages.cutting import Cutter
from cursor_gateway.stages.tokens import estimate_tokens_by_sample

_HEADERS = {  # for clients that cannot send a field of ours
    "mode": "x-cursor-mode",
    "workspace": "x-cursor-workspace",
    "fences": "x-cursor-fences",
    "include": "x-cursor-include",
    "conversationId": "x-cursor-conversation-id",
    "whenClientLeaves": "x-cursor-when-client-leaves",
    "source": "x-cursor-source",
}


class ModelEntry(Struct, frozen=True, kw_only=True):
    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "cursor"
    name: str | UnsetType = UNSET  # ours: for people


class ModelList(Struct, frozen=True, kw_only=True):
    object: Literal["list"] = "list"
    data: list[ModelEntry]


class CompletionEndpoints:
    def __init__(self, service: Service, settings: Settings, reading: Reading) -> None:
        self._service, self._settings, self._reading = service, settings, reading
        self._began = int(time.time())
        self._continuing = Continuing(service)

    async def completions(self, request: Request) -> ASGIApp:
        body = await read_body(request, self._settings)
        asked = await parse_body(body, partial(read_request, max_images=self._settings.max_images))
        agent_tools = self._settings.agent_tools
        _check_tools(asked, agent_tools)
        run_request = _run_request(asked, request, body, agent_tools)
        continued = await self._continuing.take(run_request)
        run, after = continued.run, continued.after
        head = completion_head(run, after)
        cutter = Cutter(asked.stop, asked.max_tokens) if asked.stop or asked.max_tokens is not None else None
        prompt_tokens = _context(run, continued.usage_before) if cutter is not None else 0
        if asked.stream and asked.format is None:
            encoder = ChunkEncoder(
                head,
                include_usage=asked.include_usage,
                agent_tools=agent_tools,
                cutter=cutter,
                prompt_tokens=prompt_tokens,
                after=after,
            )
            return EventStream(run, encoder, SSE, self._reading, after=after)
        fold = CompletionFold(head, agent_tools=agent_tools, cutter=cutter, prompt_tokens=prompt_tokens)
        answer: Answer
        if asked.format is None:
            answer = WholeAnswer(run, fold, after)
        else:
            answer = CheckedAnswer(WholeAnswer(run, fold, after), run_request, asked.format, self._service)
        if asked.stream:
            return LateStream(answer, partial(run_headers, run), self._reading, include_usage=asked.include_usage)
        completion = await answer.completion(request.receive)
        if isinstance(completion, Failure):
            return error_response(completion, run_headers(run))
        return Response(encode_completion(completion), media_type="application/json", headers=run_headers(run))

    async def models(self, request: Request) -> Response:
        models = await self._service.source.models()
        return _json(ModelList(data=[self._entry(model) for model in models]))

    async def model(self, request: Request) -> Response:
        id = request.path_params["id"]
        models = await self._service.source.models()
        for model in models:
            if model.id == id:
                return _json(self._entry(model))
        self._service.source.check_model(id)
        raise unknown_model(id, [])

    def _entry(self, model: Model) -> ModelEntry:
        return ModelEntry(id=model.id, created=self._began, name=model.label or UNSET)


def _json(value: Struct) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")


def _check_tools(asked: ChatRequest, agent_tools: AgentTools) -> None:
    if asked.offer is not None and agent_tools == "tool_calls":
        raise InvalidRequest(
            "This gateway shows the agent's own tools as `tool_calls` (its setting `agent_tools`), so a request with "
            "`tools` would run them twice; leave `tools` out.",
            param="tools",
        )


def _context(run: RunHandle, told: Usage | None) -> int:
    """About how many tokens the agent has before it when it begins a reply; `told` is what the one before reported."""
    if told is None:
        return run.info.known_tokens + estimate_tokens_by_sample(run.prompt)
    return told.total_tokens


def _run_request(asked: ChatRequest, request: Request, body: bytes, agent_tools: AgentTools) -> RunRequest:
    options = _options(asked.cursor, request.headers)
    client_session = request.headers.get("x-session-id") or request.headers.get("x-session-affinity") or ""
    return RunRequest(
        owner=request.state.owner,
        request_id=request.state.request_id,
        messages=asked.messages,
        images=asked.images,
        instructions=instructions(asked.format) if asked.format is not None else "",
        has_full_history=options.conversation_id is None,
        client_session=client_session,
        # Only clients that run tools themselves name their sessions, or quote calls that were not the agent's own.
        has_own_tools=agent_tools != "tool_calls" and (bool(client_session) or quotes_calls(asked.messages)),
        offer=asked.offer,
        model=asked.model,
        mode=options.mode,
        workspace=options.workspace,
        conversation_id=options.conversation_id,
        fences=options.fences,
        include=frozenset(options.include or ()),
        when_client_leaves=options.when_client_leaves,
        source=options.source,
        idempotency_key=idempotency_key(request),
        body=body,
    )


def _options(asked: CursorOptions, headers: Mapping[str, str]) -> CursorOptions:
    """The request's own, then those of its headers."""
    given: dict[str, object] = {name: headers[header] for name, header in _HEADERS.items() if header in headers}
    if not given:
        return asked
    if isinstance(included := given.get("include"), str):
        given["include"] = [word.strip() for word in included.split(",")]
    for name, value in given.items():
        try:
            msgspec.convert({name: value}, CursorOptions)
        except msgspec.ValidationError as error:
            reason = str(error).partition(" - at ")[0]
            raise InvalidRequest(f"The header {_HEADERS[name]} is wrong: {reason}.", param=_HEADERS[name]) from None
    body = {name: value for name, value in msgspec.to_builtins(asked).items() if value is not None}
    return msgspec.convert({**given, **body}, CursorOptions)
