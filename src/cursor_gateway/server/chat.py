"""The documents dialect over HTTP: `POST /v1/chat` and what can be done to a run."""

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp

from cursor_gateway.core.documents import ChatResponse
from cursor_gateway.core.images import read_image
from cursor_gateway.core.prompt import UserMessage
from cursor_gateway.dialects.documents import NdjsonEncoder, SseEncoder, encode_response
from cursor_gateway.dialects.documents_request import read_chat_request
from cursor_gateway.dialects.openai_chat import encode_error
from cursor_gateway.runs.run import Run
from cursor_gateway.runs.service import Order, Service
from cursor_gateway.server.bodies import read_body
from cursor_gateway.server.guard import error_response
from cursor_gateway.server.streaming import NDJSON, SSE, EventStream, Reading, read_to_end, run_headers
from cursor_gateway.settings import Settings


class ChatEndpoints:
    def __init__(self, service: Service, settings: Settings, reading: Reading) -> None:
        self._service, self._settings, self._reading = service, settings, reading

    async def chat(self, request: Request) -> ASGIApp:
        asked = read_chat_request(await read_body(request, self._settings))
        run = self._service.start(
            Order(
                owner=request.state.owner,
                request_id=request.state.request_id,
                messages=[UserMessage(asked.message)],
                images=[read_image(uri, f"images[{place}]") for place, uri in enumerate(asked.images)],
                model=asked.model,
                mode=asked.mode,
                workspace=asked.workspace,
                conversation_id=asked.conversation_id,
                fences=asked.fences,
                include=frozenset(asked.include),
            )
        )
        headers = run_headers(run)
        if asked.stream:
            if "application/x-ndjson" in request.headers.get("accept", ""):
                return EventStream(run, NdjsonEncoder(), NDJSON, self._reading, headers)
            return EventStream(run, SseEncoder(), SSE, self._reading, headers)
        if not await read_to_end(run, request.receive, self._reading):
            raise ClientDisconnect
        return _answer(run, headers)

    async def cancel(self, request: Request) -> Response:
        """The reply is what the run's `done` says."""
        envelope = await self._service.runs.cancel(request.path_params["id"], request.state.owner)
        return Response(msgspec.json.encode(envelope), media_type="application/json")


def _answer(run: Run, headers: dict[str, str]) -> Response:
    response = _response(run)
    failure = run.done.failure if run.done is not None else None
    if failure is None:
        return Response(encode_response(response), media_type="application/json", headers=headers)
    # What had arrived stands beside the error.
    return error_response(failure, headers, encode_error(failure)[:-1] + b"," + encode_response(response)[1:])


def _response(run: Run) -> ChatResponse:
    response = run.response()
    assert response is not None
    return response
