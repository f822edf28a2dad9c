"""`/mcp` on the fronts of a cluster: each of them takes any request of a host."""

import json

from tests.cluster.conftest import Cluster
from tests.mcp_server.wire import TASKS, Json, Legacy, Modern
from tests.server.conftest import eventually, unique


def _run(prompt: str) -> Json:
    return {"name": "run", "arguments": {"prompt": prompt}}


def test_a_session_and_its_streams_continue_at_another_front(two_by_two: Cluster) -> None:
    first, second = two_by_two.clients
    host, mark = Legacy(first, capabilities={"elicitation": {}}), unique()
    other = Legacy(second, session=host.session)
    assert other.post("tools/list").json()["result"]["tools"]
    with host.call(1, **_run(f"{mark} standin: question"), _meta={"progressToken": 1}) as events:
        place = next(events).id
        form = next(one for event in events if event.data and "id" in (one := json.loads(event.data)))
        other.reply(form["id"], {"action": "accept", "content": {"file": "other.txt"}})
        whole = [json.loads(event.data) for event in events if event.data]
    with other.resume(place) as events:
        again = [json.loads(event.data) for event in events if event.data]
    assert whole[-1] == again[-1]
    assert whole[-1]["result"]["structuredContent"]["documents"][-1]["content"] == "You chose other.txt."
    assert two_by_two.starts(mark) == 1


def test_a_call_is_cancelled_and_repeated_at_another_front(two_by_two: Cluster) -> None:
    first, second = two_by_two.clients
    host, mark = Legacy(first), unique()
    other = Legacy(second, session=host.session)
    with host.call(1, **_run(f"{mark} standin: hang-mid")) as events:
        next(events)
        eventually(lambda: two_by_two.starts(mark))
        with other.call(1, **_run(f"{mark} standin: hang-mid")) as same:
            next(same)
        other.post("notifications/cancelled", None, requestId=1)
        *_, last = (json.loads(event.data) for event in events if event.data)
    assert last["result"]["structuredContent"]["documents"][-1]["metadata"]["errorCode"] == "CANCELLED"
    assert two_by_two.starts(mark) == 1


def test_a_task_is_created_answered_and_read_at_different_fronts(two_by_two: Cluster) -> None:
    first, second = (Modern(client, TASKS) for client in two_by_two.clients)
    mark = unique()
    id = first.result("tools/call", **_run(f"{mark} standin: question"))["taskId"]
    waiting = eventually(lambda: second.result("tasks/get", taskId=id).get("inputRequests", {}))
    filled = {key: {"action": "accept", "content": {"file": "notes.txt"}} for key in waiting}
    second.result("tasks/update", taskId=id, inputResponses=filled)
    result = eventually(lambda: first.result("tasks/get", taskId=id).get("result", {}))
    assert result["structuredContent"]["documents"][-1]["content"] == "You chose notes.txt."
    assert two_by_two.starts(mark) == 1
