"""Inputs that once stopped a gateway for seconds, and how long others wait while each is served."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote

import httpx2

from chaos.place import Place
from chaos.table import fault
from chaos.talking import client
from tests import hostile
from tests.gateways import RunningGateway

_LONGEST = 2.0  # seconds of wall time, two gateways at once on a small machine
_FORMS = {
    "documents": "",
    "HTML": "?dialect=html",
    "a page": "?dialect=page",
    "SSE": "/events",
    "NDJSON": "/events?dialect=ndjson",
    "OpenAI's chunks": "/events?dialect=openai",
    "live HTML": "/events?dialect=html",
}


class _Waits:
    def __init__(self) -> None:
        self.longest: dict[str, float] = {}
        self.what = ""

    def note(self, seconds: float) -> None:
        self.longest[self.what] = max(self.longest.get(self.what, 0.0), seconds)

    def __str__(self) -> str:
        return ", ".join(f"{what} {seconds * 1000:.0f} ms" for what, seconds in self.longest.items())


@contextmanager
def _others(gateway: RunningGateway) -> Iterator[_Waits]:
    """Somebody asks for /health again and again."""
    waits, is_over = _Waits(), threading.Event()

    def ask() -> None:
        with client(gateway) as http:
            while not is_over.wait(0.005):
                what, began = waits.what, time.monotonic()
                http.get("/health")
                if what and what == waits.what:
                    waits.note(time.monotonic() - began)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        yield waits
    finally:
        is_over.set()
        asking.join()


@contextmanager
def _replaying(place: Place) -> Iterator[RunningGateway]:
    recordings = place.folder / "recordings"
    recordings.mkdir(exist_ok=True)
    for name, data in hostile.answers().items():
        (recordings / f"{name.replace(' ', '_')}.ndjson").write_bytes(data())
    settings = {"source": "replay", "replay_dir": str(recordings), "replay_speed": "0"}
    with place.gateway(settings=settings) as gateway:
        yield gateway


def _read(http: httpx2.Client, target: str) -> None:
    reply = http.get(target)
    assert reply.status_code == 200, (target, reply.text[:300])


@fault(
    "answers that are slow to format",
    provoked="Answers with deep nesting, endless quotes and tables, and code that is slow to highlight are read in "
    "every dialect.",
    holds="Every reply is complete; others are answered meanwhile.",
    seconds=600,
)
def slow_answers(place: Place) -> str:
    names = list(hostile.answers())
    names = names[:: place.size(1, 4)]
    with _replaying(place) as gateway, client(gateway) as http, _others(gateway) as waits:
        http.timeout = 300
        for name in names:
            waits.what = "POST /v1/chat"
            reply = http.post("/v1/chat", json={"message": f"recording: {name.replace(' ', '_')}"})
            assert reply.status_code == 200, reply.text[:300]
            id = reply.json()["id"]
            for waits.what, form in _FORMS.items():
                _read(http, f"/v1/chat/{id}{form}")
        waits.what = ""
    assert max(waits.longest.values()) < _LONGEST, str(waits)
    return f"{len(names)} answers in {len(_FORMS)} forms; the longest wait of others: {waits}."


@fault(
    "requests that are slow to read",
    provoked="Bodies with 580,000 messages, 400,000 images or millions of empty objects, and searches for long words.",
    holds="Each request is answered or rejected; others are answered meanwhile.",
    seconds=300,
)
def slow_requests(place: Place) -> str:
    with _replaying(place) as gateway, client(gateway) as http, _others(gateway) as waits:
        http.timeout = 300
        headers = {"content-type": "application/json"}
        for waits.what, (path, body) in hostile.requests().items():
            assert http.post(path, content=body(), headers=headers).status_code < 500
        http.post("/v1/chat", content=json.dumps({"message": hostile.SEARCHED}), headers=headers)
        waits.what = "searches"
        for query in hostile.SEARCHES:
            _read(http, f"/v1/conversations?q={quote(query)}")
        waits.what = ""
    assert max(waits.longest.values()) < _LONGEST, str(waits)
    return f"The longest wait of others: {waits}."
