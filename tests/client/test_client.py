"""What a client gives, of either kind, from a real gateway with the stand-in agent."""

import base64
import inspect
import json
import socket
from pathlib import Path
from typing import Any

import pytest

import cursor_gateway
from cursor_gateway import (
    AsyncClient,
    CallFailed,
    CannotReach,
    ChatResponse,
    Client,
    CodeBlockDocument,
    ContentDelta,
    DocumentEnded,
    DocumentStarted,
    Done,
    ErrorDocument,
    OfferedTool,
    Paused,
    TerminalCommandDocument,
    TextDocument,
    ThinkingDocument,
    ToolAnswer,
    Transcript,
    source_text,
)
from cursor_gateway.keys import hash_key
from tests.client.conftest import Connect
from tests.client.faces import AnyClient
from tests.gateways import RunningGateway, running_gateway
from tests.server.conftest import conversation_folder, eventually, invocation, is_gone, option, standin, unique

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
SAID = "Naïve as ever \U0001f600,\n\nthe quick\tbrown fox\n- jumps\n- over"


def said(response: ChatResponse) -> str:
    return "".join(document.content for document in response.documents if isinstance(document, TextDocument))


# --- asking ---------------------------------------------------------------------------------------------


def test_the_whole_answer(client: AnyClient) -> None:
    response = client.chat(standin("say", SAID))
    assert response.status == "completed"
    assert said(response) == SAID
    assert client.response(response.id) == response


@pytest.mark.quick_cases(1)
def test_tools_that_the_program_runs_itself(client: AnyClient) -> None:
    steps = [{"call": "weather", "args": {"city": "A"}}, {"call": "weather", "args": {"city": "B"}}, {"say": "$1, $2"}]
    weather = OfferedTool(name="weather", parameters={"type": "object"})
    ran = []
    with client.stream(standin("program", json.dumps(steps)), tools=[weather]) as stream:
        for event in stream:
            if isinstance(event, Paused):
                for waiting in event.envelope.metadata.waiting_for or []:
                    ran.append(waiting.arguments["city"])
                    result = ToolAnswer(tool_call_id=waiting.tool_call_id, content=f"sun in {ran[-1]}")
                    assert client.answer(stream.id, tool_results=[result]) == stream.id
        response = stream.result()
    assert ran == ["A", "B"]
    assert said(response) == "sun in A, sun in B"


def test_the_answer_as_it_comes(client: AnyClient) -> None:
    with client.stream(standin("say", SAID)) as stream:
        assert stream.id.startswith("chat_")
        events = list(stream)
        assert list(stream) == []
    assert "".join(map(source_text, events)) == SAID
    assert isinstance(events[0], DocumentStarted)
    assert isinstance(events[1], ContentDelta)
    assert isinstance(events[-2], DocumentEnded)
    assert isinstance(events[-1], Done)
    assert stream.response is not None
    assert stream.conversation_id == stream.response.conversation_id
    folded = Transcript()
    for event in events:
        folded.push(event)
    assert folded.response() == stream.response == client.response(stream.id)
    assert stream.last_event == len(events)


def test_its_text(client: AnyClient) -> None:
    with client.stream(standin("say", SAID)) as stream:
        assert "".join(stream.text) == SAID
    with client.stream(standin("fences")) as stream:
        assert "".join(stream.text).startswith("Add a function:\n\ndef double(n: int) -> int:\n    return 2 * n\n\nIt")
    with client.stream(standin("fences"), fences="inline") as stream:
        assert "".join(stream.text).startswith("Add a function:\n\n```python\ndef double")


def test_the_rest_of_it(client: AnyClient) -> None:
    with client.stream(standin("say", SAID)) as stream:
        first = next(iter(stream))
        assert isinstance(first, DocumentStarted)
        assert said(stream.result()) == SAID


def test_typed_documents(client: AnyClient) -> None:
    documents = client.chat(standin("tools")).documents
    commands = [document for document in documents if isinstance(document, TerminalCommandDocument)]
    assert [(one.metadata.command, one.metadata.exit_code) for one in commands] == [("pytest -q", 0), ("ruff check", 1)]


def test_options(gateway: RunningGateway, client: AnyClient) -> None:
    mark, folder = unique(), gateway.workspace / "below"
    folder.mkdir(exist_ok=True)
    response = client.chat(f"{mark} {standin('thinking')}", mode="ask", workspace=str(folder), include=["thinking"])
    assert response.mode == "ask"
    assert isinstance(response.documents[0], ThinkingDocument)
    started = invocation(gateway, mark)
    assert option(started["argv"], "--mode") == "ask"
    assert started["workspace"] == str(folder)
    inline = client.chat(standin("fences"), fences="inline", model="auto")
    assert not any(isinstance(document, CodeBlockDocument) for document in inline.documents)


