"""The address of a cluster and a run in; every event as one client saw it, through all interruptions, out.

A reader does what `EventSource` does: it reads until the connection ends, then asks for what comes after the last event
that it has (`Last-Event-ID`), and stops when it is told that there is no more (204).
"""

import asyncio
import time
from collections.abc import Callable

import httpx2

from cursor_gateway.wire.sse import SseDecoder, SseEvent

SILENT_SECONDS = 4.0  # without an event or a keep-alive: the front hangs
_PAUSE_SECONDS = 0.05
_WAITS = frozenset({429, 502, 503, 504})  # what a client may retry


def data_of(event: SseEvent) -> bytes:
    """What is compared: its kind and its data."""
    return f"{event.event} {event.data}".encode()


async def read(
    client: httpx2.AsyncClient, run: str, shown: Callable[[int, bytes], None], until: Callable[[], float]
) -> str | None:
    """None at the end of the run; otherwise why it gave up. `until` is a time of the monotonic clock."""
    last, why = 0, "nothing was answered"
    while time.monotonic() < until():
        headers = {"Last-Event-ID": str(last)} if last else {}
        try:
            async with client.stream("GET", f"/v1/chat/{run}/events", headers=headers) as reply:
                if reply.status_code == 204:
                    return None
                if reply.status_code != 200:
                    why = f"{reply.status_code} {(await reply.aread()).decode(errors='replace')[:200]}"
                    if reply.status_code not in _WAITS:
                        return f"refused: {why}"
                else:
                    decoder = SseDecoder()
                    async for chunk in reply.aiter_raw():
                        for event in decoder.push(chunk):
                            if event.id:
                                last = int(event.id)
                                shown(last, data_of(event))
                        if time.monotonic() >= until():  # keep-alives may come for ever
                            return f"the stream was open, and nothing came after event {last}"
        except (httpx2.TransportError, OSError) as error:
            why = f"{type(error).__name__} {error}"
        await asyncio.sleep(_PAUSE_SECONDS)
    return why
