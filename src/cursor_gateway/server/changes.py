"""The files that changed in a conversation, over HTTP: list them, get patches, revert, keep and commit changes."""

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from cursor_gateway.errors import ConversationBusy, InvalidRequest
from cursor_gateway.model.changes import (
    MEDIA_TYPE,
    CommitRequest,
    ConversationChanges,
    FileChange,
    KeepRequest,
    LineTrace,
    ListedChanges,
    ListRequest,
    Patch,
    PatchRequest,
    RevertRequest,
    ReviewRequest,
    TraceRequest,
)
from cursor_gateway.model.documents import CodeBlockDocument, CodeBlockMetadata, Document, FileEditDocument
from cursor_gateway.runs.handle import response_of
from cursor_gateway.runs.run_service import RunService
from cursor_gateway.server.bodies import json_response, read_body, while_connected
from cursor_gateway.server.history import find_conversation
from cursor_gateway.server.rendering import Renderings
from cursor_gateway.settings import Settings
from cursor_gateway.stages.changes import EditedFile, edited_files
from cursor_gateway.stages.tool_documents import language_of
from cursor_gateway.store.base import ConversationRecord
from cursor_gateway.wire.json_body import read_json
from cursor_gateway.workspace.line_authors import trace_record

_FORMS = ("json", "patch", "colours")
_NOT_RECORDED = "The gateway has not read this file; these are the edits that the agent reported."


class ColouredLines(Struct, frozen=True):
    """The lines of a file's patch as HTML, with colours; empty if there are none."""

    old: Annotated[list[str], "Removed and unchanged lines."]
    new: Annotated[list[str], "Added and unchanged lines."]


class ChangeEndpoints:
    def __init__(self, service: RunService, settings: Settings, renderings: Renderings) -> None:
        self._service, self._settings, self._renderings = service, settings, renderings

    async def changes(self, request: Request) -> Response:
        """What changed in the files, and edits of files that the gateway has not read, combined."""
        query = request.query_params
        form = query.get("dialect") or "json"
        if form not in _FORMS:
            raise InvalidRequest("`dialect` must be json, patch or colours.", param="dialect")
        conversation, chat_id = await find_conversation(self._service, request), query.get("chatId") or None
        if form != "json":
            patch = await self._patch(request, conversation, chat_id)
            if form == "patch":
                return Response(patch, media_type="text/x-diff", headers={"X-Content-Type-Options": "nosniff"})
            renderings, language = self._renderings, language_of(query.get("path") or "")
            return await renderings.run_for(
                request, lambda: json_response(_coloured(patch.decode("utf-8", "replace"), language, renderings))
            )
        listed = await while_connected(request, self._service.host.review(conversation, ListRequest(chat_id)))
        assert isinstance(listed, ListedChanges)
        edited = await self._edited(conversation, request.state.owner, chat_id, listed)
        if not edited:
            return _reply(listed, [], conversation.workspace)
        renderings = self._renderings
        return await renderings.run_for(
            request, lambda: _reply(listed, [renderings.combine(file) for file in edited], conversation.workspace)
        )

    async def _patch(self, request: Request, conversation: ConversationRecord, chat_id: str | None) -> bytes:
        query = request.query_params
        context = query.get("context") or "3"
        if not context.isdecimal() or len(context) > 8:
            raise InvalidRequest("`context` must be a number of lines.", param="context")
        wanted = PatchRequest(chat_id, query.get("path") or None, int(context), query.get("open") == "true")
        patch = await while_connected(request, self._service.host.review(conversation, wanted))
        assert isinstance(patch, Patch)
        return patch.data

    async def trace(self, request: Request) -> Response:
        """Which lines the agent wrote, as a record of Agent Trace."""
        conversation = await find_conversation(self._service, request)
        found = await while_connected(request, self._service.host.review(conversation, TraceRequest()))
        assert isinstance(found, LineTrace)
        runs = await self._service.store.runs_of(conversation.id, conversation.owner)
        url = self._settings.page_url or str(request.base_url)
        record = trace_record(found, conversation.id, conversation.updated_ms, {run.id: run.model for run in runs}, url)
        return Response(msgspec.json.encode(record), media_type=MEDIA_TYPE)

    async def revert(self, request: Request) -> Response:
        wanted = read_json(await read_body(request, self._settings), RevertRequest)
        if wanted.path is wanted.chat_id is wanted.before is wanted.undo is None:
            raise InvalidRequest(
                "Send `path`, `chatId`, `before` or `undo`; nothing else says what to revert.", param="path"
            )
        return await self._changed(request, wanted)

    async def keep(self, request: Request) -> Response:
        return await self._changed(request, read_json(await read_body(request, self._settings), KeepRequest))

    async def commit(self, request: Request) -> Response:
        return await self._changed(request, read_json(await read_body(request, self._settings), CommitRequest))

    async def _changed(self, request: Request, wanted: ReviewRequest) -> Response:
        conversation = await find_conversation(self._service, request)
        runs = await self._service.store.runs_of(conversation.id, conversation.owner)
        if any(run.state == "running" for run in runs):
            raise ConversationBusy("The agent is still working in this conversation; try again when it is done.")
        return json_response(await self._service.host.review(conversation, wanted))

    async def _edited(
        self, conversation: ConversationRecord, owner: str, chat_id: str | None, listed: ListedChanges
    ) -> list[EditedFile]:
        """By documents: those of runs whose changes are not recorded, such as replayed ones, and of files that are not
        read."""
        documents: list[Document] = []
        for run in await self._service.store.runs_of(conversation.id, conversation.owner):
            unread = listed.known_runs.get(run.id)
            if chat_id in (None, run.id) and (unread is None or unread):
                response = await response_of(await self._service.find(run.id, owner))
                documents += [one for one in response.documents if unread is None or _path(one) in unread]
        return edited_files(documents)