def test_images(gateway: RunningGateway, client: AnyClient, tmp_path: Path) -> None:
    file = tmp_path / "pixel"
    file.write_bytes(PNG)
    uri = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
    for image in (PNG, file, uri):
        response = client.chat(unique(), images=[image])
        (kept,) = (conversation_folder(gateway, response.conversation_id) / "images").iterdir()
        assert kept.read_bytes() == PNG
        assert kept.suffix == ".png"
    with pytest.raises(ValueError, match="image"):
        client.chat("look", images=[b"GIG"])
    with pytest.raises(FileNotFoundError):
        client.chat("look", images=[tmp_path / "none"])


def test_an_option_that_there_is_not(client: AnyClient) -> None:
    options: Any = {"modle": "auto"}
    with pytest.raises(TypeError, match="modle"):
        client.chat("hello", **options)


def test_a_conversation_goes_on(client: AnyClient) -> None:
    mark = unique()
    first = client.chat(mark)
    second = client.chat(standin("history"), conversation_id=first.conversation_id)
    assert second.conversation_id == first.conversation_id
    assert json.loads(said(second))["prompts"] == [mark]


def test_the_same_key_is_the_same_run(gateway: RunningGateway, client: AnyClient) -> None:
    mark = unique()
    first = client.chat(mark, idempotency_key=mark)
    assert client.chat(mark, idempotency_key=mark) == first
    assert invocation(gateway, mark)
    with pytest.raises(CallFailed) as caught:
        client.chat("something else", idempotency_key=mark)
    assert caught.value.code == "idempotency_mismatch"


# --- a run ----------------------------------------------------------------------------------------------


def test_reading_a_run_from_the_middle_of_a_document(client: AnyClient) -> None:
    with client.stream(standin("say", SAID)) as stream:
        events = list(stream)
    for after in (0, 3, len(events) - 1, len(events)):
        with client.events(stream.id, after=after) as later:
            assert list(later) == events[after:]
            assert later.result() == stream.response


def test_a_running_answer(client: AnyClient, tmp_path: Path) -> None:
    """Two readers; the second one's leaving stops nothing."""
    file = tmp_path / "go"
    with client.stream(standin(f"wait-for file={file}")) as stream:
        assert isinstance(next(iter(stream)), DocumentStarted)
        snapshot = client.response(stream.id)
        assert snapshot.status == "streaming"
        with client.events(stream.id) as second:
            assert isinstance(next(iter(second)), DocumentStarted)
        file.touch()
        assert said(stream.result()) == "Waiting for the file. It is there."


def test_a_run_that_nobody_waits_for(gateway: RunningGateway, client: AnyClient) -> None:
    mark = unique()
    id = client.start(f"{mark} {standin('say', SAID)}", idempotency_key=mark)
    assert client.start(f"{mark} {standin('say', SAID)}", idempotency_key=mark) == id
    with client.events(id) as stream:
        assert said(stream.result()) == SAID
    assert invocation(gateway, mark)


def test_cancel(gateway: RunningGateway, client: AnyClient) -> None:
    mark = unique()
    with client.stream(f"{mark} {standin('hang-mid')}") as stream:
        next(iter(stream))
        stream.cancel()
        assert isinstance(list(stream)[-1], Done)
        with pytest.raises(CallFailed, match="Stopped on request") as caught:
            stream.result()
    error = caught.value
    assert (error.code, error.status, error.chat_id, error.response) == ("cancelled", 499, stream.id, stream.response)
    assert client.cancel(stream.id).status == "error"  # how it ended
    eventually(lambda: is_gone(invocation(gateway, mark)["pid"]))


# --- what goes wrong ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "options", "code", "status", "param"),
    [
        ("", {}, "invalid_request", 400, "message"),
        ("hello", {"model": "no-such-model"}, "model_not_found", 404, "model"),
        ("hello", {"conversation_id": "conv_none"}, "not_found", 404, "conversationId"),
        ("hello", {"workspace": "/etc"}, "workspace_forbidden", 403, "workspace"),
        ("hello", {"images": ["http://x/y.png"]}, "invalid_request", 400, "images[0]"),
        (standin("fail-auth"), {}, "agent_unauthenticated", 401, None),
        (standin("fail-quota-early"), {}, "insufficient_quota", 429, None),
    ],
)
def test_a_refusal(client: AnyClient, message: str, options: Any, code: str, status: int, param: str | None) -> None:
    client.models()  # so that the gateway knows which there are
    with pytest.raises(CallFailed) as caught, client.stream(message, **options):
        pass
    error = caught.value
    assert not isinstance(error, CannotReach)
    assert (error.code, error.status, error.param) == (code, status, param)
    assert error.request_id.startswith("req_")
    assert error.message == str(error) != ""


def test_a_run_that_fails_in_its_midst(client: AnyClient) -> None:
    with pytest.raises(CallFailed) as caught:
        client.chat(standin("fail-capacity-late"))
    error = caught.value
    assert (error.code, error.status, error.retry_after) == ("agent_overloaded", 429, 10)
    assert error.response is not None
    assert said(error.response) == "I was about to say more."
    assert isinstance(error.response.documents[-1], ErrorDocument)
    assert error.chat_id == error.response.id
    with client.stream(standin("fail-capacity-late")) as stream:
        *_, done = stream  # to a stream that is an event like others
        assert isinstance(done, Done)
        assert done.failure is not None
        assert done.failure.code == "agent_overloaded"


