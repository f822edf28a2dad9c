"""Runs over HTTP, whatever their dialect: get, stream and stop them."""

import asyncio
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Literal, TypeAlias

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from cursor_gateway.dialects.base import SSE, Dialect, Encoder, Reply, StreamForm
from cursor_gateway.errors import InvalidRequest, LogReset
from cursor_gateway.model.answers import AnswerId
from cursor_gateway.model.documents import ChatResponse
from cursor_gateway.runs.handle import RunHandle, answered_response_of, prompt_of
from cursor_gateway.runs.run_service import RunService
from cursor_gateway.server.bodies import json_response
from cursor_gateway.server.rendering import Renderings
from cursor_gateway.server.streaming import EventStream, Reading, run_headers, view_of
from cursor_gateway.stages.usage import context_use

_RESEND_SECONDS = 10.0  # for the process that drives a run to send again what the store has forgotten
_OWN = ("documents",)  # which a request of the documents dialect gets anyway
_Opened: TypeAlias = tuple[Encoder, StreamForm, int, Mapping[str, str]]
_HTML = "html"  # the page's own stream, which is rendered here
HTML_HEADERS = {  # an answer's HTML must not run anything when it is opened by itself
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
    "sandbox"
}


class Dialects:
    """Those that a gateway speaks."""

    def __init__(self, dialects: Sequence[Dialect]) -> None:
        self._dialects = dialects
        self.routes = [(route, dialect.errors) for dialect in dialects for route in dialect.routes]
        self.computed = [(route, dialect.errors) for dialect in dialects for route in dialect.computed]
        self.answers = [(dialect.answers, dialect.errors) for dialect in dialects if dialect.answers is not None]
        self.errors_by_header = {dialect.header: dialect.errors for dialect in dialects if dialect.header}
        self.named = [(dialect.named, dialect.errors) for dialect in dialects if dialect.named is not None]
        self.replays = {replay.name: replay for dialect in dialects for replay in dialect.replays}

    def reply(self, name: str) -> Reply | None:
        """How a dialect that is chosen by `?dialect=` replies; None: as the request's own does."""
        if (replay := self.replays.get(name)) is None or (replay.reply is None and replay.name not in _OWN):
            chosen = [*_OWN, *(one.name for one in self.replays.values() if one.reply is not None)]
            raise InvalidRequest(f"`dialect` must be {', '.join(chosen[:-1])} or {chosen[-1]}.", param="dialect")
        return replay.reply

    def run_id(self, id: str) -> str:
        """The run of an answer's id in any dialect; any other id is left as it is."""
        return self.answer(id).run_id

    def answer(self, id: str) -> AnswerId:
        found = (dialect.answer_id(id) for dialect in self._dialects)
        return next((answer for answer in found if answer is not None), AnswerId(id))


