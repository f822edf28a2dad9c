"""Decide whether a call of the agent is allowed: what its hook asks in, why it is not allowed out.

Cursor's servers are told which tools a run may use, but the agent's runtime executes whatever they send. So what is
denied is denied here as well.
"""

from collections.abc import Collection, Sequence
from typing import Any

from msgspec import Struct

from cursor_gateway.model.documents import Mode, PermissionRequest
from cursor_gateway.sources.cursor.permissions import needed
from cursor_gateway.sources.cursor.rules import is_allowed_command, is_allowed_page, is_allowed_tool
from cursor_gateway.wire.payload import Fields

MCP = "MCP:"  # before the name of a server's tool
_READING = frozenset({"Read", "Grep", "List", "LS", "Glob"})
_WRITING = frozenset({"Write", "Delete", "Edit"})

_UNKNOWN = "The gateway does not know this run."


class Policy(Struct, frozen=True, kw_only=True):
    """What a run may do."""

    force: bool  # everything
    mode: Mode = "agent"
    is_confined: bool = False  # to the caller's tools
    rules: Sequence[str] = ()
    user_tool: str = ""  # with which the agent asks its user, in any mode; no other tool has this name
    data: str  # the gateway's own folder, without links, which no tool may change

    @property
    def may_ask(self) -> bool:
        """Whether there is anything that a person could allow."""
        return not self.force and not self.is_confined and self.mode not in ("ask", "plan")

    def is_users(self, tool: str) -> bool:
        return bool(self.user_tool) and tool == f"{MCP}{self.user_tool}"


class AskedCall(Struct, frozen=True):
    """What the hook is told."""

    conversation: str  # the agent's session
    tool: str
    args: Any
    place: str  # the file or folder that it names, without links; empty if there is none
    workspace: str = ""  # without links
    server: str = ""  # of an MCP tool; the hook is not told, so this comes from elsewhere


class Refusal(Struct, frozen=True):
    """Why a call is not allowed."""

    reason: str
    request: PermissionRequest | None = None  # what a person could allow; None: nobody can


def refusal(call: AskedCall, policy: Policy) -> Refusal | None:
    """None: it is allowed."""
    tool = call.tool
    if policy.is_users(tool):
        return None
    if policy.is_confined:
        return None if tool.startswith(MCP) else Refusal("This run may use only the tools of its caller.")
    if policy.mode in ("ask", "plan"):
        return None if tool in _READING else Refusal(f"The mode `{policy.mode}` only reads.")
    if policy.force or tool in _READING:
        return None
    if tool in _WRITING:
        is_own = f"{call.place}/".startswith(f"{policy.data}/")
        return Refusal("These files belong to the gateway.") if is_own or not call.place else None
    args = Fields(call.args)
    if tool == "Shell":
        command = args.text("command")
        if is_allowed_command(command, policy.rules):
            return None
        return _unruled("command", "Shell(…)", needed("shell", {"command": command}), command)
    if tool.startswith(MCP):
        name = tool.removeprefix(MCP)
        if is_allowed_tool(call.server, name, policy.rules):
            return None
        about = {"toolName": name, "providerIdentifier": call.server}
        return _unruled("tool", f"Mcp({call.server or '*'}:{name})", needed("mcp", about), name)
    if tool == "WebFetch":
        url = args.text("url")
        if is_allowed_page(url, policy.rules):
            return None
        return _unruled("page", "WebFetch(…)", needed("webFetch", {"url": url}), url or tool)
    return Refusal(f"The gateway does not know the tool {tool}.", PermissionRequest(subject=tool, rules=[]))


def common_refusal(call: AskedCall, policies: Collection[Policy]) -> Refusal | None:
    """For a call of one of several runs, of which it is not known which: all of them must allow it."""
    if not policies:
        return Refusal(_UNKNOWN)
    return next((found for policy in policies if (found := refusal(call, policy)) is not None), None)


def _unruled(what: str, rule: str, request: PermissionRequest | None, subject: str) -> Refusal:
    return Refusal(
        f"Not run: no rule allows this {what}. Allow it, or add `{rule}` to the setting `allow`.",
        request or PermissionRequest(subject=subject, rules=[]),
    )
