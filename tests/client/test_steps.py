"""A request is repeated where that may help, and no longer than that."""

import pytest

from cursor_gateway.client.failures import CallFailed, CannotReach
from cursor_gateway.client.steps import Batch, BatchCall, Link, Lost, Reply, Request, Tries, ask, once, read_value
from tests.client.scripted import LINK, LOST, REFUSED, Answer, Scripted, Shell, answer

REQUEST = Request(method="GET", path=("health",))
FINE = answer(200, b"fine")
BUSY = answer(503, b'{"error":{"message":"Later.","code":"shutting_down"}}', retry_after="2")


def asked(*answers: Answer, link: Link = LINK) -> tuple[Reply, list[float]]:
    shell = Shell(*answers)
    reply = shell.asked(ask(REQUEST, Tries(link)))
    assert shell.requests == [REQUEST] * len(answers)
    return reply, shell.pauses


def test_a_reply() -> None:
    assert asked(Scripted(200, [b"fi", b"ne"], {"a": "b"})) == (Reply(200, {"a": "b"}, b"fine"), [])
    assert asked(answer(204))[0] == Reply(204, {}, b"")


def test_what_was_lost_on_the_way_is_asked_again() -> None:
    assert asked(LOST, Scripted(200, [b"fi", LOST]), FINE) == (Reply(200, {}, b"fine"), [0.1, 1.0])


def test_once_it_was_there_it_may_be_away_for_a_while() -> None:
    assert asked(LOST, REFUSED, REFUSED, FINE)[1] == [0.1, 1.0, 5.0]
    assert asked(BUSY, REFUSED, FINE)[1] == [2, 1.0]


def test_where_nobody_is_nobody_is_waited_for() -> None:
    with pytest.raises(CannotReach) as caught:
        asked(REFUSED)
    assert str(caught.value) == "http://gateway cannot be reached: refused; is the gateway running there?"
    assert caught.value.code == "cannot_reach"
    assert (caught.value.reason, caught.value.was_connected) == ("refused", False)


def test_there_are_as_many_tries_as_pauses() -> None:
    with pytest.raises(CannotReach) as lost:
        asked(LOST, LOST, LOST, REFUSED)
    assert (lost.value.reason, lost.value.was_connected) == ("refused", True)
    with pytest.raises(CannotReach):
        asked(LOST, link=Link("http://gateway", ()))
    with pytest.raises(CallFailed, match=r"^Later\.$") as caught:
        asked(BUSY, BUSY, BUSY, BUSY)
    assert caught.value.status == 503


def test_a_refusal_is_final() -> None:
    with pytest.raises(CallFailed, match=r"^No\.$"):
        asked(answer(400, b'{"error":{"message":"No.","code":"invalid_request"}}'))
    with pytest.raises(CallFailed, match="302"):
        asked(answer(302))


@pytest.mark.parametrize(("wanted", "waited"), [("0", 0.1), ("1", 1), ("30", 30), ("3600", 30)])
def test_the_gateway_may_ask_for_a_longer_pause(wanted: str, waited: float) -> None:
    assert asked(answer(502, b"<html>", retry_after=wanted), FINE)[1] == [waited]


def test_after_a_sign_of_life_the_tries_begin_anew() -> None:
    tries = Tries(LINK)
    assert [tries.pause_after(LOST), tries.pause_after(LOST)] == [0.1, 1.0]
    tries.reset()
    assert [tries.pause_after(REFUSED), tries.pause_after(LOST), tries.pause_after(LOST)] == [0.1, 1.0, 5.0]
    with pytest.raises(CannotReach):
        tries.pause_after(LOST)


def test_once_is_once() -> None:
    assert Shell(LOST).asked(once(REQUEST)) == Lost("reset")
    assert Shell(FINE).asked(once(REQUEST)) == Reply(200, {}, b"fine")


def test_a_value() -> None:
    assert read_value(LINK, Reply(200, {}, b"[1,2]"), list[int]) == [1, 2]


@pytest.mark.parametrize("body", [b"", b"{}", b"\xff", b"[" * 100_000])
def test_what_is_no_value(body: bytes) -> None:
    with pytest.raises(CallFailed, match="cannot be used") as caught:
        read_value(LINK, Reply(200, {}, body), list[int])
    assert caught.value.code == "not_a_gateway"


def test_batches_come_one_by_one_between_the_steps() -> None:
    def numbers() -> BatchCall[int]:
        yield Batch([1, 2])
        reply = yield from ask(REQUEST, Tries(LINK))
        yield Batch([len(reply.body)])

    assert Shell(LOST, FINE).batches(numbers()) == [[1, 2], [4]]
