"""A request in a dialect in; its reply, of a run that is started, continued or looked up, out."""

import hashlib
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from contextlib import aclosing, suppress
from functools import partial
from operator import attrgetter
from time import time
from typing import Any

from msgspec.structs import replace
from starlette.background import BackgroundTask
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from cursor_gateway.dialects.base import (
    SSE,
    ContinueRun,
    NamedStreams,
    Reply,
    ReplyStart,
    Route,
    RunAction,
    StartRun,
    StoredAnswers,
    WholeReply,
)
from cursor_gateway.dialects.errors import Errors
from cursor_gateway.errors import GatewayError, NotFound, PreviousAnswerUnknown, StoreUnavailable
from cursor_gateway.model.answers import AnswerId
from cursor_gateway.model.document_events import DocumentEvent, says_something
from cursor_gateway.model.messages import Message, quote_reply
from cursor_gateway.model.requests import NOT_STORED, AgentRequest
from cursor_gateway.runs.handle import RunHandle, response_of
from cursor_gateway.runs.identify import usage_at
from cursor_gateway.runs.run_service import Asker, Continued, RunRequest, RunService, delete_answer
from cursor_gateway.server.bodies import Handler, client_name, idempotency_key, parse_body, read_body, texts_of
from cursor_gateway.server.guard import error_response
from cursor_gateway.server.operations import check_priority
from cursor_gateway.server.runs import Dialects, run_response
from cursor_gateway.server.streaming import (
    CheckedRun,
    DisconnectWatch,
    EventStream,
    Reading,
    cut_short,
    push_until,
    run_headers,
    view_of,
)
from cursor_gateway.settings import Settings
from cursor_gateway.store.base import IdempotentRun, Store

_FIELDS = AgentRequest.__struct_fields__
_values = attrgetter(*_FIELDS)


class RouteEndpoint:
    def __init__(
        self,
        route: Route[RunAction],
        errors: Errors,
        dialects: Dialects,
        service: RunService,
        settings: Settings,
        reading: Reading,
    ) -> None:
        self.__name__ = route.name
        self._route, self._errors, self._dialects = route, errors, dialects
        self._service, self._settings, self._reading = service, settings, reading

    async def __call__(self, request: Request) -> ASGIApp:
        owner: str = request.scope["state"]["owner"]
        headers = texts_of(request.scope["headers"])
        body = await read_body(request, self._settings)
        await self._reading.starts.turn()
        turn = partial(self._reading.unread.turn, owner)
        asked = await parse_body(body, lambda body: self._route.read(body, headers), turn)
        if self._route.takes_dialect and request.scope.get("query_string"):
            asked = self._in_dialect(asked, request.query_params.get("dialect"))
        if asked.stream:
            self._reading.unread.check(owner)
        match asked:
            case StartRun(reply=reply):
                messages = await self._with_references(asked, owner)
                run_request = self._run_request(asked, messages, request.scope, headers, body)
                try:
                    await self._check_followed(asked, owner)
                    continued = await self._service.take(run_request)
                except GatewayError as error:
                    # Clients act on this one's code, and send the whole conversation.
                    if asked.refused is None or isinstance(error, PreviousAnswerUnknown):
                        raise
                    return Response(asked.refused(error.failure()), media_type=SSE.media_type)
                if asked.check is not None:
                    checked = CheckedRun(continued.run, run_request, asked.check, self._service)
                    continued = replace(continued, run=checked, is_repeat=False)
                app: ASGIApp
                if asked.background and not asked.stream:
                    await continued.run.entered()  # its id is in the answer
                    app = await answer_now(continued, reply, asked.kept)
                else:
                    app = await self._reply(request, asked, continued, reply, asked.kept)
                if run_request.may_be_asked_again:
                    return _noting_its_end(app, partial(self._service.delivered, run_request.owner, continued.key))
                return app
            case ContinueRun(reply=reply):
                return await self._reply(request, asked, await self._continued(asked, request), reply)

    def _in_dialect(self, asked: RunAction, name: str | None) -> RunAction:
        reply = self._dialects.reply(name) if name else None
        return asked if reply is None else replace(asked, reply=reply, stream=True)

    async def _with_references(self, asked: StartRun, owner: str) -> Sequence[Message]:
        """The messages, with the texts and the calls of the answers that the client only names; those that are unknown
        stay empty."""
        messages = list(asked.messages)
        for number, answer in asked.references.items():
            with suppress(NotFound, StoreUnavailable):
                state = await (await self._service.find(answer.run_id, owner)).state()
                quote_reply(messages, number, state.reply_text(answer.after), state.reply_calls(answer.after))
        return messages

    async def _check_followed(self, asked: StartRun, owner: str) -> None:
        """What its client did not want to be stored, or deleted, cannot be continued by its id in the dialect."""
        if asked.follows is None or (answer := self._dialects.answer(asked.follows)).run_id == asked.follows:
            return
        if await self._service.store.kept_request(answer.run_id, owner, answer.after) == NOT_STORED:
            raise PreviousAnswerUnknown(
                "The previous answer was not stored, or was deleted; send the whole conversation instead.",
                param="previous_response_id",
            )

    def _run_request(
        self, asked: StartRun, messages: Sequence[Message], scope: Scope, headers: Mapping[str, str], body: bytes
    ) -> RunRequest:
        state = scope["state"]
        wanted = dict(zip(_FIELDS, _values(asked), strict=True))
        wanted["messages"] = messages
        for named in ("conversation_id", "follows"):
            wanted[named] = None if wanted[named] is None else self._dialects.run_id(wanted[named])
        if asked.priority:
            check_priority(asked.priority, state["owner"], self._settings)
        queues = asked.background or asked.responds_async
        if asked.background:
            wanted["when_client_leaves"] = "finish"
        return RunRequest(
            **wanted,
            owner=state["owner"],
            request_id=state["request_id"],
            client=client_name(headers),
            idempotency_key=idempotency_key(headers),
            body=body,
            queues=queues,
            trace=scope.get("trace"),
        )

    async def _continued(self, asked: ContinueRun, request: Request) -> Continued:
        id = asked.run_id or self._dialects.run_id(request.path_params["id"])
        asker = Asker(
            owner=request.state.owner,
            request_id=request.state.request_id,
            when_client_leaves=asked.when_client_leaves,
            trace=request.scope.get("trace"),
        )
        return await self._service.answer(id, asker, asked.given)

    async def _reply(
        self, request: Request, asked: RunAction, continued: Continued, reply: Reply, kept: bytes = b""
    ) -> ASGIApp:
        """Up to the end of the run, or to where it pauses."""
        request_id: str = request.scope["state"]["request_id"]
        run, start = continued.run, ReplyStart(continued.after, continued.usage_before, kept, request_id)
        if asked.responds_async:
            await run.entered()
            snapshot = await response_of(run)
            return run_response(snapshot, 202, {**run_headers(run), "location": f"/v1/chat/{run.id}"})
        if asked.stream_name:
            await name_stream(self._service.store, run, asked.stream_name, start.after)
        if asked.stream:
            return reply_stream(run, reply, start, self._reading, self._errors, is_replay=continued.is_repeat)
        whole = reply.whole(view_of(run), start)
        if (has_begun := await fold_run(run, whole, request.scope, request.receive, start.after)) is None:
            raise ClientDisconnect
        headers = {**run_headers(run), **reply.headers(view_of(run))}
        if (failure := whole.failure) is not None:
            if continued.is_repeat:  # the status of a failure would be retried, and nothing more can come
                return run_response(await response_of(run), headers=headers)
            shown = failure.final() if has_begun else failure
            return error_response(shown, headers, whole.error_body(failure), self._errors)
        return Response(whole.body(), media_type=reply.media_type, headers=headers)


