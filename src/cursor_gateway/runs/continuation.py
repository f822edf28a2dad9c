"""What another agent needs to continue a run with the results of its caller's tools, as it is stored with the run.

The caller sends it once, with the first request, and a result may arrive when the process that had the run is gone.
"""

import zlib
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from cursor_gateway.model.caller_tools import Tool
from cursor_gateway.runs.run_request import RunRequest
from cursor_gateway.store.base import CONTINUATION, Store


class Continuation(Struct, frozen=True, kw_only=True):
    tools: Sequence[Tool]
    instructions: str = ""
    source: str | None = None
    needs: Sequence[str] = ()


def continuation_of(request: RunRequest) -> bytes:
    """Empty for a request without tools."""
    if request.offer is None:
        return b""
    kept = Continuation(
        tools=request.offer.tools, instructions=request.instructions, source=request.source, needs=request.needs or ()
    )
    return zlib.compress(msgspec.msgpack.encode(kept), 1)


async def stored_continuation(store: Store, run_id: str, owner: str) -> Continuation | None:
    """None: the run has completed, had no tools, or was begun by an older version."""
    kept = await store.kept_request(run_id, owner, CONTINUATION)
    return None if kept is None else msgspec.msgpack.decode(zlib.decompress(kept), type=Continuation)
