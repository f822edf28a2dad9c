"""What both clients share: URLs, keys and images as arguments of httpx2, and its errors as reasons.

httpx2 is imported where it is used, so that reading recordings does not wait for it.
"""

import os
from binascii import b2a_base64
from collections.abc import Callable, Iterable, Sequence
from inspect import signature
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, get_args
from uuid import uuid4

from cursor_gateway.client.calls import ChatFields, chat_request
from cursor_gateway.client.steps import Link, Lost, Request

if TYPE_CHECKING:
    import httpx2

Http = TypeVar("Http")  # httpx2's client

_Image: TypeAlias = bytes | os.PathLike[str] | str

LOCAL = "http://127.0.0.1:8787"
SILENCE_SECONDS = 60.0  # a gateway's own streams are never silent for more than a quarter of it
PAUSES = (0.1, 0.3, 1.0, 2.0, 5.0, 10.0, 15.0)  # enough for a restart of the gateway

_CONNECT_SECONDS = 10.0
_BEGINNINGS = {b"\x89PNG": "png", b"\xff\xd8\xff": "jpeg", b"GIF8": "gif"}


class ChatOptions(ChatFields, total=False):
    images: Iterable[_Image]  # files, their bytes, or data: URIs
    idempotency_key: str  # the same key again is the same run again


class BaseClient(Generic[Http]):
    """What both clients share: how they are set up. Each of them defines `_open`."""

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        timeout: float = SILENCE_SECONDS,
        pauses: Sequence[float] = PAUSES,
        socket: str | None = None,
    ) -> None:
        """Without `url` and `api_key`: those of the environment (CURSOR_GATEWAY_URL, CURSOR_GATEWAY_API_KEY), or a
        gateway on this machine, on the usual port.

        `timeout`: seconds without data after which a connection counts as lost. `pauses`: seconds before each retry.

        `socket`: the path of a Unix socket to connect to, instead of the host and port of `url`.
        Raises `ValueError` for an invalid URL or key.
        """
        url, api_key = address(url, api_key)
        self._link = Link(checked(url), tuple(pauses))
        self._http = self._open(http_options(self._link.url, api_key, timeout), socket)

    def _open(self, options: dict[str, Any], socket: str | None) -> Http:
        """`options` are arguments of httpx2's client."""
        raise NotImplementedError


def describe(method: Callable[..., object], call: Callable[..., object]) -> None:
    """For `help`: the method of a client returns what the call results in, not its steps."""
    result = get_args(call.__annotations__["return"])[-1]
    vars(method)["__signature__"] = signature(call).replace(return_annotation=result)


def request_of(message: str, options: ChatOptions) -> Request:
    """Raises `OSError` if an image cannot be read, and `ValueError` if it is not an image."""
    key = options.pop("idempotency_key", None) or uuid4().hex
    images = [data_uri(image) for image in options.pop("images", ())]
    unknown = options.keys() - ChatFields.__annotations__.keys()
    if unknown:
        raise TypeError(f"a message has no option {', '.join(sorted(unknown))}")
    return chat_request(message, key, images, options)


def data_uri(image: _Image) -> str:
    match image:
        case str():
            return image
        case bytes():
            return f"data:image/{_kind(image)};base64,{b2a_base64(image, newline=False).decode()}"
        case _:
            with open(image, "rb") as file:
                return data_uri(file.read())


def _kind(data: bytes) -> str:
    for beginning, kind in _BEGINNINGS.items():
        if data.startswith(beginning):
            return kind
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "webp"
    raise ValueError("an image must be a png, jpeg, gif or webp; these bytes are none of them")


def address(url: str | None, api_key: str | None) -> tuple[str, str | None]:
    """What is not given is taken from the environment, but its key is only for the gateway that it names."""
    if url is not None:
        return url, api_key
    return os.environ.get("CURSOR_GATEWAY_URL") or LOCAL, api_key or os.environ.get("CURSOR_GATEWAY_API_KEY")


def checked(url: str) -> str:
    """Without the `/v1` that other clients need. Raises `ValueError`."""
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url)
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # such as a port that is too large
        is_good = False
    if not is_good:
        raise ValueError(f"{url!r} is not the address of a gateway; write it like {LOCAL}")
    return url.rstrip("/").removesuffix("/v1")


def http_options(url: str, api_key: str | None, timeout: float) -> dict[str, Any]:
    """Raises `ValueError`."""
    import httpx2

    from cursor_gateway.settings import is_loopback

    if api_key and not (api_key.isascii() and api_key.isprintable()):
        raise ValueError("the key contains characters that no key has")
    return {
        "base_url": url,
        "headers": {"user-agent": "cursor-gateway"} | ({"authorization": f"Bearer {api_key}"} if api_key else {}),
        "timeout": httpx2.Timeout(timeout, connect=min(timeout, _CONNECT_SECONDS)),
        "limits": httpx2.Limits(max_connections=None, max_keepalive_connections=20),  # each stream keeps one open
        "trust_env": not is_loopback(httpx2.URL(url).host),  # a company proxy cannot reach this machine
        "verify": url.startswith("https:"),  # reading all certificates takes a tenth of a second
    }


def built(http: "httpx2.Client | httpx2.AsyncClient", request: Request) -> "httpx2.Request":
    from urllib.parse import quote

    import httpx2

    timeout = httpx2.USE_CLIENT_DEFAULT if request.seconds is None else httpx2.Timeout(request.seconds)
    return http.build_request(
        request.method,
        "/" + "/".join(quote(part, safe="") for part in request.path),
        params=request.query or None,
        headers=request.headers,
        content=request.body or None,
        timeout=timeout,
    )


def lost(error: "httpx2.HTTPError") -> Lost:
    import httpx2

    never = httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.PoolTimeout | httpx2.ProxyError
    return Lost(reason_of(error), was_connected=not isinstance(error, never))


def reason_of(error: BaseException) -> str:
    """The system's message is in the cause; httpx2's own is less helpful."""
    below: BaseException | None = error
    while below is not None:
        if isinstance(below, OSError) and below.errno and below.strerror:
            # asyncio writes an address there instead of what went wrong
            return os.strerror(below.errno) if below.strerror.startswith("Connect call failed") else below.strerror
        below = below.__cause__ or below.__context__
    return str(error) or type(error).__name__
