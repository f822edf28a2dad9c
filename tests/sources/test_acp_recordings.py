"""Recordings of ACP sessions, played to the source: what it makes of them as events and as documents.

The real ones are read where they are at hand; those of this folder have the same shapes.
"""

import asyncio
import json
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any, get_args

import pytest
from msgspec import UNSET

from cursor_gateway.dialects.deltas import AgentTools
from cursor_gateway.errors import AgentError, ModelUnavailable
from cursor_gateway.model import agent_events
from cursor_gateway.model.answers import Permission
from cursor_gateway.model.documents import (
    ChatResponse,
    ClarificationAnswer,
    ClarificationDocument,
    TerminalCommandDocument,
    TodoUpdateDocument,
    ToolCallDocument,
    document_type,
)
from cursor_gateway.model.requests import RunInfo
from cursor_gateway.sources.acp.source import AcpOptions, CursorAcpSource
from cursor_gateway.sources.base import Turn
from cursor_gateway.sources.cli.source import CliOptions, CursorCliSource
from cursor_gateway.sources.cursor.tools import _TABLE
from cursor_gateway.sources.ledger import Ledger
from cursor_gateway.stages.assembler import Assembler
from cursor_gateway.stages.run_state import Transcript
from tests.agent.acp_player import messages_of, whole_session
from tests.agent.install import install
from tests.laws import laws

HERE = Path(__file__).parent / "acp_recordings"
CAPTURES = sorted((Path(__file__).parents[3] / "shared" / "captures").glob("*-acp-*.jsonl"))
ALL = [*sorted(HERE.glob("*.jsonl")), *CAPTURES]
TEXT, THOUGHT = "agent_message_chunk", "agent_thought_chunk"
OF_THE_GATEWAY = ("request_permission",)


class Recorded:
    """One recording as a whole session, with what its client did."""

    def __init__(self, path: Path) -> None:
        lines = [line for line in path.read_text().splitlines() if line.strip()]
        self.messages: list[tuple[bool, dict[str, Any]]] = messages_of(lines)
        methods = {message.get("method") for _, message in self.messages}
        if "session/prompt" not in methods and methods != {None}:
            self.messages = whole_session(lines)  # single messages

    def write(self, path: Path) -> Path:
        lines: list[Any] = [
            {"dir": "c2a" if is_clients else "a2c", "msg": message} for is_clients, message in self.messages
        ]
        if not self.prompts:  # the agent's messages alone
            lines = [message for _, message in self.messages]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return path

    @property
    def prompts(self) -> list[dict[str, Any]]:
        return [m for is_clients, m in self.messages if is_clients and m.get("method") == "session/prompt"]

    @property
    def mode(self) -> Any:
        modes = [m["params"]["modeId"] for is_clients, m in self.messages if m.get("method") == "session/set_mode"]
        return modes[0] if modes else "agent"

    def answer_to(self, id: object) -> Any:
        """What its client answered to a request of the agent's; None: nothing."""
        answers = [m.get("result") for is_clients, m in self.messages if is_clients and "method" not in m]
        ids = [m["id"] for is_clients, m in self.messages if is_clients and "method" not in m]
        return dict(zip(ids, answers, strict=True)).get(id)

    def requests(self, method: str) -> list[dict[str, Any]]:
        return [m for is_clients, m in self.messages if not is_clients and m.get("method") == method and "id" in m]

    def turns(self) -> Iterator[tuple[list[dict[str, Any]], dict[str, Any], bool]]:
        """Of each prompt: its updates, its answer, and whether the next prompt came before that."""
        sent = [n for n, (is_clients, m) in enumerate(self.messages) if is_clients and m in self.prompts]
        for number, start in enumerate(sent):
            id = self.messages[start][1]["id"]
            end = next(
                n for n, (ours, m) in enumerate(self.messages) if not ours and m.get("id") == id and "method" not in m
            )
            until = min([end, *sent[number + 1 : number + 2]])
            updates = [
                m["params"]["update"] | {"of": m["params"].get("sessionId", "")}
                for _, m in self.messages[start:until]
                if m.get("method") == "session/update"
            ]
            yield updates, self.messages[end][1], until != end


