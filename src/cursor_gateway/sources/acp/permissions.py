"""Decide by the operator's rules whether a call is allowed, and how to say so to the agent."""

from collections.abc import Sequence
from typing import Any

from cursor_gateway.sources.acp.calls import AcpCall
from cursor_gateway.sources.cursor.rules import (
    is_allowed_command,
    is_allowed_page,
    is_allowed_path,
    is_allowed_tool,
)
from cursor_gateway.wire.payload import Fields


def is_allowed(call: AcpCall, rules: Sequence[str], workspace: str) -> bool:
    args = Fields(call.args)
    match call.tool:
        case "shell":
            return is_allowed_command(args.text("command"), rules)
        case "edit" | "write" | "delete":
            paths = [args.text("path"), *(path for path, _ in call.places)]
            return all(is_allowed_path("Write", path, rules, workspace) for path in paths)
        case "read" | "ls" | "grep" | "glob":
            paths = [args.text("path", "targetDirectory") or workspace, *(path for path, _ in call.places)]
            return all(is_allowed_path("Read", path, rules, workspace) for path in paths)
        case "mcp":
            return is_allowed_tool(call.server, args.text("toolName"), rules)
        case "webFetch":
            return is_allowed_page(args.text("url"), rules)
        case _:
            return False


def option_for(options: Sequence[object], allow: bool) -> dict[str, Any]:
    """The answer to `session/request_permission`. Never "always", which would be saved in a configuration."""
    kind = "allow_once" if allow else "reject_once"
    for option in map(Fields, options):
        if option.text("kind") == kind and (id := option.text("optionId")):
            return {"outcome": {"outcome": "selected", "optionId": id}}
    return {"outcome": {"outcome": "cancelled"}}
