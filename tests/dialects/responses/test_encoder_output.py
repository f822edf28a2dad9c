"""The items and events of a response; their order is checked by `tests/responses_shapes.py`."""

from typing import Any

import msgspec
import pytest

from cursor_gateway.dialects.deltas import Ended, FinishReason
from cursor_gateway.dialects.responses.conversation import Declared, Forms
from cursor_gateway.dialects.responses.encoder import Output, ResponseHead
from cursor_gateway.dialects.responses.request import KeptRequest
from cursor_gateway.dialects.responses.shapes import Echo, MessageItem, ResponseEvent
from cursor_gateway.errors import AgentCrashed, Failure, RunCancelled, ShuttingDown
from cursor_gateway.model import documents
from cursor_gateway.model.document_events import DocumentStarted, KnownMetadata
from cursor_gateway.model.messages import ToolCall
from cursor_gateway.wire.sse import frame
from tests import responses_shapes
from tests.dialects.runs import USAGE

FORMS = Forms(
    {
        "weather": Declared("function", "weather"),
        "notes__find": Declared("function", "find", "notes"),
        "notes__add": Declared("custom", "add", "notes"),
    }
)
DONE = Ended(USAGE, USAGE)


def head(**asked: Any) -> ResponseHead:
    return ResponseHead("chat_0a1b", 0, 1_771_842_600, "auto", KeptRequest(forms=FORMS, **asked))


def sent(events: list[ResponseEvent]) -> responses_shapes.Response:
    """What a client reads of these events."""
    return responses_shapes.read_stream(b"".join(frame(msgspec.json.encode(e), event=e.type) for e in events))


def document(metadata: documents.Metadata, content: str | None = None) -> documents.Document:
    return documents.make_document("doc_001", 1, content, metadata)


def command(exit_code: int = 0) -> documents.Document:
    metadata = documents.TerminalCommandMetadata(
        command="ls", exit_code=exit_code, output="a", duration_ms=1, permissions=[]
    )
    return document(metadata)


def used(name: str, status: Any = "success", data: Any = None, **arguments: Any) -> documents.Document:
    result = documents.ToolCallResult(status=status, data=data)
    metadata = documents.ToolCallMetadata(
        tool_name=name, tool_call_id="c", arguments=arguments, result=result, duration_ms=1
    )
    return document(metadata)


# --- text and reasoning -----------------------------------------------------------------------------


def test_text_and_reasoning_are_items_of_their_own() -> None:
    output = Output(head())
    events = output.begin() + output.think("\n\nHm. ") + output.think("So.") + output.say("Hello ") + output.say("you.")
    assert output.begin() == []
    events += output.end(DONE, 2500)
    response = sent(events)
    thought, message = response.output
    assert isinstance(thought, responses_shapes.Reasoning)
    assert thought.summary[0].text == "Hm. So."
    assert thought.encrypted_content is msgspec.UNSET
    assert isinstance(message, responses_shapes.Message)
    assert responses_shapes.text_of(response) == "Hello you."
    assert (response.status, response.completed_at) == ("completed", 1_771_842_602)
    assert [item.id for item in response.output] == ["rs_0a1b_0_0", "msg_0a1b_0_1"]


def test_reasoning_that_says_nothing_is_no_item() -> None:
    output = Output(head())
    assert output.think("\n") == []
    assert output.think("") == []


def test_reasoning_has_encrypted_content_if_it_is_asked_for() -> None:
    output = Output(head(has_encrypted_content=True))
    (thought,) = sent(output.begin() + output.think("Hm.") + output.end(DONE)).output
    assert isinstance(thought, responses_shapes.Reasoning)
    assert thought.encrypted_content


def test_the_response_as_it_is_now() -> None:
    output = Output(head(echo=Echo(metadata={"a": "b"})))

    def now() -> responses_shapes.Response:
        response = msgspec.convert(msgspec.to_builtins(output.response()), responses_shapes.Response)
        responses_shapes.check_response(response)
        return response

    assert (now().status, now().metadata) == ("queued", {"a": "b"})
    assert (output.has_begun, output.last_number, output.item_id, output.open_item) == (False, 0, "", None)
    output.begin()
    assert (now().status, output.last_number) == ("in_progress", 1)
    output.think("Hm.")
    assert (output.item_id, output.open_item, now().output[0].id) == ("rs_0a1b_0_0", "reasoning", "rs_0a1b_0_0")
    output.say("Hel")
    growing = now().output[1]
    assert isinstance(growing, responses_shapes.Message)
    assert (growing.status, growing.content[0].text) == ("in_progress", "Hel")
    assert (output.item_id, output.open_item, output.index) == ("msg_0a1b_0_1", "message", 1)
    output.close()
    assert (output.item_id, output.close()) == ("msg_0a1b_0_1", [])