class Client:
    """Decides as the recorded client did. What that one left unanswered is never answered."""

    def __init__(self, recorded: Recorded) -> None:
        asked = [recorded.answer_to(m["id"]) for m in recorded.requests("session/request_permission")]
        self._permissions = [_is_allowed(answer) for answer in asked]
        self._plans = [recorded.answer_to(m["id"]) for m in recorded.requests("cursor/create_plan")]
        self.asked: list[agent_events.Question | agent_events.Plan] = []
        self.is_asked = asyncio.Event()

    async def answer(self, call_id: str, question: agent_events.Question) -> list[ClarificationAnswer] | None:
        raise NotImplementedError

    async def decide(self, call_id: str, plan: agent_events.Plan) -> bool | None:
        self.asked.append(plan)
        self.is_asked.set()
        if self._plans.pop(0) is None:
            await asyncio.Event().wait()
        return True

    async def permit(self, call_id: str, question: agent_events.Question) -> Permission | None:
        self.asked.append(question)
        return Permission("once" if self._permissions.pop(0) else "deny")


def _is_allowed(answer: Any) -> bool:
    return "allow" in json.dumps(answer) or answer == {}


def played(path: Path, home: Path, **options: Any) -> tuple[list[list[agent_events.AgentEvent]], Client]:
    """The events of each turn; the error that came in place of them is raised."""
    recorded = Recorded(path)
    played_path = recorded.write(home / "recording.jsonl")
    for folder in ("work", "conversation"):
        (home / folder).mkdir(exist_ok=True)
    install(home / "bin", knobs={"acp_recording": str(played_path)})
    environ = {"PATH": f"{home / 'bin'}:/usr/bin:/bin", "HOME": str(home)}
    ledger = Ledger(home / "instances")
    model = options.pop("model", "auto")
    made = AcpOptions(grace_seconds=0.05, permissions="ask", **options)

    async def play() -> tuple[list[list[agent_events.AgentEvent]], Client]:
        cli = CursorCliSource(CliOptions(), environ, ledger, lambda: 0.0)
        source, client = CursorAcpSource(made, cli, home / "acp", environ, ledger), Client(recorded)

        async def turn(number: int, session_id: str | None) -> list[agent_events.AgentEvent]:
            asked = Turn(
                run_id="chat_1",
                prompt=f"Prompt {number}.",
                model=model,
                mode=recorded.mode,
                workspace=str(home / "work"),
                folder=str(home / "conversation"),
                session_id=session_id,
                person=client,
                approver=client,
            )
            async with aclosing(source.events(asked)) as batches:
                return [event async for batch in batches for event in batch]

        tasks: list[asyncio.Task[list[agent_events.AgentEvent]]] = []
        try:
            async with asyncio.timeout(60):
                for number, (_, _, is_interrupted) in enumerate(recorded.turns()):
                    session_id = recorded.prompts[number]["params"].get("sessionId") if number else None
                    tasks.append(asyncio.create_task(turn(number, session_id)))
                    await (client.is_asked.wait() if is_interrupted else asyncio.wait([tasks[-1]]))
                if not recorded.prompts:
                    tasks.append(asyncio.create_task(turn(0, None)))
                return [await task for task in tasks], client
        finally:
            for task in tasks:
                task.cancel()
            await source.close()

    ledger.open()
    try:
        return asyncio.run(play())
    finally:
        ledger.close()


def text(
    events: list[agent_events.AgentEvent],
    kind: type[agent_events.TextDelta | agent_events.ThinkingDelta] = agent_events.TextDelta,
) -> str:
    return "".join(event.text for event in events if isinstance(event, kind))


def ends(events: list[agent_events.AgentEvent]) -> dict[str, agent_events.ToolEnded]:
    return {event.call_id: event for event in events if isinstance(event, agent_events.ToolEnded)}


def documents(events: list[agent_events.AgentEvent]) -> ChatResponse:
    assembler, transcript = Assembler(RunInfo(id="chat_1", created="2026-11-18T00:00:00Z")), Transcript()
    for event in events:
        for produced in assembler.push(event):
            transcript.push(produced)
    response = transcript.response()
    assert response is not None
    return response


def subjects_of(client: Client) -> list[str]:
    return [one.permission.subject for one in client.asked if isinstance(one, agent_events.Question) and one.permission]


def types(response: ChatResponse) -> list[str]:
    return [document_type(document.metadata) for document in response.documents]


def is_mcp(updates: list[dict[str, Any]], id: str) -> bool:
    """Also a call of which only the end was recorded."""
    given = [u.get("rawInput", {}) for u in updates if u.get("toolCallId") == id]
    return len(given) == 1 or any("providerIdentifier" in one for one in given)


