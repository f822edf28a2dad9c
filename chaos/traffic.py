"""A gateway in; every kind of request that it gets, mixed and at a bounded rate, out."""

import json
import random
import threading
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable
from typing import TypeAlias

import httpx2

from chaos.malformed import malformed
from chaos.talking import PIXEL, Json, chat, client, connected, growing, is_whole, standin, text_of
from tests.gateways import RunningGateway

_KEPT = 150  # conversations; the oldest are deleted, so that the history has a size
_WEATHER: Json = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
_PAGES = ["/", "/docs", "/docs.css", "/openapi.json", "/metrics", "/health", "/v1/models", "/v1/runs", "/page/app.js"]
_FAILURES = ["crash", "crash-early", "killed", "truncated", "fail-quota", "fail-capacity", "fail-auth", "fail-result"]
_NOISES = ["garbage", "bad-utf8", "no-newline", "huge-line size=200000", "stderr-flood bytes=300000"]


class Worker:
    """One client after the other, each of some kind. Whatever comes back wrong is raised."""

    def __init__(self, gateway: RunningGateway, http: httpx2.Client, chance: random.Random) -> None:
        self._gateway, self._http, self._chance = gateway, http, chance
        self._conversations: deque[str] = deque()

    def one(self) -> str:
        """What was done."""
        name, do = self._chance.choice(_KINDS)
        do(self)
        while len(self._conversations) > _KEPT // _WORKERS:
            id = self._conversations.popleft()
            reply = self._http.delete(f"/v1/conversations/{id}")
            assert reply.status_code in (200, 204, 404), reply.text
        return name

    def _keep(self, answer: Json) -> Json:
        self._conversations.append(answer["conversationId"])
        return answer

    def _any_conversation(self) -> str | None:
        return self._chance.choice(self._conversations) if self._conversations else None

    # --- answers --------------------------------------------------------------------------------------

    def whole(self) -> None:
        scenario = self._chance.choice(["text chunks=20 length=2000", "tools", "thinking", "fences", *_NOISES])
        self._keep(chat(self._http, standin(scenario)))

    def streamed(self) -> None:
        with growing(self._http, standin("text chunks=50 length=5000")) as stream:
            assert is_whole(stream.rest())
            id = stream.id
            self._conversations.append(stream.reply.headers["x-conversation-id"])
        for headers in ({}, {"last-event-id": "1"}, {"accept": "application/x-ndjson"}):
            reply = self._http.get(f"/v1/chat/{id}/events", headers=headers)
            assert reply.status_code == 200, reply.text

    def completed(self) -> None:
        for stream in (False, True):
            body = {"messages": [{"role": "user", "content": standin("tools")}], "stream": stream}
            reply = self._http.post("/v1/chat/completions", json=body)
            assert reply.status_code == 200, reply.text
            self._conversations.append(reply.headers["x-conversation-id"])

    def continued(self) -> None:
        id = self._any_conversation()
        if id is not None:
            reply = self._http.post("/v1/chat", json={"message": standin("history"), "conversationId": id})
            assert reply.status_code in (200, 409), reply.text

    def shown(self) -> None:
        self._keep(chat(self._http, "look", images=[PIXEL]))

    def called(self) -> None:
        """With a tool of the caller's, whose result goes back by either way."""
        steps = [{"call": "weather", "args": {"city": "Kyiv"}}, {"say": "It is $1."}]
        prompt = standin("program", json.dumps(steps))
        messages: list[Json] = [{"role": "user", "content": prompt}]
        reply = self._http.post("/v1/chat/completions", json={"messages": messages, "tools": [_WEATHER]})
        assert reply.status_code == 200, reply.text
        result = reply.json()["choices"][0]
        assert result["finish_reason"] == "tool_calls", result
        call_id = result["message"]["tool_calls"][0]["id"]
        if self._chance.random() < 0.5:
            results = {"toolResults": [{"toolCallId": call_id, "content": "sunny"}]}
            answer = self._http.post(f"/v1/chat/{reply.headers['x-chat-id']}/answer", json=results)
            assert answer.status_code == 200, answer.text
            assert "It is sunny." in text_of(answer.json())
        else:
            messages += [result["message"], {"role": "tool", "tool_call_id": call_id, "content": "sunny"}]
            answer = self._http.post("/v1/chat/completions", json={"messages": messages, "tools": [_WEATHER]})
            assert answer.status_code == 200, answer.text
            assert "It is sunny." in answer.json()["choices"][0]["message"]["content"]
        self._conversations.append(reply.headers["x-conversation-id"])

    # --- what goes wrong ------------------------------------------------------------------------------

    def failed(self) -> None:
        for stream in (False, True):
            body = {"message": standin(self._chance.choice(_FAILURES)), "stream": stream}
            reply = self._http.post("/v1/chat", json=body)
            assert reply.status_code in (200, 401, 429, 502), (reply.status_code, reply.text)
            if "x-conversation-id" in reply.headers:
                self._conversations.append(reply.headers["x-conversation-id"])

    def left(self) -> None:
        with growing(self._http, standin("hang-mid")) as stream:
            stream.until(b"about")
            self._conversations.append(stream.reply.headers["x-conversation-id"])

    def cancelled(self) -> None:
        with growing(self._http, standin("hang-mid")) as stream:
            stream.until(b"about")
            self._conversations.append(stream.reply.headers["x-conversation-id"])
            assert self._http.post(f"/v1/chat/{stream.id}/cancel", json={}).status_code == 200
            stream.rest()

    def malformed(self) -> None:
        for _ in range(5):
            with connected(self._gateway, 20) as sock:
                one = malformed(self._chance)
                try:
                    sock.sendall(one.data)
                    reply = b"" if one.is_left else sock.recv(65536)
                except ConnectionError:
                    continue
                assert not reply.startswith(b"HTTP/1.1 5"), (one.data[:500], reply[:500])

    # --- looking --------------------------------------------------------------------------------------

    def looked(self) -> None:
        listed = self._http.get("/v1/conversations", params={"limit": 50})
        assert listed.status_code == 200, listed.text
        found = self._http.get("/v1/conversations", params={"q": self._chance.choice(["standin", "hello", "fox"])})
        assert found.status_code == 200, found.text
        id = self._any_conversation()
        if id is not None:
            result = self._http.get(f"/v1/conversations/{id}").json()
            for run in result["runs"]:
                assert self._http.get(f"/v1/chat/{run['id']}").status_code in (200, 404)

    def browsed(self) -> None:
        for path in self._chance.sample(_PAGES, 4):
            reply = self._http.get(path)
            assert reply.status_code in (200, 404), (path, reply.text[:300])


