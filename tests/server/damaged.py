"""Histories to damage, and everything that clients may ask of a gateway with a damaged one."""

import shutil
from pathlib import Path

import httpx2

from tests.gateways import running_gateway
from tests.server.conftest import chat, eventually, http_client, standin

CONVERSATIONS = 6


def make_histories(folder: Path) -> tuple[Path, Path]:
    """The data of a gateway that was stopped, and of one that was killed."""
    with running_gateway(folder / "stopped") as gateway, http_client(gateway) as http:
        for number in range(CONVERSATIONS):
            chat(http, f"Mend the login {number} {standin('tools') if number % 2 else ''}")
        running = shutil.copytree(gateway.data, folder / "copied", ignore=_sockets)
    return gateway.data, running


def _sockets(_: str, names: list[str]) -> list[str]:
    return [name for name in names if name.endswith(".sock") or name == "instances"]


def use_damaged(home: Path, name: str) -> int:
    """Starts a gateway on it. Returns the number of conversations that it lists."""
    with running_gateway(home) as gateway, http_client(gateway) as http:
        listed = _get(http, "/v1/conversations?limit=100", name)
        found = listed["conversations"]
        for conversation in found:
            detail = _get(http, f"/v1/conversations/{conversation['id']}", name)
            for run in detail.get("runs", []):
                _get(http, f"/v1/chat/{run['id']}", name)
                events = http.get(f"/v1/chat/{run['id']}/events")
                assert events.status_code in (200, 410, 503), (name, events.text)
            _get(http, f"/v1/conversations/{conversation['id']}/changes", name)
        _get(http, "/v1/conversations?q=login", name)
        _get(http, "/v1/runs", name)
        assert http.get("/health").status_code == 200, name
        answer = chat(http, "hello")
        assert "stored" not in answer["metadata"], name
        if found:
            deleted = http.delete(f"/v1/conversations/{found[0]['id']}")
            assert deleted.status_code in (200, 204, 503), (name, deleted.text)
        log = gateway.log.read_text("utf-8", "replace")
        assert "Traceback" not in log, (name, log)
        assert "mistake of the gateway" not in log, (name, log)
        aside = [file.name for file in gateway.data.iterdir() if ".damaged-" in file.name]
        said = [file.removesuffix("-wal").removesuffix("-shm") for file in aside]
        eventually(lambda: all(file in gateway.log.read_text("utf-8", "replace") for file in said))
    return len(found)


def _get(http: httpx2.Client, path: str, name: str) -> dict[str, list[dict[str, str]]]:
    reply = http.get(path)
    assert reply.status_code in (200, 404, 410, 503), (name, path, reply.status_code, reply.text)
    return dict(reply.json())
