"""`cursor-gateway launch` with the real programs: a tool of theirs runs in their folder; the answer has its output."""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import pytest
from msgspec import Struct
from msgspec.structs import replace

from cursor_gateway.sources.processes import members
from tests.agent.install import install
from tests.clients.programs import Json, Project, call, on_path, program, say
from tests.server.conftest import eventually, unique

# It takes a moment: Qwen Code may lose the output of a command that ends at once.
COMMAND = "echo ran >> marker.txt; echo forty-$(wc -l < marker.txt); sleep 0.5"


class Shell(Struct, frozen=True):
    """How a client is asked one question, and the tool with which it runs a command."""

    name: str
    arguments: Sequence[str]  # before the prompt
    tool: str
    given: Json  # its arguments
    environment: Mapping[str, str] = {}
    files: Mapping[str, str] = {}  # in its home: the user's own settings
    by_stdin: bool = False  # the prompt: as an argument it would be put into quotes


SHELLS = [
    Shell(
        "claude",
        ["--allowedTools", "Bash", "-p"],
        "Bash",
        {"command": COMMAND, "description": "Counts"},
        files={".claude/settings.json": '{"env": {"ANTHROPIC_BASE_URL": "http://127.0.0.1:9"}}'},
    ),
    Shell(
        "codex", ["exec", "--skip-git-repo-check", "--sandbox", "danger-full-access"], "exec_command", {"cmd": COMMAND}
    ),
    Shell(
        "opencode",
        ["run"],
        "bash",
        {"command": COMMAND, "description": "Counts"},
        environment={"OPENCODE_PERMISSION": '{"*": "allow"}'},
        by_stdin=True,
    ),
    Shell("kilo", ["run", "--auto"], "bash", {"command": COMMAND, "description": "Counts"}, by_stdin=True),
    Shell("pi", ["-p"], "bash", {"command": COMMAND}, environment={"PI_OFFLINE": "1"}),
    Shell("cn", ["-p", "--auto"], "Bash", {"command": COMMAND}),
    Shell("cline", [], "run_commands", {"commands": [COMMAND]}),
    Shell(
        "qwen",
        ["-y", "-p"],
        "run_shell_command",
        {"command": COMMAND, "is_background": False, "description": "Counts"},
        files={".qwen/settings.json": '{"tools": {"shell": {"enableInteractiveShell": false}}}'},
    ),
]


class Launched(Struct, frozen=True):
    said: str
    agents: Sequence[Json]  # each start of the stand-in with the prompt


def launched(project: Project, shell: Shell, prompt: str, mark: str) -> Launched:
    """With a gateway of its own, which has ended with all of its agents."""
    log = project.home / "agent.log"
    install(project.home / "bin", knobs={"log": str(log)})
    for path, text in shell.files.items():
        (project.home / path).parent.mkdir(parents=True, exist_ok=True)
        (project.home / path).write_text(text, encoding="utf-8")
    clients = on_path(project.home / "clients", shell.name)
    said = project.run(
        *(sys.executable, "-m", "cursor_gateway", "launch", shell.name, "--", *shell.arguments),
        *(() if shell.by_stdin else (prompt,)),
        stdin=prompt if shell.by_stdin else "",
        environment={
            "PATH": os.pathsep.join([str(clients), str(project.home / "bin"), "/usr/bin", "/bin"]),
            "CURSOR_GATEWAY_PORT": "0",
            "CURSOR_GATEWAY_DATA_DIR": str(project.home / "gateway"),
            "CURSOR_GATEWAY_GRACE_SECONDS": "1",
            **shell.environment,
        },
    )
    agents = [json.loads(line) for line in log.read_text().splitlines()]
    eventually(lambda: not [pid for agent in agents for pid in members(agent["pgid"])])
    return Launched(said, [agent for agent in agents if mark in (agent["prompt"] or "")])


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: shell.name)
def test_a_tool_runs_once_in_the_clients_folder(shell: Shell, project: Project) -> None:
    mark = unique()
    counts = call(shell.tool, **shell.given)
    prompt = program([say("I count. "), counts, say("It is $1")], mark)
    ended = launched(project, shell, prompt, mark)
    assert "It is " in ended.said
    assert "forty-1" in ended.said  # Qwen Code reports more than the output
    assert project.lines("marker.txt") == ["ran"]
    assert len(_worked(ended)) == 1
    assert not list((project.home).glob("cursor-gateway-*"))  # the folder for temporary files


ANOTHER_TURN = {
    "claude": ["--continue", "-p"],
    "codex": ["exec", "resume", "--last", "--skip-git-repo-check"],
    "opencode": ["run", "--continue"],
    "kilo": ["run", "--auto", "--continue"],
    "pi": ["--continue", "-p"],
    "cn": ["--resume", "-p", "--auto"],
    "qwen": ["-y", "--continue", "-p"],
}


def on_another_day(shell: Shell, day: Literal["Pacific/Pago_Pago", "Pacific/Kiritimati"]) -> Shell:
    """These time zones are 25 hours apart."""
    return replace(shell, environment={**shell.environment, "TZ": day})


@pytest.mark.parametrize(
    "shell", [shell for shell in SHELLS if shell.name in ANOTHER_TURN], ids=lambda shell: shell.name
)
def test_another_turn_resumes_the_agents_session_on_another_day(shell: Shell, project: Project) -> None:
    """With another gateway, and although a file was written: clients send the date, the files and git's status."""
    first, second = unique(), unique()
    identity = ("-c", "user.name=A", "-c", "user.email=a@example.com")
    project.run("git", "init", "-q")
    project.run("git", *identity, "commit", "-q", "--allow-empty", "-m", "First")
    steps = program([call(shell.tool, **shell.given), say("One.")], first)
    begun = launched(project, on_another_day(shell, "Pacific/Pago_Pago"), steps, first)
    again = replace(shell, arguments=ANOTHER_TURN[shell.name])
    continued = launched(project, on_another_day(again, "Pacific/Kiritimati"), program([say("Two.")], second), second)
    assert "Two." in continued.said
    (session,) = {agent["session"] for agent in _worked(begun)}
    assert {agent["session"] for agent in _worked(continued)} == {session}


def _worked(ended: Launched) -> list[Json]:
    """Not titles, which only read."""
    return [agent for agent in ended.agents if "--mode" not in agent["argv"]]


def test_aider_changes_its_files_itself(project: Project) -> None:
    """From the edit that the agent proposes: the agent only reads."""
    mark = unique()
    (project.folder / "notes.txt").write_text("one\ntwo\n", encoding="utf-8")
    edit = "notes.txt\n```\n<<<<<<< SEARCH\ntwo\n=======\nthree\n>>>>>>> REPLACE\n```\n"
    options = ["--yes-always", "--no-git", "--no-check-update", "--no-show-release-notes", "--analytics-disable"]
    aider = Shell("aider", [*options, "--no-pretty", "--message"], "", {})
    ended = launched(project, aider, program([say(f"I change it.\n\n{edit}")], mark), mark)
    assert "I change it." in ended.said
    assert project.lines("notes.txt") == ["one", "three"]
    (agent,) = ended.agents
    assert agent["argv"][agent["argv"].index("--mode") + 1] == "ask"


def test_llm_asks_the_agent_in_the_current_folder(project: Project) -> None:
    mark = unique()
    ended = launched(project, Shell("llm", [], "", {}), f"{mark}\nstandin: echo-args", mark)
    assert json.loads(ended.said)["workspace"] == str(project.folder)
    assert len(ended.agents) == 1
    assert not [path for path in Path(project.home).rglob("logs.db") if "gateway" not in path.parts]
