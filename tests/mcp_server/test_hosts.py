"""The same rules over both transports, with the official client: today's protocol, the one before, and tasks."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeAlias

import httpx2
import pytest

from tests.gateways import RunningGateway, running_gateway
from tests.mcp_server.host import Action, Host, Mode, User, environment_of, http_host, mcp_host, text_of
from tests.server.conftest import eventually, http_client, invocations, unique

Open: TypeAlias = Callable[..., AbstractContextManager[Host]]
KINDS = [("auto", False), ("auto", True), ("legacy", False)]  # the protocol, and whether the host has tasks


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    with running_gateway(tmp_path_factory.mktemp("gateway")) as running:
        yield running


@pytest.fixture
def http(gateway: RunningGateway) -> Iterator[httpx2.Client]:
    with http_client(gateway) as client:
        yield client


@pytest.fixture(params=["stdio", "http"])
def open_host(request: pytest.FixtureRequest, gateway: RunningGateway) -> Open:
    @contextmanager
    def open(mode: Mode, has_tasks: bool = False, user: User | None = None) -> Iterator[Host]:
        if request.param == "stdio":
            with mcp_host(
                gateway.workspace, environment_of(gateway), mode=mode, user=user, has_tasks=has_tasks
            ) as host:
                yield host
        else:
            with http_host(gateway.url, mode=mode, user=user, has_tasks=has_tasks) as host:
                yield host

    return open


@pytest.mark.parametrize(("mode", "has_tasks"), KINDS)
def test_the_user_decides_about_questions_commands_and_plans(open_host: Open, mode: Mode, has_tasks: bool) -> None:
    user, mark = User(), unique()
    with open_host(mode, has_tasks, user) as host:
        answered = host.call("run", prompt=f"{mark} standin: question")
        allowed = host.call("run", prompt=f'{mark} standin: shell command="expr 20 + 22"')
        planned = host.call("run", prompt=f"{mark} standin: plan", mode="plan")
    assert answered["documents"][-1]["content"] == "You chose notes.txt."
    assert "42\n" in [document["metadata"].get("output") for document in allowed["documents"]]
    assert [one["metadata"]["accepted"] for one in planned["documents"] if one["type"] == "plan"] == [True]
    assert "nextStep" not in planned
    assert {one["status"] for one in (answered, allowed, planned)} == {"completed"}
    assert [message.partition(":")[0] for message in user.asked] == [
        "Which file?",
        "Cursor's agent needs permission for",
        "Cursor's agent proposes a plan",
    ]
    statuses = {task["status"] for task in host.tasks.seen}
    assert statuses >= {"input_required", "completed"} if has_tasks else not statuses


@pytest.mark.parametrize(("mode", "has_tasks"), KINDS)
def test_a_user_who_says_no_has_denied_it(open_host: Open, mode: Mode, has_tasks: bool) -> None:
    with open_host(mode, has_tasks, User("decline")) as host:
        denied = host.call("run", prompt=f'{unique()} standin: shell command="expr 20 + 22"')
    (command,) = [document for document in denied["documents"] if document["type"] == "terminal_command"]
    assert command["metadata"]["state"] == "rejected"


@pytest.mark.parametrize("action", ["cancel", "decline"])
@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_the_model_gets_a_question_that_the_user_does_not_answer(open_host: Open, mode: Mode, action: Action) -> None:
    with open_host(mode, user=User(action)) as host:
        waiting = host.call("run", prompt=f"{unique()} standin: question")
        assert waiting["status"] == "streaming"
        assert "Call `answer`" in waiting["nextStep"]
        host.call("cancel", runId=waiting["id"])


@pytest.mark.parametrize("action", ["cancel", "decline"])
def test_a_task_continues_without_an_answer(open_host: Open, action: Action) -> None:
    """Its forms are shown once, and its model does not see it before its end."""
    with open_host("auto", has_tasks=True, user=User(action)) as host:
        ended = host.call("run", prompt=f"{unique()} standin: question")
    assert "did not want to answer" in str(ended["documents"])


def test_a_form_is_not_needed_when_somebody_answers_on_the_page(open_host: Open, http: httpx2.Client) -> None:
    mark, user = unique(), SlowUser()
    with open_host("legacy", user=user) as host:
        started = host.start("run", prompt=f"{mark} standin: question")
        eventually(lambda: user.asked)
        (found,) = eventually(lambda: http.get("/v1/conversations", params={"q": mark}).json()["conversations"])
        (run,) = http.get(f"/v1/conversations/{found['id']}").json()["runs"]
        answer = {"answers": [{"questionId": "file", "selectedOptionIds": ["other.txt"]}]}
        http.post(f"/v1/chat/{run['id']}/answer", json=answer, headers={"prefer": "respond-async"})
        response = started.result(timeout=60).structured_content
    assert response["documents"][-1]["content"] == "You chose other.txt."


class SlowUser(User):
    """Never comes back."""

    async def __call__(self, context: object, params: Any) -> Any:
        self.asked.append(params.message)
        await asyncio.Event().wait()


def test_a_task_is_its_run(open_host: Open, http: httpx2.Client) -> None:
    with open_host("auto", has_tasks=True, user=User()) as host:
        response = host.call("run", prompt=f"{unique()} standin: tools")
        last = host.tasks.seen[-1]
        failed = host.result("ask", prompt=f"{unique()} standin: crash")
        assert failed.is_error
        assert "ended with an error" in text_of(failed)
        assert host.tasks.seen[-1]["status"] == "completed"
    assert last["taskId"] == response["id"]
    assert last["createdAt"] <= last["lastUpdatedAt"]
    response.pop("summary")
    assert response == http.get(f"/v1/chat/{last['taskId']}").json()


def test_a_host_with_tasks_but_without_forms_waits_for_the_call(open_host: Open) -> None:
    """Nobody could answer its task."""
    with open_host("auto", has_tasks=True) as host:
        waiting = host.call("run", prompt=f"{unique()} standin: question")
        assert waiting["status"] == "streaming"
        assert not host.tasks.seen
        host.call("cancel", runId=waiting["id"])
        host.call("ask", prompt=f"{unique()} hello")
        assert host.tasks.seen[-1]["status"] == "completed"


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_call_that_the_host_cancels_stops_its_agent(
    open_host: Open, gateway: RunningGateway, http: httpx2.Client, mode: Mode
) -> None:
    mark = unique()
    with open_host(mode) as host:
        started = host.start("run", prompt=f"{mark} standin: hang-mid")
        (found,) = eventually(lambda: http.get("/v1/conversations", params={"q": mark}).json()["conversations"])
        started.cancel()
        eventually(lambda: "cancelled" in str(http.get(f"/v1/conversations/{found['id']}").json()["runs"]).lower())
    assert len(invocations(gateway, mark)) <= 1
