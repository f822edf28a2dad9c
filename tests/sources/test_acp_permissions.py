"""What the operator's rules allow: what was meant, and nothing beside it."""

import pytest

from cursor_gateway.sources.acp.calls import AcpCall
from cursor_gateway.sources.acp.permissions import is_allowed, option_for


def allowed(tool: str, rules: list[str], **args: object) -> bool:
    return is_allowed(AcpCall("1", tool, args=dict(args)), rules, "/w")


@pytest.mark.parametrize(
    ("command", "rules", "expected"),
    [
        ("git status", ["Shell(git)"], True),
        ("git status && git log -1 | head", ["Shell(git)", "Shell(head)"], True),
        ("git status", ["Shell(git status)"], True),
        ("git push", ["Shell(git status)"], False),
        ("curl x", ["Shell(curl:*)"], True),
        ("docker run a:b", ["Shell(docker run a:b)"], True),
        ("docker run a b", ["Shell(docker run a:b)"], False),
        ("gitk", ["Shell(git)"], False),
        ("git status", ["Shell(git.status)"], False),
        ("git status", ["Shell(g?it status)", "Shell([a-z ]+)"], False),
        ("git status; rm -rf /", ["Shell(git)"], False),
        ("git status & rm x", ["Shell(git)"], False),
        ("git status\nrm x", ["Shell(git)"], False),
        ("git log $(rm x)", ["Shell(git)"], False),
        ("git log `rm x`", ["Shell(git)"], False),
        ("git log > /etc/passwd", ["Shell(git)"], False),
        ("PATH=. git log", ["Shell(git)"], False),
        ("git lo…", ["Shell(git)"], False),
        ("", ["Shell(*)"], False),
        (";", ["Shell(git)"], False),
        ("anything $(at all)", ["Shell(*)"], True),
        ("git status", [], False),
        ("git status", ["Write(**)", "no rule"], False),
    ],
)
def test_commands(command: str, rules: list[str], expected: bool) -> None:
    assert allowed("shell", rules, command=command) is expected


@pytest.mark.parametrize(
    ("path", "rule", "expected"),
    [
        ("src/a/b.py", "Write(src/**)", True),
        ("/w/src/a.py", "Write(src/*)", True),
        ("/w/src/a/b.py", "Write(src/*)", False),
        ("src/../../etc/passwd", "Write(src/**)", False),
        ("src/../../etc/passwd", "Write(/w/src/**)", False),
        ("/w/src/../secret", "Write(/w/src/**)", False),
        ("../w/src/a.py", "Write(src/**)", True),
        ("/etc/passwd", "Write(/etc/*)", True),
        ("/etc/passwd", "Write(src/**)", False),
        ("a.py", "Write(**/*.py)", True),
        ("a.py", "Read(**)", False),
        ("", "Write(**)", False),
    ],
)
def test_files(path: str, rule: str, expected: bool) -> None:
    assert allowed("edit", [rule], path=path) is expected


@pytest.mark.parametrize(("tool", "kind"), [("edit", "Write"), ("read", "Read")])
def test_every_file_of_a_call_needs_a_rule(tool: str, kind: str) -> None:
    call = AcpCall("1", tool, args={"path": "src/a"}, places=[("/w/src/a", 1), ("/w/src/b", None)])
    assert is_allowed(call, [f"{kind}(src/**)"], "/w")
    call.places.append(("/etc/passwd", None))
    assert not is_allowed(call, [f"{kind}(src/**)"], "/w")


def test_other_tools() -> None:
    assert allowed("grep", ["Read(**)"])
    assert allowed("glob", ["Read(src)"], targetDirectory="src")
    assert not allowed("read", ["Read(src/**)"], path="/etc/passwd")
    assert allowed("mcp", ["Mcp(tracker:*)"], providerIdentifier="tracker", toolName="get")
    assert not allowed("mcp", ["Mcp(tracker:get)"], providerIdentifier="tracker", toolName="delete")
    assert not allowed("mcp", ["Mcp(tracker:*)"], providerIdentifier="tracker:evil", toolName="get")
    assert not allowed("mcp", ["Mcp(*:get)"], providerIdentifier="tracker", toolName="evil:get")
    assert allowed("mcp", ["Mcp(*)"], providerIdentifier="tracker", toolName="get")
    assert allowed("webFetch", ["WebFetch(*.example.com)"], url="https://docs.example.com/x")
    assert not allowed("webFetch", ["WebFetch(example.com)"], url="https://evil.org/example.com")
    assert not allowed("webFetch", ["WebFetch(*)"], url="file:///etc/passwd")
    for evil in (
        "https://evil.org?@good.com",
        "https://evil.org#@good.com",
        "https://evil.org\\@good.com/",
        "https://a@evil.org",
        "https://me@good.com:8080/x",
        "http://u:p@good.com:80@evil.com/",
    ):
        assert not allowed("webFetch", ["WebFetch(good.com)"], url=evil), evil
    assert allowed("webFetch", ["WebFetch(good.com)"], url="https://GOOD.com:8080/x")
    assert allowed("webFetch", ["WebFetch(Good.com)"], url="https://good.com")
    assert not allowed("task", ["Shell(*)", "Write(**)", "Read(**)", "Mcp(*)", "WebFetch(*)"])


def test_the_answer_is_never_for_always() -> None:
    options = [
        {"optionId": "allow-always", "kind": "allow_always"},
        {"optionId": "allow-once", "kind": "allow_once"},
        {"optionId": "reject-once", "kind": "reject_once"},
    ]
    assert option_for(options, True) == {"outcome": {"outcome": "selected", "optionId": "allow-once"}}
    assert option_for(options, False) == {"outcome": {"outcome": "selected", "optionId": "reject-once"}}
    assert option_for(options[:1], True) == {"outcome": {"outcome": "cancelled"}}
