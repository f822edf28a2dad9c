"""The files that the agent changed in a conversation, over HTTP: list and revert them."""

from collections.abc import Set
from typing import Annotated

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from cursor_gateway.errors import ConversationBusy, InvalidRequest, NotFound
from cursor_gateway.model.documents import ChatResponse
from cursor_gateway.model.history import RevertRequest
from cursor_gateway.runs.reverting import RevertedFile, edits_of
from cursor_gateway.runs.run_service import RunService
from cursor_gateway.runs.whole_answers import response_of
from cursor_gateway.server.bodies import json_response, read_body, while_connected
from cursor_gateway.server.history import find_conversation
from cursor_gateway.server.rendering import Renderings
from cursor_gateway.server.runs import HTML_HEADERS
from cursor_gateway.settings import Settings
from cursor_gateway.stages.changes import FileChange, edited_files
from cursor_gateway.store.base import ConversationRecord, RunRecord
from cursor_gateway.wire.json_body import read_json


class ConversationChanges(Struct, frozen=True):
    """The files that the agent changed in a conversation."""

    files: Annotated[list[FileChange], Meta(description="In the order in which they were first changed.")]


class RevertedFiles(Struct, frozen=True):
    """The files that were reverted."""

    files: Annotated[list[RevertedFile], Meta(description="In the order in which they were first changed.")]


class ChangeEndpoints:
    def __init__(self, service: RunService, settings: Settings, renderings: Renderings) -> None:
        self._service, self._settings, self._renderings = service, settings, renderings

    async def changes(self, request: Request) -> Response:
        """The edits of each file combined."""
        form = request.query_params.get("dialect") or "json"
        if form not in ("json", "html"):
            raise InvalidRequest("`dialect` must be json or html.", param="dialect")
        conversation = await find_conversation(self._service, request)
        responses = await self._responses(request.state.owner, await self._runs(conversation))
        edits = edits_of(responses)
        fitting = set[str]()
        if edits:
            fitting = set(await while_connected(request, self._service.revertible(conversation, edits)))
        renderings = self._renderings
        return await renderings.run_for(request, lambda: _reply(form, responses, fitting, renderings))

    async def revert(self, request: Request) -> Response:
        wanted = read_json(await read_body(request, self._settings), RevertRequest)
        if wanted.path is None and wanted.chat_id is None:
            raise InvalidRequest("Send `path`, `chatId`, or both; nothing else says what to revert.", param="path")
        conversation = await find_conversation(self._service, request)
        runs = await self._runs(conversation)
        if any(run.state == "running" for run in runs):
            raise ConversationBusy("The agent is still working in this conversation; revert when it is done.")
        if wanted.chat_id is not None:
            runs = [run for run in runs if run.id == wanted.chat_id]
        files = edits_of(await self._responses(request.state.owner, runs))
        if wanted.path is not None:
            files = [file for file in files if file.path == wanted.path]
        if not files:
            raise NotFound("The agent changed no such file; see GET /v1/conversations/{id}/changes.", param="path")
        return json_response(RevertedFiles(await self._service.revert(conversation, files)))

    async def _runs(self, conversation: ConversationRecord) -> list[RunRecord]:
        return await self._service.store.runs_of(conversation.id, conversation.owner)

    async def _responses(self, owner: str, runs: list[RunRecord]) -> list[tuple[ChatResponse, int]]:
        return [(await response_of(await self._service.find(run.id, owner)), run.ended_ms or 0) for run in runs]


def _reply(form: str, responses: list[tuple[ChatResponse, int]], fitting: Set[str], renderings: Renderings) -> Response:
    found = edited_files(document for response, _ in responses for document in response.documents)
    combined = [renderings.combine(file) for file in found]
    files = [msgspec.structs.replace(file, can_revert=file.path in fitting) for file in combined]
    if form == "json":
        return json_response(ConversationChanges(files))
    from cursor_gateway.render.html import render_changes

    return Response(render_changes(files, renderings.do), media_type="text/html", headers=HTML_HEADERS)
