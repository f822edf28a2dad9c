"""A version of the program in; what it writes, and what it then serves, as files for tests of later versions, out.

Run once for each release: `python -m tools.old_data tests/upgrades/0.2.0`.
"""

import gzip
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

import click

from tools import postgres
from tools.newcomer import environment_of, started, until_ready

_WORKSPACE = "/tmp"  # stored with each conversation, so it must exist wherever it is continued
_PROMPTS = ["hello", "Explain this repo", "Fix the failing tests"]


@click.command()
@click.argument("target", type=click.Path(path_type=Path))
@click.option("--program", default=f"{sys.executable} -m cursor_gateway", help="The command of the version.")
def main(target: Path, program: str) -> None:
    """Write TARGET/history.db.gz, history.sql.gz, and for each a JSON file with what the version serves."""
    target.mkdir(parents=True, exist_ok=True)
    command = shlex.split(program)
    with tempfile.TemporaryDirectory() as home:
        data = Path(home, "data")
        _write_json(target / "history.db.json", _used(command, Path(home), {"DATA_DIR": str(data)}))
        assert not (data / "history.db-wal").exists(), "a gateway that stops writes everything into the file"
        _write(target / "history.db.gz", (data / "history.db").read_bytes())
    with tempfile.TemporaryDirectory() as home, postgres.running() as server:
        settings = {"DATA_DIR": str(Path(home, "data")), "STORE": server.create_database("history")}
        variables = {f"CURSOR_GATEWAY_{name}": value for name, value in settings.items()}
        subprocess.run([*command, "migrate"], env={**os.environ, **variables, "HOME": home}, check=True, timeout=300)
        _write_json(target / "history.sql.json", _used(command, Path(home), settings))
        _write(target / "history.sql.gz", server.dump("history"))


def _used(command: list[str], home: Path, settings: dict[str, str]) -> dict[str, Any]:
    """What a gateway of the demo serves after a few conversations."""
    given = {"WORKSPACE": _WORKSPACE, "REPLAY_SPEED": "0", "SOURCE": "replay", **settings}
    environment = {**environment_of(home), **{f"CURSOR_GATEWAY_{name}": value for name, value in given.items()}}
    if path := os.environ.get("PYTHONPATH"):
        environment["PYTHONPATH"] = path
    with started([*command, "serve"], environment, home) as (server, _):
        url = re.findall(r"http://\S+?:\d+", until_ready(server))[0]
        runs = [call(url, "POST", "/v1/chat", {"message": prompt}) for prompt in _PROMPTS]
        first = runs[0]["conversationId"]
        runs.append(call(url, "POST", "/v1/chat", {"message": "hello again", "conversationId": first}))
        call(url, "PATCH", f"/v1/conversations/{first}", {"title": "A pinned conversation", "pinned": True})
        return served(url, [run["id"] for run in runs])


def served(url: str, runs: list[str]) -> dict[str, Any]:
    """What must stay the same: the conversations, and the documents of each run."""
    listed = call(url, "GET", "/v1/conversations")["conversations"]
    documents = {id: call(url, "GET", f"/v1/chat/{id}")["documents"] for id in runs}
    return {
        "conversations": [{key: one[key] for key in ("id", "title", "pinned")} for one in listed],
        "runs": {
            id: [{key: one.get(key) for key in ("id", "type", "content")} for one in its]
            for id, its in documents.items()
        },
    }


def call(url: str, method: str, path: str, body: object = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=300) as response:
        return json.load(response)


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n")


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(gzip.compress(data, mtime=0))


if __name__ == "__main__":
    main()
