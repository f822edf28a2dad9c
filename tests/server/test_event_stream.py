"""Replies that grow with a run: their status, one write for each batch, signs of life, and clients that leave."""

import asyncio
import gc
import json
import weakref
from collections.abc import AsyncGenerator, Sequence

import pytest

from cursor_gateway.dialects.base import NDJSON, SSE
from cursor_gateway.dialects.chat.encoder import ChunkEncoder, CompletionHead
from cursor_gateway.dialects.documents.encoder import NdjsonEncoder, SseEncoder
from cursor_gateway.errors import AgentOverloaded, AgentUnauthenticated
from cursor_gateway.model.agent_events import AgentEvent, ThinkingDelta
from cursor_gateway.model.document_events import DocumentEvent
from cursor_gateway.runs.run import Run
from cursor_gateway.server.bodies import SMALL
from cursor_gateway.server.streaming import EventStream, Reading, push_until
from cursor_gateway.sources.base import Turn
from cursor_gateway.stages.cutting import Cutter
from cursor_gateway.wire.sse import SseDecoder, SseEvent
from tests.runs.scripted import (
    FINISHED,
    LOOPS,
    STARTED,
    Loop,
    ScriptedSource,
    Step,
    Until,
    driven_by,
    forever,
    new_run,
    say,
    true,
    turn,
    turns_of_the_loop,
)
from tests.server.asgi import Client, Connected, open_streams, reading


def started(*script: Step, source: ScriptedSource | None = None) -> Run:
    run = new_run()
    run.start(turn(), driven_by(source or ScriptedSource(script)))
    return run


def sse(run: Run, asked: Reading) -> EventStream:
    return EventStream(run, SseEncoder(), SSE, asked)


def frames(client: Client) -> list[SseEvent]:
    decoder = SseDecoder()
    return [*decoder.push(client.body), *decoder.flush()]


async def test_readers_that_are_equally_far_share_what_is_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[int] = []
    push_all = SseEncoder.push_all

    def counted(encoder: SseEncoder, events: Sequence[DocumentEvent], /) -> bytes:
        encoded.append(len(events))
        return push_all(encoder, events)

    gates = [asyncio.Event() for _ in range(3)]
    script = [step for gate in gates for step in (Until(gate), say("some ", "words "))]
    run, clients = started([STARTED], *script, [FINISHED]), [Client() for _ in range(5)]
    monkeypatch.setattr(SseEncoder, "push_all", counted)
    asking = [client.ask(EventStream(run, SseEncoder(), SSE, reading(), is_replay=True)) for client in clients]
    for gate in gates:
        await turns_of_the_loop()
        gate.set()
    for client, asked in zip(clients, asking, strict=True):
        await asked
        assert client.body == clients[0].body
    assert [frame.id for frame in frames(clients[0])] == [str(number) for number in range(1, run.count + 1)]
    assert sum(encoded) == run.count
    late = await Client().answered(EventStream(run, SseEncoder(3), SSE, reading(), after=3, is_replay=True))
    assert clients[0].body.endswith(late.body)


# --- the reply ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loop", LOOPS)
async def test_a_run_is_streamed_as_it_happens(loop: Loop) -> None:
    asked = reading()
    run = started([STARTED], say("Hello "), say("you", "."), [FINISHED])
    client = await Client().answered(sse(run, asked))
    assert client.status == 200
    assert client.headers == {
        "content-type": "text/event-stream; charset=utf-8",
        "cache-control": "no-cache, no-transform",
        "x-accel-buffering": "no",
        "x-chat-id": "chat_1",
        "x-cursor-gateway-source": "scripted",
        "x-conversation-id": "conv_1",
    }
    result = frames(client)
    assert [frame.event for frame in result] == [
        *["document_start", "content_delta", "content_delta", "content_delta", "document_end", "done"]
    ]
    assert [frame.id for frame in result] == [str(number) for number in range(1, 7)]
    await run.gone()
    assert open_streams(asked) == 0


