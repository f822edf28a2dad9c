"""One run, many readers: whoever comes, goes and comes back, in whatever form and at whatever pace, has it all once."""

import asyncio
import json
import random
import tempfile
from collections.abc import AsyncGenerator, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias
from urllib.parse import urlencode

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace
from starlette.types import Message

from cursor_gateway.cli.assembly.serving import dialects_of
from cursor_gateway.dialects.base import SSE
from cursor_gateway.fair_places import Shares
from cursor_gateway.keys import LOCAL_OWNER
from cursor_gateway.model.agent_events import (
    AgentEvent,
    Command,
    OtherTool,
    Outcome,
    TextDelta,
    ThinkingDelta,
    ThinkingEnded,
    ToolEnded,
    ToolStarted,
)
from cursor_gateway.model.document_events import Done
from cursor_gateway.model.messages import UserMessage
from cursor_gateway.runs import log as log_module
from cursor_gateway.runs.admission import Runs
from cursor_gateway.runs.conversations import Conversations
from cursor_gateway.runs.run import Run
from cursor_gateway.runs.run_service import Defaults, RunRequest
from cursor_gateway.runs.service import LocalRunService
from cursor_gateway.runs.starter import RunParts
from cursor_gateway.server import runs as runs_module
from cursor_gateway.server.app import build_app
from cursor_gateway.server.metrics import Metrics
from cursor_gateway.settings import Settings
from cursor_gateway.sources.base import Turn
from cursor_gateway.sources.router import routed
from cursor_gateway.store.postgres.store import PostgresStore
from cursor_gateway.store.sql import SqlStore
from cursor_gateway.store.sqlite.store import SqliteStore
from cursor_gateway.workspace.roots import Workspaces
from tests.gateways import RunningGateway, running_gateway
from tests.laws.folds import fold_chunks, fold_documents, read_ndjson, read_sse
from tests.laws.folds import frames_of as read_frames
from tests.runs.scripted import ENDLESS, FINISHED, STARTED, ScriptedSource, say, true, turns_of_the_loop
from tests.server.conftest import (
    Json,
    ask,
    at_once,
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
from tests.store.making import deltas, envelope, lease, new_run, run_end
from tests.strategies import examples

Reads: TypeAlias = Literal["documents", "ndjson", "openai"]
READS: list[Reads] = ["documents", "ndjson", "openai"]


# --- a reader that loses its connection, wherever it happens to be ------------------------------------------


class Received:
    """What has come so far over one connection after the other."""

    def __init__(self, dialect: Reads) -> None:
        self.dialect = dialect
        self.body = b""

    @property
    def last(self) -> int:
        """The number of the last event that is there as a whole."""
        if self.dialect == "ndjson":
            return int(json.loads(self.body.splitlines()[-1])["id"]) if self.body else 0
        ids = [line[4:] for line in self.body.split(b"\n") if line.startswith(b"id: ")]
        return int(ids[-1]) if ids else 0

    @property
    def said(self) -> bytes:
        """Without what keeps the connection alive until the first event."""
        return self.body.lstrip(b" ") if self.dialect == "ndjson" else self.body.replace(SSE.keep_alive, b"")

    def lose(self) -> None:
        """What a client can rely on: up to the last line, or the last frame that has a number."""
        if self.dialect == "ndjson":
            self.body = self.body[: self.body.rfind(b"\n") + 1]
            return
        place = self.body.rfind(b"id: ")
        while place >= 0 and (end := self.body.find(b"\n\n", place)) < 0:  # that frame has not come to its end
            place = self.body.rfind(b"id: ", 0, place)
        self.body = self.body[: end + 2] if place >= 0 else b""

    def fold(self) -> Json:
        match self.dialect:
            case "documents":
                return fold_documents(read_sse(self.body))
            case "ndjson":
                return fold_documents(read_ndjson(self.body))
            case "openai":
                return fold_chunks(self.body, include_usage=True)


class Habits(Struct, frozen=True):
    """How somebody reads."""

    dialect: Reads
    losses: tuple[int, ...] = ()  # after so many bytes of each connection it is gone
    pause: int = 0  # before each piece is taken
    by_header: bool = True
    comes_after: int = 0  # other things have happened


# --- without sockets ----------------------------------------------------------------------------------------


class _Connection:
    """One request of a client that reads `pause` slowly, and is gone after so many bytes."""

    def __init__(self, pause: int = 0, most: int | None = None) -> None:
        self.status, self.body = 0, b""
        self._pause, self._most = pause, most
        self._is_gone = asyncio.Event()
        self._sent: list[Message] = []

    async def ask(self, app: Any, method: str, path: str, query: str, headers: Mapping[str, str], body: bytes) -> None:
        self._sent = [{"type": "http.request", "body": body, "more_body": False}]
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in {"host": "127.0.0.1", **headers}.items()],
        }
        asked: Coroutine[Any, Any, None] = app(scope, self._receive, self._send)
        await asked
        if self._most is not None:
            self.body = self.body[: self._most]

    async def _receive(self) -> Message:
        if self._sent:
            return self._sent.pop()
        await self._is_gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            return
        self.body += message.get("body", b"")
        if self._most is not None and len(self.body) >= self._most:
            self._is_gone.set()
        await turns_of_the_loop(self._pause)


