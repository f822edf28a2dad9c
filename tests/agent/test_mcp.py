"""The stand-in as a client of MCP servers, with permissions that are heeded and programs that go on."""

import json
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from mcp import types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server

from cursor_gateway.model.messages import Message, ToolMessage, UserMessage
from cursor_gateway.prompting.prompt import render as render_with
from tests.agent.caller import (
    SESSION,
    Caller,
    add,
    caller,
    echo,
    meeting,
    never,
    working,
)
from tests.agent.driving import PARTIAL, STREAM, TIMEOUT, Standin, kinds, parsed, read_until
from tests.agent.mcp_client import TIMED_OUT

pytestmark = pytest.mark.slow  # tests of a tool: all tests of sources and gateways drive it

Records = list[dict[str, Any]]

ALLOW = ["Mcp(caller:*)"]
DENY = ["Shell(*)", "Read(**)", "Write(**)", "WebFetch(*)"]
ONLY_MCP = ("--allowed-tools", "mcp_tool_call,get_mcp_tools_tool_call")
USE = ("--approve-mcps", "--trust")


def render(messages: Sequence[Message]) -> str:
    return render_with(messages, b"secret")


def connect(standin: Standin, url: str, *, allow: list[str] = ALLOW, deny: list[str] = DENY) -> None:
    """As the gateway does it."""
    (standin.workspace / ".cursor").mkdir(exist_ok=True)
    servers = {"mcpServers": {"caller": {"url": url}}}
    (standin.workspace / ".cursor" / "mcp.json").write_text(json.dumps(servers))
    standin.configure(permissions={"allow": allow, "deny": deny})


def program(*steps: object) -> str:
    return f"standin: program\n---\n{json.dumps(steps)}"


def call(tool: str, **args: object) -> dict[str, object]:
    return {"call": tool, "args": args}


def native(tool: str, **args: object) -> dict[str, object]:
    return {"native": tool, "args": args}


def calls(records: Records, subtype: str, tool: str = "mcp") -> Records:
    found = [one for one in records if one["type"] == "tool_call" and one["subtype"] == subtype]
    return [one["tool_call"][f"{tool}ToolCall"] for one in found]


def result(records: Records, tool: str = "mcp") -> Any:
    [done] = calls(records, "completed", tool)
    return done["result"]


# against the protocol's own package


@contextmanager
def real_server(*, as_json: bool) -> Iterator[str]:
    async def tools(_: ServerRequestContext[Any, Any], __: object) -> types.ListToolsResult:
        schema = {"type": "object", "properties": {"city": {"type": "string"}}}
        return types.ListToolsResult(tools=[types.Tool(name="weather", description="of a city", input_schema=schema)])

    async def use(context: ServerRequestContext[Any, Any], asked: types.CallToolRequestParams) -> types.CallToolResult:
        for nth in range(3):
            await context.session.report_progress(nth)
        said = f"sunny in {(asked.arguments or {})['city']}"
        return types.CallToolResult(content=[types.TextContent(type="text", text=said)])

    app = Server("caller", on_list_tools=tools, on_call_tool=use).streamable_http_app(json_response=as_json)
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", ws="none"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.005)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        server.should_exit = True
        thread.join()


@pytest.mark.parametrize("as_json", [True, False])
def test_it_speaks_with_the_protocols_own_server(standin: Standin, as_json: bool) -> None:
    with real_server(as_json=as_json) as url:
        connect(standin, url)
        prompt = program({"list": True}, call("weather", city="Bern"), call("weather", city="$1!"))
        records = standin.records(prompt, *USE, *ONLY_MCP)
    said = records[-1]["result"]
    listed, end = json.JSONDecoder().raw_decode(said)
    assert [(tool["name"], tool["description"], tool["inputSchema"]["type"]) for tool in listed] == [
        ("weather", "of a city", "object")
    ]
    assert said[end:] == "Results: sunny in Bern, sunny in sunny in Bern!"


# calls and what they give


