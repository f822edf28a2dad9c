"""Serve the files of the page at `/`, with a policy that lets them load nothing from elsewhere."""

import hashlib
from functools import cache
from importlib.resources import files
from pathlib import PurePath

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from cursor_gateway.errors import NotFound

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "manifest-src 'self'; worker-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_TYPES = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".webmanifest": "application/manifest+json",
}
_SHELL, _WORKER = "index.html", "sw.js"


class _File(Struct, frozen=True):
    data: bytes
    media_type: str
    tag: str


class PageEndpoints:
    async def shell(self, request: Request) -> Response:
        return _reply(request, _SHELL)

    async def file(self, request: Request) -> Response:
        return _reply(request, request.path_params["name"])


def _reply(request: Request, name: str) -> Response:
    file = _files().get(name)
    if file is None:
        raise NotFound(f"The page has no file {name[:100]!r}.", param="name")
    headers = {"content-security-policy": _POLICY, "cache-control": "no-cache", "etag": file.tag}
    if name == _WORKER:
        headers["service-worker-allowed"] = "/"  # it is for the whole page, not only for its folder
    if request.headers.get("if-none-match") == file.tag:
        return Response(status_code=304, headers=headers)
    return Response(file.data, media_type=file.media_type, headers=headers)


@cache
def _files() -> dict[str, _File]:
    from cursor_gateway.render.html import page_style  # only requests for it wait

    folder = files("cursor_gateway.server").joinpath("page")
    found = {entry.name: entry.read_bytes() for entry in folder.iterdir() if PurePath(entry.name).suffix in _TYPES}
    found["style.css"] = page_style().encode()
    return {name: _file(name, data) for name, data in found.items()}


def _file(name: str, data: bytes) -> _File:
    return _File(data, _TYPES[PurePath(name).suffix], f'"{hashlib.sha256(data).hexdigest()[:16]}"')
