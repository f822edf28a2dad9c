"""Workspaces over HTTP: find files, for completion, and folders to choose from."""

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from cursor_gateway.runs.run_service import RunService
from cursor_gateway.server.bodies import json_response

_MOST = 20


class WorkspaceFiles(Struct, frozen=True):
    """Files of a workspace."""

    files: list[str]


class WorkspaceFolders(Struct, frozen=True):
    """Folders that a conversation may use."""

    folders: list[str]


class WorkspaceEndpoints:
    def __init__(self, service: RunService) -> None:
        self._service = service

    async def files(self, request: Request) -> Response:
        """`q` is part of a path; `workspace` is the folder, by default the gateway's."""
        workspace, query = request.query_params.get("workspace") or None, request.query_params.get("q", "")
        found = await self._service.files(workspace, query, _MOST)
        return json_response(WorkspaceFiles(found))

    async def folders(self, request: Request) -> Response:
        """`q` is the beginning of a path."""
        query = request.query_params.get("q", "")
        found = await self._service.folders(query, _MOST)
        return json_response(WorkspaceFolders(found))
