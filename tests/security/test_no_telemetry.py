"""The gateway reports nothing to anyone: it knows no host to send to, and its connections stay on this machine."""

import ast
import ipaddress
import json
import os
import re
import subprocess
import sys
from pathlib import Path

from tests.cli.processes import TIMEOUT
from tests.gateways import running_gateway

PACKAGE = Path(__file__).parents[2] / "src" / "cursor_gateway"

# Hosts in strings: shown to people, or names of formats. None is ever connected to.
NAMED = {
    "json-schema.org": "the name of a format",
    "tailscale.com": "where to get Tailscale, shown to people",
    "cursor.com": "the command that installs the agent, shown to people",
}


_URL = r"(?:https?|wss?)://\[?([\w.-]+)"


def hosts() -> dict[str, str]:
    """Every host in a URL in the source, docstrings and comments aside, with its file."""
    found: dict[str, str] = {}
    for file in PACKAGE.rglob("*.py"):
        source = file.read_text()
        if not re.search(_URL, source):  # most files
            continue
        tree = ast.parse(source)
        documented = {
            id(node.body[0].value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and node.body
            and isinstance(node.body[0], ast.Expr)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documented:
                for host in re.findall(_URL, node.value):
                    found[host] = file.name
    return found


def is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback or ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return host in ("localhost", "")


def is_reserved(host: str) -> bool:
    """https://www.rfc-editor.org/rfc/rfc2606: nobody has such a host."""
    return host.rpartition(".")[2] in ("invalid", "test", "example") or host.endswith(("example.com", "example.org"))


def test_the_source_names_no_host_that_it_could_report_to() -> None:
    named = {host: file for host, file in hosts().items() if not is_local(host) and not is_reserved(host)}
    assert {host: file for host, file in named.items() if host not in NAMED} == {}
    assert set(NAMED) <= set(named)  # no stale entry


# Python reports what a process connects to and looks up. uvloop does both in C, so it is left out here.
_WATCH = """
import sys
sys.modules["uvloop"] = None
def note(event, arguments):
    if event == "socket.connect":
        line = repr(arguments[1])
    elif event in ("socket.getaddrinfo", "socket.gethostbyname", "socket.sendto"):
        line = repr(arguments[0] if event != "socket.sendto" else arguments[1])
    else:
        return
    with open(FILE, "a") as file:
        file.write(event + " " + line + "\\n")
sys.addaudithook(note)
"""


def test_no_connection_leaves_the_machine(tmp_path: Path) -> None:
    noted = tmp_path / "noted"
    noted.touch()
    (tmp_path / "sitecustomize.py").write_text(_WATCH.replace("FILE", repr(str(noted))))
    watched = {"PYTHONPATH": str(tmp_path)}
    home, settings = tmp_path / "home", {"replay_speed": "0"}
    with running_gateway(home, has_agent=False, settings=settings, environment=watched) as gateway:
        environment = {**os.environ, **watched, "HOME": str(home), "CURSOR_GATEWAY_VERIFY_GATEWAY": "false"}

        def output_of(*arguments: str) -> bytes:
            command = [sys.executable, "-m", "cursor_gateway", *arguments]
            return subprocess.run(command, env=environment, capture_output=True, timeout=TIMEOUT, check=False).stdout

        assert json.loads(output_of("chat", "--url", gateway.url, "--json", "hello"))["status"] == "completed"
        assert output_of("doctor")
        assert output_of("models", "--url", gateway.url)
    lines = noted.read_text().splitlines()
    assert any("socket.connect" in line for line in lines), "the commands connect to the gateway, at least"
    for line in lines:
        target = ast.literal_eval(line.partition(" ")[2])
        host = target[0] if isinstance(target, tuple) else target
        text = host.decode() if isinstance(host, bytes) else str(host or "")
        assert text.startswith(("/", "\0")) or is_local(text), line