@pytest.mark.parametrize("loop", LOOPS)
def test_a_run_is_let_go_of_at_once(loop: Loop) -> None:
    """It may be large; nothing that waits for Python's next collection may hold it."""

    async def live() -> None:
        run = started([STARTED], say("Hello"), [FINISHED])
        await Client().answered(sse(run, reading()))
        await run.gone()
        held = weakref.ref(run)
        del run
        await turns_of_the_loop()
        assert held() is None

    gc.disable()
    try:
        loop(live())
    finally:
        gc.enable()


async def test_each_batch_is_one_write() -> None:
    gates = [asyncio.Event() for _ in range(3)]
    texts = [say("one ", "two "), say("three "), say("four ", "five ", "six ")]
    script = [step for gate, batch in zip(gates, texts, strict=True) for step in (Until(gate), batch)]
    client = Client()
    asking = client.ask(sse(started(*script, forever()), reading()))
    for number, gate in enumerate(gates, 2):
        gate.set()
        await client.has(number)
        await turns_of_the_loop()
        assert len(client.sent) == number  # the first is the head
    client.leaves.set()
    await asking


async def test_the_other_form_has_its_own_type_and_sign_of_life() -> None:
    goes = asyncio.Event()
    run = started(say("Hello"), Until(goes), [FINISHED])
    client = Client()
    asking = client.ask(EventStream(run, NdjsonEncoder(), NDJSON, reading(keep_alive=0.001)))
    await client.has(3)
    goes.set()
    await asking
    assert client.headers["content-type"] == "application/x-ndjson"
    assert b" " in client.pieces
    assert [json.loads(line)["type"] for line in client.body.splitlines()][-1] == "done"


async def test_a_run_that_is_over_is_sent_whole() -> None:
    run = started(say("Hello"), [FINISHED])
    await run.gone()
    client = await Client().answered(sse(run, reading()))
    assert len(client.sent) == 2
    assert frames(client)[-1].event == "done"


# --- what is sent at once, within the step that has made it visible --------------------------------------


def gated(*batches: list[AgentEvent], is_endless: bool = False) -> tuple[Run, list[asyncio.Event]]:
    """Each batch comes when its gate is opened."""
    gates = [asyncio.Event() for _ in batches]
    script = [step for gate, batch in zip(gates, batches, strict=True) for step in (Until(gate), batch)]
    return started([STARTED], *script, forever() if is_endless else [FINISHED]), gates


async def test_what_a_slow_client_cannot_take_at_once_is_sent_later_in_order() -> None:
    run, gates = gated(*[say(f"{n} ") for n in range(9)])
    slow, other = Connected(), Client()
    asking = [client.ask(sse(run, reading())) for client in (slow, other)]
    for number, gate in enumerate(gates):
        gate.set()
        await turns_of_the_loop(8)
        if number == 3:
            slow.reads.clear()
        elif number == 6:
            slow.reads.set()
            await turns_of_the_loop()
    await asyncio.wait(asking)
    assert slow.body == other.body
    assert 0 < slow.at_once < 8


async def test_large_pieces_are_not_sent_at_once() -> None:
    """They are counted while they wait: see `UnreadReplies`."""
    run, gates = gated(say("Hello "), say("x" * SMALL), say("you"))
    client = Connected()
    asking = client.ask(sse(run, reading()))
    for gate in gates:
        gate.set()
        await turns_of_the_loop(8)
    await asking
    assert ("x" * SMALL).encode() in client.body
    assert client.at_once == 1


async def test_an_error_of_one_encoder_concerns_its_reader_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    run, gates = gated(say("Hello "), say("you"), say("."))
    broken, other = Connected(), Connected()
    breaks = ChunkEncoder(CompletionHead("chatcmpl-1", 0, "auto"))
    asking = [broken.ask(EventStream(run, breaks, SSE, reading())), other.ask(sse(run, reading()))]
    gates[0].set()
    await turns_of_the_loop(8)
    monkeypatch.setattr(breaks, "push", None)
    for gate in gates[1:]:
        gate.set()
        await turns_of_the_loop(8)
    with pytest.raises(TypeError):
        await asking[0]
    await asking[1]
    assert frames(other)[-1].event == "done"
    assert (await run.finished()).failure is None


