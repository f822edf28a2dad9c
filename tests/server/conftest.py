"""A real gateway with the stand-in agent, one for each worker, and what is needed to talk to it over its socket."""

import json
import os
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar
from uuid import uuid4

import httpx2
import msgspec
import pytest
from msgspec import Struct
from openai import DefaultHttpxClient, OpenAI

from cursor_gateway.wire.sse import SseDecoder, SseEvent
from tests.agent.records import records
from tests.anthropic_shapes import Error as AnthropicError
from tests.anthropic_shapes import Message, events_of, fold, read_message, text_sent
from tests.anthropic_shapes import text_of as text_of_message
from tests.gateways import RunningGateway, running_gateway
from tests.openai_shapes import read_stream, validate_completion, validate_error
from tests.responses_shapes import read_response
from tests.responses_shapes import read_stream as read_response_stream
from tests.responses_shapes import text_of as text_of_response

Dialect: TypeAlias = Literal["documents", "openai", "responses", "messages"]
Json: TypeAlias = dict[str, Any]
T = TypeVar("T")

TIMEOUT = 120  # seconds, for a red build only: a loaded machine must not come near it
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # for clients' `verify`: they would read all certificates, each time
WAYS: list[tuple[Dialect, bool]] = [
    ("documents", False),
    ("documents", True),
    ("openai", False),
    ("openai", True),
    ("responses", False),
    ("responses", True),
    ("messages", False),
    ("messages", True),
]


# --- the gateway --------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """With the default settings. Whoever changes something about it starts one of their own."""
    with running_gateway(tmp_path_factory.mktemp("gateway")) as running:
        yield running


@pytest.fixture(scope="session")
def http(gateway: RunningGateway) -> Iterator[httpx2.Client]:
    with http_client(gateway) as client:
        yield client


@pytest.fixture(scope="session")
def openai(gateway: RunningGateway) -> Iterator[OpenAI]:
    with openai_client(gateway) as client:
        yield client


def http_client(gateway: RunningGateway) -> httpx2.Client:
    return httpx2.Client(base_url=gateway.url, timeout=TIMEOUT, verify=NO_TLS)


def openai_client(gateway: RunningGateway, **options: Any) -> OpenAI:
    """It asks once: a retry would hide what went wrong, and count twice."""
    given = {"api_key": "any", "max_retries": 0, "http_client": DefaultHttpxClient(verify=NO_TLS), **options}
    return OpenAI(base_url=gateway.openai_url, timeout=TIMEOUT, **given)


# --- asking -------------------------------------------------------------------------------------------


def standin(scenario: str, body: str | None = None) -> str:
    """A prompt that makes the stand-in play a scenario; `body` is what it then says, or returns."""
    return f"standin: {scenario}" if body is None else f"standin: {scenario}\n---\n{body}\n--- end"


def unique() -> str:
    """A word that finds one run among the others in the stand-in's log."""
    return f"mark-{uuid4().hex}"


def question(text: str, **fields: Any) -> Json:
    return {"model": "auto", "messages": [{"role": "user", "content": text}], **fields}


def ask(client: httpx2.Client, dialect: Dialect, text: str, *, stream: bool = False, **fields: Any) -> httpx2.Response:
    if dialect == "documents":
        return client.post("/v1/chat", json={"message": text, "stream": stream, **fields})
    if dialect == "responses":
        return client.post("/v1/responses", json={"model": "auto", "input": text, "stream": stream, **fields})
    if dialect == "messages":
        return client.post("/v1/messages", json=question(text, max_tokens=32_000, stream=stream, **fields))
    return client.post("/v1/chat/completions", json=question(text, stream=stream, **fields))


def chat(client: httpx2.Client, message: str, **fields: Any) -> Json:
    """The documents of a run that must succeed."""
    response = client.post("/v1/chat", json={"message": message, **fields})
    assert response.status_code == 200, response.text
    result: Json = response.json()
    assert result["status"] == "completed", result
    return result


def text_of(response: Json) -> str:
    return "".join(document["content"] for document in response["documents"] if document["type"] == "text")


# --- what came ----------------------------------------------------------------------------------------


class Reply(Struct, frozen=True):
    """A reply of any dialect, streaming or not, in the same terms."""

    status: int
    text: str
    code: str = ""  # of the error, if there was one; Anthropic's have none
    kind: str = ""  # in OpenAI's form only before the first byte
    message: str = ""
    param: str | None = None


def read_reply(response: httpx2.Response, dialect: Dialect) -> Reply:
    """Raises an AssertionError for a reply that is not in the dialect's form, or does not say how it ended."""
    body, status = response.content, response.status_code
    streams = response.headers["content-type"].startswith("text/event-stream")
    if dialect == "openai":
        if status != 200:
            error = validate_error(body)
            return Reply(status, "", error.code or "", error.type, error.message, error.param)
        if not streams:
            return Reply(status, validate_completion(body).choices[0].message.content or "")
        stream = read_stream(body)
        if stream.error is None:
            return Reply(status, stream.text)
        failed = stream.error
        return Reply(status, stream.text, failed.code or "", failed.type, failed.message, failed.param)
    if dialect == "responses":
        return _reply_of_a_response(body, status, streams=streams)
    if dialect == "messages":
        return _reply_of_a_message(response, streams=streams)
    if status == 200:
        return _reply_of_events(sse(body)) if streams else Reply(status, text_of(json.loads(body)))
    answer = json.loads(body)
    assert set(answer["error"]) - {"details"} == {"message", "type", "param", "code"}
    error = validate_error(json.dumps({"error": answer["error"]}).encode())
    if "documents" in answer:  # what had arrived stands beside the error, and ends with it
        assert answer["status"] == "error"
        last = answer["documents"][-1]
        assert (last["type"], last["content"]) == ("error", error.message)
        assert last["metadata"]["errorCode"] == str(error.code).upper()
    return Reply(
        status, text_of({"documents": answer.get("documents", [])}), error.code or "", error.type, error.message
    )


