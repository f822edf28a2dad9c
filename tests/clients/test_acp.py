"""`cursor-gateway acp` in real clients: the official JavaScript library, whose schema every message fits, and acpx."""

import json
import shutil
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.clients.programs import DRIVERS, INSTALLED, PACKAGES, Json, Project, needed, node
from tests.gateways import RunningGateway
from tests.mcp_server.host import environment_of
from tests.preloaded import command
from tests.server.conftest import standin, unique

PROGRAM = '[{"think": "Hm."}, {"say": "One."}, {"native": "shell", "args": {"command": "expr 1 + 1"}}]'
_PARAMS = {
    "session/update": "SessionNotification",
    "session/request_permission": "RequestPermissionRequest",
    "elicitation/create": "CreateElicitationRequest",
    "$/cancel_request": "CancelRequestNotification",
}


class Schema:
    """That of the installed library."""

    def __init__(self) -> None:
        file = needed(PACKAGES / "@agentclientprotocol" / "sdk" / "schema" / "v1" / "schema.json")
        self._definitions = json.loads(file.read_text(encoding="utf-8"))["$defs"]

    def check(self, value: Any, name: str) -> None:
        schema = {"$ref": f"#/$defs/{name}", "$defs": self._definitions}
        errors = [error.message for error in Draft202012Validator(schema).iter_errors(value)]
        assert not errors, (name, value, errors)


@pytest.fixture(scope="module")
def schema() -> Schema:
    return Schema()


@pytest.fixture
def driver(tmp_path: Path) -> Path:
    """It finds its packages beside it, as in any project."""
    folder = tmp_path / "driver"
    shutil.copytree(DRIVERS, folder)
    (folder / "node_modules").symlink_to(PACKAGES)
    needed(PACKAGES / "@agentclientprotocol" / "sdk")
    return folder / "acp_editor.mjs"


def drive(driver: Path, project: Project, gateway: RunningGateway, **plan: Any) -> Json:
    environment = {**project.environment(), **environment_of(gateway)}
    asked = {"command": [*command(environment), "acp"], "cwd": str(gateway.workspace), "prompts": [], **plan}
    printed = project.run(node(), driver, stdin=json.dumps(asked), environment=environment)
    answer: Json = json.loads(printed)
    answer["messages"] = [json.loads(line) for line in b"".join(map(b64decode, answer["lines"])).splitlines()]
    return answer


def updates_of(answer: Json, kind: str) -> list[Json]:
    return [update for update in answer["updates"] if update["sessionUpdate"] == kind]


def test_the_official_library_reads_every_message(
    driver: Path, project: Project, gateway: RunningGateway, schema: Schema
) -> None:
    prompts: list[Json] = [
        {"prompt": standin("program", PROGRAM)},
        {"prompt": "standin: tools"},
        {"prompt": "standin: question"},
        {"prompt": "standin: plan", "mode": "plan"},
        {"prompt": "Hello.", "mode": "agent", "model": "gpt-5-mini"},
        {"prompt": "standin: hang-mid", "cancels": True},
    ]
    server = {"name": "files", "command": "/bin/files", "args": [], "env": []}
    answer = drive(driver, project, gateway, prompts=prompts, servers=[server])
    results = answer["results"]
    assert [one["stopReason"] for one in results["prompts"]] == ["end_turn"] * 5 + ["cancelled"]
    assert results["status"] == 0
    session = results["new"]["sessionId"]
    assert session in [one["sessionId"] for one in results["list"]["sessions"]]
    assert results["model"]["configOptions"][1]["currentValue"] == "gpt-5-mini"
    kinds = {update["sessionUpdate"] for update in answer["updates"]}
    assert kinds == {
        *("agent_message_chunk", "agent_thought_chunk", "tool_call", "tool_call_update", "plan"),
        *("config_option_update", "session_info_update", "notice"),
    }
    for message in answer["messages"]:
        if "method" in message:
            schema.check(message["params"], _PARAMS[message["method"]])
    for name, result in (("InitializeResponse", results["initialize"]), ("NewSessionResponse", results["new"])):
        schema.check(result, name)
    schema.check(results["list"], "ListSessionsResponse")
    for result in results["prompts"]:
        schema.check(result, "PromptResponse")

    loaded = drive(driver, project, gateway, load=session)
    schema.check(loaded["results"]["load"], "LoadSessionResponse")
    assert [one["content"]["text"] for one in updates_of(loaded, "user_message_chunk")] == [
        one["prompt"] for one in prompts
    ]
    for kind in ("agent_message_chunk", "agent_thought_chunk"):
        before, after = ([one["content"]["text"] for one in updates_of(one, kind)] for one in (answer, loaded))
        assert "".join(before) == "".join(after)
    assert [one["toolCallId"] for one in updates_of(loaded, "tool_call")] == [
        one["toolCallId"] for one in updates_of(answer, "tool_call")
    ]


# --- acpx --------------------------------------------------------------------------------------------


def acpx(project: Project, gateway: RunningGateway, *words: str, fails: bool = False) -> str:
    needed(INSTALLED / ".node")
    program = needed(PACKAGES / "acpx" / "dist" / "cli.js")
    environment = {**project.environment(), **environment_of(gateway), "HOME": str(project.home), "NO_COLOR": "1"}
    environment["CURSOR_GATEWAY_DATA_DIR"] = str(gateway.data)
    agent = " ".join([*command(environment), "acp"])
    options = ("--agent", agent, "--cwd", str(gateway.workspace))
    return project.run(node(), program, *options, *words, environment=environment, fails=fails)


def test_acpx_shows_text_tools_plans_and_permissions(project: Project, gateway: RunningGateway) -> None:
    printed = acpx(project, gateway, "exec", "standin: tools")
    assert "[tool] Edit src/price.py (completed)" in printed
    assert "[plan]\n  - [completed] Change the price" in printed
    assert printed.endswith("All done: the price is 2, and there is a tax.\n\n[done] end_turn\n")
    allowed = acpx(project, gateway, "--approve-all", "exec", 'standin: shell command="expr 20 + 22"')
    assert "42" in allowed
    denied = acpx(project, gateway, "--deny-all", "exec", 'standin: shell command="expr 20 + 23"', fails=True)
    assert "43" not in denied.replace("20 + 23", "")
    assert "The command was rejected." in denied


def test_acpx_continues_a_session_and_lists_it(project: Project, gateway: RunningGateway) -> None:
    mark = unique()
    acpx(project, gateway, "sessions", "new")
    assert f"You said: {mark}" in acpx(project, gateway, "prompt", mark)
    assert "You said: Again" in acpx(project, gateway, "prompt", "Again")
    listed = acpx(project, gateway, "sessions", "list")
    assert mark.lower() in listed.lower()
    acpx(project, gateway, "sessions", "close")