class RunEndpoints:
    def __init__(self, service: RunService, dialects: Dialects, reading: Reading) -> None:
        self._service, self._dialects, self._reading = service, dialects, reading

    async def answer(self, request: Request) -> Response:
        """The whole answer, or a snapshot."""
        run = await self._service.find(self._id(request), request.state.owner)

        async def documents() -> Response:
            return run_response(await answered_response_of(self._service.store, run))

        match request.query_params.get("dialect") or "documents":
            case "documents":
                return await self._reading.unread.build(run.owner, (run.id, run.count), documents)
            case "html" | "page" | "markdown" | "text" as form:
                async with self._reading.unread.turn(run.owner):
                    response = await answered_response_of(self._service.store, run)
                prompt = await prompt_of(self._service.store, run) if form == "page" else ""
                renderings = self._reading.renderings
                rendered = await renderings.run_for(request, lambda: _rendered(response, form, prompt, renderings))
                if run.done is not None and (context := context_use(run.done)) is not None:
                    rendered.headers["x-context"] = msgspec.json.encode(context).decode()
                return rendered
            case _:
                raise InvalidRequest("`dialect` must be documents, html, page, markdown or text.", param="dialect")

    async def events(self, request: Request) -> ASGIApp:
        """The run's stream, from the beginning, or after the last event that the client received."""
        run = await self._service.find(self._id(request), request.state.owner)
        after = _after(request)
        if request.method == "HEAD":  # does not count as a reader, so its end does not stop the run
            return Response(media_type=SSE.media_type, headers=run_headers(run))
        await _caught_up(run, after)
        if run.done is not None and after == run.count:
            return Response(status_code=204, headers=run_headers(run))  # stops an EventSource
        encoder, form, place, headers = await self._replay(request, run, after)
        return EventStream(run, encoder, form, self._reading, after=place, is_replay=True, headers=headers)

    async def cancel(self, request: Request) -> Response:
        """Replies with the run's `done` payload."""
        envelope = await self._service.cancel(self._id(request), request.state.owner)
        return json_response(envelope)

    def _id(self, request: Request) -> str:
        return self._dialects.run_id(request.path_params["id"])

    async def _replay(self, request: Request, run: RunHandle, after: int) -> _Opened:
        """And the event after which the encoder must be given all, and headers."""
        replays = self._dialects.replays
        name = request.query_params.get("dialect") or self._accepted(request)
        if name == _HTML:
            # Its Markdown parser takes a while to import.
            await asyncio.to_thread(import_module, "cursor_gateway.server.html_stream")
            from cursor_gateway.server.html_stream import HtmlEncoder

            return HtmlEncoder(after, self._reading.renderings.do), SSE, 0, {}
        if name not in replays:
            raise InvalidRequest(f"`dialect` must be {', '.join(replays)} or {_HTML}.", param="dialect")
        replay, prefer = replays[name], request.headers.get("prefer", "")
        open = next((one for value, one in replay.preferred.items() if value in prefer), replay.open)
        encoder, place = open(view_of(run), after)
        return encoder, replay.form, place, replay.headers

    def _accepted(self, request: Request) -> str:
        """The first dialect whose media type the client accepts; else the first."""
        accept = request.headers.get("accept", "")
        replays = self._dialects.replays.values()
        named = (replay.name for replay in replays if replay.form is not SSE and replay.form.media_type in accept)
        return next(named, next(iter(self._dialects.replays)))


def run_response(response: ChatResponse, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A run as it is now."""
    return Response(msgspec.json.encode(response), status, headers, media_type="application/json")


def _rendered(
    response: ChatResponse, form: Literal["html", "page", "markdown", "text"], prompt: str, renderings: Renderings
) -> Response:
    from cursor_gateway.render.export import answer_as_markdown
    from cursor_gateway.render.html.work import render_answer, render_page  # a Markdown parser, so only when needed

    match form:
        case "html":
            html = render_answer(response.documents, renderings.do)
            return Response(html, media_type="text/html", headers=HTML_HEADERS)
        case "page":
            file = f'attachment; filename="{response.id}.html"'
            page = render_page(response, prompt=prompt, do=renderings.do)
            return Response(page, media_type="text/html", headers={**HTML_HEADERS, "content-disposition": file})
        case "markdown":
            return Response(answer_as_markdown(response), media_type="text/markdown")
        case "text":  # the Markdown that the agent wrote, without what its tools did
            return Response(f"{response.text}\n", media_type="text/plain")


async def _caught_up(run: RunHandle, after: int) -> None:
    """Waits for events that the client already has but the store has lost, for example because a lagging standby took
    over; the process that drives the run sends them again. Raises `LogReset` if that does not happen.
    """
    loop, reader = asyncio.get_running_loop(), run.reader(after)
    until = loop.time() + _RESEND_SECONDS
    while after > run.added and not reader.is_lost:
        if run.done is not None or loop.time() >= until:
            so_far = "" if run.done is not None else " so far"
            raise LogReset(
                f"The run has no event {after}: it has {run.count}{so_far}. Read it again from the start, without "
                "`Last-Event-ID` and `after`.",
                param="after",
            )
        await reader.next(until - loop.time())


def _after(request: Request) -> int:
    """The number of the last event that the reader has: of the header that an EventSource sends, or of the query."""
    number = request.headers.get("last-event-id") or request.query_params.get("after") or "0"
    if not (number.isascii() and number.isdigit() and len(number) < 16):
        raise InvalidRequest("`Last-Event-ID` and `after` must be an event number.", param="after")
    return int(number)
