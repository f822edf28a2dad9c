"""Nothing in; what each client that `make test-clients` installs prints when it is launched, out.

The gateway plays a recording, so that everybody gets the same transcript. The pages of the clients show them. Read the
difference before you keep it.
"""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from cursor_gateway.cli.clients.table import LAUNCHED
from cursor_gateway.demo import recordings
from tests.clients.programs import on_path

FOLDER = Path(__file__).parents[1] / "docs" / "parts" / "clients"
QUESTION = "How do the retries work?"
RECORDING = "explain"
_LINES = 22  # of the answer
_CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")
_NOISE = re.compile(
    r"^(Ripgrep not available|\[claude-code:unrecognized_model|Reading additional input|WARNING: proceeding"
    r"|warning: Codex could not find bubblewrap)"
)


def transcript(name: str) -> str:
    """Raises `CalledProcessError`."""
    client = LAUNCHED[name]
    assert client.launch is not None
    arguments = [*shlex.split(client.launch.once)[:-1], QUESTION]
    with TemporaryDirectory(prefix="home") as home:
        project = Path(home, "project")
        project.mkdir()
        subprocess.run(["git", "init", "-q"], cwd=project, check=True)
        recordings_folder = Path(home, "recordings")
        recordings_folder.mkdir()
        (recordings_folder / f"{RECORDING}.ndjson").write_bytes(recordings()[RECORDING])
        clients = on_path(Path(home, "clients"), name)
        environment = {
            "PATH": os.pathsep.join([str(clients), "/usr/bin", "/bin"]),
            "HOME": home,
            "LANG": "C.UTF-8",
            "NO_COLOR": "1",
            "PI_OFFLINE": "1",
            "CURSOR_GATEWAY_PORT": "0",
            "CURSOR_GATEWAY_SOURCE": "replay",
            "CURSOR_GATEWAY_REPLAY_DIR": str(recordings_folder),
            "CURSOR_GATEWAY_REPLAY_SPEED": "0",
        }
        said = subprocess.run(
            [sys.executable, "-m", "cursor_gateway", "launch", name, "--", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=project,
            env=environment,
            text=True,
            check=True,
            timeout=120,
        ).stdout
        said = _CODES.sub("", said).replace(str(project), "~/project").replace(home, "~")
    said = "\n".join(line.rstrip() for line in said.splitlines() if not _NOISE.match(line))
    lines = re.sub(r"\n{2,}", "\n\n", said).strip("\n").split("\n")
    text = "\n".join([*lines[:_LINES], "…"])
    return f"$ cursor-gateway launch {name} -- {shlex.join(arguments)}\n{text}\n"


@click.command()
@click.argument("names", nargs=-1)
def main(names: tuple[str, ...]) -> None:
    """Record the transcripts of these clients, or anew of all that have one."""
    for name in names or sorted(path.stem for path in FOLDER.iterdir()):
        (FOLDER / f"{name}.txt").write_text(transcript(name), encoding="utf-8")


if __name__ == "__main__":
    main()
