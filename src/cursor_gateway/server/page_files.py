"""The files of the page, each with its own policy: the page itself, and the frame in which a diagram is drawn."""

import hashlib
import re
from base64 import b64encode
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path, PurePath

from msgspec import Struct
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from cursor_gateway.errors import NotFound

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "manifest-src 'self'; worker-src 'self'; frame-src 'self'; "
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
_DIAGRAM = "diagram.html"  # the frame in which a diagram is drawn


class _File(Struct, frozen=True):
    data: bytes
    media_type: str
    tag: str
    headers: dict[str, str]


class PageEndpoints:
    async def shell(self, request: Request) -> Response:
        return _reply(request, _SHELL)

    async def file(self, request: Request) -> Response:
        return _reply(request, request.path_params["name"])


def _reply(request: Request, name: str) -> Response:
    file = _files().get(name)
    if file is None:
        raise NotFound(f"The page has no file {name[:100]!r}.", param="name")
    headers = {**file.headers, "cache-control": "no-cache", "etag": file.tag}
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
    known = {name: _file(name, data) for name, data in found.items()}
    if (diagram := _diagram(found.pop(_DIAGRAM))) is None:  # the page asks for it before it draws
        del known[_DIAGRAM]
    else:
        known[_DIAGRAM] = diagram
    return known


def _diagram(page: bytes) -> _File | None:
    """Mermaid sets styles, and draws what a model has written. So the frame may set styles, but has an origin of its
    own and no network, not even to this gateway: its scripts are part of it. None without the extra `diagrams`, which
    contains Mermaid's own script.
    """
    found = find_spec("mmdc")  # not imported: only its file is used
    try:
        folder = Path(found.submodule_search_locations[0]) if found and found.submodule_search_locations else Path()
        mermaid = (folder / "assets" / "mermaid.js").read_bytes().replace(b"</script", b"<\\/script")
    except OSError:
        return None
    drawing = re.search(rb"<script>(.*)</script>", page, re.DOTALL)
    assert drawing is not None
    scripts = [mermaid, drawing[1]]
    hashes = " ".join(f"'sha256-{b64encode(hashlib.sha256(script).digest()).decode()}'" for script in scripts)
    policy = (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'self'; sandbox allow-scripts"
    )
    made = _file(_DIAGRAM, page.replace(b"<script>", b"<script>%b</script><script>" % mermaid, 1))
    return replace(made, headers={"content-security-policy": policy, "x-frame-options": "SAMEORIGIN"})


def _file(name: str, data: bytes) -> _File:
    tag = f'"{hashlib.sha256(data).hexdigest()[:16]}"'
    return _File(data, _TYPES[PurePath(name).suffix], tag, {"content-security-policy": _POLICY})
