"""A directory in; programs in it that behave like cursor-agent, out.

program = install(tmp_path / "bin", knobs={"trust": "all", "log": str(tmp_path / "log")})
subprocess.run([program, "-p", "--output-format", "stream-json", "standin: tools"], stdin=DEVNULL)
"""

import json
import marshal
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

from tests.agent import patterns
from tests.agent.account import Account
from tests.agent.arguments import help_text, options, parse
from tests.agent.config import Config
from tests.agent.emitter import to_bytes
from tests.agent.failures import Failure
from tests.agent.knobs import FILE, Knobs, plain
from tests.agent.quick import PREPARED

ROOT = Path(__file__).resolve().parents[2]


def install(
    directory: Path, *, names: Iterable[str] = ("cursor-agent", "agent"), knobs: Mapping[str, object] | None = None
) -> Path:
    """Returns the first program's path. The knobs are kept in a file beside it, and may be installed anew."""
    directory = directory.resolve()
    directory.mkdir(parents=True, exist_ok=True)
    programs = [directory / name for name in names]
    for program in programs:
        program.write_text(_launcher(directory), encoding="utf-8")
        program.chmod(0o755)
    written = json.dumps(plain(knobs or {})).encode()
    (directory / FILE).write_bytes(written)
    (directory / patterns.FILE).write_bytes(_patterns())
    (directory / PREPARED).write_bytes(marshal.dumps(_prepared(plain(knobs or {}), written)))
    return programs[0]


@cache
def _patterns() -> bytes:
    import tests.agent.main  # noqa: F401 -- and with it all modules that a turn needs

    return patterns.prepared()


def _prepared(values: Mapping[str, object], written: bytes) -> dict[str, bytes | str]:
    """What the program would say with these knobs, where it says it at once and successfully."""
    knobs = Knobs(values)
    account = Account(knobs, Config("", ""))
    prepared: dict[str, bytes | str] = {"knobs": written, "log": knobs.text("log")}
    if not knobs.number("slow_start_seconds"):
        prepared["--version"] = to_bytes(account.version + "\n")
        prepared["--help"] = to_bytes(help_text() + "\n")
        with suppress(Failure):
            if knobs.text("login") != "none":  # else it depends on the environment
                prepared["--list-models"] = to_bytes(account.models(parse([], options([]))) + "\n")
    return prepared


def _launcher(directory: Path) -> str:
    return (
        f"#!{sys.executable} -IS\n"
        "import os, sys\n"
        f"sys.path.insert(0, {str(ROOT)!r})\n"
        "from tests.agent.quick import is_answered\n"
        f"if is_answered(sys.argv[1:], {str(directory)!r}, {FILE!r}):\n"
        "    os._exit(0)\n"
        "from tests.agent.patterns import use\n"
        f"use({str(directory)!r})\n"
        "from tests.agent.main import main\n"
        f"os._exit(main(sys.argv[1:], {str(directory)!r}))\n"
    )