class Site:
    """The whole application over a script and a real store; on the same folder again, it is the next gateway."""

    def __init__(self, folder: Path, source: ScriptedSource, store: SqlStore | None = None) -> None:
        self.source, self.store = source, store or SqliteStore(folder)
        runs = Runs(source, ENDLESS, Shares(max_runs=99))
        self.service = LocalRunService(
            RunParts(
                routed(source),
                runs,
                self.store,
                Conversations(self.store, folder / "conversations", latest=runs.latest),
                Workspaces(folder, []),
                Defaults(model="auto"),
                "instance",
                lambda: 0,
            )
        )
        self.app = build_app(self.service, Settings(), Metrics(), dialects_of(Settings()))

    async def get(
        self, path: str, query: Mapping[str, object] | None = None, headers: Mapping[str, str] | None = None
    ) -> _Connection:
        connection = _Connection()
        await connection.ask(self.app, "GET", path, urlencode(query or {}), headers or {}, b"")
        return connection

    async def snapshot(self, id: str) -> Json:
        reply = await self.get(f"/v1/chat/{id}")
        assert reply.status == 200
        found: Json = json.loads(reply.body)
        return found

    async def begin(self) -> Run:
        """A run that needs nobody to read it."""
        messages = [UserMessage("Say it.")]
        run = await self.service.start(RunRequest(owner=LOCAL_OWNER, messages=messages, when_client_leaves="finish"))
        assert isinstance(run, Run)
        return run

    async def read(self, id: str, habits: Habits) -> Received:
        received = Received(habits.dialect)
        await turns_of_the_loop(habits.comes_after)
        for most in [*habits.losses, None]:
            connection = _Connection(habits.pause, most)
            headers, query = dict[str, str](), {"dialect": str(habits.dialect)}
            if habits.by_header:
                headers["last-event-id"] = str(received.last)
            else:
                query["after"] = str(received.last)
            await connection.ask(self.app, "GET", f"/v1/chat/{id}/events", urlencode(query), headers, b"")
            received.body += connection.body
            if connection.status == 204 or most is None:
                break
            received.lose()
        return received

    async def close(self) -> None:
        await self.service.close(0)
        await self.store.close()


class Paced(ScriptedSource):
    """Batches, and so many turns of the loop after each: none, and nobody is woken before the next."""

    def __init__(self, script: Sequence[tuple[Sequence[AgentEvent], int]]) -> None:
        super().__init__([])
        self._paced = script

    async def events(self, turn: Turn) -> AsyncGenerator[Sequence[AgentEvent], None]:
        self.turns.append(turn)
        for batch, pause in self._paced:
            yield batch
            await turns_of_the_loop(pause)


