"""Read-only links over HTTP: create, list and revoke them, and read the conversation that one leads to.

A link has a random token, of which only the hash is stored. It gives the right to read one conversation, as a page
without scripts, and nothing else: no files of the workspace, no images, no ids, no other conversation.
"""

import re
import secrets
import time
from math import ceil
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from cursor_gateway.errors import NotFound, RequestForbidden, TooManyRequests
from cursor_gateway.keys import CODE_SECONDS, DeviceKeys, KeyRing, LoginCodes, Rate, hash_key
from cursor_gateway.model.documents import ChatResponse
from cursor_gateway.model.history import (
    ConversationDetail,
    ConversationLink,
    DeviceEntry,
    DeviceList,
    LinkList,
    LoginKey,
    LoginLink,
    LoginRequest,
)
from cursor_gateway.runs.handle import answered_response_of
from cursor_gateway.runs.run_service import RunService
from cursor_gateway.server.bodies import Handler, json_response, read_body, while_connected
from cursor_gateway.server.guard import key_in
from cursor_gateway.server.history import find_conversation, page_size
from cursor_gateway.server.logs import StructuredLog
from cursor_gateway.server.runs import HTML_HEADERS
from cursor_gateway.server.streaming import Reading
from cursor_gateway.settings import Settings
from cursor_gateway.store.base import ConversationRecord
from cursor_gateway.store.entries import detail_of, entry_of
from cursor_gateway.wire.json_body import read_json

_TOKEN_BYTES = 32
_LISTED = 100  # at once
_VIEWS_PER_MINUTE = 60  # of one link, by anyone; and of all invalid links together
_LOOKUPS_PER_MINUTE = 600  # of tokens that are not known here, before the store is asked
_MOST_KNOWN = 1_000  # links, so that guesses do not keep their readers out
_READERS = "readers of links"  # they have no key, and share one turn among the owners that want something rendered
_HEADERS = {**HTML_HEADERS, "cache-control": "no-store", "x-robots-tag": "noindex, nofollow"}
_NO_LINK = """\
<!doctype html>
<html lang="en">
<title>Not found</title>
<h1>Not found</h1>
<p>This link does not exist, or its owner has revoked it.</p>
</html>
"""
_OFF = "Read-only links are turned off; the operator can allow them with `public_links = true`."


class LinkEndpoints:
    def __init__(self, service: RunService, settings: Settings, keys: KeyRing, reading: Reading) -> None:
        self._service, self._keys, self._reading = service, keys, reading
        self._is_on, self._page_url = settings.public_links, settings.page_url
        self._views, self._lookups = Rate(_VIEWS_PER_MINUTE), Rate(_LOOKUPS_PER_MINUTE)
        self._known: dict[str, str] = {}  # conversations, by the hashes of their links

    async def create(self, request: Request) -> Response:
        """Replaces an earlier one of the same conversation."""
        if not self._is_on:
            raise RequestForbidden(_OFF)
        conversation = await find_conversation(self._service, request)
        token = secrets.token_urlsafe(_TOKEN_BYTES)
        store, now_ms = self._service.store, int(time.time() * 1000)
        await store.change_conversation(
            conversation.id, conversation.owner, link_hash=hash_key(token), linked_ms=now_ms
        )
        base = self._page_url or str(request.base_url)
        return json_response(ConversationLink(url=f"{base.rstrip('/')}/shared/{token}"), 201)

    async def every(self, request: Request) -> Response:
        page = await self._service.store.conversations(
            request.state.owner,
            limit=page_size(request, _LISTED),
            before=request.query_params.get("before") or None,
            is_linked=True,
        )
        entries = list(map(entry_of, page.found))
        return json_response(LinkList(conversations=entries, next=page.next, can_create=self._is_on))

    async def revoke(self, request: Request) -> Response:
        conversation = await find_conversation(self._service, request)
        if conversation.linked_ms is None:
            raise NotFound("This conversation has no read-only link; see GET /v1/links.", param="id")
        await self._service.store.change_conversation(conversation.id, conversation.owner, link_hash="")
        return Response(status_code=204)

    async def read(self, request: Request) -> Response:
        """For anybody who has the link."""
        request.state.owner = _READERS  # a page that they do not read is not held against a key
        conversation = await self._found(hash_key(request.path_params["token"]))
        if conversation is None:
            return Response(_NO_LINK, 404, media_type="text/html", headers=_HEADERS)
        return await while_connected(request, self._page(conversation))

    async def _found(self, link: str) -> ConversationRecord | None:
        """Raises `TooManyRequests`, before the store is asked where that is possible."""
        known = self._known.get(link)
        _check(*((self._views, known) if known is not None else (self._lookups, "")))
        found = await self._service.store.find_by_link(link) if self._is_on else None
        self._known.pop(link, None)
        if found is None or not self._keys.has_owner(found.owner):
            _check(self._views, "")
            return None
        self._known[link] = found.id
        if len(self._known) > _MOST_KNOWN:
            del self._known[next(iter(self._known))]  # the one that was not read for longest
        if known is None:
            _check(self._views, found.id)
        return found

    async def _page(self, conversation: ConversationRecord) -> Response:
        service, renderings = self._service, self._reading.renderings
        async with self._reading.unread.turn(_READERS):
            detail = await detail_of(service.store, conversation)
            runs = [await service.find(run.id, conversation.owner) for run in detail.runs]
            responses = [await answered_response_of(service.store, run) for run in runs]

        def rendered() -> str:
            from cursor_gateway.render.html.work import (  # a Markdown parser: when needed
                RenderedTurn,
                render_conversation,
            )

            hidden = HiddenPlace(conversation.workspace)
            turns = [RenderedTurn(hidden.text(_prompt(detail, one.id)), hidden.response(one)) for one in responses]
            return render_conversation(hidden.text(detail.title), turns, do=renderings.do)

        return Response(await renderings.run(_READERS, rendered), media_type="text/html", headers=_HEADERS)


def _check(rate: Rate, link: str) -> None:
    seconds = rate.take(link, time.monotonic())
    if seconds is not None:
        error = TooManyRequests("Too many requests for this link; wait a moment, then reload the page.")
        error.retry_after = ceil(seconds)
        raise error


class HiddenPlace:
    """Leaves out where the workspace is, which does not concern readers: some agents name files by their whole paths.

    In the texts, not in the page: there, tags can be within a path, and look like one (`</code>`).
    """

    def __init__(self, workspace: str) -> None:
        place = workspace.rstrip("/")
        is_short = place.count("/") == 1  # such as `/app`, which is in many addresses too
        self._place = re.compile(rf"{'(?<![<a-zA-Z0-9])' if is_short else ''}{re.escape(place)}(/?)") if place else None

    def text(self, text: str) -> str:
        return self._place.sub(lambda found: "" if found[1] else "the folder", text) if self._place else text

    def response(self, response: ChatResponse) -> ChatResponse:
        return msgspec.convert(self._any(msgspec.to_builtins(response)), ChatResponse)

    def _any(self, value: Any) -> Any:
        match value:
            case str():
                return self.text(value)
            case dict():
                return {self.text(key): self._any(one) for key, one in value.items()}
            case list():
                return [self._any(one) for one in value]
            case _:
                return value


def _prompt(detail: ConversationDetail, run_id: str) -> str:
    said = [message.text for message in detail.messages if message.role == "user" and message.chat_id == run_id]
    return "\n\n".join(said)


# --- logins of other devices --------------------------------------------------------------------------


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
