"""`serve --share`: what is opened, after which question, and that it is closed again; with a stand-in for Tailscale."""

import os
import pty
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import pytest

from cursor_gateway.cli.commands.share import SharedPort, find_tailnet, qr_text, shared_port, show_login, show_shared
from cursor_gateway.cli.output import Trouble
from cursor_gateway.errors import SettingsError
from cursor_gateway.keys import hash_key, new_key
from cursor_gateway.model.history import LoginLink
from cursor_gateway.settings import Settings
from tests.cli import tailscale_program
from tests.cli.processes import finished

_NAME = "laptop.tail1234.ts.net"


@pytest.fixture
def tailscale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The stand-in's state; nobody is logged in yet."""
    state, programs = tmp_path / "tailscale", tmp_path / "bin"
    state.mkdir()
    programs.mkdir()
    program = programs / "tailscale"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {tailscale_program.__file__} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setenv("TAILSCALE_STATE", str(state))
    return state


@contextmanager
def terminal(answer: bytes, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Standard input is one, at which somebody types."""
    ours, theirs = pty.openpty()
    os.write(ours, answer)
    with open(theirs) as typed:
        monkeypatch.setattr(sys, "stdin", typed)
        try:
            yield
        finally:
            os.close(ours)


def settings(tmp_path: Path, **changed: object) -> Settings:
    return Settings(data_dir=str(tmp_path / "data"), port=0, **changed)  # type: ignore[arg-type]


def opened(tmp_path: Path, **changed: object) -> SharedPort:
    with shared_port(settings(tmp_path, **changed), 1) as shared:
        return shared


def test_tailscale_serves_the_port_until_the_end(
    tailscale: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tailscale / "name").write_text(_NAME)
    with terminal(b"y\n", monkeypatch), shared_port(settings(tmp_path), 1) as shared:
        host, port = shared.bound.getsockname()
        assert (host, shared.sharing.url) == ("127.0.0.1", f"https://{_NAME}")
        assert shared.settings.allowed_hosts == [_NAME]
        assert (tailscale / "target").read_text() == f"http://127.0.0.1:{port}"
        assert not (tailscale / "stopped").exists()
    assert (tailscale / "stopped").exists()
    assert f"tailscale serve --https=443 http://127.0.0.1:{port}" in capfd.readouterr().out


def test_nothing_is_opened_if_the_answer_is_no(
    tailscale: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tailscale / "name").write_text(_NAME)
    with terminal(b"n\n", monkeypatch), pytest.raises(click.Abort):
        opened(tmp_path)
    assert not (tailscale / "target").exists()


def test_nothing_is_opened_without_a_question(tailscale: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tailscale / "name").write_text(_NAME)
    with open(os.devnull) as nobody:
        monkeypatch.setattr(sys, "stdin", nobody)
        with pytest.raises(Trouble, match="needs a terminal"):
            opened(tmp_path)
    assert not (tailscale / "target").exists()


def test_a_port_that_tailscale_serves_already_is_left_alone(
    tailscale: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tailscale / "name").write_text(_NAME)
    (tailscale / "served").write_text("443")
    with terminal(b"y\n", monkeypatch):
        assert opened(tmp_path).sharing.url == f"https://{_NAME}:8443"
    (tailscale / "served").write_text("443 8443 10443")
    with pytest.raises(Trouble, match="already serves"):
        opened(tmp_path)


def test_what_tailscale_says_instead_of_serving_is_shown(
    tailscale: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tailscale / "name").write_text(_NAME)
    (tailscale / "refusal").write_text(
        "Serve is not enabled on your tailnet.\nTo enable, visit:\n\n\thttps://x.example/f"
    )
    with terminal(b"y\n", monkeypatch), pytest.raises(Trouble, match="To enable, visit: https://x"):
        opened(tmp_path)


def test_without_tailscale_there_is_advice_and_nothing_is_opened(
    tailscale: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Trouble, match="nothing was opened"):
        opened(tmp_path)  # it is installed, but nobody is logged in
    assert "reverse_proxy 127.0.0.1:" in capfd.readouterr().err
    assert not (tmp_path / "data").exists()


def test_a_program_that_prints_something_else_is_no_tailscale(tailscale: Path) -> None:
    program = tailscale.parent / "bin" / "tailscale"
    for output in ("echo hello", "echo '[]'", "exit 1", 'echo \'{"BackendState": "Running"}\''):
        program.write_text(f"#!/bin/sh\n{output}\n")
        assert find_tailnet() is None
    program.unlink()
    assert find_tailnet() is None


def test_behind_a_proxy_of_ones_own_nothing_is_asked(tmp_path: Path) -> None:
    shared = opened(tmp_path, page_url="https://gateway.example.com/")
    assert shared.sharing.url == "https://gateway.example.com"
    assert shared.sharing.new_link().url.startswith("https://gateway.example.com/#/login/")


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"page_url": "http://gateway.example.com"}, "needs HTTPS"),
        ({"store": "postgresql://x/y"}, "with a database"),
        ({"api_keys": {"ada": hash_key(new_key()), "bob": hash_key(new_key())}}, "has several"),
    ],
)
def test_what_cannot_be_shared_safely_is_refused(tmp_path: Path, changed: dict[str, object], reason: str) -> None:
    with pytest.raises(SettingsError, match=reason):
        opened(tmp_path, **changed)


def test_a_front_is_not_shared(tmp_path: Path) -> None:
    refused = finished(
        "serve",
        "--share",
        CURSOR_GATEWAY_ROLE="front",
        CURSOR_GATEWAY_STORE="postgresql://x/y",
        CURSOR_GATEWAY_PORT="0",
        CURSOR_GATEWAY_DATA_DIR=str(tmp_path),
    )
    assert refused.returncode == 2
    assert b"with a database" in refused.stderr


def test_devices_belong_to_the_one_who_has_a_key(tmp_path: Path) -> None:
    url = "https://gateway.example.com"
    alone = opened(tmp_path, page_url=url).sharing.keys
    assert alone.owner_of(alone.add("phone")) == "local"
    key = new_key()
    keyed = opened(tmp_path, page_url=url, api_keys={"ada": hash_key(key)}).sharing.keys
    assert keyed.owner_of(keyed.add("phone")) == keyed.owner_of(key) == "ada"


def test_the_next_port_must_be_free(tmp_path: Path) -> None:
    with shared_port(settings(tmp_path, page_url="https://gateway.example.com"), 1) as shared:
        taken = shared.bound.getsockname()[1]
        used = Settings(data_dir=str(tmp_path), port=taken - 1, page_url="https://gateway.example.com")
        with pytest.raises(SettingsError, match=f"{taken}, which is not available"):
            shared_port(used, taken - 1).__enter__()


def test_the_code_has_the_modules_that_a_scanner_reads() -> None:
    """Each line has two rows; what is drawn is light."""
    lines = [line.removeprefix("  ") for line in qr_text("https://gateway.example.com", in_colour=False).splitlines()]
    rows = ["".join("10"[glyph in light] for glyph in line) for line in lines for light in ("█▀", "█▄")]
    size = len(lines[0]) - 4  # without the margin
    finder = ("1111111", "1000001", "1011101", "1011101", "1011101", "1000001", "1111111")
    for number, expected in enumerate(finder):
        row = rows[number + 2][2:-2]
        assert len(row) == size
        assert (row[:7], row[-7:]) == (expected, expected)
        assert rows[2 + size - 7 + number][2:9] == expected
    assert set(rows[0] + rows[1]) == {"0"}


def test_in_a_pipe_only_the_link_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    show_login(LoginLink("https://gateway.example.com/#/login/CODE", 0))
    said = capsys.readouterr().out
    assert "  https://gateway.example.com/#/login/CODE\n" in said
    assert "█" not in said


def test_the_output_of_a_service_has_no_login(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is a log; a code there could be used by whoever reads it first."""
    show_shared(opened(tmp_path, page_url="https://gateway.example.com").sharing)
    said = capsys.readouterr().out
    assert "  https://gateway.example.com/\n" in said
    assert "cursor-gateway share" in said
    assert "/login/" not in said
