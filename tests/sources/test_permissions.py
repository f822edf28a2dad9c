"""Which rules a call needs, and that no rule is wider than what is shown."""

import re
from posixpath import join, normpath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from cursor_gateway.model.agent_events import Outcome
from cursor_gateway.model.documents import PermissionRequest
from cursor_gateway.sources.cursor import permissions
from tests.laws.strategies import examples
from tests.render.test_html_safety import any_json, nasty


def test_what_is_no_rule_is_found() -> None:
    wrong = ["git", "Shell()", "Fly(away)", "not Shell(git)", "Shell(git) or more"]
    assert permissions.wrong_rules(["Shell(git)", *wrong]) == wrong
    assert permissions.parsed(["Shell(git)", "Write(x)", "Shell(npm test)", *wrong], "Shell") == ["git", "npm test"]


@pytest.mark.parametrize(
    ("command", "rules"),
    [
        ("npm test", ["Shell(npm)"]),
        ("  ./run.sh --fast", ["Shell(./run.sh)"]),
        ("CI=1 NAME='a b' npm test", ["Shell(npm)"]),
        ("cd web && npm ci; npm test | tail -5", ["Shell(cd)", "Shell(npm)", "Shell(tail)"]),
        ("(cd web; ls)", ["Shell(cd)", "Shell(ls)"]),
        ("! grep x y", ["Shell(grep)"]),
        ("g++ a.cc", ["Shell(g++)"]),
        ('git commit -m "fix; tidy | up"', ["Shell(git)"]),
        ("npm test > out.txt 2>&1 && cat < in", ["Shell(npm)", "Shell(cat)"]),
        ("> out.txt npm test", ["Shell(npm)"]),
        ("for f in a b; do wc $f; done", ["Shell(wc)"]),
        ("cat > a <<EOF\nrm -rf x\nEOF", ["Shell(cat)"]),
        ("ls\npwd", ["Shell(ls)", "Shell(pwd)"]),
    ],
)
def test_the_rules_of_a_command(command: str, rules: list[str]) -> None:
    assert permissions.needed("shell", {"command": command}) == PermissionRequest(subject=command, rules=rules)


@pytest.mark.parametrize(
    "command",
    [
        "",
        "  ",
        ";;",
        "* x",
        "ls; *",
        "$(x) y",
        "`x`",
        "it's",
        '"my program"',
        "A=1",
        "echo " + "x" * 10_000,
        " && ".join("abcdefghijklmnopqrstu"),
    ],
)
def test_what_cannot_be_named_exactly_has_no_rule(command: str) -> None:
    assert permissions.needed("shell", {"command": command}) is None


@pytest.mark.parametrize(
    ("tool", "args", "request_"),
    [
        (
            "mcp",
            {"toolName": "get", "providerIdentifier": "tracker"},
            PermissionRequest(subject="tracker: get", rules=["Mcp(tracker:get)"]),
        ),
        (
            "mcp",
            {"toolName": "get", "name": "tracker-get"},
            PermissionRequest(subject="tracker: get", rules=["Mcp(tracker:get)"]),
        ),
        ("mcp", {"toolName": "*", "providerIdentifier": "tracker"}, None),
        ("mcp", {"toolName": "get", "providerIdentifier": "*"}, None),
        ("mcp", {}, None),
        (
            "webFetch",
            {"url": "https://example.com/a?b"},
            PermissionRequest(subject="https://example.com/a?b", rules=["WebFetch(example.com)"]),
        ),
        ("webFetch", {"url": "file:///etc/passwd"}, None),
        ("webFetch", {"url": "https://*/"}, None),
        ("webSearch", {"searchTerm": "x"}, None),
        ("edit", {"path": "a"}, None),
        ("shell", None, None),
    ],
)
def test_other_tools(tool: str, args: object, request_: PermissionRequest | None) -> None:
    assert permissions.needed(tool, args) == request_


def test_a_rejection_says_what_to_do() -> None:
    request = PermissionRequest(subject="npm test", rules=["Shell(npm)"])
    rejected = Outcome(state="rejected", code="REJECTED", message="User Rejected", details="npm test", duration_ms=3)
    result = permissions.explained(rejected, request)
    assert result.message == "Not run: no rule allows it. Allow it, or add `Shell(npm)` to the setting `allow`."
    assert (result.state, result.code, result.details, result.duration_ms) == ("rejected", "NOT_ALLOWED", "npm test", 3)
    assert result.permission == request
    assert permissions.explained(rejected, None) is rejected
    failed = Outcome(state="failed")
    assert permissions.explained(failed, request) is failed


