"""Workspaces over HTTP: find files, for completion, and folders to choose from."""

from typing import Annotated

from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from cursor_gateway.runs.run_service import RunService
from cursor_gateway.server.bodies import json_response, while_connected

_MOST = 20


class WorkspaceFiles(Struct, frozen=True):
    """Files of a workspace."""

    files: Annotated[list[str], Meta(description="Paths below the workspace, best match first.")]


class WorkspaceFolders(Struct, frozen=True):
    """Folders that a conversation may use."""

    folders: Annotated[list[str], Meta(description="Their paths.")]


class WorkspaceEndpoints:
    def __init__(self, service: RunService) -> None:
        self._service = service

    async def files(self, request: Request) -> Response:
        """`q` is part of a path; `workspace` is the folder, by default the gateway's."""
        workspace, query = request.query_params.get("workspace") or None, request.query_params.get("q", "")
        owner = request.state.owner
        found = await while_connected(request, self._service.files(owner, workspace, query, _MOST))
        return json_response(WorkspaceFiles(found))

    async def folders(self, request: Request) -> Response:
        """`q` is the beginning of a path."""
        query = request.query_params.get("q", "")
        found = await while_connected(request, self._service.folders(request.state.owner, query, _MOST))
        return json_response(WorkspaceFolders(found))
