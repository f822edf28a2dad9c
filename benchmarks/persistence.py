"""Does it pay to keep an agent alive? `python -m benchmarks.persistence`

A short prompt through a gateway whose agents live on (ACP, warm), against the same prompt through one that starts an
agent for each run, with an agent that needs 300 ms to start. Both gateways are up together and asked in turns; and 50
sessions at once share four agents.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx2

from benchmarks.found import Found, Part
from benchmarks.processes import children
from benchmarks.report import report
from cursor_gateway.sources.processes import members
from tests.gateways import RunningGateway, running_gateway

ROUNDS = 15
START_SECONDS = 0.3
SESSIONS, AGENTS = 50, 4
PROMPT = {"message": "standin: say size=100\n---\nHello."}


def kept_alive() -> Part:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        knobs = {"slow_start_seconds": START_SECONDS}
        settings = {"max_runs": str(SESSIONS), "max_agents": str(AGENTS), "spare_agents": "0"}
        gateways: dict[str, RunningGateway] = {}
        for source in ("cli", "acp"):
            home = Path(folder) / source
            its = {**settings, "source": source}
            gateways[source] = stack.enter_context(running_gateway(home, settings=its, knobs=knobs))
        clients = {
            source: stack.enter_context(httpx2.Client(base_url=gateway.url, timeout=120))
            for source, gateway in gateways.items()
        }
        for client in clients.values():
            asked(client)  # warm
        ratios = list(rounds(clients))
        at_once, agents = shared(clients["acp"], gateways["acp"])
    yield "kept short", Found(statistics.median(ratios), f"median of {ROUNDS} rounds")
    yield "kept answered", Found(at_once, f"of {SESSIONS}")
    yield "kept agents", Found(agents, f"for {SESSIONS} sessions at once")


def main() -> int:
    return report(dict(kept_alive()))


def asked(client: httpx2.Client) -> float:
    began = time.perf_counter()
    reply = client.post("/v1/chat", json=PROMPT)
    assert reply.json()["documents"][0]["content"] == "Hello.", reply.text
    assert "x-cursor-gateway-fallback" not in reply.headers
    return time.perf_counter() - began


def rounds(clients: dict[str, httpx2.Client]) -> Iterator[float]:
    for _ in range(ROUNDS):
        took = {source: asked(client) for source, client in clients.items()}
        yield took["acp"] / took["cli"]


def shared(client: httpx2.Client, gateway: RunningGateway) -> tuple[int, int]:
    """How many of the sessions were answered, and how many agents there are then."""
    with ThreadPoolExecutor(SESSIONS) as pool:
        answered = sum(took > 0 for took in pool.map(lambda _: asked(client), range(SESSIONS)))
    groups = [one for one in children(gateway.process.pid) if members(one)]
    return answered, len(groups)


if __name__ == "__main__":
    sys.exit(main())