# --- calls ------------------------------------------------------------------------------------------


def test_calls_have_the_form_in_which_they_were_declared() -> None:
    output = Output(head())
    long = '{"city":"' + "x" * 3000 + '"}'
    events = output.begin() + output.say("I look.")
    events += output.call(ToolCall("c1", "weather", long)) + output.call(ToolCall("c2", "notes__find", "{}"))
    events += output.call(ToolCall("c3", "notes__add", '{"input":"a\\nb"}')) + output.call(
        ToolCall("c4", "other", "{}")
    )
    _, weather, find, add, other = sent(events + output.end(Ended(USAGE, reason="tool_calls"))).output
    assert isinstance(weather, responses_shapes.FunctionCall)
    assert (weather.call_id, weather.name, weather.namespace, weather.arguments) == (
        "c1",
        "weather",
        msgspec.UNSET,
        long,
    )
    assert isinstance(find, responses_shapes.FunctionCall)
    assert (find.name, find.namespace) == ("find", "notes")
    assert isinstance(add, responses_shapes.CustomToolCall)
    assert (add.name, add.namespace, add.input) == ("add", "notes", "a\nb")
    assert isinstance(other, responses_shapes.FunctionCall)
    assert other.name == "other"


# --- actions ----------------------------------------------------------------------------------------


def test_actions_are_calls_of_a_server_of_its_own() -> None:
    output = Output(head())
    events = output.begin() + output.say("I look.") + output.end_action(command()) + output.end_action(command(2))
    edit = documents.FileEditMetadata(file_path="a.py", operation="create", language="python")
    events += output.end_action(document(edit, "x\n")) + output.end_action(
        document(documents.TextMetadata(), "no action")
    )
    _, listed, failed, created = sent(events + output.end(DONE)).output
    assert isinstance(listed, responses_shapes.McpCall)
    assert (listed.server_label, listed.name, listed.arguments, listed.output) == (
        "cursor",
        "run_terminal_cmd",
        '{"command":"ls"}',
        "a",
    )
    assert isinstance(failed, responses_shapes.McpCall)
    assert (failed.status, msgspec.to_builtins(failed.error)) == (
        "failed",
        {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": "Exit status 2"}]},
    )
    assert isinstance(created, responses_shapes.McpCall)
    assert created.output == "--- /dev/null\n+++ a.py\n@@ -0,0 +1,1 @@\n+x\n"
    assert Output(head()).start_action(DocumentStarted("doc_001", "terminal_command", 1)) == []


@pytest.mark.parametrize(("size", "more"), [(10_000, ""), (12_345, "\n[2,345 more characters]")])
def test_long_results_of_actions_are_shortened(size: int, more: str) -> None:
    output = Output(head())
    (read,) = sent(output.begin() + output.end_action(used("read_file", data="x" * size)) + output.end(DONE)).output
    assert isinstance(read, responses_shapes.McpCall)
    assert read.output == "x" * 10_000 + more


def test_the_web_is_searched() -> None:
    for asked in ({"knows_searches": True}, {"is_codex": True}):
        output = Output(head(**asked))
        found = [{"url": "https://a.example"}]
        events = output.begin() + output.end_action(used("web_search", data=found, search_term="x"))
        events += output.end_action(used("web_fetch", "error", url="https://b.example"))
        searched, opened = sent(events + output.end(DONE)).output
        assert isinstance(searched, responses_shapes.WebSearchCall)
        assert isinstance(searched.action, responses_shapes.Search)
        assert (searched.status, searched.action.query) == ("completed", "x")
        assert isinstance(opened, responses_shapes.WebSearchCall)
        assert isinstance(opened.action, responses_shapes.OpenPage)
        assert (opened.status, opened.action.url) == ("failed", "https://b.example")


def test_pages_that_the_text_names_are_cited() -> None:
    output = Output(head(knows_searches=True))
    events = output.begin() + output.say("Before: https://a.example")
    found = [{"url": "https://a.example", "title": "A"}]
    events += output.end_action(used("web_search", data=found, search_term="x"))
    events += output.end_action(used("web_fetch", url="https://b.example")) + output.say(
        "[A](https://a.example) says so."
    )
    assert output.response().output[-1].content[0].annotations  # type: ignore[union-attr] # it is a message
    events += output.think("Hm.") + output.say("And https://b.example.")
    before, _, _, linked, _, named = sent(events + output.end(DONE)).output
    cited = []
    for message in (before, linked, named):
        assert isinstance(message, responses_shapes.Message)
        part = message.content[0]
        cited += [(one.url, one.title, part.text[one.start_index : one.end_index]) for one in part.annotations]
    assert cited == [
        ("https://a.example", "A", "[A](https://a.example)"),
        ("https://b.example", "https://b.example", "https://b.example"),
    ]


def test_a_client_that_declares_no_search_gets_an_action() -> None:
    output = Output(head())
    (item,) = sent(output.begin() + output.end_action(used("web_search", search_term="x")) + output.end(DONE)).output
    assert isinstance(item, responses_shapes.McpCall)
    assert item.name == "web_search"


def test_codex_gets_a_line_while_it_runs_and_a_comment_when_it_has_ended() -> None:
    output = Output(head(is_codex=True))
    started = DocumentStarted("doc_001", "terminal_command", 1, KnownMetadata(command="ls"))
    events = output.begin() + output.say("I look.") + output.start_action(started) + output.end_action(command())
    events += output.start_action(DocumentStarted("doc_002", "todo_update", 2))
    events += output.end_action(document(documents.PlanMetadata(title="All", overview="", todos=[]), "# Do it"))
    response = sent(events + output.end(DONE))
    _, running, ran, planned = response.output
    assert isinstance(running, responses_shapes.Reasoning)
    assert running.summary[0].text == "**Running `ls`**\n\n"
    assert isinstance(ran, responses_shapes.Message)
    assert (ran.phase, ran.content[0].text) == ("commentary", "Ran `ls` (exit status 0)")
    assert isinstance(planned, responses_shapes.Message)
    assert planned.content[0].text == "Planned All (0 to-dos)\n\n# Do it"
    assert responses_shapes.text_of(response) == "I look."


# --- ends -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("failure", "reason", "status"),
    [
        (None, "stop", "completed"),
        (None, "tool_calls", "completed"),
        (None, "length", "incomplete"),
        (AgentCrashed("It broke.").failure(), "stop", "failed"),
        (RunCancelled("Stopped.").failure(), "stop", "cancelled"),
    ],
)
def test_how_it_ends(failure: Failure | None, reason: FinishReason, status: str) -> None:
    output = Output(head())
    response = sent(output.begin() + output.say("Hel") + output.end(Ended(USAGE, None, failure, reason)))
    assert response.status == status
    assert (response.error is None) == (failure is None)
    assert responses_shapes.text_of(response) == "Hel"


