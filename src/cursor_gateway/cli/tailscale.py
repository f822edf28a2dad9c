"""Find Tailscale on this machine, and have it serve a local port over HTTPS to the devices of its network."""

import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

from cursor_gateway.cli.output import Trouble

_APP = "/Applications/Tailscale.app/Contents/MacOS/Tailscale"
_ANSWER_SECONDS = 10.0
_START_SECONDS = 20.0
_STOP_SECONDS = 5.0
_PORTS = (443, 8443, 10443)


class Tailnet(Struct, frozen=True):
    """This machine in a network of Tailscale's."""

    program: str
    name: str  # of this machine

    def free_port(self) -> int:
        """One that Tailscale does not serve yet. Raises `Trouble`."""
        used = self._served()
        for port in _PORTS:
            if port not in used:
                return port
        raise Trouble("Tailscale already serves the ports 443, 8443 and 10443; see `tailscale serve status`.")

    def command(self, port: int, target: int) -> list[str]:
        """Without `--bg`: Tailscale then stops serving when this process ends."""
        return [self.program, "serve", f"--https={port}", f"http://127.0.0.1:{target}"]

    @contextmanager
    def serving(self, port: int, target: int) -> Iterator[None]:
        """Serves until the end of the `with` block. Raises `Trouble`."""
        with tempfile.TemporaryFile("w+") as output:
            process = subprocess.Popen(
                self.command(port, target), stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )
            try:
                deadline = time.monotonic() + _START_SECONDS
                while port not in self._served():
                    if process.poll() is not None or time.monotonic() > deadline:
                        output.seek(0)
                        raise Trouble(f"Tailscale does not serve this gateway: {_last_lines(output.read())}")
                    time.sleep(0.2)
                yield
            finally:
                process.terminate()
                try:
                    process.wait(_STOP_SECONDS)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()

    def _served(self) -> set[int]:
        found = _asked(self.program, "serve", "status", "--json")
        tables = [found, *(found.get("Foreground") or {}).values()]
        return {int(port) for table in tables for port in table.get("TCP") or {}}


def find_tailnet() -> Tailnet | None:
    """None: Tailscale is not installed, not running, or not logged in."""
    program = shutil.which("tailscale") or (_APP if Path(_APP).exists() else None)
    if program is None:
        return None
    found = _asked(program, "status", "--json")
    name = str((found.get("Self") or {}).get("DNSName") or "").rstrip(".")
    return Tailnet(program, name) if found.get("BackendState") == "Running" and name else None


def _asked(*command: str) -> Mapping[str, Any]:
    """The JSON object that it prints; empty if it prints something else, fails, or does not answer."""
    try:
        ran = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_ANSWER_SECONDS, check=True
        )
        found = json.loads(ran.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _last_lines(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return " ".join(lines[-5:]) or "it did not answer in time; see `tailscale serve status`."
