"""One turn of the CLI whose calls a hook asks the gateway about: a socket, the agent's configuration, and its events.

The agent's own rules allow every command and every tool of MCP servers, so that only the hook decides. That is safe
with a build that waits for its hooks and obeys them, and with no other.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct

from cursor_gateway.errors import AgentMisconfigured
from cursor_gateway.model.agent_events import AgentEvent, RunStarted
from cursor_gateway.sources.base import Turn
from cursor_gateway.sources.cursor.approvals import Approvals
from cursor_gateway.sources.cursor.command import Program
from cursor_gateway.sources.cursor.configuration import HOOKS, unusable
from cursor_gateway.sources.cursor.hook_rules import Policy
from cursor_gateway.sources.cursor.hook_server import HookServer
from cursor_gateway.sources.cursor.hooks_file import hooks_file, read_hooks
from cursor_gateway.sources.private_files import data_of, private_folder, write_private

_RULES = ("Shell(*)", "Mcp(*:*)")  # what the hook decides about
_UNKNOWN = ""  # a session whose id the agent has not reported yet


class HookOptions(Struct, frozen=True, kw_only=True):
    is_verified: Callable[[str], bool]  # whether this version of the agent was seen to obey hooks
    permissions: Literal["deny", "ask"] = "ask"  # for what no rule allows


def unverified(program: Program, options: HookOptions) -> str:
    """Why this version must not be used, because it might make calls without waiting for the hook; empty if it may."""
    if options.is_verified(program.version):
        return ""
    return (
        f'`approvals = "hooks"` cannot be used: it is not known whether cursor-agent {program.version} waits for its '
        "hooks; if it does not, every command would run. Run `cursor-gateway verify --source cli`, or set "
        '`approvals` to "agent".'
    )


class HookedTurn:
    """`start` before the agent; `close` must be awaited, after the agent has ended."""

    def __init__(self, turn: Turn, rules: Sequence[str], user_tool: str, options: HookOptions) -> None:
        """`user_tool` is the name of the tool with which the agent asks its user; empty if it has none."""
        policy = Policy(
            force=False,
            mode=turn.mode,
            rules=rules,
            user_tool=user_tool,
            data=os.path.realpath(data_of(turn.folder)),
        )
        person = turn.approver if options.permissions == "ask" else None
        self.approvals = Approvals(policy, os.path.realpath(turn.workspace), person)
        self._options, self._server = options, HookServer()

    async def start(self, program: Program) -> None:
        """Raises a `GatewayError`."""
        if why := unverified(program, self._options):
            raise AgentMisconfigured(why)
        try:
            await self._server.start()
        except OSError as error:
            raise unusable(error) from error
        self._server.add(_UNKNOWN, self.approvals)

    def configure(self, original: Path, configuration: str, data: str) -> list[str]:
        """Adds the hook to the agent's configuration, before those of the user. Returns the rules that the agent needs.

        Raises a `GatewayError`.
        """
        try:
            content = hooks_file(self._server.socket, read_hooks(original / HOOKS))
            with private_folder(data, configuration) as folder:
                write_private(folder, HOOKS, content)
        except OSError as error:
            raise unusable(error) from error
        return list(_RULES)

    def passed(self, events: Sequence[AgentEvent]) -> list[AgentEvent]:
        """The agent's events, after those of its questions."""
        for event in events:
            if isinstance(event, RunStarted):
                self._server.rename(_UNKNOWN, event.session_id)
        return self.approvals.passed(events)

    async def close(self) -> None:
        self.approvals.close()
        await self._server.close()
