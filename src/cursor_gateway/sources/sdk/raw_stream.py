"""Copy what the bridge sends about a run, as it is on the wire, for recordings."""

from collections.abc import AsyncIterator, Callable, Sequence

import httpx
import msgspec

from cursor_gateway.sources.process import copies_of
from cursor_gateway.wire.payload import Fields

_HEAD = 5  # bytes before each message: one of flags, and its length
_COMPRESSED = 1  # a flag


class CopyingTransport(httpx.AsyncBaseTransport):
    """Copies the messages of a run's stream, one in a line, if somebody listens (`tapped`)."""

    def __init__(self, transport: httpx.AsyncBaseTransport) -> None:
        self._transport = transport

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await self._transport.handle_async_request(request)
        is_run = request.url.path.endswith("/Send")
        if is_run and (copies := copies_of(["cursor-sdk", _agent_of(request.content)])):
            assert isinstance(response.stream, httpx.AsyncByteStream)
            response.stream = _CopiedStream(response.stream, copies)
        return response

    async def aclose(self) -> None:
        await self._transport.aclose()


class _CopiedStream(httpx.AsyncByteStream):
    def __init__(self, stream: httpx.AsyncByteStream, copies: Sequence[Callable[[bytes], None]]) -> None:
        self._stream, self._copies = stream, copies
        self._rest = b""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._stream:
            self._copy(piece)
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()

    def _copy(self, piece: bytes) -> None:
        self._rest += piece
        while len(self._rest) >= _HEAD:
            end = _HEAD + int.from_bytes(self._rest[1:_HEAD], "big")
            if len(self._rest) < end:
                return
            if not self._rest[0] & _COMPRESSED:
                for copy in self._copies:
                    copy(self._rest[_HEAD:end] + b"\n")
            self._rest = self._rest[end:]


def _agent_of(body: bytes) -> str:
    try:
        return Fields(msgspec.json.decode(body[_HEAD:])).text("agentId")
    except msgspec.DecodeError:
        return ""
