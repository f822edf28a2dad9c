"""Read-only links in a cluster: each front knows them, through the database alone."""

from pathlib import Path

import httpx2

from cursor_gateway.keys import hash_key, new_key
from tests.cluster.conftest import cluster
from tests.postgres import Databases
from tests.server.conftest import chat, standin, unique


def test_a_link_works_at_every_front_and_ends_at_all_of_them(tmp_path: Path, postgres: Databases) -> None:
    alice, bob = new_key(), new_key()
    keys = f"alice={hash_key(alice)},bob={hash_key(bob)}"
    with postgres.history() as url, cluster(tmp_path, url, runners=1, api_keys=keys, public_links="true") as running:
        first, second = running.clients
        hers, his = ({"authorization": f"Bearer {key}"} for key in (alice, bob))
        word = unique()
        first.headers.update(hers)
        asked = chat(first, f"{word} {standin('text')}")
        link = f"/v1/conversations/{asked['conversationId']}/link"
        path = httpx2.URL(first.post(link).json()["url"]).path
        assert word in second.get(path).text
        assert second.post(link, headers=his).status_code == 404
        assert second.delete(link, headers=his).status_code == 404
        assert second.get("/v1/links", headers=his).json()["conversations"] == []
        assert second.get(f"{path}x").status_code == 404
        assert second.delete(link).status_code == 401
        assert second.delete(link, headers=hers).status_code == 204
        for client in running.clients:
            assert client.get(path).status_code == 404