def _path(document: Document) -> str | None:
    return document.metadata.file_path if isinstance(document, FileEditDocument) else None


def _reply(listed: ListedChanges, reported: Sequence[FileChange], workspace: str) -> Response:
    known = {file.path for file in listed.files}
    files = [*listed.files, *(replace(file, note=_NOT_RECORDED) for file in reported if file.path not in known)]
    notes = sorted(set(listed.problems.values()))
    return json_response(ConversationChanges(files, notes, workspace, listed.undo or UNSET))


# --- files and folders to choose from ---------------------------------------------------------------


_MOST = 20


class WorkspaceFiles(Struct, frozen=True):
    """Files of a workspace."""

    files: Annotated[list[str], "Paths below the workspace, best match first."]


class WorkspaceFolders(Struct, frozen=True):
    """Folders that a conversation may use."""

    folders: Annotated[list[str], "Their paths."]


class WorkspaceEndpoints:
    def __init__(self, service: RunService) -> None:
        self._service = service

    async def files(self, request: Request) -> Response:
        """`q` is part of a path; `workspace` is the folder, by default the gateway's."""
        workspace, query = request.query_params.get("workspace") or None, request.query_params.get("q", "")
        owner = request.state.owner
        found = await while_connected(request, self._service.host.files(owner, workspace, query, _MOST))
        return json_response(WorkspaceFiles(found))

    async def folders(self, request: Request) -> Response:
        """`q` is the beginning of a path."""
        query = request.query_params.get("q", "")
        found = await while_connected(request, self._service.host.folders(request.state.owner, query, _MOST))
        return json_response(WorkspaceFolders(found))


def _coloured(patch: str, language: str, renderings: Renderings) -> ColouredLines:
    rows = patch.split("\n")
    first = next((place for place, row in enumerate(rows) if row.startswith("@@")), len(rows))
    sides = ([row[1:] for row in rows[first:] if row.startswith((sign, " "))] for sign in "-+")
    return ColouredLines(*(_highlighted(lines, language, renderings) for lines in sides))


def _highlighted(lines: list[str], language: str, renderings: Renderings) -> list[str]:
    from cursor_gateway.render.html.work import CodePart  # a Markdown parser, so only when needed

    metadata = CodeBlockMetadata(language=language, purpose="example")
    code = CodeBlockDocument(id="", sequence=1, content="\n".join(lines), metadata=metadata)
    done = renderings.do(CodePart(code))
    if done is None:
        return []
    html = done.html[0].partition(">")[2].removesuffix("</code>").split("\n")
    return html if len(html) == len(lines) else []  # some characters that end a line are shown in other ways
