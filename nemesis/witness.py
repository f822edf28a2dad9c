"""What agents said of themselves in; when each lived, where, and for which question, out."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nemesis.history import Agent

QUESTION = re.compile(r"question-[\w-]+")


def agents(witness: Path) -> list[Agent]:
    """In the order in which they began. An agent that was killed has no end."""
    prompts = {said["pid"]: said["prompt"] or "" for said in _lines(witness / "prompts")}
    found: dict[int, Agent] = {}
    for said in _lines(witness / "lives"):
        pid = said["pid"]
        if "end" in said:
            begun = found[pid]
            found[pid] = Agent(begun.folder, begun.question, pid, begun.begin, said["end"], begun.alone)
        else:
            # A prompt may repeat the conversation: what is asked comes last.
            questions = QUESTION.findall(prompts.get(pid, ""))
            question = questions[-1] if questions else ""
            found[pid] = Agent(said["folder"], question, pid, said["begin"], None, said["alone"])
    return list(found.values())


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    if file.exists():
        for line in file.read_bytes().splitlines():
            yield json.loads(line)