def _reply_of_a_response(body: bytes, status: int, *, streams: bool) -> Reply:
    if status != 200:
        error = validate_error(body)
        return Reply(status, "", error.code or "", error.type, error.message, error.param)
    response = read_response_stream(body) if streams else read_response(body)
    if response.error is None:
        return Reply(status, text_of_response(response))
    failed = response.error
    return Reply(status, text_of_response(response), failed.type or failed.code, "", failed.message)


def _reply_of_a_message(response: httpx2.Response, *, streams: bool) -> Reply:
    status, text = response.status_code, ""
    found: Message | AnthropicError
    if status != 200:
        found = msgspec.json.decode(response.content, type=AnthropicError)
    elif streams:
        found, text = fold(events_of(response.content)), text_sent(response.content)
    else:
        found = read_message(response.content)
    if isinstance(found, Message):
        return Reply(status, text_of_message(found))
    assert found.request_id == (msgspec.UNSET if status in (402, 424) else response.headers["request-id"])
    return Reply(status, text, "", found.error.type, found.error.message)


def _reply_of_events(events: list[SseEvent]) -> Reply:
    datas = [json.loads(event.data) for event in events]
    assert [event.event for event in events].index("done") == len(events) - 1
    kinds = {
        data["id"]: data["type"]
        for event, data in zip(events, datas, strict=True)
        if event.event.endswith("start") and "type" in data
    }
    ended = [data for event, data in zip(events, datas, strict=True) if event.event == "document_end"]
    text = "".join(data["finalContent"] for data in ended if kinds[data["documentId"]] == "text")
    if datas[-1]["status"] == "completed":
        return Reply(200, text)
    last = ended[-1]
    assert kinds[last["documentId"]] == "error"
    return Reply(200, text, last["metadata"]["errorCode"].lower(), "", last["finalContent"])


def sse(body: bytes) -> list[SseEvent]:
    return SseDecoder().push(body)


class Growing:
    """A streaming reply as it comes."""

    def __init__(self, response: httpx2.Response) -> None:
        self.response = response
        self.body = b""
        self._pieces = response.iter_raw()

    def until(self, expected: bytes) -> bytes:
        """All that has come when `expected` has."""
        while expected not in self.body:
            piece = next(self._pieces, b"")
            assert piece, f"the reply ended without {expected!r}: {self.body!r}"
            self.body += piece
        return self.body

    def rest(self) -> bytes:
        """The whole body. httpx2 raises where the connection breaks before the body's end."""
        self.body += b"".join(self._pieces)
        return self.body


@contextmanager
def growing(client: httpx2.Client, dialect: Dialect, text: str, **fields: Any) -> Iterator[Growing]:
    headers = fields.pop("headers", None)
    requests: dict[Dialect, tuple[str, Json]] = {
        "documents": ("/v1/chat", {"message": text}),
        "openai": ("/v1/chat/completions", question(text)),
        "responses": ("/v1/responses", {"model": "auto", "input": text}),
        "messages": ("/v1/messages", question(text, max_tokens=32_000)),
    }
    path, body = requests[dialect]
    with client.stream("POST", path, json={**body, "stream": True, **fields}, headers=headers) as response:
        yield Growing(response)


# --- the agent's side ---------------------------------------------------------------------------------


def invocations(gateway: RunningGateway, mark: str) -> list[Json]:
    """What the stand-in was started with, where the prompt holds this."""
    return [line for line in records(gateway.agent_log) if mark in (line["prompt"] or "")]


def invocation(gateway: RunningGateway, mark: str) -> Json:
    """The only one. Waits for it: a reply may begin before the agent has."""
    (only,) = eventually(lambda: invocations(gateway, mark))
    return only


def eventually(value: Callable[[], T]) -> T:
    """The first that is true."""
    end = time.monotonic() + TIMEOUT
    while not (found := value()):
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.005)
    return found


def at_once(questions: Mapping[Any, Callable[[], T]]) -> dict[Any, T]:
    """The answers, all asked for at the same time."""
    with ThreadPoolExecutor(len(questions)) as pool:
        asked = {key: pool.submit(question) for key, question in questions.items()}
        return {key: future.result(TIMEOUT) for key, future in asked.items()}


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def option(argv: list[str], name: str) -> str | None:
    """The value of an option that the agent was given."""
    return argv[argv.index(name) + 1] if name in argv else None


def conversation_folder(gateway: RunningGateway, conversation_id: str) -> Path:
    return gateway.data / "conversations" / conversation_id
