"""Fronts and runners as processes: a run is started at one front, read at another, and driven by a runner."""

from pathlib import Path

from tests.cluster.conftest import cluster
from tests.server.conftest import chat, growing, standin, text_of


def test_a_run_is_streamed_across_processes_and_resumed_at_another_front(tmp_path: Path, database: str) -> None:
    with cluster(tmp_path, database) as running:
        one, two = running.clients
        with growing(one, "documents", standin("slow count=20 delay_ms=20")) as stream:
            id = stream.response.headers["x-chat-id"]
            stream.until(b"\n\n")
            rest = two.get(f"/v1/chat/{id}/events").content
            streamed = stream.rest()
        assert rest == streamed
        assert streamed.count(b"event: done") == 1
        assert text_of(chat(two, standin("text")))
