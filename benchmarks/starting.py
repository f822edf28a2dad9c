"""Commands in; how long they take to start, in units of `python -c 0`, out."""

import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from benchmarks.contenders import gateway_environment, serve_command
from benchmarks.failing import BenchmarkFailed
from benchmarks.field import Field, median, ratio, rotated, seconds
from benchmarks.found import Found, Part
from cursor_gateway.keys import new_key

_SECONDS = 60.0
_REQUEST = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"


def starts(field: Field, rounds: int) -> Part:
    command = str(Path(sys.executable).parent / "cursor-gateway")
    environment = gateway_environment(field.agent, field.folder / "starting", None, None, new_key())
    found = rotated(
        {
            "python": lambda: seconds(lambda: _run([sys.executable, "-c", "0"])),
            "help": lambda: seconds(lambda: _run([command, "--help"])),
            "serve": lambda: _first_answer(environment, field.folder / "starting"),
        },
        max(rounds, 9),
    )
    for name in ("help", "serve"):
        result = f"{median(found, name) * 1e3:.0f} ms against {median(found, 'python') * 1e3:.0f} ms"
        yield f"start {name}", Found(ratio(found, name, "python"), result)


def _run(command: list[str]) -> None:
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True, timeout=_SECONDS)


def _first_answer(environment: dict[str, str], home: Path) -> float:
    """From the start of the process to the last byte of the first answer."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    began = time.perf_counter()
    with (
        (home / "log").open("wb") as log,
        subprocess.Popen(
            [*serve_command()[:-1], str(port)],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
        ) as process,
    ):
        try:
            while time.perf_counter() < began + _SECONDS and process.poll() is None:
                with suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port), 5) as connection:
                    connection.sendall(_REQUEST)
                    answer = b"".join(iter(lambda: connection.recv(65536), b""))
                    took = time.perf_counter() - began
                    if not answer.startswith(b"HTTP/1.1 200"):
                        raise BenchmarkFailed(f"/health answered {answer[:200]!r}.")
                    return took
                time.sleep(0.001)
            raise BenchmarkFailed(f"`serve` did not answer:\n{(home / 'log').read_text()[-2000:]}")
        finally:
            process.terminate()
            try:
                process.wait(_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
