"""The stand-in as a client of MCP servers, with permissions that are heeded and programs that go on."""

import json
import signal
import subprocess
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

from cursor_gateway.model.messages import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage
from cursor_gateway.prompting.prompt import render as render_with
from tests.agent.caller import (
    SESSION,
    Caller,
    add,
    broken,
    caller,
    echo,
    fails,
    meeting,
    never,
    picture,
    working,
)
from tests.agent.driving import PARTIAL, STREAM, TIMEOUT, Standin, kinds, parsed, read_until
from tests.agent.mcp_client import TIMED_OUT, events

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


def test_a_stream_is_read_as_well(standin: Standin) -> None:
    with caller(echo=echo) as server:
        connect(standin, server.url)
        assert standin.answer(program(call("echo", text="é\n\n$0 😀")), *USE) == "Results: é\n\n$0 😀"


def test_events_of_a_stream() -> None:
    stream = b": comment\n\ndata: a\ndata:b\r\n\r\nevent: other\ndata: c\n\nid: 1\ndata:\n\n"
    stream += b"event: message\ndata: d\n\ndata: e"
    assert [*events(stream.splitlines(keepends=True))] == ["a\nb", "d"]


def test_what_is_no_plain_success(standin: Standin) -> None:
    with caller(fails=fails, broken=broken, picture=picture) as server:
        connect(standin, server.url)
        steps = [call("fails"), call("broken"), call("picture"), call("missing")]
        records = standin.records(program(*steps, {"say": "|$1|$2|$4"}), *USE)
    assert [done["result"] for done in calls(records, "completed")] == [
        {"success": {"content": [{"text": {"text": "it did not work"}}], "isError": True}},
        {"error": {"error": "MCP error -32602: no such thing"}},
        {"success": {"content": [{"image": {"data": "aGk=", "mimeType": "image/png"}}], "isError": False}},
    ]
    said = "no tool missing|it did not work|MCP error -32602: no such thing|no tool missing"
    assert records[-1]["result"] == said


def test_a_server_that_is_not_there(standin: Standin) -> None:
    connect(standin, "http://127.0.0.1:9/mcp")
    assert standin.answer(program(call("add"), {"say": "."}), *USE).startswith(
        "no tool add; caller: MCP error -32000: "
    )


def test_a_configured_server_of_the_user(standin: Standin) -> None:
    with caller(add=add) as server:
        standin.configure(permissions={"allow": ["Mcp(mine:add)"]})
        servers = {"mine": {"url": server.url, "headers": {"Authorization": "Bearer x"}}, "other": {"command": "no"}}
        (standin.configuration / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
        assert standin.answer(program(call("add", a=1, b=1)), *USE) == "Results: 2"
        assert {one["authorization"] for one in server.headers} == {"Bearer x"}


def test_a_server_of_a_plugin_needs_a_rule_but_no_approval(standin: Standin, tmp_path: Path) -> None:
    (tmp_path / ".cursor-plugin").mkdir()
    (tmp_path / ".cursor-plugin" / "plugin.json").write_text(json.dumps({"name": "mine"}))
    with caller(add=add) as server:
        (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"sums": {"url": server.url}}}))
        use = ("--plugin-dir", str(tmp_path), "--trust")
        assert "rejected by user: plugin-mine-sums-add" in standin.answer(program(call("add", a=1, b=1)), *use)
        standin.configure(permissions={"allow": ["Mcp(plugin-mine-sums:add)"]})
        assert standin.answer(program(call("add", a=1, b=1)), *use) == "Results: 2"


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


def test_parallel_calls_of_a_sequential_build_never_meet(standin: Standin) -> None:
    standin.set(mcp_sequential=1)
    with caller(meet=meeting(2)) as server:
        connect(standin, server.url)
        both = {"parallel": [call("meet", who="a", seconds=0.2), call("meet", who="b", seconds=0.2)]}
        records = standin.records(program(both), *USE)
    assert kinds(records)[2:6] == ["tool_call/started"] * 2 + ["tool_call/completed"] * 2
    assert records[-1]["result"] == "Results: alone, alone"


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


