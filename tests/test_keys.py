"""A key is random and long; only its hash is kept; who owns it is found without telling by the time it takes."""

import hmac
import re

import pytest

from cursor_gateway.keys import KeyRing, hash_key, is_hash, is_name, new_key, owner_of


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