def test_an_open_item_grows_without_an_event() -> None:
    output = Output(head())
    *_, last = [*output.begin(), *output.say("Hel")]
    assert output.grow("lo.") == last.sequence_number + 1
    done = output.close()
    assert done[0].text == "Hello."
    assert done[0].sequence_number == last.sequence_number + 2


def test_the_json_of_a_finished_item_can_take_its_place() -> None:
    output = Output(head())
    item = [*output.begin(), *output.say("Hello."), *output.close()][-1]
    assert isinstance(item.item, MessageItem)
    before = msgspec.json.encode(output.response())
    output.keep_encoded(0, msgspec.Raw(msgspec.json.encode(item.item)))
    assert msgspec.json.encode(output.response()) == before
    assert output.item_id == item.item.id


def test_codex_retries_only_a_run_that_had_not_begun() -> None:
    failure = ShuttingDown("It stops.").failure()
    codes = []
    for said in ("", "Hel"):
        output = Output(head(is_codex=True))
        events = output.begin() + (output.say(said) if said else [])
        response = sent(events + output.end(Ended(USAGE, None, failure)))
        assert response.error is not None
        codes.append(response.error.code)
    assert codes == ["rate_limit_exceeded", "invalid_prompt"]


def test_the_usage_is_that_of_the_last_model_call() -> None:
    total = documents.Usage(prompt_tokens=900, completion_tokens=100, total_tokens=1000, estimated=True)
    output = Output(head())
    last = documents.Usage(prompt_tokens=10, completion_tokens=5, total_tokens=15, cached_tokens=4)
    response = sent(output.begin() + output.end(Ended(last, total)))
    assert response.usage is not None
    assert (response.usage.input_tokens, response.usage.output_tokens, response.usage.total_tokens) == (10, 5, 15)
    assert response.usage.input_tokens_details.cached_tokens == 4
    assert response.cursor is not msgspec.UNSET
    assert (response.cursor.usage.total_tokens, response.cursor.usage.estimated) == (1000, True)


def test_a_compaction_is_the_only_item() -> None:
    output = Output(head())
    (item,) = sent(output.begin() + output.compact("All is done.") + output.end(DONE)).output
    assert isinstance(item, responses_shapes.Compaction)