SEARCH = OtherTool(tool="grep", arguments={"pattern": "é"})
PIECES: dict[str, list[AgentEvent]] = {
    "a word": say("word "),
    "some words": say(*(f"{number} " for number in range(7))),
    "code": say("\n```py\nx = 1\n", "```\n"),
    "white space": say("\n", "\n"),
    "thinking": [ThinkingDelta("Hm"), ThinkingDelta("…"), ThinkingEnded()],
    "a tool": [
        ToolStarted("a\nb", SEARCH),
        ToolEnded("a\nb", OtherTool(tool="grep", arguments={"pattern": "é"}, data={"hits": [1, 2.5]}), Outcome()),
    ],
    "a command": [
        ToolStarted("c", Command(tool="shell", command="ls")),
        ToolEnded("c", Command(tool="shell", command="ls", exit_code=0, output="a\n"), Outcome()),
    ],
    "two tools at once": [ToolStarted("d", SEARCH), ToolStarted("e", SEARCH), ToolEnded("e", SEARCH, Outcome())],
}
SCRIPTS = st.lists(st.tuples(st.sampled_from(sorted(PIECES)), st.integers(0, 4)), min_size=1, max_size=12)
HABITS = st.builds(
    Habits,
    dialect=st.sampled_from(READS),
    losses=st.lists(st.integers(0, 1500), max_size=4).map(tuple),
    pause=st.sampled_from([0, 0, 1, 7]),
    by_header=st.booleans(),
    comes_after=st.integers(0, 30),
)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("kept", [1, 5, 2048])
@examples(30)
@given(
    script=SCRIPTS,
    readers=st.lists(HABITS, min_size=1, max_size=5),
    late=HABITS,
    end=st.sampled_from(["finish", "break off"]),
    snapshots=st.lists(st.integers(0, 30), max_size=3),
)
def test_every_reader_has_the_same_in_the_end(
    kept: int, script: list[tuple[str, int]], readers: list[Habits], late: Habits, end: str, snapshots: list[int]
) -> None:
    """`kept` are the events that stand beside the store: whoever is further behind reads what is stored."""

    async def live(folder: Path) -> None:
        batches: list[tuple[Sequence[AgentEvent], int]] = [
            ([STARTED], 0),
            *((PIECES[name], pause) for name, pause in script),
        ]
        batches += [([FINISHED], 0)] if end == "finish" else []
        site = Site(folder, Paced(batches))
        run = await site.begin()
        reading = [asyncio.ensure_future(site.read(run.id, habits)) for habits in readers]
        looking = [asyncio.ensure_future(looked(site, run.id, after)) for after in snapshots]
        received = await asyncio.gather(*reading)
        seen = await asyncio.gather(*looking)
        await run.gone()
        received.append(await site.read(run.id, late))
        answer = await site.snapshot(run.id)
        whole = {dialect: (await site.read(run.id, Habits(dialect))) for dialect in READS}
        await site.close()

        next_site = Site(folder, ScriptedSource([]))
        received.append(await next_site.read(run.id, late))
        assert await next_site.snapshot(run.id) == answer
        for dialect in READS:  # not one byte is told otherwise
            assert (await next_site.read(run.id, Habits(dialect))).body == whole[dialect].body
        await next_site.close()

        assert answer["status"] == ("completed" if end == "finish" else "error")
        assert whole["documents"].fold() == whole["ndjson"].fold() == answer
        for got in received:
            assert got.said == whole[got.dialect].body
            assert got.fold() == whole[got.dialect].fold()
        for early in seen:
            assert early == answer or is_beginning(early, answer)
        assert (len(site.source.turns), run.log.readers) == (1, 0)
        assert kept > 5 or len(run.log.events) <= max(2 * kept + 50, 60)

    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_module, "_KEPT_EVENTS", kept)
        asyncio.run(live(Path(folder)))


async def looked(site: Site, id: str, after: int) -> Json:
    await turns_of_the_loop(after)
    return await site.snapshot(id)