def test_mcp_can_be_left_out_too(standin: Standin) -> None:
    with caller(add=add) as server:
        connect(standin, server.url)
        said = standin.answer(program(call("add", a=1, b=2)), *USE, "--allowed-tools", "read_tool_call")
        assert said == "Results: Tool is not available"
        assert server.of("tools/call") == []


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("tool", OWN)
def test_a_build_that_ignores_all_rules(standin: Standin, tool: str) -> None:
    standin.set(ignores_deny=1)
    records, done = tried(standin, tool, *ONLY_MCP, deny=DENY)
    assert done
    assert "success" in result(records, tool)


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


def test_a_page_is_really_fetched_if_permitted(standin: Standin) -> None:
    with caller() as server:  # which has no pages
        connect(standin, server.url, deny=[])
        fetch = native("webFetch", url=server.url)
        assert standin.answer(program(fetch), *USE) == "Results: User Rejected"
        assert "405" in standin.answer(program(fetch), *USE, "--force")
        connect(standin, server.url)
        assert standin.answer(program(fetch), *USE, "--force") == "Results: User Rejected"


def test_the_older_scenarios_heed_it_too(standin: Standin) -> None:
    connect(standin, "http://127.0.0.1:9/mcp")
    (standin.workspace / "notes.txt").write_text("alpha")
    assert "I may not read it." in standin.answer("standin: read")
    assert "I may not write there." in standin.answer("standin: edit")
    assert "The command was rejected." in standin.answer('standin: shell command="touch made"', "--force", *ONLY_MCP)
    assert [one.name for one in standin.workspace.iterdir() if one.name != ".cursor"] == ["notes.txt"]


def test_a_build_without_the_hidden_option(standin: Standin) -> None:
    standin.set(trust="all", no_allowed_tools=1)
    ran = standin.run(*STREAM, *ONLY_MCP, stdin="hello")
    assert (ran.returncode, ran.stdout, ran.stderr) == (1, "", "error: unknown option '--allowed-tools'\n")
    assert standin.run(*STREAM, stdin="hello").returncode == 0


# programs


def test_steps(standin: Standin) -> None:
    again = {"repeat": 2, "steps": [{"say": "x"}, {"pause_ms": 1}, {"think": "hm"}]}
    assert standin.answer(program(again, {"say": " $1 $all$user."})) == "xx $1 ."
    assert standin.answer(program({"say": "only"}) + "\nThank you.") == "only"
    assert standin.run(*STREAM, program({"say": "a"}, {"crash": 3})).returncode == 3


@pytest.mark.parametrize("body", ["", "{", '[{"sing": "la"}]', '[{"native": "fly"}]', '[{"parallel": [{"say": "a"}]}]'])
def test_what_is_no_program(standin: Standin, body: str) -> None:
    ran = standin.run(*STREAM, f"standin: program\n---\n{body}")
    assert (ran.returncode, ran.stdout) == (64, "")


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


def test_a_prompt_without_sections_is_the_result(standin: Standin) -> None:
    with caller(never=never) as server:
        connect(standin, server.url)
        chat = interrupted(standin, server, program(call("never")))
        assert standin.answer("It is 5.", *USE, "--resume", chat) == "Results: It is 5."
        assert standin.answer("Thanks.", *USE, "--resume", chat) == "You said: Thanks."


def test_a_program_may_be_ended_more_than_once(standin: Standin) -> None:
    with caller(never=never) as server:
        connect(standin, server.url)
        chat = interrupted(standin, server, program({"repeat": 3, "steps": [call("never")]}))
        process = standin.start(*STREAM, *USE, "--resume", chat, render(results("one")))
        server.wait_for("tools/call", 2)
        process.kill()
        process.wait(TIMEOUT)
        process = standin.start(*STREAM, *USE, "--resume", chat, render(results("two")))
        server.wait_for("tools/call", 3)
        process.terminate()
        process.wait(TIMEOUT)
        assert standin.answer(render(results("three")), *USE, "--resume", chat) == "Results: one, two, three"


