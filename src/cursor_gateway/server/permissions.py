"""Permissions over HTTP: listed and revoked. They are granted at `/v1/chat/{id}/answer`."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from cursor_gateway.errors import NotFound
from cursor_gateway.model.permissions import PermissionList
from cursor_gateway.runs.service import Service
from cursor_gateway.runs.starter import unwritable
from cursor_gateway.settings import Settings


class PermissionEndpoints:
    def __init__(self, service: Service, settings: Settings) -> None:
        self._service, self._settings = service, settings

    async def every(self, request: Request) -> Response:
        permissions = self._service.permissions
        try:
            found = permissions.every(request.state.owner)
        except OSError as error:
            raise unwritable(error) from error
        listed = PermissionList(
            permissions=found,
            settings=self._settings.allow,
            can_allow=permissions.can_allow,
            allows_everything=self._settings.force,
        )
        return Response(msgspec.json.encode(listed), media_type="application/json")

    async def revoke(self, request: Request) -> Response:
        id = request.path_params["id"]
        try:
            is_revoked = self._service.permissions.revoke(request.state.owner, id)
        except OSError as error:
            raise unwritable(error) from error
        if not is_revoked:
            raise NotFound(f"Unknown permission {id[:100]!r}; see GET /v1/permissions.", param="id")
        return Response(status_code=204)
