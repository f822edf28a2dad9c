"""A gateway that is killed takes back nothing that anybody was told; the next one ends what it left, and goes on."""

import random
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import httpx2
import pytest

from cursor_gateway.sources.processes import members
from tests.cli.processes import TIMEOUT
from tests.gateways import RunningGateway, running_gateway
from tests.laws.folds import fold_documents, read_sse
from tests.server.conftest import (
    NO_TLS,
    Json,
    chat,
    eventually,
    growing,
    http_client,
    invocation,
    invocations,
    standin,
    text_of,
    unique,
)
from tests.server.test_leaks import ended_agents

ROUNDS = 6
SCENARIOS = [
    "slow count=400 delay_ms=1",
    "text chunks=300 length=60000",
    "text chunks=2000 length=20000 delay_ms=1",
    "tools",
    "thinking",
    "hang-mid",
    "ignore-term",
    "grandchild group=same",
]


class Watched:
    """A run, and every byte that some reader has had of it, by dialect."""

    def __init__(self, mark: str, scenario: str) -> None:
        self.mark, self.scenario = mark, scenario
        self.id = self.conversation = ""
        self.received: dict[str, bytearray] = {"documents": bytearray(), "openai": bytearray(), "ndjson": bytearray()}

    def ask(self, url: str, conversation: str | None) -> None:
        body: Json = {"message": f"{self.mark} {standin(self.scenario)}", "stream": True}
        if conversation is not None:
            body["conversationId"] = conversation
        with (
            httpx2.Client(base_url=url, timeout=TIMEOUT, verify=NO_TLS) as client,
            suppress(httpx2.HTTPError),  # the gateway was killed
            client.stream("POST", "/v1/chat", json=body) as reply,
        ):
            assert reply.status_code == 200
            self.conversation = reply.headers["x-conversation-id"]
            self.id = reply.headers["x-chat-id"]
            for piece in reply.iter_raw():
                self.received["documents"] += piece

    def join(self, url: str, dialect: str) -> None:
        with (
            httpx2.Client(base_url=url, timeout=TIMEOUT, verify=NO_TLS) as client,
            suppress(httpx2.HTTPError),
            client.stream("GET", f"/v1/chat/{self.id}/events", params={"dialect": dialect}) as reply,
        ):
            for piece in reply.iter_raw():
                self.received[dialect] += piece


def stream(http: httpx2.Client, id: str, dialect: str = "documents") -> bytes:
    reply = http.get(f"/v1/chat/{id}/events", params={"dialect": dialect})
    assert reply.status_code == 200, reply.text
    return reply.content


def are_gone(groups: list[int]) -> bool:
    return not any(map(members, groups))


def kill(gateway: RunningGateway) -> None:
    gateway.process.send_signal(signal.SIGKILL)
    gateway.process.wait(TIMEOUT)


def killed(gateway: RunningGateway, chance: random.Random, conversation: str | None) -> list[Watched]:
    """Runs that were cut off at some moment: before the first byte, in the middle, or at the very end."""
    watched = [Watched(unique(), chance.choice(SCENARIOS)) for _ in range(2)]
    first, second = watched
    with ThreadPoolExecutor(4) as pool:
        reading = [pool.submit(first.ask, gateway.url, conversation), pool.submit(second.ask, gateway.url, None)]
        patience = chance.random() * 0.3  # seconds: some scenarios say less than is waited for
        most = chance.choice([-1, 0, 200, 1000, 5000, 20000])
        if most >= 0:
            eventually(lambda: first.id or reading[0].done())
            reading += [pool.submit(first.join, gateway.url, dialect) for dialect in ("openai", "ndjson")]
        end = time.monotonic() + patience
        while len(first.received["documents"]) < max(most, 1) and time.monotonic() < end:
            time.sleep(0.0005)
        kill(gateway)
        for future in reading:
            future.result(TIMEOUT)
    return [one for one in watched if one.id]


