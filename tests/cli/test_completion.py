"""The shells complete commands, options, values and paths, with the scripts that the command prints."""

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli.processes import TIMEOUT, finished
from tests.preloaded import command

needs_zsh = pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
needs_fish = pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")


def completed(shell: str, script: str, folder: Path) -> list[str]:
    """What the shell prints, with the program on its PATH."""
    program = folder / ".bin" / "cursor-gateway"
    shells = Path(shutil.which(shell) or "/bin/sh").parent
    environment = {
        "PATH": f"{program.parent}:{shells}:/usr/bin:/bin",
        "HOME": str(folder),
        "XDG_CONFIG_HOME": str(folder),
    }
    program.parent.mkdir(exist_ok=True)
    program.write_text(f'#!/bin/sh\nexec {shlex.join(command(environment))} "$@"\n')
    program.chmod(0o755)
    ran = subprocess.run(
        [shell, *(["-f"] if shell == "zsh" else []), "-c", script],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout.split("\n")[:-1]


# `compopt` works only while bash completes for a terminal; there it makes bash look up the files or folders itself.
_BASH = """
compopt() {{ printf '%s\\n' "paths $2"; }}
eval "$(cursor-gateway completion bash)"
complete -p cursor-gateway >/dev/null || exit 1
COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_cursor_gateway_completion cursor-gateway
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("cursor-gateway conv", ["conversations", "convert"]),
        ("cursor-gateway launch cl", ["claude", "cline"]),
        ("cursor-gateway conversations exp", ["export"]),
        ("cursor-gateway serve --work", ["--workspace"]),
        ("cursor-gateway chat --mode pl", ["plan"]),
        ("cursor-gateway serve --workspace fo", ["paths dirnames", ""]),
        ("cursor-gateway show fo", ["paths default", ""]),
    ],
)
def test_bash_completes(words: str, expected: list[str], tmp_path: Path) -> None:
    assert completed("bash", _BASH.format(words=words), tmp_path) == expected


# The line editor runs only on a terminal, so the script's function is called with what the editor would set and offer.
_ZSH = """
compdef() {{ print -r -- "$@" >&3 }}
compadd() {{ print -r -- ${{(P)@[-1]}} }}
_describe() {{ print -rl -- ${{(P)3}} }}
_path_files() {{ print -r -- "paths $1" }}
eval "$(cursor-gateway completion zsh)" 3>&1
words=({words}); CURRENT=${{#words}}
_cursor_gateway_completion
"""


@needs_zsh
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("cursor-gateway conv", "convert:Convert agent output to JSON, SSE, OpenAI or text."),
        ("cursor-gateway launch cl", "claude cline"),
        ("cursor-gateway serve --workspace fo", "paths -/"),
        ("cursor-gateway show fo", "paths -f"),
    ],
)
def test_zsh_completes(words: str, expected: str, tmp_path: Path) -> None:
    registered, *offered = completed("zsh", _ZSH.format(words=words), tmp_path)
    assert registered == "_cursor_gateway_completion cursor-gateway"
    assert expected in offered


@pytest.mark.quick_cases(1)
@needs_fish
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("cursor-gateway conv", "convert\tConvert agent output to JSON"),
        ("cursor-gateway launch cl", "claude"),
        ("cursor-gateway serve --workspace fo", "folder/"),
    ],
)
def test_fish_completes(line: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    script = f"cursor-gateway completion fish | source; complete --do-complete '{line}'"
    offered = completed("fish", script, tmp_path)
    assert any(line.startswith(expected) for line in offered), offered


def test_another_shell_is_refused() -> None:
    ended = finished("completion", "powershell")
    assert ended.returncode == 2
    assert b"'powershell' is not one of 'bash', 'zsh', 'fish'" in ended.stderr