def chunks(updates: list[dict[str, Any]], kind: str, session: str) -> str:
    return "".join(u["content"]["text"] for u in updates if u["sessionUpdate"] == kind and u["of"] == session)


@pytest.mark.parametrize("path", ALL, ids=[path.stem for path in ALL])
def test_every_recording_is_understood(path: Path, tmp_path: Path) -> None:
    recorded = Recorded(path)
    if not recorded.prompts:
        with pytest.raises(AgentError) as caught:
            played(path, tmp_path)
        assert caught.value.code == "agent_unauthenticated"
        return
    turns, _ = played(path, tmp_path)
    for events, (updates, answer, _) in zip(turns, recorded.turns(), strict=True):
        session = updates[0]["of"] if updates else ""
        assert not [event for event in events if isinstance(event, agent_events.Unrecognized)]
        said = chunks(updates, TEXT, session)
        last = events[-1]
        if isinstance(last, agent_events.RunFailed) and last.failure.code != "cancelled":
            assert said.startswith(text(events))
            assert last.failure.status in (401, 429, 500, 502)
        else:
            assert text(events) == said
            assert isinstance(last, agent_events.RunFinished) == (answer["result"]["stopReason"] == "end_turn")
        assert text(events, agent_events.ThinkingDelta) == chunks(updates, THOUGHT, session)
        calls = {u["toolCallId"] for u in updates if u["sessionUpdate"].startswith("tool_call")}
        started = [event for event in events if isinstance(event, agent_events.ToolStarted)]
        assert len({event.call_id for event in started}) == len(started)
        done = {u["toolCallId"]: u for u in updates if u.get("status") == "completed"}
        for id, end in ends(events).items():
            if isinstance(end.action, agent_events.OtherTool) and id in calls and not is_mcp(updates, id):
                assert end.action.tool in {entry.name for entry in _TABLE.values()}
            if id in done and not isinstance(end.action, agent_events.Plan | agent_events.TodoUpdate):
                seen = [u for u in updates if u.get("toolCallId") == id and ("rawOutput" in u or u.get("content"))]
                assert (end.outcome.state == "rejected") == (not seen)
        assert_laws(events)
        response = documents(events)
        assert response.metadata.unrecognized is UNSET
        assert [document.id for document in response.documents] == [
            f"doc_{number:03d}" for number in range(1, len(response.documents) + 1)
        ]


def assert_laws(events: list[agent_events.AgentEvent]) -> None:
    """Those that hold for whatever an agent does, in every dialect."""
    shown = laws.assemble(events)
    laws.assert_well_formed(shown)
    laws.assert_says_exactly(laws.text_of(shown), shown)
    laws.assert_the_stream_folds_to_the_response(shown)
    for agent_tools in get_args(AgentTools):
        laws.assert_the_chunks_fold_to_the_completion(shown, agent_tools=agent_tools, include_usage=True)
    laws.assert_readable_text_has_blank_lines_between_tools(shown)


# --- what is in them ------------------------------------------------------------------------------------


def real(name: str) -> Path:
    found = [path for path in CAPTURES if path.stem.endswith(name)]
    if not found:
        pytest.skip("the recordings are not at hand")
    return found[0]


def test_the_tools_of_a_real_session(tmp_path: Path) -> None:
    ((events,), _) = played(real("agent-tools"), tmp_path)
    read, grep, shell, create, edit = (event.action for event in ends(events).values())
    assert read == agent_events.OtherTool(
        tool="read_file", arguments={"target_file": "/workspace/hello.txt"}, data="hello from spike\n"
    )
    assert isinstance(grep, agent_events.OtherTool)
    assert (grep.tool, grep.arguments) == ("grep", {"pattern": "spike", "path": "/workspace"})
    assert grep.data == {"totalMatches": 1, "truncated": False}  # never "nothing was found"
    assert isinstance(shell, agent_events.Command)
    assert (shell.command, shell.exit_code) == ("ls -la", 0)
    assert create == agent_events.FileEdit(
        tool="edit_file", path="/workspace/out.txt", operation="create", content="hi"
    )
    assert isinstance(edit, agent_events.FileEdit)
    assert edit.diff is not None
    assert (edit.diff.old_string, edit.diff.new_string) == ("hello from spike", "hello from SPIKE")
    assert (edit.diff.start_line, edit.diff.end_line) == (1, 1)
    assert {event.outcome.state for event in ends(events).values()} == {"completed"}