def test_a_call_has_the_recorded_fields(standin: Standin) -> None:
    with caller(add=add) as server:
        connect(standin, server.url)
        records = standin.records(program({"say": "Adding."}, call("add", a=1, b=2), {"say": "It is $1."}), *USE)
    assert [kind for kind in kinds(records) if kind != "assistant"] == [
        *("system/init", "user", "tool_call/started", "tool_call/completed", "result/success")
    ]
    [started], [done] = calls(records, "started"), calls(records, "completed")
    id = started["args"]["toolCallId"]
    assert started["args"] == {
        "name": "caller-add",
        "args": {"a": 1, "b": 2},
        "toolCallId": id,
        "providerIdentifier": "caller",
        "toolName": "add",
    }
    assert done == {**started, "result": {"success": {"content": [{"text": {"text": "3"}}], "isError": False}}}
    assert records[-1]["result"] == "Adding.It is 3."


def test_the_protocol_is_kept(standin: Standin) -> None:
    with caller(add=add, echo=echo, never=never) as server:  # three tools are two pages
        connect(standin, server.url)
        assert "never" in standin.answer(program({"list": True}, call("add", a=1, b=2)), *USE)
        first, *others = server.headers
        assert [message["method"] for message in server.received] == [
            *("initialize", "notifications/initialized", "tools/list", "tools/list", "tools/call")
        ]
        assert server.received[0]["params"]["protocolVersion"] == "2025-06-18"
        assert "mcp-session-id" not in first
        assert {(one["mcp-session-id"], one["mcp-protocol-version"]) for one in others} == {(SESSION, "2025-06-18")}
        assert first["accept"] == "application/json, text/event-stream"
        assert server.ended == [SESSION]


# time


def test_a_call_that_takes_too_long_is_cancelled(standin: Standin) -> None:
    standin.set(mcp_seconds=0.7)
    with caller(never=never) as server:
        connect(standin, server.url)
        records = standin.records(program(call("never")), *USE)
        [cancelled] = server.of("notifications/cancelled")
        [asked] = [one["id"] for one in server.received if one["method"] == "tools/call"]
    assert result(records) == {"error": {"error": TIMED_OUT}}
    assert cancelled == {"requestId": asked, "reason": f"McpError: {TIMED_OUT}"}
    assert records[-1]["result"] == f"Results: {TIMED_OUT}"


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("knobs", "said"),
    [
        ({}, "worked"),
        ({"mcp_reset_on_progress": 0}, TIMED_OUT),
        ({"mcp_progress": 0}, TIMED_OUT),  # nobody can know which call the progress is of
    ],
)
def test_progress_may_prolong_a_call(standin: Standin, knobs: dict[str, object], said: str) -> None:
    standin.set(mcp_seconds=1, **knobs)
    with caller(working=working) as server:
        connect(standin, server.url)
        assert standin.answer(program(call("working", times=4, every=0.35)), *USE) == f"Results: {said}"
        [asked] = server.of("tools/call")
        assert ("_meta" in asked) == ("mcp_progress" not in knobs)


def test_parallel_calls_are_made_at_once_and_end_in_their_own_order(standin: Standin) -> None:
    with caller(meet=meeting(2)) as server:
        connect(standin, server.url)
        both = {"parallel": [call("meet", who="a", then=0.3), call("meet", who="b")]}
        records = standin.records(program(both, {"say": "$1, $2"}), *USE)
    assert kinds(records)[2:6] == ["tool_call/started"] * 2 + ["tool_call/completed"] * 2
    assert [done["args"]["args"]["who"] for done in calls(records, "completed")] == ["b", "a"]
    assert len({one["model_call_id"] for one in records if one["type"] == "tool_call"}) == 1
    assert records[-1]["result"] == "met a, met b"


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
@pytest.mark.parametrize("calls_made", [1, 2])
def test_a_signal_ends_it_during_a_call(standin: Standin, number: int, status: int, calls_made: int) -> None:
    with caller(never=never) as server:
        connect(standin, server.url)
        process = standin.start(*STREAM, *USE, program({"parallel": [call("never")] * calls_made}))
        server.wait_for("tools/call", calls_made)
        process.send_signal(number)
        assert process.wait(TIMEOUT) == status
        assert server.ended == []


# permissions


