"""Lines that the rules allow, given to real shells: nothing starts but the programs that they name."""

import random
import shutil
import subprocess
from pathlib import Path

import pytest

from cursor_gateway.sources.cursor.permissions import BUILTINS, plain_commands

SHELLS = {"bash": ["--norc", "--noprofile"], "zsh": ["-f"], "dash": [], "fish": ["--no-config"]}
PROGRAMS = ("probe", "other", "third")
HARMLESS_BUILTINS = frozenset(["cd", "echo", "false", "pwd", "true"])  # they evaluate nothing
EVIL = "evil"
PROBE = """#!/bin/sh
printf '%s\\n' "${0##*/}" >> "$PROBE_LOG"
"""

NAMES = {"bash": "compgen -bk", "zsh": "print -l ${(k)builtins} ${(k)reswords}", "dash": "", "fish": "builtin -n"}

# Pieces of lines: what is plain, and every way to start something that we know.
PIECES = [
    *PROGRAMS,
    *HARMLESS_BUILTINS,
    *(
        "printf -v",
        "test -v",
        "read",
        "export",
        "declare",
        "typeset",
        "let",
        "eval",
        "exec",
        "command",
        "trap",
        "alias",
    ),
    *(
        "source",
        ".",
        "builtin",
        "noglob",
        "nocorrect",
        "time",
        "coproc",
        "print",
        "set",
        "unset",
        "env",
        "-",
        "!",
        "repeat 1",
    ),
    *(
        "$(evil)",
        "`evil`",
        "=(evil)",
        "<(evil)",
        ">(evil)",
        "(evil)",
        "*(e:'evil':)",
        "*(e:evil:)",
        "*(+evil)",
        "{evil,}",
    ),
    *(
        "$'x[\\x24(evil)]'",
        "'x[$(evil)]'",
        '"x[$(evil)]"',
        "x[`evil`]",
        "${x:-$(evil)}",
        "$((x[$(evil)]))",
        "x=$(evil)",
    ),
    *(
        "~[evil]",
        "=evil",
        "a=(b)",
        "~",
        "*",
        "?",
        "[a]",
        "{a,b}",
        "!evil",
        "^a^evil",
        "#",
        "%1",
        "PATH=evil",
        "a=b",
        "--a=b",
    ),
    *(
        ";",
        "&&",
        "||",
        "|",
        "&",
        "|&",
        ";;",
        "\n",
        "\r",
        "\t",
        " ",
        " ",
        " ",
        " ",
        "\u00a0",
        "\u3000",
        "\x00",
        "\\",
        "\\\n",
    ),
    *(
        "'",
        '"',
        "'a b'",
        '"a b"',
        "a",
        "b",
        "-n",
        "-v",
        "x",
        "1",
        "é",
        "'é'",
        "<",
        ">",
        "/dev/null",
        "evil",
        "'evil'",
        "./evil",
    ),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("probes")
    for name in (*PROGRAMS, EVIL):
        (made / name).write_text(PROBE)
        (made / name).chmod(0o755)
    return made


def lines(seed: int, count: int) -> list[str]:
    """Some of those that a rule would allow."""
    chosen, found = random.Random(seed), list[str]()
    while len(found) < count:
        glue = chosen.choice(["", " ", " "])
        line = glue.join(chosen.choice(PIECES) for _ in range(chosen.randrange(1, 9)))
        if plain_commands(line) is not None:
            found.append(line)
    return found


def started(shell: str, folder: Path, line: str) -> list[str]:
    log = folder / "log"
    log.write_text("")
    environment = {"PATH": str(folder), "PROBE_LOG": str(log), "HOME": str(folder), "LC_ALL": "C.UTF-8"}
    program = shutil.which(shell)
    assert program is not None
    subprocess.run(
        [program, *SHELLS[shell], "-c", line],
        env=environment,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=False,
    )
    return log.read_text().split()


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("seed", range(40))
def test_nothing_but_the_named_programs_starts(shell: str, seed: int, folder: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    for line in lines(seed, 12):
        commands = plain_commands(line)
        assert commands is not None
        named = {command.partition(" ")[0].rpartition("/")[2] for command in commands}
        found = started(shell, folder, line)
        assert set(found) <= named, line
        assert len(found) <= len(commands), line


@pytest.mark.parametrize("shell", SHELLS)
def test_the_harness_sees_what_starts(shell: str, folder: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    assert started(shell, folder, "probe 'a b' && other; third | probe").count("probe") == 2
    assert EVIL in started(shell, folder, "echo x; evil")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_builtin_of_the_installed_shells_is_known(shell: str) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    asked = subprocess.run(
        [program, *SHELLS[shell], "-c", NAMES[shell]], capture_output=True, text=True, timeout=60, check=True
    )
    names = set(asked.stdout.split())
    assert len(names) > 40
    assert names - BUILTINS <= HARMLESS_BUILTINS