_Kind: TypeAlias = tuple[str, Callable[[Worker], None]]

_WORKERS = 4
_KINDS: list[_Kind] = [
    ("whole answers", Worker.whole),
    ("whole answers", Worker.whole),
    ("resumed streams", Worker.streamed),
    ("resumed streams", Worker.streamed),
    ("OpenAI requests, whole and streaming", Worker.completed),
    ("continued conversations", Worker.continued),
    ("images", Worker.shown),
    ("calls of the caller's tools", Worker.called),
    ("failing agents", Worker.failed),
    ("disconnecting clients", Worker.left),
    ("cancelled runs", Worker.cancelled),
    ("malformed requests", Worker.malformed),
    ("reads of the history", Worker.looked),
    ("requests for pages, metrics and models", Worker.browsed),
]


class Traffic:
    """Until it is told to stop: so many of these a second, by a few workers."""

    def __init__(self, gateway: RunningGateway, a_second: float) -> None:
        self.done: Counter[str] = Counter()
        self.mistakes: list[str] = []
        self._gateway, self._pause = gateway, _WORKERS / a_second
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._work, args=(seed,)) for seed in range(_WORKERS)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _work(self, seed: int) -> None:
        with client(self._gateway) as http:
            worker = Worker(self._gateway, http, random.Random(seed))
            while not self._stop.is_set():
                began = time.monotonic()
                try:
                    self.done[worker.one()] += 1
                except Exception as error:  # noqa: BLE001 -- told in the report; one is enough to be red
                    where = traceback.extract_tb(error.__traceback__)[-1]
                    self.mistakes.append(f"{type(error).__name__} in {where.name}, `{where.line}`: {error}"[:500])
                self._stop.wait(max(0.0, began + self._pause - time.monotonic()))