@pytest.mark.parametrize(
    ("allow", "deny", "flags"),
    [
        ([], [], []),
        (["Mcp(other:*)", "Mcp(caller:subtract)"], [], []),
        (ALLOW, ["Mcp(caller:add)"], []),
        (ALLOW, ["Mcp(*:add)"], ["--force"]),
        (ALLOW, [], ["--mode", "plan"]),
        (ALLOW, [], ["--mode", "plan", "--force"]),
    ],
)
def test_a_call_is_rejected_as_recorded(standin: Standin, allow: list[str], deny: list[str], flags: list[str]) -> None:
    with caller(add=add) as server:
        connect(standin, server.url, allow=allow, deny=deny)
        records = standin.records(program(call("add", a=1, b=2)), *USE, *flags)
        assert server.of("tools/call") == []
    [done] = calls(records, "completed")
    reason = "MCP tool execution rejected by user: caller-add "
    assert done == {"result": {"rejected": {"reason": reason, "isReadonly": False}}}
    assert records[-1]["result"] == f"Results: {reason}"


@pytest.mark.parametrize(
    ("allow", "flags"), [(["Mcp(caller:add)"], []), (["Mcp(*:*)"], []), ([], ["--force"]), (ALLOW, ONLY_MCP)]
)
def test_a_call_is_permitted(standin: Standin, allow: list[str], flags: list[str]) -> None:
    with caller(add=add) as server:
        connect(standin, server.url, allow=allow)
        assert standin.answer(program(call("add", a=1, b=2)), *USE, *flags) == "Results: 3"


def test_servers_must_be_approved(standin: Standin) -> None:
    with caller(add=add) as server:
        connect(standin, server.url)
        records = standin.records(program(call("add", a=1, b=2)), "--force")
        assert server.received == []
    assert result(records) == {"error": {"error": 'MCP server "caller" has not been approved'}}


OWN = {
    "shell": native("shell", command="touch made"),
    "read": native("read", path="notes.txt"),
    "ls": native("ls", path="."),
    "grep": native("grep", pattern="al.ha", path="."),
    "glob": native("glob", globPattern="**/*.txt", targetDirectory="."),
    "edit": native("edit", path="made", streamContent="new\n"),
    "write": native("write", path="deep/er/made", fileText="new\n"),
    "delete": native("delete", path="notes.txt"),
}
GIVEN = {
    "read": "alpha\nbeta\n",
    "ls": ".cursor/\nnotes.txt",
    "grep": "notes.txt:1:alpha",
    "glob": "notes.txt",
}


def tried(standin: Standin, tool: str, *flags: str, deny: list[str]) -> tuple[Records, bool]:
    """What is printed, and whether anything was read or changed."""
    notes = standin.workspace / "notes.txt"
    notes.write_text("alpha\nbeta\n")
    connect(standin, "http://127.0.0.1:9/mcp", deny=deny)
    records = standin.records(program(OWN[tool]), *USE, *flags)
    changed = not notes.exists() or [*standin.workspace.rglob("made")] != []
    return records, changed or records[-1]["result"] == f"Results: {GIVEN.get(tool)}"


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("tool", OWN)
def test_the_agents_own_tools_really_do_it(standin: Standin, tool: str) -> None:
    records, done = tried(standin, tool, *(["--force"] if tool == "shell" else []), deny=[])
    assert done
    assert "success" in result(records, tool)


@pytest.mark.quick_cases(7)
@pytest.mark.parametrize("tool", sorted(OWN.keys() - {"shell"}))
@pytest.mark.parametrize("flags", [(), ("--force",)], ids=["careful", "forced"])
def test_what_is_denied_is_not_done(standin: Standin, tool: str, flags: tuple[str, ...]) -> None:
    records, done = tried(standin, tool, *flags, deny=DENY)
    assert not done
    assert "permission denied" in records[-1]["result"]
    assert "success" not in result(records, tool)


