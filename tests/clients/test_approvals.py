"""Real clients whose own tools are off, so that the agent uses its own: what it may not run is seen by the person at
the client, and allowed over the page's API; with `wait_for_approval_seconds` the same run goes on."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest

from tests.clients.programs import Project, command_of, launched_client
from tests.gateways import RunningGateway, running_gateway
from tests.server.conftest import eventually, http_client, unique
from tests.server.test_approvals import allow, counting, times

HEADERS = {"x-cursor-mode": "agent", "x-cursor-text": "readable"}
NAMES = {"opencode": "OpenCode", "claude": "Claude Code"}  # Codex always offers tools of its own


@pytest.fixture(scope="module")
def refusing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    with running_gateway(tmp_path_factory.mktemp("refusing"), settings={"source": "cli"}) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    settings = {"wait_for_approval_seconds": "120", "keep_alive_seconds": "1"}
    with running_gateway(tmp_path_factory.mktemp("patient"), settings=settings) as gateway:
        yield gateway


def counter(gateway: RunningGateway) -> str:
    name = unique()
    (gateway.workspace / f"{name}.py").write_text(f"open({str(gateway.workspace / name)!r}, 'a').write('ran\\n')\n")
    return name


def printed(name: str, project: Project, url: str, prompt: str) -> str:
    """What the client prints, without tools of its own."""
    if name == "opencode":
        return _opencode(project, url, prompt)
    client = launched_client(project, name, url)
    headers = {"ANTHROPIC_CUSTOM_HEADERS": "\n".join(f"{one}: {value}" for one, value in HEADERS.items())}
    settings = project.home / "launched" / "settings.json"
    known = json.loads(settings.read_text())
    settings.write_text(json.dumps({**known, "env": {**known["env"], **headers}}))
    command = [*client.command, "--tools", "", "-p", prompt]
    return project.run(*command, environment={**client.environment, **headers})


def _opencode(project: Project, url: str, prompt: str) -> str:
    options = {"baseURL": f"{url}/v1", "apiKey": "any", "headers": HEADERS}
    models = {"auto": {"name": "Auto", "limit": {"context": 200000, "output": 32000}}}
    provider = {"npm": "@ai-sdk/openai-compatible", "name": "Gateway", "options": options, "models": models}
    configuration = {"provider": {"gateway": provider}, "autoupdate": False, "tools": {"*": False}}
    (project.folder / "opencode.json").write_text(json.dumps(configuration), encoding="utf-8")
    command = (*command_of("opencode"), "run", "--model", "gateway/auto", "--title", "Counting")
    return project.run(*command, stdin=prompt, environment={"OPENCODE_DISABLE_MODELS_FETCH": "1"})


def waiting(client: httpx2.Client, name: str, mark: str) -> str:
    """The newest run of the conversation that waits, with this program's name."""
    found = client.get("/v1/conversations", params={"q": mark}).json()["conversations"]
    mine = [one for one in found if one.get("isWaiting")]
    if not mine:
        return ""
    (conversation,) = mine
    assert conversation["client"] == NAMES[name]
    run_id: str = client.get(f"/v1/conversations/{conversation['id']}").json()["runs"][-1]["id"]
    return run_id


@pytest.mark.parametrize("name", NAMES)
def test_what_was_refused_is_seen_and_allowed(name: str, refusing: RunningGateway, project: Project) -> None:
    mark = counter(refusing)
    said = printed(name, project, refusing.url, counting(mark))
    assert f"The agent was not allowed to run `python3 {mark}.py`. Allow it: {refusing.url}/#/c/" in said
    with http_client(refusing) as client:
        run_id = waiting(client, name, mark)
        documents = client.get(f"/v1/chat/{run_id}").json()["documents"]
        (id,) = [one["id"] for one in documents if one["type"] == "terminal_command"]
        assert f"/{run_id}/{id}" in said
        decided = {"permissions": [{"documentId": id, "decision": "once"}]}
        assert client.post(f"/v1/chat/{run_id}/answer", json=decided).is_success
    assert times(refusing, mark) == 1


@pytest.mark.parametrize("name", NAMES)
def test_a_run_that_waits_goes_on_when_it_is_allowed(name: str, patient: RunningGateway, project: Project) -> None:
    mark = counter(patient)
    with ThreadPoolExecutor(1) as pool, http_client(patient) as client:
        asked = pool.submit(lambda: printed(name, project, patient.url, counting(mark)))
        run_id = eventually(lambda: waiting(client, name, mark) or (asked.result() if asked.done() else ""))
        allow(client, run_id)
        said = asked.result()
        runs = [run for run in client.get("/v1/runs").json()["runs"] if mark in run["prompt"]]
    assert "It ended with 0" in said
    assert "not allowed" not in said
    assert times(patient, mark) == 1
    assert [run["id"] for run in runs] == [run_id]
