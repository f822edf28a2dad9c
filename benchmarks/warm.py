"""What does a person wait for? `python -m benchmarks.warm`

The first content of a reply, with an agent that takes a second to start: if the agent was started in advance, against
one that starts for the request. The first turn of a conversation and the second, by every backend. A session of ACP
also takes a second to open, as the real agent's does.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx2

from benchmarks.found import Found, Part
from benchmarks.report import report
from tests.agent.bridge_install import install_bridge
from tests.gateways import running_gateway

ROUNDS = 5
START_SECONDS = 1.0
READY_SECONDS = START_SECONDS + 1.0  # until the next agent, or the next session, is ready
SOURCES = ("cli", "acp", "sdk")
PROMPT = "standin: say size=100\n---\nHello."


def warm_starts() -> Part:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        for source in SOURCES:
            cold = [_cold(Path(folder) / f"{source}{number}", source) for number in range(3)]
            client = stack.enter_context(_gateway(Path(folder) / source, source))
            _asked(client)
            new, more = zip(*(_both(client) for _ in range(ROUNDS)), strict=True)
            for what, times in (("new", new), ("next", more)):
                ratio = statistics.median(times) / statistics.median(cold)
                details = f"{statistics.median(times) * 1e3:.1f} ms against {statistics.median(cold) * 1e3:,.0f} ms"
                yield f"warm {source} {what}", Found(ratio, details)


def _cold(home: Path, source: str) -> float:
    """Of the first run of a gateway that has started nothing in advance."""
    with _gateway(home, source, starts_early=False) as client:
        return _asked(client)[0]


def _both(client: httpx2.Client) -> tuple[float, float]:
    """The first two turns of a conversation."""
    time.sleep(READY_SECONDS)
    first, conversation = _asked(client, is_warm=True)
    time.sleep(READY_SECONDS)
    return first, _asked(client, conversation, is_warm=True)[0]


def _asked(client: httpx2.Client, conversation: str | None = None, *, is_warm: bool = False) -> tuple[float, str]:
    """How long it took to the first content; and the conversation."""
    body = {"message": PROMPT, "stream": True, "mayAsk": False}
    if conversation is not None:
        body["conversationId"] = conversation
    began, took, rest = time.perf_counter(), 0.0, []
    with client.stream("POST", "/v1/chat", json=body) as reply:
        for line in reply.iter_lines():
            if not took and "Hello." in line:
                took = time.perf_counter() - began
            rest.append(line)
    assert took, rest
    assert ('"warm":true' in "".join(rest)) or not is_warm, rest
    assert "x-cursor-gateway-fallback" not in reply.headers
    return took, reply.headers["x-conversation-id"]


@contextmanager
def _gateway(home: Path, source: str, *, starts_early: bool = True) -> Iterator[httpx2.Client]:
    bridge = install_bridge(home / "bridge", slow_start_seconds=START_SECONDS)
    settings = {"spare_agents": "2" if starts_early else "0", "sdk_bridge": ",".join(bridge), "source": source}
    knobs = {"slow_start_seconds": START_SECONDS, "acp_session_seconds": START_SECONDS}
    environment = {"CURSOR_API_KEY": "key"} if source == "sdk" else {}
    with (
        running_gateway(home, settings=settings, knobs=knobs, environment=environment) as gateway,
        httpx2.Client(base_url=gateway.url, timeout=120) as client,
    ):
        yield client


def main() -> int:
    return report(dict(warm_starts()))


if __name__ == "__main__":
    sys.exit(main())
