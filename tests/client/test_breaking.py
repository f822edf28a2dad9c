"""Connections that break, gateways that go away and readers who leave: nothing is lost, repeated or left running."""

import asyncio
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from cursor_gateway import (
    AsyncClient,
    CallFailed,
    CannotReach,
    ChatResponse,
    Client,
    ContentDelta,
    DocumentEvent,
    Done,
    ErrorDocument,
    TextDocument,
)
from tests.client.conftest import Connect
from tests.client.proxy import running_proxy
from tests.gateways import RunningGateway, running_gateway
from tests.server.conftest import NO_TLS, TIMEOUT, eventually, invocation, invocations, is_gone, standin, unique

QUICK = (0.01,) * 500  # pauses; many short ones, so that nobody waits, and a loaded machine is not given up
MARKED = "Naïve as ever \U0001f600,\n\n```python\nx = 1\n```\n\nand so on"


def comparable(response: ChatResponse) -> object:
    """What does not differ from run to run."""
    return response.status, response.documents, response.model, response.mode


# --- a connection that breaks ---------------------------------------------------------------------------


def cut_points(gateway: RunningGateway) -> list[int]:
    """Over the whole of a reply, its head and its end included."""
    with httpx2.Client(base_url=gateway.url, verify=NO_TLS) as http:
        reply = http.post("/v1/chat", json={"message": standin("say", MARKED), "stream": True}, timeout=TIMEOUT)
    whole = len(reply.content) + sum(len(name) + len(value) + 4 for name, value in reply.headers.raw)
    return [*range(0, whole + 200, whole // 12), whole - 3, whole - 20]


@pytest.mark.quick_cases(1)
def test_a_cut_anywhere(gateway: RunningGateway, connect: Connect) -> None:
    """Every reader ends with the same; the agent runs once."""
    with connect(gateway.url) as direct:
        expected = comparable(direct.chat(standin("say", MARKED)))
        for cut in cut_points(gateway):
            mark = unique()
            with (
                running_proxy(gateway.url, [cut, cut // 2, 0, cut // 3]) as proxy,
                connect(proxy.url, pauses=QUICK) as client,
                client.stream(f"{mark} {standin('say', MARKED)}") as stream,
            ):
                events = list(stream)
            assert stream.response is not None
            assert comparable(stream.response) == expected
            assert direct.response(stream.id) == stream.response
            with direct.events(stream.id) as again:
                assert joined(list(again)) == joined(events)
            assert len(invocations(gateway, mark)) == 1


def joined(events: list[DocumentEvent]) -> list[DocumentEvent | str]:
    """Deltas that follow each other are one: a gateway joins what it has."""
    found: list[DocumentEvent | str] = []
    for event in events:
        text = event.text if isinstance(event, ContentDelta) else None
        if text is not None and found and isinstance(found[-1], str):
            found[-1] += text
        else:
            found.append(event if text is None else text)
    return found


@pytest.mark.quick_cases(1)
def test_connections_that_never_last(gateway: RunningGateway, connect: Connect) -> None:
    """Each brings one or two events, and breaks."""
    mark = unique()
    with running_proxy(gateway.url, [600] * 200) as proxy, connect(proxy.url, pauses=QUICK) as client:
        response = client.chat(f"{mark} {standin('slow count=30 delay_ms=5')}")
        assert proxy.connections > 3
    assert [document.content for document in response.documents] == ["".join(f"{n} " for n in range(30))]
    assert len(invocations(gateway, mark)) == 1


def test_the_reply_to_the_first_request_is_lost(gateway: RunningGateway, connect: Connect) -> None:
    mark = unique()
    with running_proxy(gateway.url, [0, 0, 0]) as proxy, connect(proxy.url, pauses=QUICK) as client:
        response = client.chat(mark)
        assert proxy.connections == 4
        client.delete_conversation(response.conversation_id)
    assert response.status == "completed"
    assert len(invocations(gateway, mark)) == 1


def test_a_refusal_on_a_bad_line(gateway: RunningGateway, connect: Connect) -> None:
    with running_proxy(gateway.url, [0, 30, 200]) as proxy, connect(proxy.url, pauses=QUICK) as client:
        with pytest.raises(CallFailed) as caught:
            client.chat("hello", conversation_id="conv_none")
        assert caught.value.code == "not_found"


@pytest.mark.quick_cases(1)
def test_a_silence_that_is_too_long_is_a_broken_connection(gateway: RunningGateway, connect: Connect) -> None:
    """A gateway says something every 15 s; a network that lost the connection says nothing at all."""
    mark = unique()
    with (
        running_proxy(gateway.url) as proxy,
        connect(proxy.url, timeout=0.3, pauses=QUICK) as client,
        client.stream(f"{mark} {standin('silent ms=1500')}") as stream,
    ):
        response = stream.result()
        assert proxy.connections > 2
    assert response.documents[0].content == "Before the silence. After the silence."
    assert len(invocations(gateway, mark)) == 1


# --- a gateway that goes away ---------------------------------------------------------------------------


@pytest.mark.quick_cases(1)
def test_a_gateway_that_is_killed_and_started_anew(tmp_path: Path, connect: Connect) -> None:
    """The run ends in an error, since its agent is gone; what was said before is not said again."""
    mark, file = unique(), tmp_path / "go"
    with ThreadPoolExecutor(1) as pool, running_proxy("") as proxy:
        with running_gateway(tmp_path) as first:
            proxy.target = first.url
            client = connect(proxy.url, pauses=(0.05,) * 1000)
            stream = client.stream(f"{mark} {standin(f'wait-for file={file}')}")
            stream.__enter__()
            events = [next(stream), next(stream)]
            proxy.target = None
            first.process.kill()
            first.process.wait(TIMEOUT)
        rest = pool.submit(lambda: list(stream))
        time.sleep(0.2)  # some tries in vain
        with running_gateway(tmp_path) as second:
            proxy.target = second.url
            events += rest.result(TIMEOUT)
            with pytest.raises(CallFailed, match="killed during this run") as caught:
                stream.result()
            stream.__exit__()
            with connect(second.url) as direct, direct.events(stream.id) as again:
                assert joined(list(again)) == joined(events)
                assert len(invocations(second, mark)) == 1
                file.touch()  # the next turn's prompt tells what was said, and so names it again
                following = direct.chat("and now?", conversation_id=stream.conversation_id)
                assert following.status == "completed"
        client.__exit__()
    assert caught.value.code == "gateway_restarted"
    assert caught.value.response is not None
    assert list(map(type, caught.value.response.documents)) == [TextDocument, ErrorDocument]
    assert isinstance(events[-1], Done)


@pytest.mark.quick_cases(1)
def test_a_gateway_that_is_gone_for_good(tmp_path: Path, connect: Connect) -> None:
    mark, file = unique(), tmp_path / "go"
    with running_gateway(tmp_path) as gateway, connect(gateway.url, pauses=(0.01, 0.02, 0.03)) as client:
        with client.stream(f"{mark} {standin(f'wait-for file={file}')}") as stream:
            next(iter(stream))
            gateway.process.kill()
            gateway.process.wait(TIMEOUT)
            with pytest.raises(CannotReach) as caught:
                list(stream)
            with pytest.raises(CannotReach):
                stream.result()
        assert caught.value.chat_id == stream.id != ""
        assert stream.response is None
        file.touch()  # its agent has nobody else to end it
        eventually(lambda: is_gone(invocation(gateway, mark)["pid"]))


# --- readers who leave ----------------------------------------------------------------------------------


def ended_with(client: Client, id: str) -> str:
    """How a run ended that nobody read."""
    eventually(lambda: client.response(id).status != "streaming")
    with client.events(id) as stream:
        *_, done = stream
    assert isinstance(done, Done)
    return done.failure.code if done.failure is not None else ""


def test_leaving_early_stops_the_run(gateway: RunningGateway, connect: Connect) -> None:
    mark = unique()
    with connect(gateway.url) as client:
        with client.stream(f"{mark} {standin('hang-mid')}") as stream:
            next(iter(stream))
        with pytest.raises(CallFailed, match="left"):
            stream.result()
    with Client(gateway.url) as direct:
        assert ended_with(direct, stream.id) == "cancelled"
    eventually(lambda: is_gone(invocation(gateway, mark)["pid"]))


def test_an_error_of_the_readers_own_stops_the_run(gateway: RunningGateway, connect: Connect) -> None:
    with connect(gateway.url) as client, pytest.raises(ZeroDivisionError), client.stream(standin("hang-mid")) as stream:
        raise ZeroDivisionError
    with Client(gateway.url) as direct:
        assert ended_with(direct, stream.id) == "cancelled"


def test_a_run_may_go_on_without_its_reader(gateway: RunningGateway, connect: Connect, tmp_path: Path) -> None:
    file = tmp_path / "go"
    with connect(gateway.url) as client:
        with client.stream(standin(f"wait-for file={file}")) as stream:
            first = next(iter(stream))
            stream.let_finish()
        file.touch()
        with client.events(stream.id, after=stream.last_event) as later:
            rest = list(later)
            assert later.result().documents[0].content == "Waiting for the file. It is there."
        with client.events(stream.id) as again:
            assert joined(list(again)) == joined([first, *rest])


class Interrupted(BaseException):
    pass


@contextmanager
def interrupted_when_the_agent_runs(gateway: RunningGateway, mark: str) -> Iterator[None]:
    """As by Ctrl-C, while the gateway still holds its reply back."""

    def interrupt(*_: object) -> None:
        raise Interrupted

    def wait() -> None:
        invocation(gateway, mark)
        os.kill(os.getpid(), signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, interrupt)
    thread = threading.Thread(target=wait)
    thread.start()
    try:
        yield
    finally:
        thread.join()
        signal.signal(signal.SIGUSR1, before)


def test_an_interrupted_wait_stops_the_run_before_it_has_said_anything(gateway: RunningGateway) -> None:
    mark = unique()
    with Client(gateway.url) as client, pytest.raises(Interrupted), interrupted_when_the_agent_runs(gateway, mark):
        client.chat(f"{mark} {standin('hang')}")
    eventually(lambda: is_gone(invocation(gateway, mark)["pid"]))
    assert len(invocations(gateway, mark)) == 1


async def test_a_cancelled_task_stops_the_run_before_it_has_said_anything(gateway: RunningGateway) -> None:
    mark = unique()
    async with AsyncClient(gateway.url) as client:
        task = asyncio.create_task(client.chat(f"{mark} {standin('hang')}"))
        await asyncio.to_thread(invocation, gateway, mark)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    eventually(lambda: is_gone(invocation(gateway, mark)["pid"]))
    assert len(invocations(gateway, mark)) == 1


def test_many_streams_at_once(gateway: RunningGateway) -> None:
    """Threads may share a client; tasks of one loop, too."""
    with running_proxy(gateway.url, [900, 0, 700, 400] * 3) as proxy, Client(proxy.url, pauses=QUICK) as client:
        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(lambda number: client.chat(standin("say", f"number {number}")), range(4)))
        assert [one.documents[0].content for one in answers] == [f"number {number}" for number in range(4)]

    async def main() -> list[ChatResponse]:
        async with AsyncClient(gateway.url) as client:
            return await asyncio.gather(*(client.chat(standin("say", f"number {number}")) for number in range(4)))

    assert [one.documents[0].content for one in asyncio.run(main())] == [f"number {number}" for number in range(4)]