def is_beginning(early: Json, answer: Json) -> bool:
    """A snapshot says nothing that the answer does not say."""
    assert early["status"] == "streaming"
    for found, final in zip(early["documents"], answer["documents"], strict=False):
        assert (found["id"], found["type"], found["sequence"]) == (final["id"], final["type"], final["sequence"])
        assert (final["content"] or "").startswith(found["content"] or "")
    return len(early["documents"]) <= len(answer["documents"])


async def test_a_reader_who_is_far_behind_reads_what_is_stored_and_costs_no_memory(tmp_path: Path) -> None:
    count = 6 * log_module._KEPT_EVENTS
    script: list[tuple[Sequence[AgentEvent], int]] = [([STARTED], 0)]
    script += [(say(*(f"{number} " for number in range(at, at + 64))), 1) for at in range(0, count, 64)]
    site = Site(tmp_path, Paced([*script, ([FINISHED], 0)]))
    run = await site.begin()
    slow = [asyncio.ensure_future(site.read(run.id, Habits(dialect, pause=400))) for dialect in READS]
    await run.gone()
    assert run.log.dropped > 0
    assert len(run.log.events) <= log_module._KEPT_EVENTS + 64
    assert not any(reading.done() for reading in slow)
    answer = await site.snapshot(run.id)
    assert answer["documents"][0]["content"] == "".join(f"{number} " for number in range(count))
    documents, ndjson, chunks = [(await reading).fold() for reading in slow]
    assert documents == ndjson == answer
    assert chunks["choices"][0]["message"]["content"] == answer["documents"][0]["content"]
    await site.close()


async def test_a_flood_in_one_batch_is_not_lost_on_a_reader_who_was_up_to_date(tmp_path: Path) -> None:
    """So many events at once that those a waiting reader needs next stand in the store when it wakes."""
    count = 3 * log_module._KEPT_EVENTS
    flood = say(*(f"{number} " for number in range(count)))
    site = Site(tmp_path, Paced([(say("First. "), 30), (flood, 0), ([FINISHED], 0)]))
    run = await site.begin()
    reading = asyncio.ensure_future(site.read(run.id, Habits("documents")))
    ends = asyncio.ensure_future(run.finished())
    answer = (await reading).fold()
    assert answer["documents"][0]["content"] == "First. " + "".join(f"{number} " for number in range(count))
    assert (await ends).envelope.status == "completed"
    await run.gone()
    await site.close()


