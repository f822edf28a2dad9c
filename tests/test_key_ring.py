"""Which keys are valid, and whether one is needed."""

import pytest

from cursor_gateway.keys import KeyRing, hash_key

A, B = hash_key("a"), hash_key("b")


def test_without_keys_none_is_required_unless_others_can_connect() -> None:
    assert not KeyRing({}).are_required
    assert KeyRing({}, is_exposed=True).are_required
    assert KeyRing({"alice": A}).are_required


@pytest.mark.parametrize(
    ("stored", "has_any", "are_required"),
    [({}, False, False), ({B: "bob"}, True, True), ({}, True, True)],  # the last: all were revoked
)
def test_until_the_database_was_asked_a_key_is_required(
    stored: dict[str, str], has_any: bool, are_required: bool
) -> None:
    ring = KeyRing({}, has_database=True)
    before = (ring.are_required, ring.is_complete)
    ring.replace_stored(stored, has_any=has_any)
    assert before == (True, False)
    assert (ring.are_required, ring.is_complete) == (are_required, True)


def test_keys_of_the_settings_and_of_the_database_are_valid() -> None:
    ring = KeyRing({"alice": A}, has_database=True)
    ring.replace_stored({B: "bob"}, has_any=True)
    assert [ring.owner_of(key) for key in ("a", "b", "c", "")] == ["alice", "bob", None, None]
    assert ring.names == ["alice", "bob"]
    ring.replace_stored({}, has_any=True)
    assert ring.owner_of("b") is None


@pytest.mark.parametrize("stored", [{hash_key(""): "empty"}, {"": "empty"}])
def test_an_empty_key_is_never_valid(stored: dict[str, str]) -> None:
    ring = KeyRing({"other": hash_key("")})
    ring.replace_stored(stored, has_any=True)
    assert ring.owner_of("") is None
