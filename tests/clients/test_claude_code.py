"""Claude Code, as its users start it: its web search has results, and as an MCP host it knows what to do next."""

import json
import sys
from pathlib import Path

from tests.clients.programs import Project, ask_launched, call, program, say
from tests.gateways import RunningGateway
from tests.mcp_server.host import environment_of
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


def test_its_model_reads_how_to_answer_the_agents_question(gateway: RunningGateway, project: Project) -> None:
    """As an MCP host, it shows its model the structured content of a result alone."""
    mark = unique()
    command = ["-m", "cursor_gateway", "mcp", "--workspace", str(gateway.workspace)]
    server = {"command": sys.executable, "args": command, "env": environment_of(gateway)}
    config = project.home / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"cursor": server}}))
    steps = program([call("mcp__cursor__run", prompt=f"{mark}\nstandin: question"), say("Result: $1")], mark)
    prompt = steps.replace("nstandin: question", "nstand\\u0069n: question")  # for the agent that it asks
    options = ["--mcp-config", str(config), "--strict-mcp-config", "--allowedTools", "mcp__cursor__run"]
    said = ask_launched(project, "claude", gateway.url, *options, "-p", prompt)
    result = json.loads(said.partition("Result: ")[2].strip())
    assert "Which file is meant?" in result["nextStep"]
    example = json.loads(result["nextStep"].splitlines()[-1])
    assert example == {"runId": result["id"], "answers": example["answers"]}