# --- Command lines ---------------------------------------------------------------------------------

PLAIN = {
    "git status": ["git status"],
    "  git   status  ": ["git status"],
    "git log -1 --format=%h && npm run test:unit|tail -n 5; echo done": [
        "git log -1 --format=%h",
        "npm run test:unit",
        "tail -n 5",
        "echo done",
    ],
    "a || b": ["a", "b"],
    "git commit -m 'Mend the login; (again) & more <now>'": ["git commit -m 'Mend the login; (again) & more <now>'"],
    'git commit -m "Größe {a,b} *"': ['git commit -m "Größe {a,b} *"'],
    "./run.sh --to=a@b.c": ["./run.sh --to=a@b.c"],
    "x a'b c'd": ["x a'b c'd"],
    "cd web && npm test": ["cd web", "npm test"],
}


@pytest.mark.parametrize(("line", "commands"), PLAIN.items())
def test_plain_lines(line: str, commands: list[str]) -> None:
    assert permissions.plain_commands(line) == commands


MORE = [
    # substitutions, in every quoting
    "echo $(id)",
    "echo `id`",
    "echo ${x}",
    "echo $x",
    'echo "$(id)"',
    "echo '$(id)'",
    "echo '`id`'",
    "echo =(id)",
    "echo =id",
    "echo <(id)",
    "echo >(id)",
    "echo *(e:'id':)",
    "echo (id)",
    "echo $'x[\\x24(id)]'",
    # characters that expand
    "echo ~",
    "echo *",
    "echo ?",
    "echo [a]",
    "echo {a,b}",
    "echo !!",
    'echo "!!"',
    "echo ^a^b",
    "echo #x",
    "# x",
    # more than words
    "echo a > b",
    "echo a < b",
    "echo a &",
    "echo a &! echo b",
    "echo a |& cat",
    "echo a ;; echo b",
    "echo a;",
    "echo a &&",
    "&& echo a",
    "; echo",
    "",
    "   ",
    "{ echo a; }",
    "(echo a)",
    "! echo a",
    # assignments
    "PATH=. git",
    "x+=1",
    "a[1]=2",
    # builtins that evaluate, and keywords
    "printf -v x y",
    "test -v x",
    "[ 1 -eq 1 ]",
    "read x",
    "export A=1",
    "declare x",
    "let x",
    "eval id",
    ". ./x",
    "source x",
    "exec id",
    "command id",
    "builtin echo",
    "trap id EXIT",
    "alias x=id",
    "noglob id",
    "time id",
    "- id",
    "if id",
    "echo a; eval id",
    # quotes and escapes
    "echo 'a",
    'echo "a',
    "echo a\\",
    "echo \\a",
    "echo 'a\\'",
    "'echo' a",
    "e'ch'o a",
    # characters that look like a blank or a line end, or are invisible
    "echo a\nid",
    "echo a\rid",
    "echo a\tid",
    "echo\u00a0id",
    "echo\u3000a",
    "echo a\u2028id",
    "echo 'a\nid'",
    "echo 'a\x00'",
    "echo 'a\x1b'",
    "echo a\x00",
    "echo é",
    "git lo…",
    # names
    "%1",
    "-x",
    "+x",
    "@x",
    "=ls",
]


@pytest.mark.parametrize("line", MORE)
def test_lines_that_are_more(line: str) -> None:
    assert permissions.plain_commands(line) is None


def test_harmless_builtins_are_like_programs() -> None:
    for name in ("cd", "echo", "false", "pwd", "true"):
        assert permissions.plain_commands(f"{name} a") == [f"{name} a"]


