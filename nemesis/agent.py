"""The stand-in agent, which also says when it begins and ends, and whether it has its folder for itself.

Whether another agent is in the folder is told by the kernel: each one locks a file of the folder for as long as its
process lives, however it ends. Only the standard library is used: the agent starts without any packages.
"""

import fcntl
import hashlib
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.agent.install import ROOT
from tests.agent.install import install as install_standin
from tests.agent.main import main as play

_TURN = ("-p", "--print")


def install(directory: Path, witness: Path, knobs: Mapping[str, object] | None = None) -> Path:
    """Returns the program. What it says is written into the folder `witness`."""
    witness.mkdir(parents=True, exist_ok=True)
    program = install_standin(directory, knobs={"log": str(witness / "prompts"), **(knobs or {})})
    for name in ("cursor-agent", "agent"):
        (directory / name).write_text(
            f"#!{sys.executable} -IS\n"
            "import os, sys\n"
            f"sys.path.insert(0, {str(ROOT)!r})\n"
            "from nemesis.agent import main\n"
            f"os._exit(main(sys.argv[1:], {str(directory)!r}, {str(witness)!r}))\n"
        )
    return program


def main(words: Sequence[str], directory: str, witness: str) -> int:
    if not any(word in _TURN for word in words):
        return play(words, directory)
    folder = os.path.abspath(next(_values(words, "--workspace"), os.curdir))
    name = hashlib.sha256(folder.encode()).hexdigest()[:16]
    lock = os.open(os.path.join(witness, f"{name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        alone = True
    except BlockingIOError:
        alone = False
    _say(witness, {"pid": os.getpid(), "folder": folder, "begin": time.monotonic(), "alone": alone})
    try:
        return play(words, directory)
    finally:
        _say(witness, {"pid": os.getpid(), "end": time.monotonic()})


def _values(words: Sequence[str], option: str) -> Iterator[str]:
    for at, word in enumerate(words):
        if word == option and at + 1 < len(words):
            yield words[at + 1]
        elif word.startswith(f"{option}="):
            yield word.partition("=")[2]


def _say(witness: str, said: Mapping[str, object]) -> None:
    file = os.open(os.path.join(witness, "lives"), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
    os.write(file, json.dumps(said).encode() + b"\n")  # one write: lines of several processes do not mix
    os.close(file)
