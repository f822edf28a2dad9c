"""What a turn over ACP answers when its agent asks for permission, also an agent that ignores its own rules."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from cursor_gateway.model.agent_events import Plan, Question
from cursor_gateway.model.answers import Permission
from cursor_gateway.model.caller_tools import Tool, ToolResult
from cursor_gateway.model.documents import ClarificationAnswer
from cursor_gateway.sources.acp.connection import Session
from cursor_gateway.sources.acp.models import Choice
from cursor_gateway.sources.acp.running import AcpPolicy, RunningTurn
from cursor_gateway.sources.base import OfferedTools, Turn
from cursor_gateway.wire.payload import Fields

OPTIONS = [
    {"optionId": "allow-once", "name": "Allow once", "kind": "allow_once"},
    {"optionId": "reject-once", "name": "Reject", "kind": "reject_once"},
]
EVERYTHING = AcpPolicy(allow=["Shell(*)", "Write(**)", "Read(**)", "Mcp(*)", "WebFetch(*)"], ask=True)

ONCE = Permission("once")

SHELL: dict[str, Any] = {"toolCallId": "1", "kind": "execute", "title": "`ls`", "rawInput": {"command": "ls"}}
TITLED = {"toolCallId": "1", "kind": "execute", "title": "`ls`"}
EDIT = {"toolCallId": "2", "kind": "edit", "title": "Edit a", "rawInput": {"path": "a"}}


def mcp(server: str) -> dict[str, Any]:
    given = {"providerIdentifier": server, "toolName": "get", "args": {}}
    return {"toolCallId": "3", "kind": "other", "title": f"{server}: get", "rawInput": given}


class Nobody:
    tools: Sequence[Tool] = ()

    async def call(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        raise NotImplementedError


class Willing:
    """Says yes to whatever is asked."""

    def __init__(self, permission: Permission | None = ONCE) -> None:
        self.asked, self.permission = 0, permission

    async def permit(self, call_id: str, question: Question) -> Permission | None:
        self.asked += 1
        return self.permission

    async def answer(self, call_id: str, question: Question) -> list[ClarificationAnswer] | None:
        raise NotImplementedError

    async def decide(self, call_id: str, plan: Plan) -> bool | None:
        raise NotImplementedError


def selected(call: dict[str, Any], policy: AcpPolicy, person: Willing, folder: Path, *, with_tools: bool) -> str:
    offered = OfferedTools(server="caller", url="", runner=Nobody()) if with_tools else None
    turn = Turn(
        run_id="r",
        prompt="",
        model="auto",
        workspace=str(folder),
        folder=str(folder),
        offered=offered,
        person=person,
        approver=person,
    )

    async def ask() -> dict[str, Any]:
        running = RunningTurn(turn, Session("s", "agent", Choice(), None), policy)
        return await running.permission(Fields({"toolCall": call, "options": OPTIONS}))

    outcome = asyncio.run(ask())["outcome"]
    return str(outcome["optionId"])


@pytest.mark.parametrize("call", [SHELL, EDIT, mcp("tracker")], ids=["shell", "edit", "mcp"])
@pytest.mark.parametrize("policy", [EVERYTHING, AcpPolicy(ask=True)], ids=["allow", "ask"])
def test_neither_rules_nor_people_allow_anything_in_runs_with_the_callers_tools(
    tmp_path: Path, call: dict[str, Any], policy: AcpPolicy
) -> None:
    person = Willing()
    assert selected(call, policy, person, tmp_path, with_tools=True) == "reject-once"
    assert person.asked == 0
    assert selected(call, policy, person, tmp_path, with_tools=False) == "allow-once"  # the test can fail


def test_the_callers_own_tools_need_no_rule(tmp_path: Path) -> None:
    assert selected(mcp("caller"), AcpPolicy(), Willing(), tmp_path, with_tools=True) == "allow-once"
    assert selected(mcp("caller"), AcpPolicy(), Willing(), tmp_path, with_tools=False) == "reject-once"


@pytest.mark.parametrize(
    ("permission", "first", "second", "asked"),
    [
        (Permission("once"), "allow-once", "allow-once", 2),
        (Permission("conversation"), "allow-once", "allow-once", 1),
        (Permission("workspace"), "allow-once", "allow-once", 1),
        (Permission("deny"), "reject-once", "reject-once", 2),
        (None, "reject-once", "reject-once", 2),
    ],
)
async def test_what_is_always_allowed_is_not_asked_for_again(
    tmp_path: Path, permission: Permission | None, first: str, second: str, asked: int
) -> None:
    person = Willing(permission)
    turn = Turn(run_id="r", prompt="", model="auto", workspace=str(tmp_path), folder=str(tmp_path), approver=person)
    running = RunningTurn(turn, Session("s", "agent", Choice(), None), AcpPolicy(ask=True))
    outcomes = [
        await running.permission(Fields({"toolCall": SHELL | {"toolCallId": id}, "options": OPTIONS}))
        for id in ("1", "2")
    ]
    assert [str(outcome["outcome"]["optionId"]) for outcome in outcomes] == [first, second]
    assert person.asked == asked


async def test_rules_of_the_turn_need_no_question(tmp_path: Path) -> None:
    person, where = Willing(), str(tmp_path)
    turn = Turn(
        run_id="r", prompt="", model="auto", workspace=where, folder=where, approver=person, allow=["Shell(ls)"]
    )
    running = RunningTurn(turn, Session("s", "agent", Choice(), None), AcpPolicy(ask=True))
    assert (await running.permission(Fields({"toolCall": SHELL, "options": OPTIONS})))["outcome"][
        "optionId"
    ] == "allow-once"
    assert person.asked == 0


async def test_a_request_with_the_id_of_another_page_is_about_its_own_page(tmp_path: Path) -> None:
    """Each session counts its pages from 0, and a sub-agent has a session of its own."""
    person, where = Willing(Permission("deny")), str(tmp_path)
    turn = Turn(
        run_id="r",
        prompt="",
        model="auto",
        workspace=where,
        folder=where,
        approver=person,
        allow=["WebFetch(a.example)"],
    )
    running = RunningTurn(turn, Session("s", "agent", Choice(), None), AcpPolicy(ask=True))
    running.update({"sessionUpdate": "subagent_spawned", "subagentSessionId": "child", "name": "n"}, "s")
    answers = []
    for session, host in (("s", "a"), ("s", "a"), ("child", "a"), ("child", "b"), ("s", "b")):
        call = {"toolCallId": "web_fetch_0", "kind": "fetch", "title": f"Fetch https://{host}.example/x"}
        asked = {"sessionId": session, "toolCall": call, "options": OPTIONS}
        answers.append(await running.permission(Fields(asked)))
    assert [str(answer["outcome"]["optionId"]) for answer in answers] == ["allow-once"] * 3 + ["reject-once"] * 2
    assert person.asked == 2


@pytest.mark.parametrize(
    ("reported", "asked", "option"),
    [
        (SHELL, {"rawInput": {"command": "ls -la"}}, "allow-once"),
        (SHELL, {"rawInput": {"command": "rm a"}}, "reject-once"),
        (SHELL, {}, "allow-once"),
        (TITLED, {}, "allow-once"),
        (TITLED | {"title": "`ls`; rm a"}, {}, "reject-once"),
        (TITLED | {"title": "Runs `ls`"}, {}, "reject-once"),
        (TITLED | {"title": "ls"}, {}, "reject-once"),
        (EDIT, {}, "allow-once"),
        ({"toolCallId": "2", "kind": "edit", "title": "Edit `a`"}, {}, "allow-once"),
        ({"toolCallId": "2", "kind": "edit", "title": "Edit `a` and `/etc/passwd`"}, {}, "reject-once"),
        (EDIT, {"rawInput": {"path": "/etc/passwd"}}, "reject-once"),
        (EDIT, {"locations": [{"path": "/etc/passwd"}]}, "reject-once"),
        (EDIT, {"content": [{"type": "diff", "path": "/etc/passwd", "oldText": "a", "newText": "b"}]}, "reject-once"),
    ],
)
async def test_rules_judge_what_is_asked_for_not_what_was_reported_before(
    tmp_path: Path, reported: dict[str, Any], asked: dict[str, Any], option: str
) -> None:
    where, rules = str(tmp_path), ["Shell(ls)", "Write(a)"]
    turn = Turn(run_id="r", prompt="", model="auto", workspace=where, folder=where, allow=rules)
    running = RunningTurn(turn, Session("s", "agent", Choice(), None), AcpPolicy())
    running.update({"sessionUpdate": "tool_call", "status": "pending", **reported}, "s")
    call = {"toolCallId": reported["toolCallId"], **asked}
    assert (await running.permission(Fields({"sessionId": "s", "toolCall": call, "options": OPTIONS})))["outcome"][
        "optionId"
    ] == option


@pytest.mark.parametrize(
    ("path", "option"),
    [("a", "allow-once"), ("{w}/sub/a", "allow-once"), ("sub/out", "reject-once"), ("sub/far/x", "reject-once")],
)
@pytest.mark.parametrize("is_linked", [True, False])
async def test_a_link_does_not_lead_out_of_what_a_rule_allows(
    tmp_path: Path, path: str, option: str, *, is_linked: bool
) -> None:
    (tmp_path / "real" / "sub").mkdir(parents=True)
    (tmp_path / "real" / "sub" / "out").symlink_to("/etc/passwd")
    (tmp_path / "real" / "sub" / "far").symlink_to(tmp_path)
    (tmp_path / "linked").symlink_to(tmp_path / "real")  # that the workspace is a link changes nothing
    where = str(tmp_path / ("linked" if is_linked else "real"))
    turn = Turn(run_id="r", prompt="", model="auto", workspace=where, folder=where, allow=["Write(a)", "Write(sub/**)"])
    call = {"toolCallId": "1", "kind": "edit", "rawInput": {"path": path.format(w=where)}}
    running = RunningTurn(turn, Session("s", "agent", Choice(), None), AcpPolicy())
    assert (await running.permission(Fields({"sessionId": "s", "toolCall": call, "options": OPTIONS})))["outcome"][
        "optionId"
    ] == option


async def test_a_question_ends_when_its_agent_no_longer_waits(tmp_path: Path) -> None:
    class Silent(Willing):
        async def answer(self, call_id: str, question: Question) -> list[ClarificationAnswer] | None:
            await asyncio.Event().wait()
            return None

    turn = Turn(run_id="r", prompt="", model="auto", workspace="/w", folder=str(tmp_path), person=Silent())
    running = RunningTurn(turn, Session("s", "agent", Choice(), None), AcpPolicy(ask=True))
    running._call_shown.release()
    asking = asyncio.ensure_future(running.ask_user({"question": "Which?"}))
    while not running._questions:
        await asyncio.sleep(0)
    asking.cancel()
    await asyncio.wait([asking])
    assert [type(event).__name__ for event in running._events] == ["ToolStarted", "ToolEnded"]
