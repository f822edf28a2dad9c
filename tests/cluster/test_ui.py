"""Pages at a cluster: each request may come to another front."""

from functools import partial

import httpx2

from tests.cluster.conftest import Cluster
from tests.server.conftest import at_once, eventually, standin, unique
from tests.server.test_caller_tools import program
from tests.server.test_ui import body
from tests.ui_streams import AiSdkMessage

TOOL = {"name": "look", "parameters": {"type": "object"}}


def test_the_same_message_at_two_fronts_starts_one_agent(two_by_two: Cluster) -> None:
    mark = unique()
    asked = body(mark)
    ask = {number: partial(one.post, "/v1/ai-sdk", json=asked) for number, one in enumerate(two_by_two.clients)}
    replies = at_once(ask)
    assert len({reply.headers["x-chat-id"] for reply in replies.values()}) == 1
    assert two_by_two.starts(mark) == 1


def test_a_conversation_and_the_results_of_the_pages_tools_go_on_at_another_front(two_by_two: Cluster) -> None:
    one, two = two_by_two.clients
    mark = unique()
    prompt = f"{mark} {program({'say': 'I look. '}, {'call': 'look', 'args': {}}, {'say': 'It is $1.'})}"
    asked = body(prompt, tools=[TOOL])
    message = AiSdkMessage()
    reply = one.post("/v1/ai-sdk", json=asked)
    message.read(reply.content)
    ((id, _),) = message.calls.items()
    result = {"type": "tool-look", "toolCallId": id, "state": "output-available", "input": {}, "output": "rain"}
    parts = [{"type": "step-start"}, {"type": "text", "text": message.text}, result]
    answer = {"id": message.id, "role": "assistant", "parts": parts}
    message.read(two.post("/v1/ai-sdk", json={**asked, "messages": [*asked["messages"], answer]}).content)
    assert message.text == "I look. It is rain."
    assert two_by_two.starts(mark) == 1
    whole = {**answer, "parts": [*parts, {"type": "step-start"}, {"type": "text", "text": "It is rain."}]}
    more = {"id": "more", "role": "user", "parts": [{"type": "text", "text": standin("text")}]}
    next = one.post("/v1/ai-sdk", json={**asked, "messages": [*asked["messages"], whole, more]})
    assert next.headers["x-conversation-id"] == reply.headers["x-conversation-id"]


def test_a_stream_is_resumed_at_another_front(two_by_two: Cluster) -> None:
    one, two = two_by_two.clients
    asked = body(f"{unique()} {standin('text chunks=20 delay_ms=100')}", cursor={"whenClientLeaves": "finish"})
    with one.stream("POST", "/v1/ai-sdk", json=asked) as stream:
        pieces = stream.iter_raw()
        first = next(pieces)
        resumed = two.get(f"/v1/ai-sdk/{asked['id']}/stream")
        whole = first + b"".join(pieces)
    assert resumed.status_code == 200
    assert AiSdkMessage().read(resumed.content).text == AiSdkMessage().read(whole).text
    eventually(lambda: two.get(f"/v1/ai-sdk/{asked['id']}/stream").status_code == httpx2.codes.NO_CONTENT)


def test_a_page_may_give_its_chat_any_name(two_by_two: Cluster) -> None:
    """PostgreSQL indexes no long text."""
    one, two = two_by_two.clients
    id = "".join(unique() for _ in range(200))
    asked = body(f"{unique()} {standin('text chunks=20 delay_ms=100')}", id, cursor={"whenClientLeaves": "finish"})
    with one.stream("POST", "/v1/ai-sdk", json=asked) as stream:
        next(stream.iter_raw())
        assert two.get(f"/v1/ai-sdk/{id}/stream").status_code == 200
