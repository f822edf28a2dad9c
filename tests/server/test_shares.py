"""Two owners, one of them greedy: the other is served. Everything is asserted by counts and order, not by time."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx2

from cursor_gateway.keys import hash_key
from tests.gateways import RunningGateway, running_gateway
from tests.server.conftest import NO_TLS, TIMEOUT, standin
from tests.server.test_caller_tools import WEATHER, Caller, call, documents_of, only_call, program, say

OWNERS = ("greedy", "modest")


@contextmanager
def two_owners(home: Path, **settings: str) -> Iterator[tuple[RunningGateway, dict[str, httpx2.Client]]]:
    keys = {name: f"key-of-{name}-{'0' * 20}" for name in OWNERS}
    hashes = ",".join(f"{name}={hash_key(key)}" for name, key in keys.items())
    with ExitStack() as stack:
        gateway = stack.enter_context(running_gateway(home, settings={"api_keys": hashes, **settings}))
        yield (
            gateway,
            {
                name: stack.enter_context(
                    httpx2.Client(
                        base_url=gateway.url, timeout=TIMEOUT, headers={"authorization": f"Bearer {key}"}, verify=NO_TLS
                    )
                )
                for name, key in keys.items()
            },
        )


def begin(client: httpx2.Client, until: Path) -> httpx2.Response:
    asking = {"message": standin(f"wait-for file={until}")}
    return client.post("/v1/chat", json=asking, headers={"prefer": "respond-async"})


def test_a_greedy_owner_does_not_keep_the_other_out(tmp_path: Path) -> None:
    with two_owners(tmp_path, max_runs="3", queue_ttl_seconds="0") as (_, clients), ThreadPoolExecutor() as pool:
        greedy, modest = clients.values()
        files = [tmp_path / f"go-{number}" for number in range(5)]
        assert [begin(greedy, file).status_code for file in files[:2]] == [202, 202]
        refused = begin(greedy, files[2])  # the last place is for a key that has none
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "too_many_runs")
        assert int(refused.headers["retry-after"]) >= 1
        assert begin(modest, files[3]).status_code == 202
        waiting = pool.submit(begin, modest, files[4])
        waiting.add_done_callback(lambda _: files[4].touch())  # the greedy one may wait for this place
        files[2].touch()
        files[0].touch()  # a place is free, and the greedy one asks for it all the time
        while not waiting.done():
            assert begin(greedy, files[2]).status_code in (202, 429)
        assert waiting.result().status_code == 202
        for file in files:
            file.touch()


def test_a_key_may_have_fewer_places(tmp_path: Path) -> None:
    with two_owners(tmp_path, max_runs="4", max_runs_per_key="1", queue_ttl_seconds="0") as (_, clients):
        go = tmp_path / "go"
        assert [begin(clients[name], go).status_code for name in OWNERS] == [202, 202]
        refused = begin(clients["greedy"], go)
        assert refused.status_code == 429
        assert "max_runs_per_key" in refused.json()["error"]["message"]
        go.touch()


def test_waiting_runs_of_one_owner_do_not_push_out_those_of_another(tmp_path: Path) -> None:
    def caller(client: httpx2.Client, number: int) -> Caller:
        asking = Caller(client, program(call("weather", city=str(number)), say("It is $1.")), [WEATHER])
        asking.ask()
        return asking

    with two_owners(tmp_path, max_runs="2", queue_ttl_seconds="0") as (_, clients):
        modest = caller(clients["modest"], 0)
        greedy = [caller(clients["greedy"], number) for number in range(1, 4)]
        states = [documents_of(clients["greedy"], one.chat_id)["status"] for one in greedy]
        assert states == ["error"] * 2 + ["streaming"]
        assert documents_of(clients["modest"], modest.chat_id)["status"] == "streaming"
        modest.give((only_call(modest.messages[-1])["id"], "sunny"))
        assert modest.ask()["content"] == "It is sunny."


def test_a_key_has_so_many_requests_a_minute(tmp_path: Path) -> None:
    def asked(client: httpx2.Client) -> httpx2.Response:
        return client.get("/v1/models")

    with two_owners(tmp_path, requests_per_minute="3") as (_, clients):
        replies = [asked(clients["greedy"]) for _ in range(20)]
        refused = [reply for reply in replies if reply.status_code == 429]
        assert [reply.status_code for reply in replies[:3]] == [200] * 3
        assert refused
        assert refused[0].json()["error"]["code"] == "rate_limit_exceeded"
        assert 1 <= int(refused[0].headers["retry-after"]) <= 20
        assert asked(clients["modest"]).status_code == 200
        assert clients["greedy"].get("/health").status_code == 200
