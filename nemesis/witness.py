"""What agents said of themselves in; when each lived, where, and for which question, out."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from nemesis.history import Agent

RESULT = "result of"  # what the result of a tool begins with; its question follows
QUESTION = re.compile(r"question-[\w-]+")


def agents(witness: Path) -> list[Agent]:
    """In the order in which they began. An agent that was killed has no end."""
    prompts = {said["pid"]: said["prompt"] or "" for said in _lines(witness / "prompts")}
    found: dict[int, Agent] = {}
    for said in _lines(witness / "lives"):
        pid = said["pid"]
        if "end" in said:
            begun = found[pid]
            found[pid] = replace(begun, end=said["end"])
        else:
            # A prompt may repeat the conversation: what is asked comes last.
            prompt = prompts.get(pid, "")
            questions = QUESTION.findall(prompt)
            question = questions[-1] if questions else ""
            if f"{RESULT} {question}" in prompt:  # it goes on with a question that was asked before
                question = ""
            found[pid] = Agent(said["folder"], question, pid, said["begin"], None, said["alone"], prompt)
    return list(found.values())


def is_alive(pid: int, witness: Path) -> bool:
    """Whether it still runs: a program that was started with the path of this folder."""
    try:
        words = Path(f"/proc/{pid}/environ").read_bytes() + Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return bytes(witness.parent) in words  # empty for a zombie


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    if file.exists():
        for line in file.read_bytes().splitlines():
            yield json.loads(line)
