"""The documents dialect over HTTP: `POST /v1/chat`, and what can be done to a run: look, read on, stop."""

import asyncio
from functools import partial
from importlib import import_module

import msgspec
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp

from cursor_gateway.dialects.chat.encoder import AgentTools, ChunkEncoder, ResumedChunks, encode_error
from cursor_gateway.dialects.documents.encoder import NdjsonEncoder, SseEncoder, encode_response
from cursor_gateway.dialects.documents.request import (
    AnswerRequest,
    ChatRequest,
    answers_of,
    offer_of,
    read_answer,
    read_chat_request,
    results_of,
)
from cursor_gateway.errors import Failure, InvalidRequest
from cursor_gateway.model.caller_tools import Offer, ToolResult
from cursor_gateway.model.document_events import DocumentEvent, Paused
from cursor_gateway.model.documents import ChatResponse
from cursor_gateway.model.images import Image, check_images, read_image
from cursor_gateway.model.messages import UserMessage
from cursor_gateway.runs.answering import Answering, Asker
from cursor_gateway.runs.continuing import Continued
from cursor_gateway.runs.handle import RunHandle
from cursor_gateway.runs.run_request import RunRequest
from cursor_gateway.runs.service import Service
from cursor_gateway.server.bodies import idempotency_key, parse_body, read_body
from cursor_gateway.server.guard import error_response
from cursor_gateway.server.rendering import Renderings
from cursor_gateway.server.streaming import (
    NDJSON,
    SSE,
    Encoder,
    EventStream,
    Form,
    Heard,
    Reading,
    chat_id,
    completion_head,
    read_to_end,
    run_headers,
)
from cursor_gateway.settings import Settings
from cursor_gateway.stages.unfinished import PartialRun

_HTML_HEADERS = {  # whatever an answer says: opened by itself, it does nothing
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
    "sandbox"
}


class ChatEndpoints:
    def __init__(self, service: Service, settings: Settings, reading: Reading) -> None:
        self._service, self._settings, self._reading = service, settings, reading
        self._answering = Answering(service)

    async def chat(self, request: Request) -> ASGIApp:
        body = await read_body(request, self._settings)
        asked, images, offer = await parse_body(body, partial(_read, max_images=self._settings.max_images))
        wants_no_answer = _wants_no_answer(request.headers)
        run = await self._service.start(
            RunRequest(
                owner=request.state.owner,
                request_id=request.state.request_id,
                messages=[UserMessage(asked.message)],
                images=images,
                model=asked.model,
                mode=asked.mode,
                workspace=asked.workspace,
                conversation_id=asked.conversation_id,
                fences=asked.fences,
                include=frozenset(asked.include),
                offer=offer,
                may_be_asked=asked.may_ask,
                source=asked.source,
                when_client_leaves=asked.when_client_leaves or ("finish" if wants_no_answer else None),
                idempotency_key=idempotency_key(request),
                body=body,
            )
        )
        if wants_no_answer:
            return await self._accepted(run)
        return await self._reply(request, run, stream=asked.stream)

    async def go_on(self, request: Request) -> ASGIApp:
        """With what a run waits for. Replied to as the run itself; a stream begins where the run had paused."""
        body = await read_body(request, self._settings)
        asked, results = await parse_body(body, partial(_read_answer, max_images=self._settings.max_images))
        wants_no_answer = _wants_no_answer(request.headers)
        asker = Asker(
            owner=request.state.owner,
            request_id=request.state.request_id,
            when_client_leaves=asked.when_client_leaves or ("finish" if wants_no_answer else None),
        )
        continued = await self._continued(chat_id(request.path_params["id"]), asker, asked, results)
        if wants_no_answer:
            return await self._accepted(continued.run)
        return await self._reply(request, continued.run, stream=asked.stream, after=continued.after)

    async def _continued(
        self, id: str, asker: Asker, asked: AnswerRequest, results: dict[str, ToolResult]
    ) -> Continued:
        if asked.answers is not None:
            return await self._answering.with_answers(id, asker, answers_of(asked.answers))
        if asked.plan is not None:
            return await self._answering.with_decision(id, asker, asked.plan, asked.text)
        return await self._answering.with_results(id, asker, results)

    async def _accepted(self, run: RunHandle) -> Response:
        """For whoever only wants to know the run."""
        snapshot = await self._service.response(run.id, run.owner)
        headers = {**run_headers(run), "location": f"/v1/chat/{run.id}"}
        return Response(encode_response(snapshot), 202, headers, media_type="application/json")

    async def _reply(self, request: Request, run: RunHandle, *, stream: bool, after: int = 0) -> ASGIApp:
        """Up to the end of the run, or to where it pauses."""
        if stream:
            encoder, form = (
                (NdjsonEncoder(after, until_pause=True), NDJSON)
                if _wants_ndjson(request.headers)
                else (SseEncoder(after, until_pause=True), SSE)
            )
            return EventStream(run, encoder, form, self._reading, after=after)
        answer, number = PartialRun(), 0

        def push(event: DocumentEvent) -> Heard:
            nonlocal number
            number += 1
            answer.push(event)
            return Heard.ENOUGH if isinstance(event, Paused) and number > after else Heard.MORE

        if not await read_to_end(run, request.receive, push):
            raise ClientDisconnect
        done = run.done if number == run.count else None
        return _answer(
            answer.response(run.info, run.prompt), done.failure if done is not None else None, run_headers(run)
        )

    async def answer(self, request: Request) -> Response:
        """The whole, or what there is of it now."""
        id, owner = chat_id(request.path_params["id"]), request.state.owner
        response = await self._service.response(id, owner)
        match request.query_params.get("dialect") or "documents":
            case "documents":
                return Response(encode_response(response), media_type="application/json")
            case "html":
                renderings = self._reading.renderings
                return await renderings.run_for(request, lambda: _as_html(response, renderings))
            case "page":
                prompt = await self._service.prompt_of(id, owner)
                renderings = self._reading.renderings
                return await renderings.run_for(request, lambda: _as_page(response, prompt, renderings))
            case _:
                raise InvalidRequest("`dialect` is documents, html or page.", param="dialect")

    async def events(self, request: Request) -> ASGIApp:
        """The run's stream, from its beginning or after the event that the reader had last."""
        run = await self._service.find(chat_id(request.path_params["id"]), request.state.owner)
        after = _after(request)
        if request.method == "HEAD":  # who only looks is no reader, whose leaving would stop the run
            return Response(media_type=SSE.media_type, headers=run_headers(run))
        if after > run.count:  # events are stored before they are sent, so nobody has this one
            so_far = "" if run.done is not None else " so far"
            raise InvalidRequest(
                f"The run has no event {after}: it has {run.count}{so_far}. Send the number of the last event that "
                "you have; without one the stream starts at the beginning.",
                param="after",
            )
        if run.done is not None and after == run.count:
            return Response(status_code=204, headers=run_headers(run))  # tells an EventSource not to come again
        if request.query_params.get("dialect") == "html":  # its parser of Markdown takes a while to load
            await asyncio.to_thread(import_module, "cursor_gateway.server.html_stream")
        encoder, form, place = _encoder(request, run, after, self._settings.agent_tools, self._reading.renderings)
        return EventStream(run, encoder, form, self._reading, after=place, is_replay=True)

    async def cancel(self, request: Request) -> Response:
        """The reply is what the run's `done` says."""
        envelope = await self._service.cancel(chat_id(request.path_params["id"]), request.state.owner)
        return Response(msgspec.json.encode(envelope), media_type="application/json")


