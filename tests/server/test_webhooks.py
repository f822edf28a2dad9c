"""Webhooks of a real gateway: a receiver is told what becomes of runs, also when the gateway is killed."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from tests.gateways import running_gateway
from tests.server.conftest import Json, chat, eventually, growing, http_client, standin, text_of
from tests.server.test_killed import kill
from tests.webhooks.receiver import SECRET, Receiver, receiving


def settings(receiver: Receiver, **more: Json) -> dict[str, str]:
    hook: Json = {"url": receiver.url, "secret": SECRET, "allow_private": True}
    return {"webhooks": msgspec.json.encode({"hook": hook, **more}).decode()}


def test_a_receiver_is_told_how_runs_end(tmp_path: Path) -> None:
    with receiving() as receiver:
        given = settings(receiver, private={"url": receiver.url, "events": ["finished"]})
        with running_gateway(tmp_path, settings=given) as gateway, http_client(gateway) as http:
            finished = chat(http, standin("text"))
            failed = http.post("/v1/chat", json={"message": standin("exit code=3")})
            eventually(lambda: len(receiver.received) == 2)
            log = eventually(lambda: found if b"webhook failed" in (found := gateway.log.read_bytes()) else b"")
            metrics = http.get("/metrics").text
    assert failed.status_code >= 400
    told = {one.verified()["type"]: one.verified()["data"] for one in receiver.received}
    assert told["run.finished"]["id"] == finished["id"]
    assert told["run.finished"]["usage"] == finished["usage"]
    assert told["run.finished"]["url"] == f"{gateway.url}/#/c/{finished['conversationId']}/{finished['id']}"
    assert told["run.failed"]["errorCode"]
    assert b"its address is private" in log
    assert receiver.url.encode() not in log
    assert 'webhook_attempts_total{result="delivered",webhook="hook"} 2.0' in metrics
    assert 'webhook_attempts_total{result="failed",webhook="private"} 1.0' in metrics


def test_a_receiver_that_does_not_answer_delays_no_run(tmp_path: Path) -> None:
    with receiving() as receiver, ThreadPoolExecutor() as pool:
        silent = {"url": "http://192.0.2.1/", "allow_private": True}  # of documentation: nobody has it
        with (
            running_gateway(tmp_path, settings=settings(receiver, silent=silent)) as gateway,
            http_client(gateway) as http,
        ):
            answers = list(pool.map(lambda _: text_of(chat(http, standin("text"))), range(4)))
            eventually(lambda: len(receiver.received) == 4)
    assert len(answers) == 4


def test_no_message_is_lost_when_the_gateway_is_killed(tmp_path: Path) -> None:
    """One was not accepted before it was killed; the run of the other was active then."""
    with receiving("503") as receiver:
        with running_gateway(tmp_path, settings=settings(receiver)) as gateway, http_client(gateway) as http:
            first = chat(http, standin("text"))
            eventually(lambda: receiver.received)
            eventually(lambda: b"webhook failed" in gateway.log.read_bytes())  # and noted in the store
            with growing(http, "documents", standin("hang-mid")) as stream:
                stream.until(b"\n\n")
                second = stream.response.headers["x-chat-id"]
                kill(gateway)
        (refused,) = receiver.received
        receiver.replies = ["200"]
        with running_gateway(tmp_path, settings=settings(receiver)):
            eventually(lambda: len(receiver.received) >= 3)
    again = {one.id: one for one in receiver.received[1:]}
    assert len(again) == len(receiver.received) - 1 == 2
    assert again[refused.id].body == refused.body
    assert refused.verified()["data"]["id"] == first["id"]
    (failed,) = (one.verified() for id, one in again.items() if id != refused.id)
    assert (failed["type"], failed["data"]["id"]) == ("run.failed", second)
    assert failed["data"]["errorCode"] == "gateway_restarted"


def test_settings_that_are_wrong_are_named_without_secrets(tmp_path: Path) -> None:
    wrong = '{"hook": {"url": "https://example.com/T0KEN", "secret": "whsec_S3CRET"}}'
    with pytest.raises(AssertionError), running_gateway(tmp_path, settings={"webhooks": wrong}):
        pass
    said = (tmp_path / "gateway.log").read_text()
    assert "`secret` must be `whsec_` and 24 to 64 bytes in base64" in said
    assert "T0KEN" not in said
    assert "S3CRET" not in said
