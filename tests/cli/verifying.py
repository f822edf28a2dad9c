"""Prompts for the stand-ins and the mock of Cursor's backend: what is asked in words, and what the agent then does."""

import json
import re
from typing import Any

from tests.server.conftest import standin


def adapted(check: str, prompt: str) -> str:
    """For the stand-ins: an agent that does what it is asked."""
    word = (re.findall(r"verify-\w+", prompt) or [""])[-1]
    scenarios = {
        "text": standin("say", word),
        "text again": standin("say", word),
        "resume": standin("history"),
        "read": standin("read path=notes.txt"),
        "edit": standin("edit path=made.txt", word),
        "question": standin("question"),
        "cancel": standin("slow count=2000 delay_ms=20"),
    }
    shell = standin('shell command="' + prompt.rpartition(": ")[2] + '"')
    return f"{prompt}\n{scenarios.get(check, shell)}"


class Programmed:
    """The same for the mock, whose model plays a program. What it remembers is up to us."""

    def __init__(self) -> None:
        self._word = ""

    def __call__(self, check: str, prompt: str) -> str:
        self._word = (re.findall(r"verify-\w+", prompt) or [self._word])[-1]
        programs: dict[str, list[dict[str, Any]]] = {
            "text": [{"say": self._word}],
            "text again": [{"say": self._word}],
            "resume": [{"say": self._word}],
            "read": _native("read", path="notes.txt"),
            "edit": _native("edit", path="made.txt", streamContent=self._word),
            "cancel": [{"say": "one "}, {"native": "shell", "args": {"command": "sleep 600"}}],
        }
        steps = programs.get(check) or _native("shell", command=prompt.rpartition(": ")[2])
        return f"{prompt}\n{standin('program', json.dumps(steps))}"


def _native(tool: str, **args: str) -> list[dict[str, Any]]:
    return [{"native": tool, "args": args}, {"say": "Done."}]