@pytest.mark.parametrize("dialect", READS)
async def test_who_has_it_all_is_told_not_to_come_again(
    tmp_path: Path, dialect: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs_module, "_RESEND_SECONDS", 0.0)
    goes = asyncio.Event()
    site = Site(tmp_path, _Gated(goes, say("Half"), say(" and all.")))
    run = await site.begin()
    await true(lambda: run.count)
    path = f"/v1/chat/{run.id}/events"
    waits = asyncio.ensure_future(
        site.get(path, {"dialect": dialect, "after": run.count})
    )  # all there is, but not done
    await turns_of_the_loop(20)
    assert not waits.done()
    early = await site.get(path, {"dialect": dialect}, {"last-event-id": str(run.count + 1)})
    assert early.status == 409
    error = json.loads(early.body)["error"]
    assert error["message"].startswith(f"The run has no event {run.count + 1}: it has {run.count} so far.")
    assert (error["code"], error["param"]) == ("log_reset", "after")
    goes.set()
    rest = await waits
    assert rest.status == 200
    assert (b"[DONE]" if dialect == "openai" else b"completed") in rest.body
    await run.gone()
    for _ in range(2):
        assert (await site.get(path, {"dialect": dialect, "after": run.count})).status == 204
        for after in (run.count + 1, 10**14):
            refused = await site.get(path, {"dialect": dialect, "after": after})
            assert refused.status == 409
            message = json.loads(refused.body)["error"]["message"]
            assert f"has no event {after}: it has {run.count}. Read it again from the start" in message
        named = {"anthropic-version": "2023-06-01"}
        refused = await site.get(path, {"dialect": dialect, "after": run.count + 1}, named)
        assert (refused.status, json.loads(refused.body)["type"]) == (409, "error")
        by_header = await site.get(path, {"dialect": dialect}, {"last-event-id": str(run.count)})
        assert (by_header.status, by_header.body) == (204, b"")
        assert (await site.get(path, {"dialect": dialect, "after": run.count - 1})).status == 200
        await site.close()
        site = Site(tmp_path, ScriptedSource([]))
    await site.close()


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
async def test_what_the_store_has_forgotten_is_waited_for(
    tmp_path: Path, engine: str, request: pytest.FixtureRequest
) -> None:
    """A client has had more than the store: the gateway that drives the run sends it again."""
    database = request.getfixturevalue("database") if engine == "postgres" else ""
    store = PostgresStore(database) if database else None
    site = Site(tmp_path, ScriptedSource([]), store)
    await site.store.begin_run(replace(new_run("chat_1"), owner=LOCAL_OWNER, instance="other"))
    await site.store.append(lease("chat_1"), 1, deltas(1))
    path, rest = "/v1/chat/chat_1/events", [*deltas(2, 3), Done(envelope("chat_1"))]
    waits = asyncio.ensure_future(site.get(path, {"after": 3}))
    await turns_of_the_loop(20)
    assert not waits.done()
    await site.store.append(lease("chat_1"), 2, rest, run_end("chat_1"))
    resumed = await waits
    assert (resumed.status, [name for name, _ in read_sse(resumed.body)]) == (200, ["done"])
    assert (await site.get(path, {"after": 5})).status == 409
    await site.close()


class _Gated(ScriptedSource):
    """What it says before it may go on, and then."""

    def __init__(self, goes: asyncio.Event, before: Sequence[AgentEvent], then: Sequence[AgentEvent]) -> None:
        super().__init__([])
        self._goes, self._before, self._then = goes, before, then

    async def events(self, turn: Turn) -> AsyncGenerator[Sequence[AgentEvent], None]:
        yield [STARTED, *self._before]
        await self._goes.wait()
        yield [*self._then, FINISHED]


async def test_a_run_that_still_goes_on_has_a_snapshot(tmp_path: Path) -> None:
    open_tools = [ToolStarted("1", SEARCH), ToolStarted("2", Command(tool="shell", command="make"))]
    done = ToolEnded("1", OtherTool(tool="grep", arguments={"pattern": "é"}, data="x"), Outcome())
    goes = asyncio.Event()
    site = Site(tmp_path, _Gated(goes, [TextDelta("Look: "), *open_tools], [done]))
    run = await site.begin()
    await true(lambda: run.count)
    early = await site.snapshot(run.id)
    assert (early["id"], early["conversationId"], early["status"]) == (run.id, run.info.conversation_id, "streaming")
    text, search, command = early["documents"]
    assert (text["content"], text["metadata"]) == ("Look: ", {"format": "markdown"})
    assert (search["metadata"]["toolName"], search["metadata"]["state"]) == ("grep", "running")
    assert search["metadata"]["arguments"] == {"pattern": "é"}
    assert (command["metadata"]["command"], command["metadata"]["state"]) == ("make", "running")
    assert (command["metadata"]["exitCode"], command["metadata"]["output"]) == (-1, "")
    goes.set()
    await run.gone()
    final = await site.snapshot(run.id)
    assert is_beginning(early, final)
    assert [document["metadata"].get("state") for document in final["documents"][1:]] == [None, "interrupted"]
    await site.close()


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ({"after": "-1"}, "after"),
        ({"after": "one"}, "after"),
        ({"after": "1.5"}, "after"),
        ({"after": "٣"}, "after"),
        ({"after": "9" * 20}, "after"),
        ({"dialect": "klingon"}, "dialect"),
    ],
)
async def test_what_no_reader_can_mean(tmp_path: Path, query: dict[str, str], param: str) -> None:
    site = Site(tmp_path, Paced([([*say("All"), FINISHED], 0)]))
    run = await site.begin()
    await run.gone()
    refused = await site.get(f"/v1/chat/{run.id}/events", query)
    assert (refused.status, json.loads(refused.body)["error"]["param"]) == (400, param)
    await site.close()