def test_a_plan_that_nobody_decides_on_and_a_second_prompt(tmp_path: Path) -> None:
    ((first, second), client) = played(real("create-plan-then-second-prompt"), tmp_path)
    (plan,) = client.asked
    assert isinstance(plan, agent_events.Plan)
    assert (plan.title, len(plan.todos)) == ("Create text files", 2)
    assert isinstance(first[-1], agent_events.RunFailed)
    assert first[-1].failure.code == "cancelled"
    assert types(documents(first)) == ["text", "plan", "error"]
    assert text(second) == "MATERIAL-CODEWORD-HERON first line"
    assert isinstance(second[-1], agent_events.RunFinished)


def test_a_permission_before_its_call_and_under_another_id_is_one_document(tmp_path: Path) -> None:
    path = HERE / "web-permissions.jsonl"
    ((events,), client) = played(path, tmp_path)
    subjects = subjects_of(client)
    assert subjects == ["https://example.com/a", "https://example.org/b", "Web Search"]
    calls = [event for event in ends(events).values() if event.action.tool not in OF_THE_GATEWAY]
    assert [(event.action.tool, event.outcome.state) for event in calls] == [
        ("web_fetch", "completed"), ("web_fetch", "rejected"), ("web_search", "completed"),
    ]  # fmt: skip
    assert [event.action.arguments for event in calls if isinstance(event.action, agent_events.OtherTool)] == [
        {"url": "https://example.com/a"}, {"url": "https://example.org/b"}, {"search_term": "heron"},
    ]  # fmt: skip
    rules = ["WebFetch(example.com)", "WebFetch(*.org)"]
    (tmp_path / "again").mkdir()
    _, client = played(path, tmp_path / "again", allow=rules)
    assert subjects_of(client) == ["Web Search"]


def test_several_web_pages_at_once_are_one_document_each(tmp_path: Path) -> None:
    ((events,), client) = played(HERE / "parallel-web-permissions.jsonl", tmp_path)
    assert subjects_of(client) == ["https://example.com/a", "https://example.org/b", "https://example.net/c"]
    found = {}
    for end in ends(events).values():
        if isinstance(end.action, agent_events.OtherTool) and end.action.tool not in OF_THE_GATEWAY:
            found[str(end.action.arguments)] = (end.action.tool, end.outcome.state, end.action.data)
    assert found == {
        "{'url': 'https://example.com/a'}": ("web_fetch", "rejected", "Not run: it was not allowed."),
        "{'url': 'https://example.org/b'}": ("web_fetch", "completed", "# B"),
        "{'url': 'https://example.net/c'}": ("web_fetch", "completed", "# C"),
        "{'pattern': 'a b'}": ("grep", "completed", {"totalMatches": 0, "truncated": False}),
        "{'glob_pattern': '**/*.md'}": ("glob_file_search", "completed", {"totalFiles": 2, "truncated": False}),
    }


def test_subagents_of_subagents_ask_for_permission_too(tmp_path: Path) -> None:
    ((events,), client) = played(HERE / "nested-subagents.jsonl", tmp_path)
    assert subjects_of(client) == ["rm x", "https://example.com/a"]
    response = documents(events)
    shown = [(document_type(d.metadata), getattr(d.metadata, "parent_id", UNSET)) for d in response.documents]
    assert shown == [
        ("todo_update", UNSET), ("tool_call", UNSET), ("tool_call", "doc_002"), ("clarification", "doc_003"),
        ("terminal_command", "doc_003"), ("clarification", "doc_003"), ("tool_call", "doc_003"),
        ("todo_update", UNSET), ("text", UNSET),
    ]  # fmt: skip
    change = response.documents[7]
    assert isinstance(change, TodoUpdateDocument)
    assert [(todo.id, todo.status) for todo in change.metadata.todos] == [("1", "completed")]
    outer, inner = response.documents[1:3]
    assert isinstance(outer, ToolCallDocument)
    assert isinstance(inner, ToolCallDocument)
    assert (outer.metadata.result.data, inner.metadata.result.data) == ("Outer says so.", "Inner says so.")


