"""Progress of a call, and the forms that it shows."""

import asyncio
from typing import Any

import msgspec
import pytest

from cursor_gateway.mcp_server import calls
from cursor_gateway.mcp_server.calls import HostCall, OpenForms
from cursor_gateway.mcp_server.elicitation import FilledForm
from cursor_gateway.mcp_server.messages import HostReply
from cursor_gateway.mcp_server.peers import Peer

PEER = Peer("2025-11-25")


class Sent(list[dict[str, Any]]):
    """The messages to the host."""

    async def send(self, message: bytes, number: int) -> None:
        self.append(msgspec.json.decode(message))

    @property
    def progress(self) -> list[tuple[float, str]]:
        return [(one["params"]["progress"], one["params"]["message"]) for one in self]


async def test_progress_grows_with_the_events_and_between_them() -> None:
    sent = Sent()
    call = HostCall(PEER, "token", sent.send, OpenForms())
    for line, number in (("a", 1), ("b", 4), ("c", 4), ("d", 0), ("e", 5)):
        await call.report(line, number)
    assert sent.progress == [(1, "a"), (4, "b"), (4.001, "d"), (5, "e")]  # each event once
    assert {one["params"]["progressToken"] for one in sent} == {"token"}


async def test_progress_is_reported_while_there_is_nothing_to_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "_PROGRESS_SECONDS", 0.01)
    sent = Sent()
    call = HostCall(PEER, 1, sent.send, OpenForms())
    await call.report("Running `make`", 1)
    repeating = asyncio.create_task(call.keep_reporting())
    while len(sent) < 3:
        await asyncio.sleep(0.01)
    repeating.cancel()
    assert sent.progress[:3] == [(1, "Running `make`"), (1.001, "Working for 0 s"), (1.002, "Working for 0 s")]


def test_without_a_token_there_is_no_progress() -> None:
    sent = Sent()
    asyncio.run(HostCall(PEER, None, sent.send, OpenForms()).report("Running `make`", 1))
    assert not sent


async def test_a_form_is_shown_and_filled_once() -> None:
    sent, forms = Sent(), OpenForms()
    asking = asyncio.create_task(HostCall(PEER, None, sent.send, forms).ask_user("chat_1", "doc_2", {"message": "?"}))
    while not sent:
        await asyncio.sleep(0)
    assert [forms.is_open(id) for id in ("chat_1/doc_2", "chat_1/doc_3")] == [True, False]
    forms.fill(HostReply("chat_1/doc_3", {}))
    forms.fill(HostReply("chat_1/doc_2", {"action": "accept", "content": {"a": 1}}))
    forms.fill(HostReply("chat_1/doc_2", {"action": "decline"}))  # too late
    assert (await asking) == FilledForm("accept", {"a": 1})
    assert sent == [
        {"jsonrpc": "2.0", "id": "chat_1/doc_2", "method": "elicitation/create", "params": {"message": "?"}}
    ]
    assert not forms.is_open("chat_1/doc_2")


async def test_a_form_that_is_shown_again_outlives_the_stream_that_broke() -> None:
    """A host may resume a stream before the gateway sees that the first one broke."""
    sent, forms = Sent(), OpenForms()
    broken = asyncio.ensure_future(forms.show("chat_1/doc_1", {}, sent.send))
    await asyncio.sleep(0)
    resumed = asyncio.ensure_future(forms.show("chat_1/doc_1", {}, sent.send))
    await asyncio.sleep(0)
    broken.cancel()
    with pytest.raises(asyncio.CancelledError):
        await broken
    assert forms.is_open("chat_1/doc_1")
    forms.fill(HostReply("chat_1/doc_1", {"action": "decline"}))
    assert (await resumed).action == "decline"
    assert not forms.is_open("chat_1/doc_1")
