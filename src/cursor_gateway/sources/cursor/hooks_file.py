"""Make the agent's `hooks.json`, with the gateway's hook before those of the user."""

import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from cursor_gateway.sources.cursor import hook_program
from cursor_gateway.wire.payload import Fields

_WAIT_SECONDS = 86_400  # for an answer: without a limit the agent waits for a minute, and then makes the call


def hooks_file(socket: str, others: Mapping[str, Any] | None = None) -> bytes:
    """The gateway's hook, which asks at this socket, and those of another `hooks.json`."""
    program = os.path.abspath(hook_program.__file__)
    command = shlex.join([sys.executable, "-I", "-S", program, socket])
    hook = {"command": command, "timeout": _WAIT_SECONDS, "failClosed": True}
    hooks = Fields((others or {}).get("hooks")).all
    before = hooks.get("preToolUse")
    return msgspec.json.encode(
        {
            "version": 1,
            "hooks": {**hooks, "preToolUse": [hook, *(before if isinstance(before, list) else [])]},
        }
    )


def read_hooks(path: Path) -> dict[str, Any]:
    """Another `hooks.json`; empty if there is none, or none that can be read."""
    try:
        return Fields(msgspec.json.decode(path.read_bytes())).all
    except (OSError, msgspec.DecodeError):
        return {}