def test_tools_and_rejections(tmp_path: Path) -> None:
    ((events,), _) = played(HERE / "tools-and-rejections.jsonl", tmp_path)
    found = ends(events)
    states = {id: (found[id].action.tool, found[id].outcome.state) for id in found if id in ("t1", "t2", "t3", "t4")}
    assert states == {
        "t1": ("glob_file_search", "completed"),
        "t2": ("grep", "completed"),
        "t3": ("read_file", "rejected"),
        "t4": ("run_terminal_cmd", "rejected"),
    }
    assert found["t3"].outcome.permission is None
    assert (found["t5"].outcome.state, found["t6"].outcome.state) == ("failed", "failed")
    assert found["t6"].action.tool == "get_issue"
    edit = found["t7"].action
    assert isinstance(edit, agent_events.FileEdit)
    assert edit.diff is not None
    assert (edit.diff.old_string, edit.diff.new_string, edit.diff.start_line, edit.diff.end_line) == ("two", "2", 2, 2)


def test_todos_and_a_subagent(tmp_path: Path) -> None:
    ((events,), client) = played(HERE / "todos-and-subagent.jsonl", tmp_path)
    response = documents(events)
    assert types(response) == [
        "todo_update", "tool_call", "clarification", "terminal_command", "todo_update", "text",
    ]  # fmt: skip
    first, task, asked, command, second, _ = response.documents
    assert isinstance(task, ToolCallDocument)
    assert isinstance(asked, ClarificationDocument)
    assert isinstance(command, TerminalCommandDocument)
    assert isinstance(first, TodoUpdateDocument)
    assert isinstance(second, TodoUpdateDocument)
    assert task.metadata.tool_name == "task"
    assert task.metadata.result.data == "There are 3 files."
    assert task.metadata.duration_ms == 13075
    assert task.metadata.arguments["prompt"] == "Count the files."
    assert asked.metadata.parent_id == command.metadata.parent_id == task.id
    assert first.metadata.parent_id is UNSET
    assert len(client.asked) == 1
    assert second.metadata.todos[0].status == "completed"
    assert second.metadata.todos[0].content is UNSET
    assert response.text == "Three files."


@pytest.mark.parametrize(
    ("name", "said", "code"),
    [
        ("account-refused", "", "insufficient_quota"),
        ("signed-out-as-text", "", "agent_unauthenticated"),
        ("retriable", "Half an answer.", "agent_overloaded"),
    ],
)
def test_failures_that_arrive_as_text(name: str, said: str, code: str, tmp_path: Path) -> None:
    ((events,), _) = played(HERE / f"{name}.jsonl", tmp_path)
    assert text(events) == said
    assert isinstance(events[-1], agent_events.RunFailed)
    assert events[-1].failure.code == code


@pytest.mark.parametrize(
    ("recording", "model", "chosen"),
    [
        ("model-options", "auto", {"model": "default"}),
        ("model-options", "grok-4.7", {"fast": "false"}),
        ("model-options", "grok-4.7-low", {"reasoning_effort": "low", "fast": "false"}),
        ("model-options", "grok-4.7-high-fast", {}),
        (
            "model-options",
            "grok-4.7[effort=xhigh,context=1m,fast=true]",
            {"reasoning_effort": "xhigh", "context": "1m"},
        ),
        ("model-options", "grok-4.7-max", None),
        ("model-options", "grok-4.8", None),
        ("one-variant-each", "auto", {"model": "auto-smart[optimize_for=balanced]"}),
        ("one-variant-each", "grok-4.7-high-fast", {"model": "grok-4.7[context=256k,reasoning_effort=high,fast=true]"}),
        ("one-variant-each", "grok-4.7-high", None),
        ("one-variant-each", "composer-2.5", None),
    ],
)
def test_the_wanted_variant_or_none(
    recording: str, model: str, chosen: dict[str, str] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cursor_gateway.sources.acp.connection import AgentConnection

    sent: dict[str, str] = {}
    request = AgentConnection.request

    async def noted(self: AgentConnection, method: str, params: dict[str, Any], seconds: float | None) -> Any:
        if method == "session/set_config_option":
            sent[params["configId"]] = params["value"]
        return await request(self, method, params, seconds)

    monkeypatch.setattr(AgentConnection, "request", noted)
    path = HERE / f"{recording}.jsonl"
    if chosen is None:
        with pytest.raises(ModelUnavailable, match="did you mean"):
            played(path, tmp_path, model=model)
    else:
        played(path, tmp_path, model=model)
        assert sent == chosen
