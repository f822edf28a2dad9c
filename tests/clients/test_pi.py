"""pi, as its users start it: it prints the answer of the one agent that it has asked."""

import json

from cursor_gateway.sources.processes import members
from tests.clients.programs import Json, Project, command_of, ten_calls
from tests.gateways import RunningGateway
from tests.server.conftest import eventually, invocations, unique


def configuration(gateway: RunningGateway) -> Json:
    model = {"id": "auto", "contextWindow": 200_000, "maxTokens": 32_000}
    provider = {"baseUrl": gateway.openai_url, "api": "openai-completions", "apiKey": "any", "models": [model]}
    return {"providers": {"gateway": provider}}


def test_a_turn_of_many_model_calls_does_not_look_like_a_full_context(
    gateway: RunningGateway, project: Project
) -> None:
    """240,000 tokens over ten calls, taken for the conversation's size, make it drop the answer and ask again."""
    folder = project.home / ".pi" / "agent"
    folder.mkdir(parents=True)
    (folder / "models.json").write_text(json.dumps(configuration(gateway)), encoding="utf-8")
    mark = unique()
    said = project.run(
        *command_of("pi"),
        *("--print", "--provider", "gateway", "--model", "auto", ten_calls(mark)),
        environment={"PI_OFFLINE": "1"},
    )
    assert "all done" in said
    assert project.lines("marker.txt") == ["ran"] * 9
    (started,) = invocations(gateway, mark)
    eventually(lambda: not members(started["pgid"]))
