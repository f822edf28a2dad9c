"""The queue of gateways that share a history."""

from pathlib import Path

import pytest

from cursor_gateway.errors import IdempotencyMismatch
from cursor_gateway.model.messages import UserMessage
from cursor_gateway.runs.run_service import RunRequest
from cursor_gateway.store.base import IdempotentRun
from tests.cluster.nodes import until
from tests.runs.gateways import gateway
from tests.runs.scripted import STARTED, ScriptedSource, forever, say

ME = "me"


def later(body: bytes = b"hello") -> RunRequest:
    return RunRequest(
        owner=ME,
        messages=[UserMessage("hello")],
        when_client_leaves="finish",
        idempotency_key="key",
        body=body,
        queues=True,
    )


async def test_a_request_whose_first_try_starts_meanwhile_is_not_queued_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer to the first try was lost, and another gateway begins its run just after this one has looked."""
    source = ScriptedSource([[STARTED, *say("partial")], forever()])
    async with gateway(tmp_path, source, "one") as one, gateway(tmp_path, source, "two", max_runs=1) as two:
        first = (await one.service.take(later())).run
        busy = RunRequest(owner=ME, messages=[UserMessage("busy")], when_client_leaves="finish")
        await two.service.take(busy)
        await until(lambda: len(source.turns) == 2)
        looks, find = 0, two.store.find_run_by_idempotency

        async def late(owner: str, key: str) -> IdempotentRun | None:
            nonlocal looks
            looks += 1
            return None if looks == 1 else await find(owner, key)

        monkeypatch.setattr(two.store, "find_run_by_idempotency", late)
        assert (await two.service.take(later())).run.id == first.id
        assert looks == 2
        looks = 0
        with pytest.raises(IdempotencyMismatch):
            await two.service.take(later(b"other"))
        assert not await two.service.work.entries(None, 9)
