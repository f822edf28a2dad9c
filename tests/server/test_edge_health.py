"""Whether runs can be started at all: `/health` tells, also when that changes."""

from pathlib import Path

import pytest

from tests.gateways import running_gateway
from tests.server.conftest import ask, http_client, standin


@pytest.mark.parametrize("source", ["cli", "acp"])
@pytest.mark.quick_cases(1)
def test_an_agent_that_is_gone_is_reported_until_it_is_back(tmp_path: Path, source: str) -> None:
    with running_gateway(tmp_path, "--source", source) as gateway, http_client(gateway) as http:
        assert http.get("/health").json()["status"] == "ok"
        agents, elsewhere = tmp_path / "bin", tmp_path / "elsewhere"
        (agents / "cursor-agent").rename(agents / "cursor-agent.old")
        assert http.get("/health").json()["status"] == "ok"  # it has another name, too
        (agents / "cursor-agent.old").rename(agents / "cursor-agent")
        agents.rename(elsewhere)
        result = http.get("/health")
        assert (result.status_code, result.json()["status"], result.json()["error"]["code"]) == (
            503,
            "unavailable",
            "agent_missing",
        )
        assert result.json()["source"]["name"] == source
        assert http.get("/v1/conversations").status_code == 200  # the rest goes on
        if source == "cli":
            assert ask(http, "openai", standin("text")).status_code == 424
            assert ask(http, "documents", standin("text")).status_code == 503
        elsewhere.rename(agents)
        assert http.get("/health").json()["status"] == "ok"
        assert ask(http, "openai", standin("text")).status_code == 200
