"""Decide by the operator's rules whether a call is allowed.

The rules are written as in the CLI's own configuration: `Shell(git)`, `Write(src/**)`, `Read(**)`, `Mcp(server:tool)`,
`WebFetch(example.com)`. Anything that cannot be parsed is denied.
"""

import re
from collections.abc import Sequence
from posixpath import join, normpath, relpath
from typing import Any

from cursor_gateway.sources.acp.calls import ToolCall
from cursor_gateway.sources.cursor.permissions import BREAK, HOST, parsed
from cursor_gateway.wire.payload import Fields

_HIDDEN = re.compile(r"\$\(|`|[<>]|\$\{|\\\n")  # may run more than is visible, or write files


def is_allowed(call: ToolCall, rules: Sequence[str], workspace: str) -> bool:
    args = Fields(call.args)
    match call.tool:
        case "shell":
            return _is_allowed_command(args.text("command"), parsed(rules, "Shell"))
        case "edit" | "write" | "delete":
            return _is_allowed_path(args.text("path"), parsed(rules, "Write"), workspace)
        case "read" | "ls" | "grep" | "glob":
            path = args.text("path", "targetDirectory") or workspace
            return _is_allowed_path(path, parsed(rules, "Read"), workspace)
        case "mcp":
            name = f"{call.server}:{args.text('toolName')}"
            return any(_matches(pattern, name, ".*") for pattern in parsed(rules, "Mcp"))
        case "webFetch":
            host = found[1] if (found := HOST.match(args.text("url"))) else ""
            return bool(host) and any(_matches(pattern, host, ".*") for pattern in parsed(rules, "WebFetch"))
        case _:
            return False


def option_for(options: Sequence[object], allow: bool) -> dict[str, Any]:
    """The answer to `session/request_permission`. Never "always", which would be saved in a configuration."""
    kind = "allow_once" if allow else "reject_once"
    for option in map(Fields, options):
        if option.text("kind") == kind and (id := option.text("optionId")):
            return {"outcome": {"outcome": "selected", "optionId": id}}
    return {"outcome": {"outcome": "cancelled"}}


def _is_allowed_command(command: str, patterns: list[str]) -> bool:
    """Whether every simple command in the line is allowed."""
    if not command.strip() or command.endswith("…"):
        return False
    if "*" in patterns:
        return True
    if _HIDDEN.search(command):
        return False
    commands = [one.strip() for one in BREAK.split(command) if one.strip()]
    return bool(commands) and all(any(_is_command(pattern, one) for pattern in patterns) for one in commands)


def _is_command(pattern: str, command: str) -> bool:
    """`Shell(git)`, `Shell(git status)` and `Shell(curl:*)` match the command with any arguments."""
    pattern = pattern.replace(":", " ", 1).removesuffix(" *")
    return _matches(pattern, command, ".*") or _matches(f"{pattern} *", command, ".*")


def _is_allowed_path(path: str, patterns: list[str], workspace: str) -> bool:
    if not path:
        return False
    whole = normpath(join(workspace, path))
    inside = relpath(whole, workspace)
    names = [whole] if inside.startswith("..") else [whole, inside]
    return any(_matches(pattern, name, "[^/]*") for pattern in patterns for name in names)


def _matches(pattern: str, name: str, star: str) -> bool:
    """`**` matches anything; `*` anything within one path component."""
    parts = re.split(r"(\*\*/?|\*)", pattern)
    expression = "".join(star if part == "*" else ".*" if part.startswith("**") else re.escape(part) for part in parts)
    return re.fullmatch(expression, name, re.DOTALL) is not None
