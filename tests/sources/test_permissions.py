"""Which rules a call needs, and that no rule is wider than what is shown."""

import pytest

from cursor_gateway.model.agent_events import Outcome
from cursor_gateway.model.documents import PermissionRequest
from cursor_gateway.sources.cursor.permissions import explained, needed, parsed, wrong_rules


def test_what_is_no_rule_is_found() -> None:
    wrong = ["git", "Shell()", "Fly(away)", "not Shell(git)", "Shell(git) or more"]
    assert wrong_rules(["Shell(git)", *wrong]) == wrong
    assert parsed(["Shell(git)", "Write(x)", "Shell(npm test)", *wrong], "Shell") == ["git", "npm test"]


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
    assert needed("shell", {"command": command}) == PermissionRequest(subject=command, rules=rules)


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
    assert needed("shell", {"command": command}) is None


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
    assert needed(tool, args) == request_


def test_a_rejection_says_what_to_do() -> None:
    request = PermissionRequest(subject="npm test", rules=["Shell(npm)"])
    rejected = Outcome(state="rejected", code="REJECTED", message="User Rejected", details="npm test", duration_ms=3)
    result = explained(rejected, request)
    assert result.message == "Not run: no rule allows it. Allow it, or add `Shell(npm)` to the setting `allow`."
    assert (result.state, result.code, result.details, result.duration_ms) == ("rejected", "NOT_ALLOWED", "npm test", 3)
    assert result.permission == request
    assert explained(rejected, None) is rejected
    failed = Outcome(state="failed")
    assert explained(failed, request) is failed
