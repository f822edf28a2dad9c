"""Answers by their ids, in their own dialect: get, stream, cancel and delete them."""

from contextlib import aclosing

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from cursor_gateway.dialects.base import AnswerId, ComputedRoute, Dialects, Reply, Start, StoredAnswers, StoredReply
from cursor_gateway.dialects.errors import Errors
from cursor_gateway.errors import NotFound
from cursor_gateway.model.requests import NOT_STORED
from cursor_gateway.runs.continuing import Continued, usage_at
from cursor_gateway.runs.handle import RunHandle
from cursor_gateway.runs.run_service import RunService, delete_answer
from cursor_gateway.server.bodies import parse_body, read_body
from cursor_gateway.server.routes import Endpoint
from cursor_gateway.server.streaming import EventStream, Reading, run_headers, view_of
from cursor_gateway.settings import Settings


class StoredAnswerEndpoints:
    def __init__(
        self, answers: StoredAnswers, dialects: Dialects, service: RunService, reading: Reading, errors: Errors
    ) -> None:
        self._answers, self._errors, self._dialects = answers, errors, dialects
        self._service, self._reading = service, reading

    @property
    def endpoints(self) -> dict[str, dict[str, Endpoint]]:
        name, path = self._answers.name, self._answers.path
        return {
            path: {"GET": _Named(name, self._read), "DELETE": _Named(name, self._delete)},
            f"{path}/cancel": {"POST": _Named(name, self._cancel)},
            self._answers.items_path: {"GET": _Named(name, self._items)},
        }

    async def _read(self, request: Request) -> ASGIApp:
        continued, kept, stored = await self._find(request)
        if not stored.stream or request.method == "HEAD":
            return await answer_now(continued, stored.reply, kept)
        start = Start(continued.after, continued.usage_before, kept)
        return reply_stream(continued.run, stored.reply, start, self._reading, self._errors, is_replay=True)

    async def _cancel(self, request: Request) -> ASGIApp:
        continued, kept, stored = await self._find(request)
        await self._service.cancel(continued.run.id, request.state.owner)
        return await answer_now(continued, stored.reply, kept)

    async def _delete(self, request: Request) -> ASGIApp:
        id = request.path_params["id"]
        answer = self._dialects.answer(id)
        if not await delete_answer(self._service, answer.run_id, request.state.owner, answer.after):
            raise _unknown(id)
        return Response(self._answers.deleted(id), media_type="application/json")

    async def _items(self, request: Request) -> ASGIApp:
        kept = await self._kept(self._dialects.answer(request.path_params["id"]), request)
        return Response(self._answers.items(kept, request.query_params), media_type="application/json")

    async def _find(self, request: Request) -> tuple[Continued, bytes, StoredReply]:
        answer = self._dialects.answer(request.path_params["id"])
        kept = await self._kept(answer, request)
        run = await self._service.find(answer.run_id, request.state.owner)
        continued = Continued(run, answer.after, await usage_at(run, answer.after))
        return continued, kept, self._answers.open(kept, request.query_params)

    async def _kept(self, answer: AnswerId, request: Request) -> bytes:
        kept = await self._service.store.kept_request(answer.run_id, request.state.owner, answer.after)
        if kept is None or kept == NOT_STORED:
            raise _unknown(request.path_params["id"])
        return kept


class _Named:
    """The metrics count by name."""

    def __init__(self, name: str, endpoint: Endpoint) -> None:
        self.__name__, self._endpoint = name, endpoint

    async def __call__(self, request: Request) -> ASGIApp:
        return await self._endpoint(request)


def _unknown(id: str) -> NotFound:
    return NotFound(f"There is no answer {id[:100]!r}: it was not stored, or was deleted.", param="id")


def reply_stream(
    run: RunHandle, reply: Reply, start: Start, reading: Reading, errors: Errors, *, is_replay: bool = False
) -> EventStream:
    view = view_of(run)
    return EventStream(
        run,
        reply.stream(view, start),
        reply.form,
        reading,
        after=start.after,
        is_replay=is_replay,
        errors=errors,
        headers=reply.headers(view),
        streams_failures=reply.streams_failures,
        is_resumable=reply.is_resumable,
    )


async def answer_now(continued: Continued, reply: Reply, kept: bytes) -> Response:
    """The answer in its current state."""
    run, view = continued.run, view_of(continued.run)
    whole = reply.whole(view, Start(continued.after, continued.usage_before, kept))
    async with aclosing(run.events(whole.after)) as batches:
        async for events in batches:
            for event in events:
                whole.push(event)
            if whole.is_over:
                break
    headers = {**run_headers(run), **reply.headers(view)}
    return Response(whole.body(), media_type=reply.media_type, headers=headers)


class ComputedEndpoint:
    def __init__(self, route: ComputedRoute, settings: Settings, reading: Reading) -> None:
        self.__name__ = route.name
        self._route, self._settings, self._reading = route, settings, reading

    async def __call__(self, request: Request) -> ASGIApp:
        body = await read_body(request, self._settings) if self._route.method == "POST" else b""
        turn = self._reading.unread.turn(request.state.owner)
        computed = await parse_body(body, lambda body: self._route.compute(body, request.headers), turn)
        return Response(computed, media_type="application/json")
