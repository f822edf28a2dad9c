"""What the agent may do, by the policy of its run."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from cursor_gateway.sources.cursor.hook_rules import AskedCall, Policy, common_refusal, refusal
from tests.laws.strategies import examples
from tests.render.test_html_safety import any_json, nasty

FORCED = Policy(force=True, data="/data")
CAREFUL = Policy(force=False, data="/data", rules=["Shell(git)", "Mcp(*:search)"])
ASKING = Policy(force=True, mode="ask", data="/data")
PLANNING = Policy(force=True, mode="plan", data="/data")
CONFINED = Policy(force=True, is_confined=True, data="/data")


def call(tool: str, place: str = "", **args: Any) -> AskedCall:
    return AskedCall("session", tool, args, place)


READ, EDIT, DELETE = call("Read", "/w/a"), call("Write", "/w/a"), call("Delete", "/w/a")
GIT, TOUCH = call("Shell", command="git status"), call("Shell", command="touch a")
SEARCH, OTHER = call("MCP:search"), call("MCP:other")


@pytest.mark.parametrize(
    ("policy", "allowed", "denied"),
    [
        (FORCED, [READ, EDIT, DELETE, GIT, TOUCH, SEARCH, call("New")], []),
        (CAREFUL, [READ, EDIT, DELETE, GIT, SEARCH, call("Grep"), call("List")], [TOUCH, OTHER, call("New")]),
        (ASKING, [READ, call("Grep"), call("List")], [EDIT, DELETE, GIT, SEARCH, call("New")]),
        (PLANNING, [READ], [EDIT, DELETE, GIT, TOUCH, OTHER]),
        (CONFINED, [SEARCH, OTHER], [READ, EDIT, DELETE, GIT, call("Grep"), call("New")]),
    ],
)
def test_what_a_run_may_do(policy: Policy, allowed: list[AskedCall], denied: list[AskedCall]) -> None:
    for one in allowed:
        assert refusal(one, policy) is None
    for one in denied:
        refused = refusal(one, policy)
        assert refused is not None
        assert refused.reason.endswith(".")
        assert (refused.request is not None) == policy.may_ask  # a person can allow what only lacks a rule
    assert policy.may_ask == (policy is CAREFUL)


@pytest.mark.parametrize(
    ("asked", "subject", "rules"),
    [
        (TOUCH, "touch a", ["Shell(touch)"]),
        (call("Shell", command="echo 'a"), "echo 'a", []),
        (OTHER, "other", []),
        (AskedCall("s", "MCP:other", {}, "", server="tracker"), "tracker: other", ["Mcp(tracker:other)"]),
        (call("WebFetch", url="https://example.com/a"), "https://example.com/a", ["WebFetch(example.com)"]),
        (call("WebFetch"), "WebFetch", []),
        (call("New"), "New", []),
    ],
)
def test_what_a_person_is_asked(asked: AskedCall, subject: str, rules: list[str]) -> None:
    refused = refusal(asked, CAREFUL)
    assert refused is not None
    assert refused.request is not None
    assert (refused.request.subject, refused.request.rules) == (subject, rules)
    if rules:  # which are then enough
        assert refusal(asked, Policy(force=False, data="/data", rules=rules)) is None


@pytest.mark.parametrize("policy", [CAREFUL, ASKING, PLANNING])
def test_the_user_may_be_asked_in_any_mode(policy: Policy) -> None:
    asking = replace(policy, user_tool="ask_user_7")
    assert refusal(call("MCP:ask_user_7"), asking) is None
    for policy_, tool in (
        (asking, "MCP:ask_user"),
        (asking, "ask_user_7"),
        (policy, "MCP:ask_user_7"),
        (policy, "MCP:"),
    ):
        assert refusal(call(tool), policy_) is not None


@pytest.mark.parametrize("place", ["/data", "/data/sdk/home/.cursor/hooks.json", ""])
def test_the_gateways_own_files_stay_as_they_are(place: str) -> None:
    refused = refusal(call("Write", place), CAREFUL)
    assert refused is not None
    assert (refused.reason, refused.request) == ("These files belong to the gateway.", None)
    assert refusal(call("Write", "/database"), CAREFUL) is None


def test_a_call_of_an_uncertain_run_needs_what_all_allow() -> None:
    assert common_refusal(TOUCH, [FORCED]) is None
    assert common_refusal(TOUCH, [FORCED, CAREFUL]) == refusal(TOUCH, CAREFUL)
    assert common_refusal(READ, [FORCED, CONFINED]) is not None
    unknown = common_refusal(READ, [])
    assert unknown is not None
    assert unknown.reason == "The gateway does not know this run."


TOOLS = st.sampled_from(["Read", "Grep", "Write", "Delete", "Shell", "MCP:search", "MCP:other", "Task"]) | nasty
ARGS = st.sampled_from([{"command": "git log"}, {"command": "git log; rm a"}]) | any_json
PLACES = st.sampled_from(["", "/w/a", "/data", "/data/a", "/database"]) | nasty
POLICIES = st.lists(st.sampled_from([FORCED, CAREFUL, ASKING, PLANNING, CONFINED]), max_size=3)


@examples(200)
@given(st.builds(AskedCall, nasty, TOOLS, ARGS, PLACES), POLICIES)
def test_no_call_is_allowed_that_a_policy_forbids(asked: AskedCall, active: list[Policy]) -> None:
    reasons = [refusal(asked, policy) for policy in active]
    assert (common_refusal(asked, active) is None) == (bool(active) and not any(reasons))
    for policy, reason in zip(active, reasons, strict=True):
        reads, is_callers = asked.tool in ("Read", "Grep", "List", "LS", "Glob"), asked.tool.startswith("MCP:")
        if policy is CONFINED:
            assert (reason is None) == is_callers
        elif policy in (ASKING, PLANNING):
            assert (reason is None) == reads
        elif policy is CAREFUL and reason is None and not reads:
            assert asked.tool in ("Write", "Delete", "Edit", "Shell", "MCP:search")
            assert asked.tool != "Shell" or asked.args["command"] == "git log"
            assert asked.tool not in ("Write", "Delete", "Edit") or not f"{asked.place}/".startswith("/data/")
