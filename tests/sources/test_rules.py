"""The operator's rules: what they allow, and what nothing allows."""

import re
from posixpath import join, normpath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cursor_gateway.sources.cursor.rules import (
    is_allowed_command,
    is_allowed_page,
    is_allowed_path,
    is_allowed_tool,
)
from tests.laws.strategies import examples
from tests.render.test_html_safety import nasty


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
    assert is_allowed_command(command, rules) is (allowed and not command.endswith("…"))


def test_paths() -> None:
    rules = ["Write(src/**)", "Read(/etc/*)"]
    assert is_allowed_path("Write", "src/a/b.py", rules, "/w")
    assert is_allowed_path("Write", "/w/src/a.py", rules, "/w")
    assert not is_allowed_path("Write", "src/../b.py", rules, "/w")
    assert not is_allowed_path("Write", "", ["Write(**)"], "/w")
    assert is_allowed_path("Read", "/etc/hosts", rules, "/w")
    assert not is_allowed_path("Read", "/etc/a/b", rules, "/w")
    assert not is_allowed_path("Read", "/etc/../root/key", ["Read(/etc/**)"], "/w")
    assert not is_allowed_path("Read", "/etc/aXb", ["Read(/etc/a.b)"], "/w")


def test_tools_and_pages() -> None:
    assert is_allowed_tool("tracker", "get", ["Mcp(tracker:*)"])
    assert not is_allowed_tool("", "get", ["Mcp(tracker:get)"])
    assert is_allowed_tool("", "get", ["Mcp(*:get)"])
    assert is_allowed_tool("tracker", "get", ["Mcp(*)"])
    assert not is_allowed_tool("tracker:evil", "get", ["Mcp(tracker:*)"])
    assert not is_allowed_tool("tracker", "evil:get", ["Mcp(*:get)"])
    assert is_allowed_command("docker run a:b", ["Shell(docker run a:b)"])
    assert not is_allowed_command("docker run a b", ["Shell(docker run a:b)"])
    assert is_allowed_page("https://example.com/a", ["WebFetch(*.com)"])
    assert not is_allowed_page("nonsense", ["WebFetch(*)"])


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
            is_allowed_command(command, rules),
            is_allowed_path("Write", path, rules, "/w"),
            is_allowed_tool(server, name, rules),
            is_allowed_page(name, rules),
        ]

    assert not any(allowed([]))
    a_command, a_path, a_tool, a_page = by_rules = allowed(RULES)
    if a_command:
        assert not re.search(r"[`]|\$\(", re.sub("'[^']*'", "", command))
        assert not is_allowed_command(f"{command}; rm x", RULES)
    if a_path:
        assert normpath(join("/w", path)).startswith("/w/src/")
    assert a_tool == ((server, name) == ("tracker", "get"))
    assert not a_page or name.lower().startswith(("https://example.com", "http://example.com"))
    assert all(now or not before for before, now in zip(by_rules, allowed(RULES + others), strict=True))
