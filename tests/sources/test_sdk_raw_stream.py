"""What the bridge sends about a run is copied as it is, however it is cut into pieces."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence

import httpx
from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.sources.process import tapped
from cursor_gateway.sources.sdk.raw_stream import CopyingTransport

SEND = "http://bridge/sdk.v1.SdkAgentService/Send"


def framed(payload: bytes, flags: int = 0) -> bytes:
    return bytes([flags]) + len(payload).to_bytes(4, "big") + payload


def sent(url: str, body: bytes, answer: Sequence[bytes]) -> tuple[bytes, list[tuple[list[str], bytes]]]:
    """What the client received, and the copies."""
    copied: list[tuple[list[str], bytes]] = []

    def tap(arguments: Sequence[str]) -> Callable[[bytes], None]:
        return lambda piece: copied.append((list(arguments), piece))

    async def pieces() -> AsyncIterator[bytes]:
        for piece in answer:
            yield piece

    async def ask() -> bytes:
        transport = httpx.MockTransport(lambda request: httpx.Response(200, content=pieces()))
        async with (
            httpx.AsyncClient(transport=CopyingTransport(transport)) as client,
            client.stream("POST", url, content=body) as response,
        ):
            return b"".join([piece async for piece in response.aiter_raw()])

    with tapped(tap):
        return asyncio.run(ask()), copied


@given(st.lists(st.binary(max_size=40), max_size=5), st.integers(1, 9))
def test_messages_are_copied_whole(messages: list[bytes], size: int) -> None:
    whole = b"".join(map(framed, messages))
    body = framed(json.dumps({"agentId": "agent-1"}).encode())
    received, copied = sent(SEND, body, [whole[at : at + size] for at in range(0, len(whole), size)])
    assert received == whole
    assert copied == [(["cursor-sdk", "agent-1"], message + b"\n") for message in messages]


def test_other_calls_and_compressed_messages_are_not_copied() -> None:
    answer = [framed(b"{}"), framed(b"zip", 1), framed(b"{}", 2)]
    assert sent(SEND.replace("Send", "GetRun"), framed(b"{}"), answer)[1] == []
    assert sent(SEND, b"no message", answer)[1] == [(["cursor-sdk", ""], b"{}\n")] * 2