def test_a_conversation_that_is_busy(client: AnyClient) -> None:
    with client.stream(standin("hang-mid")) as stream:
        with pytest.raises(CallFailed) as caught:
            client.chat("hello", conversation_id=stream.conversation_id)
        assert (caught.value.code, caught.value.retry_after) == ("conversation_busy", 1)


@pytest.mark.parametrize("id", ["chat_none", "", "a/b", "..", "é?#%2F"])
def test_what_is_not_there(client: AnyClient, id: str) -> None:
    for call in (client.response, client.cancel, client.conversation, client.delete_conversation):
        with pytest.raises(CallFailed) as caught:
            call(id)
        assert caught.value.status in (404, 405)
    with pytest.raises(CallFailed) as caught, client.events(id):
        pass
    assert caught.value.status == 404


def test_keys(tmp_path: Path, connect: Connect) -> None:
    settings = {"api_keys": f"laptop={hash_key('key-1')},phone={hash_key('key-2')}"}
    with running_gateway(tmp_path, settings=settings) as gateway:
        for key in (None, "wrong"):
            with connect(gateway.url, key) as client, pytest.raises(CallFailed) as caught:
                client.chat("hello")
            assert (caught.value.code, caught.value.status) == ("invalid_api_key", 401)
        with connect(gateway.url, "key-1") as client:
            response = client.chat("hello")
            assert client.response(response.id) == response
        with connect(gateway.url, "key-2") as client:
            assert list(client.conversations()) == []
            with pytest.raises(CallFailed) as caught:
                client.response(response.id)
            assert caught.value.status == 404


def test_nobody_there(connect: Connect) -> None:
    """Told at once: nothing was begun, and there is nothing to wait for."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with connect(f"http://127.0.0.1:{port}", pauses=(600,)) as client:
        with pytest.raises(CannotReach, match="Connection refused; is the gateway running there") as caught:
            client.chat("hello")
        assert caught.value.chat_id == ""
        with pytest.raises(CannotReach):
            client.health()


# --- the history ----------------------------------------------------------------------------------------


def test_conversations(tmp_path: Path, connect: Connect) -> None:
    """Newest first, over pages, searched, looked at, deleted."""
    with running_gateway(tmp_path) as gateway, connect(gateway.url) as client:
        assert list(client.conversations()) == []
        answers = [client.chat(f"question {word}") for word in ("apple", "banana", "cherry")]
        ids = [answer.conversation_id for answer in reversed(answers)]
        assert [one.id for one in client.conversations()] == ids
        assert [one.id for one in client.conversations(limit=2)] == ids[:2]
        (found,) = client.conversations("banana")
        assert (found.id, found.title) == (ids[1], "question banana")
        assert "banana" in str(found.snippet)
        assert list(client.conversations("durian")) == []
        detail = client.conversation(found.id)
        assert [(one.role, one.text) for one in detail.messages] == [
            ("user", "question banana"),
            ("assistant", "You said: question banana"),
        ]
        assert [(run.id, run.state) for run in detail.runs] == [(answers[1].id, "completed")]
        client.delete_conversation(found.id)
        assert [one.id for one in client.conversations()] == [ids[0], ids[2]]
        with pytest.raises(CallFailed) as caught:
            client.delete_conversation(found.id)
        assert caught.value.code == "not_found"


@pytest.mark.quick_cases(1)
def test_more_conversations_than_a_page_holds(tmp_path: Path, connect: Connect) -> None:
    settings = {"replay_speed": "0", "source": "replay"}
    with running_gateway(tmp_path, has_agent=False, settings=settings) as gateway, connect(gateway.url) as client:
        ids = [client.chat(f"number {number}").conversation_id for number in range(103)]
        listed = [one.id for one in client.conversations()]
        assert len(listed) == 103
        assert set(listed) == set(ids)
        assert [one.id for one in client.conversations(limit=101)] == listed[:101]


# --- the gateway ----------------------------------------------------------------------------------------


def test_models_and_health(client: AnyClient) -> None:
    assert "auto" in [model.id for model in client.models()]
    health = client.health()
    assert health.status == "ok"
    assert health.source.name == "cli"
    assert not health.source.demo
    assert health.runs.limit > 0
    assert health.version


def test_the_client_costs_nothing_until_it_is_used() -> None:
    import subprocess
    import sys

    code = "import sys, cursor_gateway; print(*{'httpx2', 'asyncio', 'anyio'} & set(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == ""
    assert cursor_gateway.Client.__module__ == "cursor_gateway.client.sync"


@pytest.mark.parametrize("client", [Client, AsyncClient])
def test_help_shows_what_a_call_takes_and_returns(client: type[Client] | type[AsyncClient]) -> None:
    shown = inspect.signature(client.response)
    assert list(shown.parameters)[1:] == ["id"]
    assert shown.return_annotation is ChatResponse
    assert "snapshot" in (client.response.__doc__ or "")
