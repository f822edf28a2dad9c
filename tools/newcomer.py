"""The newcomer's path, walked: `make run`, then what it prints, `doctor` and `chat`, with an empty home. Fails loudly.

What is printed must work as printed, so the commands are taken from the output itself.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

_LIMIT = 300  # seconds, for a red build only
_CURL = re.compile(r"^curl .*$", re.MULTILINE)
_SNIPPET = re.compile(r"^from openai .*?(?=\n\nPress)", re.MULTILINE | re.DOTALL)


def main() -> int:
    walk(["make", "-s", "run"], Path(sys.executable).with_name("cursor-gateway"), Path.cwd())
    return 0


def walk(start: Sequence[str], gateway: Path, folder: Path) -> None:
    """`start` starts a gateway in a folder; `gateway` is the program for the other commands."""
    with tempfile.TemporaryDirectory() as home:
        environment = environment_of(Path(home))
        with started(start, environment, folder) as (server, _):
            printed = until_ready(server)
            url = re.findall(r"http://\S+?:\d+", printed)[0]
            for command in _commands(printed, url, str(gateway)):
                _try(command, environment, folder)


def environment_of(home: Path) -> dict[str, str]:
    # A free port: the usual one may be taken where this runs.
    return {"PATH": os.environ["PATH"], "HOME": str(home), "CURSOR_GATEWAY_PORT": "0"}


@contextmanager
def started(
    command: Sequence[str], environment: dict[str, str], folder: Path
) -> "Iterator[tuple[subprocess.Popen[str], float]]":
    """A server, and when it was started. It is told to stop, and must."""
    began = time.perf_counter()
    with subprocess.Popen(
        command, env=environment, cwd=folder, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as server:
        watchdog = threading.Timer(_LIMIT, server.kill)
        watchdog.start()
        try:
            yield server, began
        finally:
            os.killpg(server.pid, signal.SIGINT)
            server.wait(_LIMIT)
            watchdog.cancel()


def until_ready(server: "subprocess.Popen[str]") -> str:
    assert server.stdout is not None
    lines: list[str] = []
    for line in server.stdout:
        lines.append(line.rstrip())
        if "Ctrl-C" in line:
            return "\n".join(lines)
    raise SystemExit("the gateway ended before it was ready:\n" + "\n".join(lines))


def _commands(printed: str, url: str, gateway: str) -> list[list[str]]:
    curl, snippet = _CURL.search(printed), _SNIPPET.search(printed)
    if curl is None or snippet is None:
        raise SystemExit(f"the gateway printed no curl line or no snippet:\n{printed}")
    return [
        ["sh", "-c", f"{curl[0]} --fail-with-body"],
        ["sh", "-c", f"curl -s --fail-with-body {url}/ | grep -i '<title>'"],
        [sys.executable, "-c", snippet[0]],
        [gateway, "doctor"],
        [gateway, "chat", "--url", url, "hello"],
        [gateway, "chat", "hello"],
    ]


def _try(command: list[str], environment: dict[str, str], folder: Path) -> None:
    ran = subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, timeout=_LIMIT, check=False,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    result = f"{command}\n{ran.stdout}{ran.stderr}"
    if ran.returncode != 0 or not ran.stdout.strip():
        raise SystemExit(f"failed with {ran.returncode}: {result}")
    sys.stdout.write(f"ok: {' '.join(command).splitlines()[0][:100]}\n")


if __name__ == "__main__":
    sys.exit(main())
