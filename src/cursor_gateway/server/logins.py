"""Logins over HTTP: exchange a one-time code for a device's key; create codes; list and forget devices."""

import time

from msgspec import Struct
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from cursor_gateway.errors import NotFound
from cursor_gateway.logins import CODE_SECONDS, DeviceKeys, LoginCodes
from cursor_gateway.model.history import DeviceEntry, DeviceList, LoginKey, LoginLink, LoginRequest
from cursor_gateway.server.bodies import Handler, json_response, read_body
from cursor_gateway.server.guard import key_in
from cursor_gateway.server.logs import StructuredLog
from cursor_gateway.settings import Settings
from cursor_gateway.wire.json_body import read_json

_log = StructuredLog()
_LARGEST = 4096  # bytes of a request by somebody who has not logged in yet


class Sharing(Struct, frozen=True):
    """What a gateway that is shared with other devices has."""

    codes: LoginCodes
    keys: DeviceKeys
    url: str  # of the page, as other devices open it

    def new_link(self) -> LoginLink:
        """The code is in the fragment, which browsers do not send: it appears in no log."""
        return LoginLink(f"{self.url}/#/login/{self.codes.new_code()}", int(time.time()) + CODE_SECONDS)


class LoginEndpoints:
    def __init__(self, sharing: Sharing, settings: Settings) -> None:
        self._sharing, self._settings = sharing, replace(settings, max_body_bytes=_LARGEST)
        self.for_devices: dict[str, dict[str, Handler]] = {"/v1/login": {"POST": self.log_in, "DELETE": self.log_out}}
        self.for_operator: dict[str, dict[str, Handler]] = {
            "/v1/logins": {"POST": self.new_link},
            "/v1/devices": {"GET": self.devices},
            "/v1/devices/{id}": {"DELETE": self.forget},
        }

    async def log_in(self, request: Request) -> Response:
        wanted = read_json(await read_body(request, self._settings), LoginRequest)
        self._sharing.codes.use(wanted.code)
        name = request.headers.get("user-agent", "")
        key = self._sharing.keys.add(name)
        _log.info("a device has logged in", device=name[:200])
        return json_response(LoginKey(key), 201)

    async def log_out(self, request: Request) -> Response:
        """The device whose key the request has. Other keys stay valid."""
        self._sharing.keys.forget_key(key_in(dict(reversed(request.scope["headers"]))))
        return Response(status_code=204)

    async def new_link(self, request: Request) -> Response:
        return json_response(self._sharing.new_link(), 201)

    async def devices(self, request: Request) -> Response:
        entries = [
            DeviceEntry(device.id, device.name, device.created_ms // 1000, device.expires_ms // 1000)
            for device in self._sharing.keys.devices()
        ]
        return json_response(DeviceList(entries))

    async def forget(self, request: Request) -> Response:
        id: str = request.path_params["id"]
        if not self._sharing.keys.forget(id):
            raise NotFound(f"Unknown device {id[:100]!r}; see GET /v1/devices.", param="id")
        return Response(status_code=204)
