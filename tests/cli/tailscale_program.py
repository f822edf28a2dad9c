"""A stand-in for the `tailscale` command: its status, and `serve` in the foreground. Its state is a folder.

The folder is named by TAILSCALE_STATE: `name` is this machine's name (without it, nobody is logged in), `served` the
ports that are served already, `refusal` what `serve` says instead of serving, and `stopped` appears when it has ended.
"""

import json
import os
import signal
import sys
from pathlib import Path


def main(arguments: list[str]) -> int:
    state = Path(os.environ["TAILSCALE_STATE"])
    match arguments:
        case ["status", "--json"]:
            name = state / "name"
            is_running = name.exists()
            own = {"DNSName": f"{name.read_text()}."} if is_running else {}
            _say(json.dumps({"BackendState": "Running" if is_running else "NeedsLogin", "Self": own}))
        case ["serve", "status", "--json"]:
            lasting = _ports(state / "served")
            sessions = {f"session-{file.name}": _table(_ports(file)) for file in state.glob("foreground.*")}
            _say(json.dumps(_table(lasting) | ({"Foreground": sessions} if sessions else {})))
        case ["serve", https, target] if https.startswith("--https=") and target.startswith("http://127.0.0.1:"):
            return _serve(state, https.removeprefix("--https="), target)
        case _:
            sys.stderr.write(f"unknown arguments: {arguments}\n")
            return 2
    return 0


def _serve(state: Path, port: str, target: str) -> int:
    if (refusal := state / "refusal").exists():
        _say(refusal.read_text())
        return 1
    file = state / f"foreground.{os.getpid()}"
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        file.write_text(port)
        (state / "target").write_text(target)
        _say(f"Available within your tailnet:\n\n|-- / proxy {target}\n\nPress Ctrl+C to exit.")
        signal.pause()
    finally:
        file.unlink(missing_ok=True)
        (state / "stopped").touch()
    return 0


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _ports(file: Path) -> list[str]:
    return file.read_text().split() if file.exists() else []


def _table(ports: list[str]) -> dict[str, object]:
    return {"TCP": {port: {"HTTPS": True} for port in ports}} if ports else {}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