def _noting_its_end(app: ASGIApp, sent: Callable[[], None]) -> ASGIApp:
    """The reply; `sent` is called when the last of it was written."""
    if isinstance(app, Response):

        async def note() -> None:  # in the event loop, not in a thread: the client may ask again at once
            sent()

        app.background = BackgroundTask(note)
        return app

    async def respond(scope: Scope, receive: Receive, send: Send) -> None:
        async def noting(message: MutableMapping[str, Any]) -> None:
            await send(message)
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                sent()

        await app(scope, receive, noting)

    return respond


# --- answers by their ids ---------------------------------------------------------------------------


class StoredAnswerEndpoints:
    """Answers in their own dialect: get, stream, cancel and delete them."""

    def __init__(
        self, answers: StoredAnswers, dialects: Dialects, service: RunService, reading: Reading, errors: Errors
    ) -> None:
        self._answers, self._errors, self._dialects = answers, errors, dialects
        self._service, self._reading = service, reading

    @property
    def endpoints(self) -> dict[str, dict[str, Handler]]:
        name, path = self._answers.name, self._answers.path
        return {
            path: {"GET": _Named(name, self._read), "DELETE": _Named(name, self._delete)},
            f"{path}/cancel": {"POST": _Named(name, self._cancel)},
            self._answers.items_path: {"GET": _Named(name, self._items)},
        }

    async def _read(self, request: Request) -> ASGIApp:
        continued, kept, reply, is_stream = await self._find(request)
        if not is_stream or request.method == "HEAD":
            return await answer_now(continued, reply, kept)
        start = ReplyStart(continued.after, continued.usage_before, kept)
        return reply_stream(continued.run, reply, start, self._reading, self._errors, is_replay=True)

    async def _cancel(self, request: Request) -> ASGIApp:
        continued, kept, reply, _ = await self._find(request)
        await self._service.cancel(continued.run.id, request.state.owner)
        if await continued.run.place() is not None:  # it had not begun
            continued, kept, reply, _ = await self._find(request)
        return await answer_now(continued, reply, kept)

    async def _delete(self, request: Request) -> ASGIApp:
        id = request.path_params["id"]
        answer = self._dialects.answer(id)
        if not await delete_answer(self._service, answer.run_id, request.state.owner, answer.after):
            raise _unknown(id)
        return Response(self._answers.deleted(id), media_type="application/json")

    async def _items(self, request: Request) -> ASGIApp:
        kept = await self._kept(self._dialects.answer(request.path_params["id"]), request)
        return Response(self._answers.items(kept, request.query_params), media_type="application/json")

    async def _find(self, request: Request) -> tuple[Continued, bytes, Reply, bool]:
        answer = self._dialects.answer(request.path_params["id"])
        kept = await self._kept(answer, request)
        run = await self._service.find(answer.run_id, request.state.owner)
        continued = Continued(run, answer.after, await usage_at(run, answer.after))
        return continued, kept, *self._answers.open(kept, request.query_params)

    async def _kept(self, answer: AnswerId, request: Request) -> bytes:
        kept = await self._service.kept_request(answer.run_id, request.state.owner, answer.after)
        if kept is None or kept == NOT_STORED:
            raise _unknown(request.path_params["id"])
        return kept


