"""A call and the files with hooks in; whether one of them blocks it, and why, out.

As in 2026.10.01 and in the runtime of the SDK: all hooks run, one that denies is enough. A hook gets 60 s unless it has
a `timeout` of its own; what fails or takes longer blocks nothing, unless it is `failClosed`. `ask` counts as `allow`.
"""

import json
import subprocess

from tests.agent.config import below, read_json
from tests.agent.emitter import Record

_NOTE = "\n\nAgent note: Do not suggest workarounds to the blocked tool."
_SECONDS = 60.0


def reason_to_block(files: list[str], session: str, workspace: str, tool: str, args: Record) -> str:
    """Empty: it may be made."""
    told = {
        "conversation_id": session,
        "generation_id": session,
        "model": "unknown",
        "tool_name": tool,
        "tool_input": args,
        "tool_use_id": session,
        "session_id": session,
        "hook_event_name": "preToolUse",
        "workspace_roots": [workspace],
    }
    reasons = [_asked(hook, json.dumps(told), workspace, tool) for hook in _hooks(files)]
    found = next(filter(None, reasons), "")
    return f"{found}{_NOTE}" if found else ""


def _hooks(files: list[str]) -> list[Record]:
    found: list[Record] = []
    for file in files:
        hooks = below(read_json(file), "hooks", "preToolUse")
        found += [hook for hook in hooks if isinstance(hook, dict)] if isinstance(hooks, list) else []
    return found


def _asked(hook: Record, told: str, workspace: str, tool: str) -> str:
    command, fails_closed = str(hook["command"]), hook.get("failClosed") is True
    timeout = hook.get("timeout")
    seconds = float(timeout) if isinstance(timeout, int | float) else _SECONDS
    try:
        done = subprocess.run(
            ["sh", "-c", command],
            input=told,
            capture_output=True,
            text=True,
            timeout=seconds,
            cwd=workspace,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f'Hook "{command}" execution failed: {error}' if fails_closed else ""
    if done.returncode == 2:
        return done.stdout.strip() or f"Hook blocked with message: {done.stderr.strip()}"
    if done.returncode != 0:
        return f'Hook "{command}" failed with exit code {done.returncode}' if fails_closed else ""
    try:
        answer = json.loads(done.stdout) if done.stdout.strip() or fails_closed else {}
    except ValueError:
        return f'Hook "{command}" returned no JSON'
    if below(answer, "permission") != "deny":
        return ""
    said = below(answer, "user_message")
    return said if isinstance(said, str) and said else f"{tool} blocked by preToolUse hook"