def _read(body: bytes, max_images: int) -> tuple[ChatRequest, list[Image], Offer | None]:
    asked = read_chat_request(body)
    check_images(len(asked.images), max_images, "images")
    images = [read_image(uri, f"images[{place}]") for place, uri in enumerate(asked.images)]
    return asked, images, offer_of(asked)


def _read_answer(body: bytes, max_images: int) -> tuple[AnswerRequest, dict[str, ToolResult]]:
    asked = read_answer(body)
    return asked, results_of(asked.tool_results or (), max_images)


def _answer(response: ChatResponse, failure: Failure | None, headers: dict[str, str]) -> Response:
    if failure is None:
        return Response(encode_response(response), media_type="application/json", headers=headers)
    # What had arrived stands beside the error.
    return error_response(failure, headers, encode_error(failure)[:-1] + b"," + encode_response(response)[1:])


def _as_html(response: ChatResponse, renderings: Renderings) -> Response:
    from cursor_gateway.render.html import render_answer  # with a parser of Markdown: only those who ask wait for it

    return Response(render_answer(response.documents, renderings.do), media_type="text/html", headers=_HTML_HEADERS)


def _as_page(response: ChatResponse, prompt: str, renderings: Renderings) -> Response:
    from cursor_gateway.render.html import render_page

    file = f'attachment; filename="{response.id}.html"'
    page = render_page(response, prompt=prompt, do=renderings.do)
    return Response(page, media_type="text/html", headers={**_HTML_HEADERS, "content-disposition": file})


def _wants_no_answer(headers: Headers) -> bool:
    return "respond-async" in headers.get("prefer", "")  # RFC 7240


def _wants_ndjson(headers: Headers) -> bool:
    return "application/x-ndjson" in headers.get("accept", "")


def _after(request: Request) -> int:
    """The number of the last event that the reader has: of the header that an EventSource sends, or of the query."""
    told = request.headers.get("last-event-id") or request.query_params.get("after") or "0"
    if not (told.isascii() and told.isdigit() and len(told) < 16):
        raise InvalidRequest("`Last-Event-ID` and `after` take the number of an event.", param="after")
    return int(told)


def _encoder(
    request: Request, run: RunHandle, after: int, agent_tools: AgentTools, renderings: Renderings
) -> tuple[Encoder, Form, int]:
    """And the event after which it must be given all."""
    dialect = request.query_params.get("dialect") or ("ndjson" if _wants_ndjson(request.headers) else "documents")
    match dialect:
        case "documents":
            return SseEncoder(after), SSE, after
        case "ndjson":
            return NdjsonEncoder(after), NDJSON, after
        case "openai":

            def chunks(pause: int) -> ChunkEncoder:
                head = completion_head(run, pause)
                return ChunkEncoder(head, include_usage=True, agent_tools=agent_tools, after=pause)

            return ResumedChunks(chunks, after), SSE, 0
        case "html":
            from cursor_gateway.server.html_stream import HtmlEncoder

            return HtmlEncoder(after, renderings.do), SSE, 0
        case _:
            raise InvalidRequest("`dialect` is documents, ndjson, openai or html.", param="dialect")
