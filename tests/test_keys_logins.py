"""A login code is short-lived and is used once; a device's key is kept as a hash, expires, and can be forgotten."""

import os
import stat
from pathlib import Path

import pytest

from cursor_gateway.errors import RequestForbidden, TooManyRequests
from cursor_gateway.keys import CODE_SECONDS, DEVICE_DAYS, DeviceKeys, LoginCodes, hash_key, new_key

DAY = 24 * 3600.0


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def refused(codes: LoginCodes, code: str) -> bool:
    try:
        codes.use(code)
    except RequestForbidden:
        return True
    return False


def test_a_code_is_used_once() -> None:
    codes = LoginCodes()
    code = codes.new_code()
    assert not refused(codes, code)
    assert refused(codes, code)


def test_codes_are_long_and_never_the_same() -> None:
    codes = LoginCodes()
    made = {codes.new_code() for _ in range(100)}
    assert len(made) == 100
    assert all(len(code) >= 22 for code in made)  # 128 bits


def test_a_code_expires() -> None:
    clock = Clock()
    codes = LoginCodes(clock)
    first, second = codes.new_code(), codes.new_code()
    clock.now += CODE_SECONDS - 1
    assert not refused(codes, first)
    clock.now += 1
    assert refused(codes, second)


def test_only_the_newest_codes_are_valid() -> None:
    codes = LoginCodes()
    made = [codes.new_code() for _ in range(6)]
    assert [refused(codes, code) for code in made] == [True, False, False, False, False, False]


def test_what_is_no_code_is_refused() -> None:
    codes = LoginCodes()
    code = codes.new_code()
    for wrong in ("", code[:-1], code + "x", code.swapcase(), hash_key(code), "\ud800"):
        assert refused(codes, wrong)


def test_attempts_are_limited_even_with_the_right_code() -> None:
    clock = Clock()
    codes = LoginCodes(clock)
    code = codes.new_code()
    for _ in range(10):
        assert refused(codes, "guess")
    with pytest.raises(TooManyRequests) as error:
        codes.use(code)
    assert error.value.retry_after == 6
    clock.now += 6
    codes.use(code)


def device_keys(folder: Path, clock: Clock | None = None, **api_keys: str) -> DeviceKeys:
    return DeviceKeys(api_keys, "local", folder / "devices.json", clock or Clock())


def test_a_device_has_a_key_of_its_own_also_after_a_restart(tmp_path: Path) -> None:
    keys = device_keys(tmp_path)
    one, other = keys.add("phone"), keys.add("tablet")
    for ring in (keys, device_keys(tmp_path)):
        assert (ring.owner_of(one), ring.owner_of(other)) == ("local", "local")
        assert (ring.owner_of(""), ring.owner_of(new_key())) == (None, None)
        assert [device.name for device in ring.devices()] == ["phone", "tablet"]


def test_a_key_is_always_required_and_those_of_the_settings_are_valid(tmp_path: Path) -> None:
    key = new_key()
    assert device_keys(tmp_path).are_required
    assert device_keys(tmp_path, ada=hash_key(key)).owner_of(key) == "ada"
    assert [device_keys(tmp_path, ada=hash_key(key)).has_owner(name) for name in ("local", "ada", "bob")] == [
        True,
        True,
        False,
    ]


def test_the_file_has_no_key_and_is_for_its_user_only(tmp_path: Path) -> None:
    key = device_keys(tmp_path).add("phone")
    file = tmp_path / "devices.json"
    assert key not in file.read_text()
    assert hash_key(key) in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert device_keys(tmp_path).owner_of(hash_key(key)) is None


def test_a_device_must_log_in_again_after_a_while(tmp_path: Path) -> None:
    clock = Clock()
    keys = device_keys(tmp_path, clock)
    key = keys.add("phone")
    clock.now += DEVICE_DAYS * DAY - 1
    assert keys.owner_of(key) == "local"
    clock.now += 1
    assert keys.owner_of(key) is None
    assert keys.devices() == []


def test_a_device_is_forgotten_by_its_id_or_its_key(tmp_path: Path) -> None:
    keys = device_keys(tmp_path)
    one, two, three = (keys.add(name) for name in ("one", "two", "three"))
    assert keys.forget(keys.devices()[0].id)
    assert not keys.forget("dev_unknown")
    keys.forget_key(two)
    for ring in (keys, device_keys(tmp_path)):
        assert [ring.owner_of(key) for key in (one, two, three)] == [None, None, "local"]


def test_the_newest_devices_are_kept(tmp_path: Path) -> None:
    keys = device_keys(tmp_path)
    made = [keys.add(str(number)) for number in range(22)]
    assert len(keys.devices()) == 20
    assert keys.owner_of(made[0]) is None
    assert keys.owner_of(made[-1]) == "local"


def test_names_are_short_and_printable(tmp_path: Path) -> None:
    keys = device_keys(tmp_path)
    keys.add("\x1b[31mMobile\n" + "x" * 500)
    (device,) = keys.devices()
    assert device.name.startswith("[31mMobilex")
    assert len(device.name) == 120


@pytest.mark.parametrize("damage", [b"", b"{", b'[{"id": 1}]', b"\xff"])
def test_after_damage_devices_must_log_in_again(tmp_path: Path, damage: bytes) -> None:
    key = device_keys(tmp_path).add("phone")
    (tmp_path / "devices.json").write_bytes(damage)
    keys = device_keys(tmp_path)
    assert keys.owner_of(key) is None
    assert keys.owner_of(keys.add("phone")) == "local"


def test_a_key_that_cannot_be_kept_is_not_valid(tmp_path: Path) -> None:
    keys = device_keys(tmp_path / "missing")
    with pytest.raises(OSError, match="devices"):
        keys.add("phone")
    assert keys.devices() == []


def test_no_link_is_written_through(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("mine")
    os.symlink(target, tmp_path / "devices.new")
    device_keys(tmp_path).add("phone")
    assert target.read_text() == "mine"