# --- the status -----------------------------------------------------------------------------------------


async def test_the_status_is_held_back_until_there_is_something_to_tell() -> None:
    speaks = asyncio.Event()
    client = Client()
    asking = client.ask(sse(started([STARTED], Until(speaks), say("Hello"), [FINISHED]), reading()))
    await turns_of_the_loop()
    assert client.sent == []
    speaks.set()
    await asking
    assert client.status == 200


async def test_a_run_that_fails_before_it_says_anything_has_its_own_status() -> None:
    asked = reading()
    for error in (AgentUnauthenticated("Log in."), AgentOverloaded("Full.")):
        client = await Client().answered(sse(started([STARTED], error), asked))
        assert client.status == error.status
        assert json.loads(client.body)["error"]["message"] == str(error)
        assert client.headers["x-chat-id"] == "chat_1"
        assert client.headers.get("retry-after") == (None if error.retry_after is None else str(error.retry_after))
    assert open_streams(asked) == 0


@pytest.mark.parametrize("before", [say("Half"), [ThinkingDelta("Hm")]])
async def test_a_run_that_fails_later_tells_it_in_the_stream(before: list[AgentEvent]) -> None:
    client = await Client().answered(sse(started(before, AgentOverloaded("Full.")), reading()))
    assert client.status == 200
    assert '"status":"error"' in frames(client)[-1].data


async def test_the_status_is_not_held_back_for_ever() -> None:
    fails = asyncio.Event()
    client = Client()
    asking = client.ask(sse(started(Until(fails), AgentOverloaded("Full.")), reading(hold=0.001)))
    await client.has(2)
    assert (client.status, client.pieces) == (200, [b": keep-alive\n\n"])
    fails.set()
    await asking
    assert frames(client)[-1].event == "done"


# --- signs of life --------------------------------------------------------------------------------------


@pytest.mark.parametrize("loop", LOOPS)
async def test_a_silent_stream_says_that_it_is_there(loop: Loop) -> None:
    goes = asyncio.Event()
    client = Client()
    asking = client.ask(sse(started(say("Hello"), Until(goes), [FINISHED]), reading(keep_alive=0.001)))
    await client.has(5)
    goes.set()
    await asking
    assert client.pieces[1:4] == [b": keep-alive\n\n"] * 3
    assert [frame.event for frame in frames(client)][-1] == "done"


class Thinker(ScriptedSource):
    """Thinks without end, which the documents dialect has no words for."""

    async def events(self, turn: Turn) -> AsyncGenerator[Sequence[AgentEvent], None]:
        while True:
            yield [ThinkingDelta("Hm. ")]
            await asyncio.sleep(0)


@pytest.mark.parametrize("loop", LOOPS)
async def test_a_stream_whose_dialect_has_no_words_for_the_events_is_silent_too(loop: Loop) -> None:
    client = Client()
    asking = client.ask(sse(started(source=Thinker()), reading(keep_alive=0.001)))
    await client.has(4)
    client.leaves.set()
    await asking
    assert set(client.pieces) - {b""} == {b": keep-alive\n\n"}  # the head, unless it took that long to come


async def test_a_talking_stream_needs_no_sign_of_life() -> None:
    client = await Client().answered(sse(started(*[say(f"{n} ") for n in range(100)], [FINISHED]), reading()))
    assert b"keep-alive" not in client.body


