"""The address of a cluster in; conversations with it, each with several readers, cancellations and tool results, out.

Every request that starts something has a key, so it may be sent again when its answer was lost: a client cannot know
whether it was executed.
"""

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, Literal, TypeAlias

import httpx2
from msgspec import Struct

from nemesis.history import Accepted, Shown
from nemesis.reader import SILENT_SECONDS, read
from nemesis.witness import RESULT

Kind: TypeAlias = Literal["text", "silent", "tool", "cancel"]

READERS = 2  # of each run
_KINDS: tuple[Kind, ...] = ("text", "silent", "tool", "cancel")
_SILENT_MS = 5000  # an agent that writes to a dead runner's pipe would end by itself
_TOOL = {"name": "look", "description": "Looks.", "parameters": {"type": "object", "properties": {}}}
_QUEUED = 0.3  # of those without tools are followed by another message at once
_QUEUED_KINDS: tuple[Kind, ...] = ("text", "cancel")
_RESUMABLE = 0.4  # of those without tools
_REPLY_SECONDS = 15.0
_AGAIN_SECONDS = 0.2


class Record:
    """What the clients saw."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.accepted: list[Accepted] = []
        self.readers: list[tuple[str, str]] = []
        self.shown: list[Shown] = []
        self.finished: list[tuple[str, str]] = []
        self.refused: list[tuple[str, str, str]] = []
        self.unexpected: list[str] = []
        self.said: dict[str, str] = {}
        self.resumable: set[str] = set()  # questions of runs that may be resumed


class Place(Struct, frozen=True):
    """Of one conversation."""

    workspace: str


class Workload:
    """`stop` ends it: no new questions; what was begun is finished within a limit."""

    def __init__(self, url: str, seed: int, record: Record) -> None:
        timeout = httpx2.Timeout(_REPLY_SECONDS, read=SILENT_SECONDS)
        limits = httpx2.Limits(max_keepalive_connections=0)  # each request goes to the next front
        self._client = httpx2.AsyncClient(base_url=url, timeout=timeout, limits=limits)
        self._seed, self._record = seed, record
        self._until = float("inf")
        self._is_stopping = asyncio.Event()

    async def run(self, places: Mapping[str, Place]) -> None:
        async with self._client, asyncio.TaskGroup() as group:
            for name, place in places.items():
                group.create_task(self._converse(name, place))

    def stop(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds
        self._is_stopping.set()

    async def _converse(self, name: str, place: Place) -> None:
        random, queueing = Random(f"{self._seed} {name}"), Random(f"{self._seed} {name} queue")
        conversation: str | None = None
        number = 0
        while not self._is_stopping.is_set():
            number += 1
            question = f"question-{self._seed}-{name}-{number}"
            kind = random.choice(_KINDS)
            steps = _steps(question, kind, random)
            self._record.said[question] = _said(question, steps)
            body: dict[str, Any] = {"message": _prompt(question, steps), "workspace": place.workspace}
            if conversation is not None:
                body["conversationId"] = conversation
            if kind == "tool":
                body["tools"] = [_TOOL]
            elif random.random() < _RESUMABLE:
                body["whenRunnerLost"] = "resume"
                self._record.resumable.add(question)
            begun = await self._post("/v1/chat", body, question)
            if begun is None:
                continue
            run = begun["id"]
            self._record.asked.append(run)
            following = [self._follow(run, question, kind, random)]
            if conversation is None and "queue" in begun["metadata"] and kind == "cancel":
                await asyncio.gather(*following)  # there may never be such a conversation
                continue
            conversation = begun["conversationId"]
            if kind != "tool" and queueing.random() < _QUEUED:
                following.append(self._follow_next(f"{question}-next", conversation, queueing))
            await asyncio.gather(*following)

    async def _follow_next(self, question: str, conversation: str, random: Random) -> None:
        """A message that waits in the queue until the run before it has ended, and may be cancelled there."""
        kind = random.choice(_QUEUED_KINDS)
        steps = _steps(question, kind, random)
        self._record.said[question] = _said(question, steps)
        body = {"message": _prompt(question, steps), "conversationId": conversation, "whenBusy": "wait"}
        begun = await self._post("/v1/chat", body, question)
        if begun is not None:
            self._record.asked.append(begun["id"])
            await self._follow(begun["id"], question, kind, random)

    async def _follow(self, run: str, question: str, kind: Kind, random: Random) -> None:
        calls: asyncio.Queue[list[str]] = asyncio.Queue()
        readers = [asyncio.create_task(self._read(run, f"{question}-reader{n}", calls)) for n in range(READERS)]
        doing = asyncio.create_task(self._act(run, question, kind, calls, random.uniform(0, 2)))
        try:
            await asyncio.gather(*readers)
        finally:
            for task in (doing, *readers):
                task.cancel()
            await asyncio.gather(doing, *readers, return_exceptions=True)

    async def _read(self, run: str, reader: str, calls: "asyncio.Queue[list[str]]") -> None:
        record, last = self._record, 0

        def shown(number: int, data: bytes) -> None:
            nonlocal last
            last = number
            record.shown.append(Shown(reader, run, number, data, time.time()))
            if data.startswith(b"done ") and (waiting := _waiting_for(data)):
                calls.put_nowait(waiting)

        record.readers.append((reader, run))
        failed = await read(self._client, run, shown, lambda: self._until)
        if failed is None:
            record.finished.append((reader, run))
        else:
            record.refused.append((reader, run, f"after event {last}: {failed}"))

    async def _act(
        self, run: str, question: str, kind: Kind, calls: "asyncio.Queue[list[str]]", seconds: float
    ) -> None:
        match kind:
            case "text" | "silent":
                return
            case "cancel":
                await asyncio.sleep(seconds)
                if await self._post(f"/v1/chat/{run}/cancel", {}, f"{question}-cancel") is not None:
                    self._record.accepted.append(Accepted(run, "cancel"))
            case "tool":
                waiting = await calls.get()
                await asyncio.sleep(seconds)  # meanwhile its runner may be lost
                results = [{"toolCallId": call, "content": _result(question)} for call in waiting]
                answer = f"/v1/chat/{run}/answer"
                if await self._post(answer, {"toolResults": results}, f"{question}-results") is not None:
                    self._record.accepted.append(Accepted(run, "results", _result(question)))

    async def _post(self, path: str, body: Mapping[str, object], key: str) -> dict[str, Any] | None:
        """The answer, or None if it was refused for good or the time is over. It is tried again until then."""
        while not self._is_stopping.is_set() or time.monotonic() < self._until:
            try:
                headers = {"Idempotency-Key": key, "Prefer": "respond-async"}
                reply = await self._client.post(path, json=body, headers=headers, timeout=_REPLY_SECONDS)
            except (httpx2.TransportError, OSError):
                pass
            else:
                if reply.status_code in (200, 202):
                    found: dict[str, Any] = reply.json()
                    return found
                if reply.status_code < 500 and reply.status_code not in (409, 429):
                    if path == "/v1/chat":
                        self._record.unexpected.append(f"{path}: {reply.status_code} {reply.text[:300]}")
                    return None
                if path == "/v1/chat" and self._is_stopping.is_set():
                    return None
            await asyncio.sleep(_AGAIN_SECONDS)
        return None


def _waiting_for(data: bytes) -> list[str]:
    """The calls that an event `done` waits for; none at the end of the run."""
    envelope = json.loads(data.partition(b" ")[2])
    return [call["toolCallId"] for call in envelope["metadata"].get("waitingFor", ())]


def _result(question: str) -> str:
    return f"{RESULT} {question}."


def _steps(question: str, kind: Kind, random: Random) -> list[dict[str, object]]:
    """What the stand-in agent does: so many words, with pauses; every word is of this question alone."""
    words, pause = (400, 20) if kind == "cancel" else (random.randint(5, 60), random.choice((1, 5, 20, 60)))
    steps: list[dict[str, object]] = []
    for number in range(words):
        if kind == "tool" and number == words // 2:
            steps += [{"call": "look", "args": {}}, {"say": "$1 "}]
        is_silent = kind == "silent" and number == words // 2
        steps += [{"say": f"{question} {number} "}, {"pause_ms": _SILENT_MS if is_silent else pause}]
    return steps


def _said(question: str, steps: Sequence[Mapping[str, object]]) -> str:
    return "".join(str(step.get("say", "")) for step in steps).replace("$1", _result(question))


def _prompt(question: str, steps: Sequence[Mapping[str, object]]) -> str:
    return f"{question} standin: program\n---\n{json.dumps(steps)}\n--- end"