def test_another_request_ends_the_program(standin: Standin) -> None:
    with caller(never=never) as server:
        connect(standin, server.url)
        chat = interrupted(standin, server, program(call("never")))
        assert standin.answer("standin: say\n---\nno", "--resume", chat) == "no"
        assert standin.answer("It is 5.", "--resume", chat) == "You said: It is 5."


def test_results_of_parallel_calls_find_their_calls(standin: Standin) -> None:
    with caller(never=never, other=never) as server:
        connect(standin, server.url)
        both = {"parallel": [call("never", n=1), call("other"), call("never", n=2)]}
        chat = interrupted(standin, server, program(both, {"say": "$1 $2 $3"}), 3)
        asked = [ToolCall("c2", "never", '{"n":2}'), ToolCall("c0", "other", "{}"), ToolCall("c1", "never", '{"n":1}')]
        given = [ToolMessage(id.upper(), call_id=id) for id in ("c0", "c1", "c2")]
        named = [
            ToolMessage(message.text, call_id=message.call_id, name=one.name)
            for message, one in zip(given, (asked[1], asked[2], asked[0]), strict=True)
        ]
        prompt = render([AssistantMessage("", tuple(asked)), *named])
        assert standin.answer(prompt, *USE, "--resume", chat) == "C1 C0 C2"


def test_a_parallel_call_without_a_result_is_made_again(standin: Standin) -> None:
    with caller(never=never, add=add) as server:
        connect(standin, server.url)
        standin.set(mcp_sequential=1)
        both = {"parallel": [call("never"), call("add", a=1, b=1)]}
        chat = interrupted(standin, server, program(both))
        assert standin.answer(render(results("given")), *USE, "--resume", chat) == "Results: given, 2"


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


def test_an_own_tool_that_the_caller_carries_out_although_the_program_has_ended(standin: Standin) -> None:
    connect(standin, "http://127.0.0.1:9/mcp")
    records = standin.records(program(native("shell", command="touch made")), *USE, *ONLY_MCP)
    assert records[-1]["result"] == "Results: Tool is not available"
    chat = records[0]["session_id"]
    assert standin.answer(render(results("done", name="bash")), *USE, "--resume", chat) == "Results: done"
    assert standin.answer("Thanks.", "--resume", chat) == "You said: Thanks."


def test_a_transcript_is_caught_up_with(standin: Standin) -> None:
    both = {"parallel": [call("add", a=2, b=2), call("never")]}
    steps = [{"say": "Go."}, call("never"), {"say": "no more"}, both, call("add", a="$1", b=""), {"say": "$all|$user"}]
    conversation: list[Message] = [
        UserMessage(program(*steps)),
        AssistantMessage("Go.", (ToolCall("a", "never", "{}"),)),
    ]
    conversation += [
        ToolMessage("x", call_id="a", name="never"),
        AssistantMessage("no more", (ToolCall("b", "never", "{}"),)),
    ]
    conversation += [ToolMessage("y", call_id="b", name="never"), UserMessage("quick")]

    def join(reply: Any, arguments: dict[str, Any]) -> None:
        reply.result({"content": [{"type": "text", "text": f"{arguments['a']}{arguments['b']}"}]})

    with caller(never=never, add=join) as server:
        connect(standin, server.url)
        records = standin.records(render(conversation), *USE)
    assert [one["args"]["args"] for one in calls(records, "started")] == [{"a": 2, "b": 2}, {"a": "x", "b": ""}]
    assert records[-1]["result"] == "x, 22, y, x|quick"


def test_a_crash_is_passed_when_resumed(standin: Standin) -> None:
    ran = subprocess.run(
        [standin.program, *STREAM, program({"say": "a"}, {"crash": 3}, {"say": "b"})],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        cwd=standin.workspace,
        env=standin.environment,
        check=False,
        timeout=TIMEOUT,
    )
    assert ran.returncode == 3
    chat = parsed(ran.stdout.decode())[0]["session_id"]
    assert standin.answer("Go on.", "--resume", chat) == "b"
