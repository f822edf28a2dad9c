"""A key is random and long; only its hash is kept; who owns it is found without telling by the time it takes."""

import hmac
import re

import pytest

from cursor_gateway.keys import KeyRing, Rate, hash_key, is_hash, is_name, new_key, owner_of


def test_a_key_is_recognizable_and_never_the_same() -> None:
    keys = {new_key() for _ in range(100)}
    assert len(keys) == 100
    assert all(re.fullmatch(r"cgw_[A-Za-z0-9_-]{43}", key) for key in keys)


def test_a_hash_is_sha256_and_does_not_show_the_key() -> None:
    # `printf %s cgw_x | sha256sum`
    assert hash_key("cgw_x") == "sha256:147a396b6d8f9b742245168f51cc3d1d6732f7a6e3243ee80b02bb24390cd496"
    assert hash_key("cgw_x") != hash_key("cgw_y")


@pytest.mark.parametrize("key", ["", "é", "\x00", "\ud800", "x" * 100_000])
def test_whatever_a_caller_sends_can_be_hashed(key: str) -> None:
    assert is_hash(hash_key(key))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a" * 64,
        "sha256:" + "a" * 63,
        "sha256:" + "A" * 64,
        "sha256:" + "g" * 64,
        "sha256:" + "a" * 64 + "\n",
        " sha256:" + "a" * 64,
        "md5:" + "a" * 64,
    ],
)
def test_what_is_no_hash(text: str) -> None:
    assert not is_hash(text)


@pytest.mark.parametrize("name", ["a", "laptop", "ci-2.main_x", "A" * 64])
def test_a_name(name: str) -> None:
    assert is_name(name)


@pytest.mark.parametrize("name", ["", "a b", "é", "a\n", "A" * 65, "a=b", "a,b", "cgw_0123", "local"])
def test_what_is_no_name(name: str) -> None:
    assert not is_name(name)


def test_the_owner_of_a_key_is_found_and_nobody_elses() -> None:
    keys = {name: new_key() for name in ("first", "second", "third")}
    stored = {name: hash_key(key) for name, key in keys.items()}
    for name, key in keys.items():
        assert owner_of(key, stored) == name
    for wrong in ("", new_key(), keys["first"] + " ", keys["first"][:-1], stored["first"]):
        assert owner_of(wrong, stored) is None
    assert owner_of(keys["first"], {}) is None


def test_every_hash_is_compared_whichever_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[bytes] = []

    def compare(first: bytes, second: bytes) -> bool:
        compared.append(second)
        return compare_digest(first, second)

    compare_digest = hmac.compare_digest
    monkeypatch.setattr("cursor_gateway.keys.hmac.compare_digest", compare)
    stored = {name: hash_key(name) for name in ("a", "b", "c")}
    for key in ("a", "c", "nobody's"):
        compared.clear()
        owner_of(key, stored)
        assert compared == [hashed.encode() for hashed in stored.values()]


def test_an_empty_key_has_no_owner_even_if_its_hash_is_configured() -> None:
    ring = KeyRing({"ada": hash_key("")})
    assert ring.owner_of("") is None


# --- the keys that are valid ------------------------------------------------------------------------

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
    ring.replace_stored({}, has_any=True)
    assert ring.owner_of("b") is None


@pytest.mark.parametrize("stored", [{hash_key(""): "empty"}, {"": "empty"}])
def test_an_empty_key_is_never_valid(stored: dict[str, str]) -> None:
    ring = KeyRing({"other": hash_key("")})
    ring.replace_stored(stored, has_any=True)
    assert ring.owner_of("") is None


def test_who_has_no_key_any_more_owns_nothing() -> None:
    assert KeyRing({}).has_owner("local")
    assert not KeyRing({}).has_owner("alice")
    ring = KeyRing({"alice": hash_key("cgw_a")}, has_database=True)
    ring.replace_stored({hash_key("cgw_b"): "bob"}, has_any=True)
    assert [ring.has_owner(name) for name in ("alice", "bob", "local")] == [True, True, False]
    ring.replace_stored({}, has_any=True)
    assert not ring.has_owner("bob")


def test_a_rate() -> None:
    rate = Rate(60)
    assert [rate.take("me", 0) for _ in range(60)] == [None] * 60
    assert rate.take("me", 0) == 1
    assert rate.take("you", 0) is None
    assert rate.take("me", 0.5) == pytest.approx(0.5)
    assert rate.take("me", 1.1) is None
    assert rate.take("me", 1.1) is not None
    assert [rate.take("me", 1000) for _ in range(61)].count(None) == 60
    assert Rate(0).take("me", 0) is None