# --- over sockets -------------------------------------------------------------------------------------------


def read(client: httpx2.Client, id: str, habits: Habits) -> Received:
    received = Received(habits.dialect)
    for most in [*habits.losses, None]:
        headers, query = dict[str, str](), {"dialect": str(habits.dialect)}
        if habits.by_header:
            headers["last-event-id"] = str(received.last)
        else:
            query["after"] = str(received.last)
        with client.stream("GET", f"/v1/chat/{id}/events", params=query, headers=headers) as reply:
            if reply.status_code == 204:
                return received
            assert reply.status_code == 200
            piece = b""
            for piece in reply.iter_raw():
                received.body += piece
                if most is not None and len(received.body) >= most:
                    break
            else:
                return received
        received.lose()
    raise AssertionError("the last connection came to no end")


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("seed", range(3))
def test_every_reader_has_the_same_over_sockets(gateway: RunningGateway, http: httpx2.Client, seed: int) -> None:
    chance, mark = random.Random(seed), unique()
    habits = [
        Habits(
            dialect=READS[number % 3],
            losses=tuple(sorted(chance.randrange(4000) for _ in range(chance.randrange(4)))),
            by_header=chance.random() < 0.5,
        )
        for number in range(6)
    ]
    prompt = f"{standin('slow count=40 delay_ms=10')} {mark}"
    with growing(http, "documents", prompt, whenClientLeaves="finish") as reply:
        reply.until(b"content_delta")
        id = reply.response.headers["x-chat-id"]
        if chance.random() < 0.5:
            reply.rest()
    received = at_once({number: partial(read, http, id, one) for number, one in enumerate(habits)})
    answer = http.get(f"/v1/chat/{id}").json()
    assert (answer["status"], text_of(answer)) == ("completed", "".join(f"{number} " for number in range(40)))
    chunks = read(http, id, Habits("openai"))
    for got in received.values():
        assert got.fold() == (chunks.fold() if got.dialect == "openai" else answer)
    assert len(invocations(gateway, mark)) == 1
    for dialect in READS:
        last = {"last-event-id": str(received[0].last)}
        assert http.get(f"/v1/chat/{id}/events", params={"dialect": dialect}, headers=last).status_code == 204


