"""The examples that need other packages: LangChain, the AI SDK, TypeScript."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.clients.programs import PACKAGES, Project, call, needed, node, program, python, say
from tests.examples.programs import EXAMPLES, TIMEOUT
from tests.gateways import RunningGateway
from tests.server.conftest import invocation, invocations, standin, unique


@pytest.fixture
def environment(gateway: RunningGateway) -> dict[str, str]:
    return {"CURSOR_GATEWAY_URL": gateway.url}


@pytest.mark.parametrize("name", ["langchain_tools.py", "ai_sdk.mjs"])
def test_tools_run_here(gateway: RunningGateway, project: Project, environment: dict[str, str], name: str) -> None:
    mark = unique()
    prompt = program([call("temperature", city="Paris"), say("It is $1 °C.")], mark)
    if name.endswith(".mjs"):  # packages are found beside the program
        shutil.copy(EXAMPLES / name, project.folder)
        (project.folder / "node_modules").symlink_to(PACKAGES)
        command = [node(), project.folder / name]
    else:
        command = [python(), EXAMPLES / name]
    assert project.run(*command, prompt, environment=environment) == "(looking up Paris)\nIt is 21 °C.\n"
    invocation(gateway, mark)  # only one


@pytest.mark.parametrize("name", ["ai_sdk_chat.mjs", "ag_ui_chat.mjs"])
def test_a_chat_of_a_page(gateway: RunningGateway, project: Project, environment: dict[str, str], name: str) -> None:
    mark = unique()
    shutil.copy(EXAMPLES / name, project.folder)
    (project.folder / "node_modules").symlink_to(PACKAGES)
    printed = project.run(node(), name, stdin=f"{mark} one\n{mark} two\n", environment=environment)
    assert printed.split("\n") == [f"You said: {mark} one", f"You said: {mark} two", ""]
    first, second = invocations(gateway, mark)
    assert first["session"] == second["session"]


def test_a_dashboard(project: Project, environment: dict[str, str]) -> None:
    build(project)
    printed = project.run(node(), "build/dashboard.mjs", standin("tools"), environment=environment)
    assert "… file_edit" in printed
    assert "terminal_command  pytest -q -> 0" in printed
    assert printed.splitlines()[-1].startswith("completed in ")


def test_the_compiler_notices_a_type_of_document_that_is_forgotten(project: Project) -> None:
    program = (EXAMPLES / "dashboard" / "dashboard.mts").read_text()
    result = build(project, program.replace('    case "thinking":\n', ""), fails=True)
    assert "error TS7030: Not all code paths return a value" in result or "error TS2366" in result


def build(project: Project, source: str | None = None, *, fails: bool = False) -> str:
    """As the README says."""
    compiler = needed(PACKAGES / "typescript" / "bin" / "tsc")
    for file in (EXAMPLES / "dashboard").iterdir():
        if file.is_file():
            shutil.copy(file, project.folder)
    if source is not None:
        Path(project.folder, "dashboard.mts").write_text(source)
    with Path(project.folder, "documents.ts").open("wb") as types:
        command = [sys.executable, "-m", "cursor_gateway", "schema", "--typescript"]
        subprocess.run(command, stdout=types, check=True, timeout=TIMEOUT)
    return project.run(node(), compiler, fails=fails)