# --- clients that leave ---------------------------------------------------------------------------------


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("script", [[], [say("Half")]])
async def test_a_run_whose_client_has_gone_is_stopped(loop: Loop, script: list[Step]) -> None:
    asked, client = reading(), Client()
    run = started(*script, forever())
    asking = client.ask(sse(run, asked))
    await turns_of_the_loop()
    client.leaves.set()
    await asking
    done = await run.finished()
    assert done.failure is not None
    assert done.failure.code == "cancelled"
    assert (run.log.readers, open_streams(asked)) == (0, 0)


async def test_the_last_reader_decides() -> None:
    first, second = Client(), Client()
    run = started(say("Half"), forever())
    asked = reading()
    one, two = first.ask(sse(run, asked)), second.ask(sse(run, asked))
    await turns_of_the_loop()
    assert (run.log.readers, open_streams(asked)) == (2, 2)
    first.leaves.set()
    await one
    await turns_of_the_loop()
    assert (run.is_ending, run.log.readers) == (False, 1)
    second.leaves.set()
    await two
    assert run.is_ending
    await run.gone()


@pytest.mark.parametrize("client", [Client(), Connected()])
async def test_a_reply_that_is_complete_before_its_run_stops_it(client: Client) -> None:
    run, (begins, goes_on) = gated(say("one "), say("two three four five six seven eight"), is_endless=True)
    encoder = ChunkEncoder(CompletionHead("chatcmpl-1", 0, "auto"), cutter=Cutter(("three",), None))
    asking = client.ask(EventStream(run, encoder, SSE, reading()))
    begins.set()
    await turns_of_the_loop(8)
    goes_on.set()
    await asking
    assert client.body.endswith(b"data: [DONE]\n\n")
    assert b"four" not in client.body
    assert run.is_ending
    await run.gone()


async def test_a_client_that_reads_slowly_holds_nobody_up() -> None:
    slow = Client()
    slow.reads.clear()
    run = started(*[say(f"{n} ") for n in range(50)], [FINISHED])
    asking = slow.ask(sse(run, reading()))
    assert (await run.finished()).failure is None
    assert len(slow.sent) == 1
    slow.reads.set()
    await asking
    assert frames(slow)[-1].event == "done"


async def test_a_connection_that_breaks_while_it_is_written_to_ends_the_run() -> None:
    asked, client = reading(), Client()
    run = started(say("Half"), forever())
    client.breaks = OSError("broken pipe")
    with pytest.raises(OSError, match="broken pipe"):
        await client.ask(sse(run, asked))
    await run.gone()
    assert (run.is_ending, open_streams(asked)) == (True, 0)


@pytest.mark.parametrize("loop", LOOPS)
async def test_a_request_that_is_cancelled_ends_its_run(loop: Loop) -> None:
    asked, client = reading(), Client()
    run = started(say("Half"), forever())
    asking = client.ask(sse(run, asked))
    await client.has(2)
    asking.cancel()
    await asyncio.wait([asking])
    await run.gone()
    assert (run.is_ending, run.log.readers, open_streams(asked)) == (True, 0, 0)


# --- replies that wait for the end ----------------------------------------------------------------------


async def test_the_end_is_waited_for() -> None:
    goes = asyncio.Event()
    run = started(say("All"), Until(goes), [FINISHED])
    with run.reader() as reader:
        waits = asyncio.ensure_future(push_until(reader, lambda event: False))
        await turns_of_the_loop()
        assert not waits.done()
        goes.set()
        assert not await waits
        assert not await push_until(reader, lambda event: True)  # also when it is over


async def test_events_after_the_last_one_that_is_needed_are_not_read() -> None:
    run = started(say("All"), [FINISHED])
    await true(lambda: run.done)
    with run.reader() as reader:
        assert await push_until(reader, lambda event: True)
        assert reader.place == 1


async def test_who_leaves_before_the_end_is_distinguished() -> None:
    run = started(say("Half"), forever())
    with run.reader(), run.reader() as reader:  # somebody else reads on
        waits = asyncio.ensure_future(push_until(reader, lambda event: False))
        await true(lambda: run.log.events)
        reader.leave()
        assert not await waits
        assert not run.is_ending
    await run.abandon()
