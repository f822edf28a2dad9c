"""Webhooks and budgets in a cluster of processes: each message once, and one budget at every front."""

from collections import Counter
from functools import partial
from pathlib import Path

import httpx2
import msgspec

from cursor_gateway.keys import hash_key, new_key
from tests.cluster.conftest import cluster
from tests.postgres import Databases
from tests.server.conftest import at_once, chat, eventually, standin
from tests.webhooks.receiver import SECRET, receiving

KEYS = {"alice": new_key(), "bob": new_key()}


def asked(client: httpx2.Client) -> str:
    id: str = chat(client, standin("text"))["id"]
    return id


def test_members_share_messages_and_budgets(tmp_path: Path, postgres: Databases) -> None:
    hashes = msgspec.json.encode({name: hash_key(key) for name, key in KEYS.items()}).decode()
    with receiving() as receiver, postgres.history() as url:
        hook = {"url": receiver.url, "secret": SECRET, "allow_private": True, "keys": ["alice"]}
        given = {
            "webhooks": msgspec.json.encode({"hook": hook}).decode(),
            "budgets": '{"bob": {"tokens_per_month": 1}}',
            "api_keys": hashes,
        }
        with cluster(tmp_path, url, 2, 2, **given) as running:
            one, two = running.clients
            for client in running.clients:
                client.headers["authorization"] = f"Bearer {KEYS['alice']}"
            ids = at_once({n: partial(asked, running.clients[n % 2]) for n in range(6)})
            eventually(lambda: len(receiver.received) == 6)
            bob = {"authorization": f"Bearer {KEYS['bob']}"}
            body = {"message": standin("text")}
            first = one.post("/v1/chat", json=body, headers=bob)
            second = [client.post("/v1/chat", json=body, headers=bob) for client in (one, two)]
            report = two.get("/v1/usage", headers=bob).json()
        assert Counter(one.verified()["data"]["id"] for one in receiver.received) == Counter(ids.values())
        assert {one.verified()["data"]["key"] for one in receiver.received} == {"alice"}
    assert first.status_code == 200
    assert [reply.status_code for reply in second] == [429, 429]
    assert all(int(reply.headers["retry-after"]) > 0 for reply in second)
    assert (report["key"], report["month"]["runs"], report["month"]["maxTokens"]) == ("bob", 1, 1)
