"""Decide by the operator's rules whether a call is allowed.

The rules are written as in the CLI's own configuration: `Shell(git)`, `Write(src/**)`, `Read(**)`, `Mcp(server:tool)`,
`WebFetch(example.com)`. Anything that cannot be parsed is not allowed by a rule.
"""

import re
from collections.abc import Sequence
from posixpath import join, normpath, relpath
from typing import Literal

from cursor_gateway.sources.cursor.permissions import host_of, parsed
from cursor_gateway.sources.cursor.shell_words import plain_commands

_COLON = re.compile(r"^([^\s:]+):")  # after the name of a program; an argument may have one, too


def is_allowed_command(command: str, rules: Sequence[str]) -> bool:
    """Whether the line has plain commands only, and each is allowed."""
    patterns = parsed(rules, "Shell")
    if not command.strip() or command.endswith("…"):
        return False
    if "*" in patterns:
        return True
    commands = plain_commands(command)
    return commands is not None and all(any(_is_command(pattern, one) for pattern in patterns) for one in commands)


def _is_command(pattern: str, command: str) -> bool:
    """`Shell(git)`, `Shell(git status)` and `Shell(curl:*)` match the command with any arguments."""
    pattern = _COLON.sub(r"\1 ", pattern).removesuffix(" *")
    return _matches(pattern, command, ".*") or _matches(f"{pattern} *", command, ".*")


def is_allowed_path(kind: Literal["Read", "Write"], path: str, rules: Sequence[str], workspace: str) -> bool:
    if not path:
        return False
    patterns = parsed(rules, kind)
    whole = normpath(join(workspace, path))
    inside = relpath(whole, workspace)
    names = [whole] if inside.startswith("..") else [whole, inside]
    return any(_matches(pattern, name, "[^/]*") for pattern in patterns for name in names)


def is_allowed_tool(server: str, tool: str, rules: Sequence[str]) -> bool:
    """An unknown server is empty: only a rule for all servers allows its tools."""
    for pattern in parsed(rules, "Mcp"):
        its_server, _, its_tool = ("*:*" if pattern == "*" else pattern).partition(":")
        if _matches(its_server, server, ".*") and _matches(its_tool, tool, ".*"):
            return True
    return False


def is_allowed_page(url: str, rules: Sequence[str]) -> bool:
    host = host_of(url)
    return bool(host) and any(_matches(pattern.lower(), host, ".*") for pattern in parsed(rules, "WebFetch"))


def _matches(pattern: str, name: str, star: str) -> bool:
    """`**` matches anything; `*` anything within one path component."""
    parts = re.split(r"(\*\*/?|\*)", pattern)
    expression = "".join(star if part == "*" else ".*" if part.startswith("**") else re.escape(part) for part in parts)
    return re.fullmatch(expression, name, re.DOTALL) is not None