# --- Calls that a rule allows ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "rules", "allowed"),
    [
        ("git status", ["Shell(git)"], True),
        ("git status", ["Shell(git status)"], True),
        ("git push", ["Shell(git status)"], False),
        ("gitk", ["Shell(git)"], False),
        ("curl -s x", ["Shell(curl:*)"], True),
        ("git log | head; ls && git diff", ["Shell(git)", "Shell(head)", "Shell(ls)"], True),
        ("git log; rm x", ["Shell(git)"], False),
        ("git log $(rm x)", ["Shell(git)"], False),
        ("git log > x", ["Shell(git)"], False),
        ("git log > x", ["Shell(*)"], True),
        ("git log …", ["Shell(git)"], True),
        ("git log…", ["Shell(*)"], False),
        ("", ["Shell(*)"], False),
        (" ; ", ["Shell(git)"], False),
        ("git status", ["Mcp(git)"], False),
    ],
)
def test_commands(command: str, rules: list[str], allowed: bool) -> None:
    assert permissions.is_allowed_command(command, rules) is (allowed and not command.endswith("…"))


def test_paths() -> None:
    rules = ["Write(src/**)", "Read(/etc/*)"]
    assert permissions.is_allowed_path("Write", "src/a/b.py", rules, "/w")
    assert permissions.is_allowed_path("Write", "/w/src/a.py", rules, "/w")
    assert not permissions.is_allowed_path("Write", "src/../b.py", rules, "/w")
    assert not permissions.is_allowed_path("Write", "", ["Write(**)"], "/w")
    assert permissions.is_allowed_path("Read", "/etc/hosts", rules, "/w")
    assert not permissions.is_allowed_path("Read", "/etc/a/b", rules, "/w")
    assert not permissions.is_allowed_path("Read", "/etc/../root/key", ["Read(/etc/**)"], "/w")
    assert not permissions.is_allowed_path("Read", "/etc/aXb", ["Read(/etc/a.b)"], "/w")


def test_tools_and_pages() -> None:
    assert permissions.is_allowed_tool("tracker", "get", ["Mcp(tracker:*)"])
    assert not permissions.is_allowed_tool("", "get", ["Mcp(tracker:get)"])
    assert permissions.is_allowed_tool("", "get", ["Mcp(*:get)"])
    assert permissions.is_allowed_tool("tracker", "get", ["Mcp(*)"])
    assert not permissions.is_allowed_tool("tracker:evil", "get", ["Mcp(tracker:*)"])
    assert not permissions.is_allowed_tool("tracker", "evil:get", ["Mcp(*:get)"])
    assert permissions.is_allowed_command("docker run a:b", ["Shell(docker run a:b)"])
    assert not permissions.is_allowed_command("docker run a b", ["Shell(docker run a:b)"])
    assert permissions.is_allowed_page("https://example.com/a", ["WebFetch(*.com)"])
    assert not permissions.is_allowed_page("nonsense", ["WebFetch(*)"])


# --- generated calls ------------------------------------------------------------------------------------

RULES = ["Shell(git)", "Write(src/**)", "Mcp(tracker:get)", "WebFetch(example.com)"]
COMMANDS = st.lists(
    st.sampled_from(["git status", "rm x", "&&", ";", "|", "\n", "$(x)", "`x`", ">", "'", " "]) | nasty, max_size=6
).map("".join)
PATHS = st.lists(st.sampled_from(["src", "..", "/", "a", "/w/"]) | nasty, max_size=6).map("/".join)
NAMES = st.sampled_from(["tracker", "get", "", "https://example.com", "https://example.com@x.org/"]) | nasty


@examples(200)
@given(COMMANDS, PATHS, NAMES, NAMES, st.lists(st.sampled_from(RULES) | nasty, max_size=4))
def test_only_a_rule_allows_a_call(command: str, path: str, server: str, name: str, others: list[str]) -> None:
    def allowed(rules: list[str]) -> list[bool]:
        return [
            permissions.is_allowed_command(command, rules),
            permissions.is_allowed_path("Write", path, rules, "/w"),
            permissions.is_allowed_tool(server, name, rules),
            permissions.is_allowed_page(name, rules),
        ]

    assert not any(allowed([]))
    a_command, a_path, a_tool, a_page = by_rules = allowed(RULES)
    if a_command:
        assert not re.search(r"[`]|\$\(", re.sub("'[^']*'", "", command))
        assert not permissions.is_allowed_command(f"{command}; rm x", RULES)
    if a_path:
        assert normpath(join("/w", path)).startswith("/w/src/")
    assert a_tool == ((server, name) == ("tracker", "get"))
    assert not a_page or name.lower().startswith(("https://example.com", "http://example.com"))
    assert all(now or not before for before, now in zip(by_rules, allowed(RULES + others), strict=True))


