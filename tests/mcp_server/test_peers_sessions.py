"""Sessions, and places in streams, as text."""

import pytest

from cursor_gateway.mcp_server.peers import (
    EndedSessions,
    Peer,
    Place,
    encode_place,
    new_session,
    read_place,
    read_session,
)


def test_a_session_contains_what_its_host_said() -> None:
    peer = Peer("2025-11-25", True, name="host")
    assert new_session(peer, "1") != new_session(peer, "2")
    assert read_session(new_session(peer, "1")) == peer


@pytest.mark.parametrize("id", ["", "x", "é", "A" * 2000, "!!"])
def test_what_is_no_session_is_none(id: str) -> None:
    assert read_session(id) is None
    assert read_session(new_session(Peer("2026-07-28"), "1")) is None  # it has none


def test_a_place_in_a_stream_is_read_back() -> None:
    place = Place("id", "chat_1", 7, 3)
    assert read_place(encode_place(place)) == place
    assert read_place("12") is None
    longest = Place("é" * 200, "chat_" + "0" * 32, 2**31, 2**63 - 1)
    assert read_place(encode_place(longest)) == longest


def test_the_latest_sessions_that_have_ended_are_known() -> None:
    ended = EndedSessions(2)
    for id in ("a", "b", "c"):
        ended.add("ann", id)
    assert [ended.has("ann", id) for id in ("a", "b", "c")] == [False, True, True]
    assert not ended.has("bob", "c")