class NamedStreamEndpoint:
    """The stream of the newest reply of a name, from the beginning of its run."""

    def __init__(self, streams: NamedStreams, service: RunService, reading: Reading, errors: Errors) -> None:
        self.__name__ = streams.name
        self._streams, self._service, self._reading, self._errors = streams, service, reading, errors

    async def __call__(self, request: Request) -> ASGIApp:
        owner, name = request.state.owner, request.path_params["id"]
        named = await self._service.store.find_run_by_idempotency(owner, _stream_key(name))
        if named is None:
            return Response(status_code=204)
        run = await self._service.find(named.run_id, owner)
        if run.done is not None or (await run.state()).next_pause(named.after) is not None:
            return Response(status_code=204, headers=run_headers(run))
        encoder, headers = self._streams.open(view_of(run), named.after), self._streams.headers
        return EventStream(
            run, encoder, self._streams.form, self._reading, is_replay=True, errors=self._errors, headers=headers
        )


async def name_stream(store: Store, run: RunHandle, name: str, after: int) -> None:
    await run.entered()
    with suppress(StoreUnavailable):  # it cannot be resumed then, but it is sent
        await store.name_reply(run.owner, _stream_key(name), IdempotentRun(run.id, "", after), int(time() * 1000))


def _stream_key(name: str) -> str:
    """The same length for every name: clients choose names, and a store indexes keys."""
    return f"stream {hashlib.sha256(name.encode(errors='surrogatepass')).hexdigest()}"


class _Named:
    """The metrics count by name."""

    def __init__(self, name: str, endpoint: Handler) -> None:
        self.__name__, self._endpoint = name, endpoint

    async def __call__(self, request: Request) -> ASGIApp:
        return await self._endpoint(request)


def _unknown(id: str) -> NotFound:
    return NotFound(f"There is no answer {id[:100]!r}: it was not stored, or was deleted.", param="id")


class ComputedEndpoint:
    def __init__(self, route: Route[bytes], settings: Settings, reading: Reading) -> None:
        self.__name__ = route.name
        self._route, self._settings, self._reading = route, settings, reading

    async def __call__(self, request: Request) -> ASGIApp:
        body = await read_body(request, self._settings) if self._route.method == "POST" else b""
        turn = partial(self._reading.unread.turn, request.state.owner)
        headers = texts_of(request.scope["headers"])
        computed = await parse_body(body, lambda body: self._route.read(body, headers), turn)
        return Response(computed, media_type="application/json")


# --- replies ----------------------------------------------------------------------------------------


def reply_stream(
    run: RunHandle, reply: Reply, start: ReplyStart, reading: Reading, errors: Errors, *, is_replay: bool = False
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
    whole = reply.whole(view, ReplyStart(continued.after, continued.usage_before, kept))
    async with aclosing(run.events(whole.after)) as batches:
        async for events in batches:
            for event in events:
                whole.push(event)
            if whole.is_over:
                break
    headers = {**run_headers(run), **reply.headers(view)}
    return Response(whole.body(), media_type=reply.media_type, headers=headers)


async def fold_run(run: RunHandle, whole: WholeReply, scope: Scope, receive: Receive, start: int) -> bool | None:
    """Waits for the answer after the event `start`. Returns whether the agent began to work; None: the client left."""
    has_begun = start > 0

    def push(event: DocumentEvent) -> bool:
        nonlocal has_begun
        has_begun = has_begun or says_something(event)
        whole.push(event)
        return whole.is_over

    with DisconnectWatch(run, scope, receive, whole.after) as reader:
        is_over = await push_until(reader, push)
        if whole.is_cut:
            cut_short(run, reader)
    return None if reader.has_left and not is_over else has_begun
