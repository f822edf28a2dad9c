"""Permissions over HTTP: list and revoke them. They are granted at `/v1/chat/{id}/answer`."""

from starlette.requests import Request
from starlette.responses import Response

from cursor_gateway.errors import NotFound
from cursor_gateway.model.permissions import PermissionList
from cursor_gateway.runs.run_service import RunService
from cursor_gateway.server.bodies import json_response
from cursor_gateway.settings import Settings


class PermissionEndpoints:
    def __init__(self, service: RunService, settings: Settings) -> None:
        self._service, self._settings = service, settings

    async def every(self, request: Request) -> Response:
        found = await self._service.permissions(request.state.owner)
        listed = PermissionList(
            permissions=found,
            settings=self._settings.allow,
            can_allow=self._settings.permissions == "ask",
            allows_everything=self._settings.force,
        )
        return json_response(listed)

    async def revoke(self, request: Request) -> Response:
        id = request.path_params["id"]
        if not await self._service.revoke_permission(request.state.owner, id):
            raise NotFound(f"Unknown permission {id[:100]!r}; see GET /v1/permissions.", param="id")
        return Response(status_code=204)