@pytest.mark.parametrize("dialect", READS)
def test_a_stream_that_was_cut_goes_on_from_its_own_numbers(http: httpx2.Client, dialect: Reads) -> None:
    """The numbers are in the reply to the request itself, and a completion's own id finds its run."""
    prompt = standin("fences")
    if dialect == "openai":
        asked: Json = {"messages": [{"role": "user", "content": prompt}], "stream": True}
        asked["stream_options"] = {"include_usage": True}
        reply = http.post("/v1/chat/completions", json=asked)
        id = json.loads(read_frames(reply.content)[0].data)["id"]
        assert id.startswith("chatcmpl-")
    else:
        accept = {"accept": "application/x-ndjson" if dialect == "ndjson" else "text/event-stream"}
        reply = http.post("/v1/chat", json={"message": prompt, "stream": True}, headers=accept)
        id = reply.headers["x-chat-id"]
    assert http.get(f"/v1/chat/{id}").json()["id"] == reply.headers["x-chat-id"]
    for size in range(0, len(reply.content), len(reply.content) // 7):
        received = Received(dialect)
        received.body = reply.content[:size]
        received.lose()
        query = {"dialect": dialect, "after": received.last}
        received.body += http.get(f"/v1/chat/{id}/events", params=query).content
        assert received.body == reply.content


def ended(http: httpx2.Client, id: str) -> Json:
    eventually(lambda: http.get(f"/v1/chat/{id}").json()["status"] != "streaming")
    found: Json = http.get(f"/v1/chat/{id}").json()
    return found


def leave(http: httpx2.Client, prompt: str, way: str, wanted: str | None) -> str:
    """Asks, reads the beginning, and is gone. The run's id."""
    headers: dict[str, str] = {}
    fields: Json = {}
    if wanted is not None and way == "documents":
        fields = {"whenClientLeaves": wanted}
    elif wanted is not None and way == "openai field":
        fields = {"cursor": {"whenClientLeaves": wanted}}
    elif wanted is not None:
        headers = {"x-cursor-when-client-leaves": wanted}
    dialect: Literal["documents", "openai"] = "documents" if way == "documents" else "openai"
    with growing(http, dialect, prompt, headers=headers, **fields) as reply:
        reply.until(b"file.")
        return str(reply.response.headers["x-chat-id"])


@contextmanager
def other_gateway(tmp_path: Path, **settings: str) -> Iterator[tuple[RunningGateway, httpx2.Client]]:
    with running_gateway(tmp_path / "home", settings=settings) as running, http_client(running) as client:
        yield running, client


WAYS_TO_SAY = ["documents", "openai field", "openai header"]


def test_each_request_says_what_happens_when_its_client_leaves(tmp_path: Path, http: httpx2.Client) -> None:
    file = tmp_path / "go"
    prompt = standin(f"wait-for file={file}")
    kept = [leave(http, prompt, way, "finish") for way in WAYS_TO_SAY]
    stopped = [leave(http, prompt, way, wanted) for way in WAYS_TO_SAY for wanted in (None, "cancel")]
    for id in stopped:
        assert ended(http, id)["status"] == "error"
    assert {http.get(f"/v1/chat/{id}").json()["status"] for id in kept} == {"streaming"}
    file.touch()
    for id in kept:
        result = ended(http, id)
        assert (result["status"], text_of(result)) == ("completed", "Waiting for the file. It is there.")


def test_the_operator_says_what_happens_where_the_request_does_not(tmp_path: Path) -> None:
    file = tmp_path / "go"
    with other_gateway(tmp_path, when_client_leaves="finish") as (_, http):
        prompt = standin(f"wait-for file={file}")
        kept = [leave(http, prompt, way, None) for way in WAYS_TO_SAY]
        stopped = [leave(http, prompt, way, "cancel") for way in WAYS_TO_SAY]
        for id in stopped:
            assert ended(http, id)["status"] == "error"
        file.touch()
        for id in kept:
            assert ended(http, id)["status"] == "completed"


def test_what_was_said_is_read_after_a_restart_of_the_gateway(tmp_path: Path) -> None:
    file = tmp_path / "go"
    with other_gateway(tmp_path, drain_seconds="0.1") as (gateway, http):
        runs = [
            ask(http, "documents", standin(scenario)).headers["x-chat-id"]
            for scenario in ("tools", "fences", "thinking", "crash", "empty", "fail-quota", "fail-auth")
        ]
        runs.append(leave(http, standin(f"wait-for file={file}"), "documents", "finish"))  # ended with the gateway
        before = {(id, dialect): read(http, id, Habits(dialect)).body for id in runs[:-1] for dialect in READS}
        answers = {id: http.get(f"/v1/chat/{id}").content for id in runs[:-1]}
        mark = unique()
        chat(http, mark)
        invocation(gateway, mark)
    with other_gateway(tmp_path) as (_, http):
        for (id, dialect), body in before.items():
            assert read(http, id, Habits(dialect)).body == body
        assert {id: http.get(f"/v1/chat/{id}").content for id in answers} == answers
        stopped = http.get(f"/v1/chat/{runs[-1]}").json()
        assert stopped["documents"][-1]["metadata"]["errorCode"] == "SHUTTING_DOWN"
        assert text_of(stopped) == "Waiting for the file."
        assert fold_documents(read_sse(read(http, runs[-1], Habits("documents")).body)) == stopped