@pytest.mark.parametrize("deny", [[], DENY])
def test_a_command_needs_to_be_allowed(standin: Standin, deny: list[str]) -> None:
    records, done = tried(standin, "shell", *(["--force"] if deny else []), deny=deny)
    assert not done
    assert result(records, "shell")["rejected"]["command"] == "touch made"


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("tool", OWN)
@pytest.mark.parametrize(
    "flags",
    [ONLY_MCP, ("--allowed-tools", "mcp", "--allowed-tools=get_mcp_tools"), ("--exclude-tools", ",".join(OWN))],
    ids=["only MCP", "repeated", "excluded"],
)
@pytest.mark.quick_cases(7)
def test_a_tool_that_is_left_out_is_not_available(standin: Standin, tool: str, flags: tuple[str, ...]) -> None:
    records, done = tried(standin, tool, "--force", *flags, deny=[])
    assert not done
    assert calls(records, "started", tool)[0]["args"]
    [ended] = calls(records, "completed", tool)
    assert ended == {"result": {"rejected": {"reason": "Tool is not available", "isReadonly": False}}}
    assert records[-1]["result"] == "Results: Tool is not available"


def test_paths_are_denied_from_the_workspace_and_from_the_root(standin: Standin, tmp_path: Path) -> None:
    outside = tmp_path / "outside.txt"
    steps = [native("edit", path=path, streamContent="x") for path in (str(outside), "secret/a", "open/a")]
    connect(standin, "http://127.0.0.1:9/mcp", deny=["Write(secret/**)"])
    assert "denied" in standin.answer(program(*steps, {"say": "$2"}), *USE)
    assert outside.read_text() == "x"
    assert (standin.workspace / "open" / "a").exists()
    assert not (standin.workspace / "secret").exists()
    connect(standin, "http://127.0.0.1:9/mcp", deny=[f"Write({tmp_path}/*.txt)"])
    assert "denied" in standin.answer(program(native("delete", path=str(outside))), *USE)
    assert outside.exists()


# programs


def interrupted(standin: Standin, server: Caller, prompt: str, count: int = 1, how: int = signal.SIGTERM) -> str:
    """The chat of a program that was ended during its calls."""
    process = standin.start(*STREAM, *USE, prompt)
    server.wait_for("tools/call", count)
    process.send_signal(how)
    out, _ = process.communicate(timeout=TIMEOUT)
    assert process.returncode == (143 if how == signal.SIGTERM else -how)
    chat = parsed(out.decode())[0]["session_id"]
    assert isinstance(chat, str)
    return chat


def results(*texts: str, name: str = "never") -> list[Message]:
    return [ToolMessage(text, call_id=f"call_{nth}", name=name) for nth, text in enumerate(texts)]


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_resumed_program_goes_on_after_the_call(standin: Standin, how: int) -> None:
    with caller(add=add, never=never) as server:
        connect(standin, server.url)
        steps = [
            call("add", a=1, b=2),
            {"say": "First $1."},
            call("never"),
            call("add", a=3, b=4),
            {"say": "$all|$user"},
        ]
        chat = interrupted(standin, server, program(*steps), 2, how)
        prompt = render([*results("given\nthere"), UserMessage("and hurry")])
        records = standin.records(prompt, *USE, "--resume", chat)
    assert [one["args"]["toolName"] for one in calls(records, "started")] == ["add"]
    assert records[-1]["result"] == "3, given\nthere, 7|and hurry"


@pytest.mark.parametrize(
    ("more", "steps", "seen"),
    [
        ({"takes_ms": 60_000}, [], b'"subtype":"started"'),
        ({}, [{"say": "$1"}, {"pause_ms": 60_000}, {"say": "!"}], b'"text":" available"'),
    ],
    ids=["while it goes on", "after it was rejected"],
)
def test_an_own_tool_that_the_caller_carries_out(
    standin: Standin, more: dict[str, object], steps: list[object], seen: bytes
) -> None:
    connect(standin, "http://127.0.0.1:9/mcp")
    own = {**native("shell", command="touch made"), **more}
    process = standin.start(*PARTIAL, *USE, *ONLY_MCP, program(own, *steps))
    chat = json.loads(read_until(process, seen).splitlines()[0])["session_id"]
    [store] = standin.configuration.glob(f"chats/*/{chat}/store.db")
    while json.loads(store.read_text())["program"]["at"] < len(steps[:2]):  # until it has come to the pause
        time.sleep(0.005)
    process.terminate()
    assert process.wait(TIMEOUT) == 143
    said = standin.answer(render(results("done", name="bash")), *USE, "--resume", chat)
    assert said == ("done!" if steps else "Results: done")
