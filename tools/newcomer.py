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

_LIMIT = 300  # seconds, for a red build only
_CURL = re.compile(r"^curl .*$", re.MULTILINE)
_SNIPPET = re.compile(r"^import json.*?(?=\n\n|\Z)", re.MULTILINE | re.DOTALL)


def main() -> int:
    with tempfile.TemporaryDirectory() as home:
        # A free port: the usual one may be taken where this runs.
        environment = {"PATH": os.environ["PATH"], "HOME": home, "CURSOR_GATEWAY_PORT": "0"}
        with subprocess.Popen(
            ["make", "-s", "run"], env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
        ) as server:
            watchdog = threading.Timer(_LIMIT, server.kill)
            watchdog.start()
            try:
                printed = _until_ready(server)
                url = re.findall(r"http://\S+?:\d+", printed)[0]
                for command in _commands(printed, url):
                    _try(command, environment)
            finally:
                os.killpg(server.pid, signal.SIGINT)
                server.wait(_LIMIT)
                watchdog.cancel()
    return 0


def _until_ready(server: "subprocess.Popen[str]") -> str:
    assert server.stdout is not None
    lines: list[str] = []
    for line in server.stdout:
        lines.append(line.rstrip())
        if "Ctrl-C" in line:
            return "\n".join(lines)
    raise SystemExit("make run ended before it was ready:\n" + "\n".join(lines))


def _commands(printed: str, url: str) -> list[list[str]]:
    curl, snippet = _CURL.search(printed), _SNIPPET.search(printed)
    if curl is None or snippet is None:
        raise SystemExit(f"make run printed no curl line or no snippet:\n{printed}")
    gateway = os.path.join(os.path.dirname(sys.executable), "cursor-gateway")
    return [
        ["sh", "-c", f"{curl[0]} --fail-with-body"],
        [sys.executable, "-c", snippet[0]],
        [gateway, "doctor"],
        [gateway, "chat", "--url", url, "hello"],
        [gateway, "chat", "hello"],
    ]


def _try(command: list[str], environment: dict[str, str]) -> None:
    ran = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=_LIMIT, check=False, stdin=subprocess.DEVNULL
    )
    result = f"{command}\n{ran.stdout}{ran.stderr}"
    if ran.returncode != 0 or not ran.stdout.strip():
        raise SystemExit(f"failed with {ran.returncode}: {result}")
    sys.stdout.write(f"ok: {' '.join(command).splitlines()[0][:100]}\n")


if __name__ == "__main__":
    sys.exit(main())