# --- Calls that a hook asks about ------------------------------------------------------------------

FORCED = permissions.Policy(force=True, data="/data")
CAREFUL = permissions.Policy(force=False, data="/data", rules=["Shell(git)", "Mcp(*:search)"])
ASKING = permissions.Policy(force=True, mode="ask", data="/data")
PLANNING = permissions.Policy(force=True, mode="plan", data="/data")
CONFINED = permissions.Policy(force=True, is_confined=True, data="/data")


def call(tool: str, place: str = "", **args: Any) -> permissions.AskedCall:
    return permissions.AskedCall("session", tool, args, place)


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
def test_what_a_run_may_do(
    policy: permissions.Policy, allowed: list[permissions.AskedCall], denied: list[permissions.AskedCall]
) -> None:
    for one in allowed:
        assert permissions.refusal(one, policy) is None
    for one in denied:
        refused = permissions.refusal(one, policy)
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
        (permissions.AskedCall("s", "MCP:other", {}, "", server="tracker"), "tracker: other", ["Mcp(tracker:other)"]),
        (call("WebFetch", url="https://example.com/a"), "https://example.com/a", ["WebFetch(example.com)"]),
        (call("WebFetch"), "WebFetch", []),
        (call("New"), "New", []),
    ],
)
def test_what_a_person_is_asked(asked: permissions.AskedCall, subject: str, rules: list[str]) -> None:
    refused = permissions.refusal(asked, CAREFUL)
    assert refused is not None
    assert refused.request is not None
    assert (refused.request.subject, refused.request.rules) == (subject, rules)
    if rules:  # which are then enough
        assert permissions.refusal(asked, permissions.Policy(force=False, data="/data", rules=rules)) is None


@pytest.mark.parametrize("policy", [CAREFUL, ASKING, PLANNING])
def test_the_user_may_be_asked_in_any_mode(policy: permissions.Policy) -> None:
    asking = replace(policy, user_tool="ask_user_7")
    assert permissions.refusal(call("MCP:ask_user_7"), asking) is None
    for policy_, tool in (
        (asking, "MCP:ask_user"),
        (asking, "ask_user_7"),
        (policy, "MCP:ask_user_7"),
        (policy, "MCP:"),
    ):
        assert permissions.refusal(call(tool), policy_) is not None


@pytest.mark.parametrize("place", ["/data", "/data/sdk/home/.cursor/hooks.json", ""])
def test_the_gateways_own_files_stay_as_they_are(place: str) -> None:
    refused = permissions.refusal(call("Write", place), CAREFUL)
    assert refused is not None
    assert (refused.reason, refused.request) == ("These files belong to the gateway.", None)
    assert permissions.refusal(call("Write", "/database"), CAREFUL) is None


def test_a_call_of_an_uncertain_run_needs_what_all_allow() -> None:
    assert permissions.common_refusal(TOUCH, [FORCED]) is None
    assert permissions.common_refusal(TOUCH, [FORCED, CAREFUL]) == permissions.refusal(TOUCH, CAREFUL)
    assert permissions.common_refusal(READ, [FORCED, CONFINED]) is not None
    unknown = permissions.common_refusal(READ, [])
    assert unknown is not None
    assert unknown.reason == "The gateway does not know this run."


TOOLS = st.sampled_from(["Read", "Grep", "Write", "Delete", "Shell", "MCP:search", "MCP:other", "Task"]) | nasty
ARGS = st.sampled_from([{"command": "git log"}, {"command": "git log; rm a"}]) | any_json
PLACES = st.sampled_from(["", "/w/a", "/data", "/data/a", "/database"]) | nasty
POLICIES = st.lists(st.sampled_from([FORCED, CAREFUL, ASKING, PLANNING, CONFINED]), max_size=3)


@examples(200)
@given(st.builds(permissions.AskedCall, nasty, TOOLS, ARGS, PLACES), POLICIES)
def test_no_call_is_allowed_that_a_policy_forbids(
    asked: permissions.AskedCall, active: list[permissions.Policy]
) -> None:
    reasons = [permissions.refusal(asked, policy) for policy in active]
    assert (permissions.common_refusal(asked, active) is None) == (bool(active) and not any(reasons))
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
