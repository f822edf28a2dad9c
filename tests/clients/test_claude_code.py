"""Claude Code, as its users start it: its web search has results."""

from pathlib import Path

from tests.clients.programs import Project, ask_launched, call, program, say
from tests.server.conftest import unique
from tests.server.test_caller_tools import own_gateway


def test_a_web_search_has_what_the_agent_found(tmp_path: Path, project: Project) -> None:
    """The query plays the part of the agent that searches; its text must not look so to the one that asks."""
    mark = unique()
    steps = program([call("WebSearch", query=f"{mark}\nstandin: websearch"), say("Found: $1")], mark)
    prompt = steps.replace("nstandin: websearch", "nstand\\u0069n: websearch")
    with own_gateway(tmp_path / "gateway", settings={"force": "true"}) as (gateway, _):
        said = ask_launched(project, "claude", gateway.url, "--allowedTools", "WebSearch", "-p", prompt)
    assert '{"title":"A page","url":"https://example.com"}' in said
    assert "There is one page." in said
