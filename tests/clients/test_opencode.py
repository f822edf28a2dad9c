"""OpenCode, as its users start it: its own `bash` runs in its project, once, and its answer has what came out."""

import json

from cursor_gateway.sources.processes import members
from tests.clients.programs import Json, Project, call, command_of, program, say, ten_calls
from tests.gateways import RunningGateway
from tests.server.conftest import eventually, invocations, option, unique


def configuration(gateway: RunningGateway) -> Json:
    return {
        "provider": {
            "gateway": {
                "npm": "@ai-sdk/openai-compatible",
                "name": "Gateway",
                "options": {"baseURL": gateway.openai_url, "apiKey": "any"},
                "models": {"auto": {"name": "Auto", "limit": {"context": 200000, "output": 32000}}},
            }
        },
        "autoupdate": False,
        "share": "disabled",
        "permission": "allow",
    }


def asked(gateway: RunningGateway, project: Project, prompt: str, mark: str, *flags: str) -> str:
    """What is printed. One agent did all of it, and has ended."""
    (project.folder / "opencode.json").write_text(json.dumps(configuration(gateway)), encoding="utf-8")
    said = project.run(
        *command_of("opencode"),
        *("run", "--model", "gateway/auto", *flags),
        stdin=prompt,  # an argument would be put into quotes
        environment={"OPENCODE_DISABLE_MODELS_FETCH": "1"},
    )
    started = invocations(gateway, mark)
    eventually(lambda: not [pid for agent in started for pid in members(agent["pgid"])])
    titles = [agent for agent in started if "You are a title generator" in agent["prompt"]]
    assert len(started) - len(titles) == 1
    assert all(option(agent["argv"], "--mode") == "ask" for agent in titles)  # it must not work in the workspace
    assert "--continue" in flags or titles
    return said


def counted(gateway: RunningGateway, project: Project, *flags: str) -> str:
    """What is printed when the agent has it count how often it was asked to."""
    mark = unique()
    counts = call("bash", command="echo ran >> marker.txt; echo forty-$(wc -l < marker.txt)", description="Counts")
    return asked(gateway, project, program([say("I count. "), counts, say("It is $1")], mark), mark, *flags)


def test_its_shell_runs_once_in_each_turn_of_a_session(gateway: RunningGateway, project: Project) -> None:
    assert "It is forty-1" in counted(gateway, project)
    assert project.lines("marker.txt") == ["ran"]
    assert "It is forty-2" in counted(gateway, project, "--continue")
    assert project.lines("marker.txt") == ["ran", "ran"]


def test_a_turn_of_many_model_calls_does_not_look_like_a_full_context(
    gateway: RunningGateway, project: Project
) -> None:
    """240,000 tokens over ten calls, taken for the conversation's size, make it compact and go on by itself."""
    mark = unique()
    assert "all done" in asked(gateway, project, ten_calls(mark, description="Counts"), mark)
    assert len(project.lines("marker.txt")) == 9
    result = invocations(gateway, mark)
    assert not [agent for agent in result if "Continue if you have next steps" in agent["prompt"]]
