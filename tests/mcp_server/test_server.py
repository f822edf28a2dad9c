"""Progress while the agent says nothing."""

import asyncio

import pytest

from cursor_gateway.mcp_server import server
from cursor_gateway.mcp_server.server import Progress


def test_progress_is_reported_while_there_is_nothing_to_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_PROGRESS_SECONDS", 0.01)
    sent: list[tuple[float, str]] = []
    has_three = asyncio.Event()

    async def send(progress: float, total: float | None, message: str | None) -> None:
        sent.append((progress, message or ""))
        if len(sent) == 3:
            has_three.set()

    async def silent() -> None:
        progress = Progress(send)
        await progress.report("Running `make`")
        repeating = asyncio.create_task(progress.repeat())
        await asyncio.wait_for(has_three.wait(), 60)
        repeating.cancel()

    asyncio.run(silent())
    assert sent[:3] == [(1, "Running `make`"), (2, "Working for 0 s"), (3, "Working for 0 s")]