@contextmanager
def next_gateway(home: Path) -> Iterator[tuple[RunningGateway, httpx2.Client]]:
    with running_gateway(home) as gateway, http_client(gateway) as client:
        yield gateway, client


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.quick_cases(1)
def test_what_anybody_was_sent_outlives_a_kill(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    result: dict[str, bytes] = {}  # of every run so far, the whole stream
    states: list[str] = []
    conversation: str | None = None
    with ended_agents(tmp_path) as home:
        for _ in range(ROUNDS):
            with next_gateway(home) as (gateway, _http):
                watched = killed(gateway, chance, conversation)
                groups = [line["pgid"] for one in watched for line in invocations(gateway, one.mark)]
            with next_gateway(home) as (gateway, http):
                eventually(partial(are_gone, groups))
                for one in watched:
                    for dialect, received in one.received.items():
                        assert stream(http, one.id, dialect).startswith(received)
                    result[one.id] = stream(http, one.id)
                    states.append(assert_ended(http, one, result[one.id]))
                for one in watched[:1]:
                    conversation, mark = one.conversation, unique()
                    answer = chat(http, f"{mark} {standin('text')}", conversationId=conversation)
                    assert_goes_on(gateway, mark, one)
                    result[answer["id"]] = stream(http, answer["id"])
                listed = http.get("/v1/conversations", params={"limit": 100}).json()["conversations"]
                assert not any(entry["isRunning"] for entry in listed)
                kill(gateway)
        with next_gateway(home) as (_, http):
            for id, body in result.items():
                assert stream(http, id) == body
            for run in http.get(f"/v1/conversations/{conversation}").json()["runs"]:
                assert run["state"] in ("completed", "error")
        assert "error" in states
        assert list((home / "data" / "instances").iterdir()) == []


def assert_ended(http: httpx2.Client, one: Watched, body: bytes) -> str:
    """In the same words for everybody who asks."""
    answer: Json = http.get(f"/v1/chat/{one.id}").json()
    assert fold_documents(read_sse(body)) == answer
    if answer["status"] == "completed":  # it was through before the kill
        return "completed"
    assert answer["status"] == "error"
    *_, last = answer["documents"]
    assert (last["type"], last["metadata"]["errorCode"]) == ("error", "GATEWAY_RESTARTED")
    assert "The gateway was killed during this run" in last["content"]
    (run,) = [run for run in http.get(f"/v1/conversations/{one.conversation}").json()["runs"] if run["id"] == one.id]
    assert (run["state"], run["errorCode"]) == ("error", "gateway_restarted")
    cancelled = http.post(f"/v1/chat/{one.id}/cancel", json={}).json()
    assert (cancelled["id"], cancelled["status"]) == (one.id, "error")
    return "error"


def assert_goes_on(gateway: RunningGateway, mark: str, before: Watched) -> None:
    """The agent has the interrupted turn in its session, or was told of it."""
    after = invocation(gateway, mark)
    known = [turn["prompt"] for turn in after["history"]]
    assert any(before.mark in prompt for prompt in [*known, after["prompt"]])


def test_an_interrupted_turn_is_part_of_what_a_fresh_session_is_told(tmp_path: Path) -> None:
    first, second = unique(), unique()
    with ended_agents(tmp_path) as home:
        with next_gateway(home) as (gateway, http), growing(http, "documents", f"{first} {standin('hang-mid')}") as run:
            run.until(b"more")
            conversation = run.response.headers["x-conversation-id"]
            kill(gateway)
        with next_gateway(home) as (gateway, http):
            detail = http.get(f"/v1/conversations/{conversation}").json()
            assert [message["text"] for message in detail["messages"]][1] == "I was about to say more."
            result = chat(http, f"{second} {standin('text')}", conversationId=conversation)
            after = invocation(gateway, second)
            assert "--resume" not in after["argv"]  # what the agent calls its session died with the gateway
            assert after["prompt"].index(first) < after["prompt"].index("I was about to say more.")
            assert text_of(result)


def test_a_run_of_another_gateway_that_lives_is_left_alone_and_can_be_read(tmp_path: Path) -> None:
    """Two gateways may share a folder: what one drives, the other reads."""
    file = tmp_path / "go"
    with (
        ended_agents(tmp_path / "one") as home,
        next_gateway(home) as (one, http),
        growing(http, "documents", standin(f"wait-for file={file}")) as run,
    ):
        run.until(b"file.")
        id = run.response.headers["x-chat-id"]
        with running_gateway(tmp_path / "two", settings={"data_dir": str(one.data)}) as two, http_client(two) as other:
            early = other.get(f"/v1/chat/{id}").json()
            assert (early["status"], text_of(early)) == ("streaming", "Waiting for the file.")
            refused = other.post(f"/v1/chat/{id}/cancel", json={})
            assert (refused.status_code, refused.json()["error"]["code"]) == (404, "not_found")
            with other.stream("GET", f"/v1/chat/{id}/events") as reply:
                pieces = reply.iter_raw()
                received = next(pieces)
                file.touch()
                received += b"".join(pieces)
        assert received == run.rest()


def test_what_a_turn_changed_before_the_gateway_was_killed_can_be_undone(tmp_path: Path) -> None:
    with ended_agents(tmp_path) as home:
        settings = {"force": "true"}
        with running_gateway(home, settings=settings) as gateway:
            (gateway.workspace / "notes.txt").write_text("mine\n")
            (gateway.workspace / "other.txt").write_text("other\n")
            (home / "change").write_text(
                "echo theirs > notes.txt\nrm other.txt\necho new > new.txt\ntouch done\nsleep 600\n"
            )
            watched = Watched(unique(), f'shell command="sh {home}/change"')
            with ThreadPoolExecutor(1) as pool:
                reading = pool.submit(watched.ask, gateway.url, None)
                eventually((gateway.workspace / "done").exists)
                eventually(lambda: list((gateway.data / "turns").glob("*/conv_*")))
                kill(gateway)
                reading.result(TIMEOUT)
        with running_gateway(home, settings=settings) as gateway, http_client(gateway) as http:
            path = f"/v1/conversations/{watched.conversation}"
            files = {file["path"]: file["operation"] for file in http.get(f"{path}/changes").json()["files"]}
            assert files == {"notes.txt": "edit", "other.txt": "delete", "new.txt": "create", "done": "create"}
            reply = http.post(f"{path}/revert", json={"chatId": watched.id})
            assert reply.status_code == 200, reply.text
            found = {file.name: file.read_text() for file in gateway.workspace.iterdir()}
            assert found == {"notes.txt": "mine\n", "other.txt": "other\n"}
        assert list((home / "data" / "turns").glob("*")) == []
