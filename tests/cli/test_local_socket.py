"""A gateway's socket is trusted where nobody but its user could have put it, and only while somebody listens."""

import os
import socket
from pathlib import Path

import pytest

from cursor_gateway.cli.assembly import local_socket

PORT = 8787


def test_it_is_found_while_a_gateway_listens(tmp_path: Path) -> None:
    assert local_socket.find_gateway(tmp_path / "data", PORT) is None
    with local_socket.listening(tmp_path / "data", PORT) as bound:
        found = local_socket.find_gateway(tmp_path / "data", PORT)
        assert found is not None
        path = found.socket
        assert local_socket.find_gateway(tmp_path / "data", PORT + 1) is None
        with socket.socket(socket.AF_UNIX) as client, local_socket.short_path(path) as name:
            client.connect(name)
            bound.accept()[0].close()  # the probe of `find_gateway`
        for folder in (path.parent, path.parent.parent):
            assert folder.stat().st_mode & 0o777 == 0o700
    assert local_socket.find_gateway(tmp_path / "data", PORT) is None
    assert list(path.parent.iterdir()) == []


def test_each_says_what_it_is_for_and_the_one_for_a_folder_is_found(tmp_path: Path) -> None:
    data = tmp_path / "data"
    assert local_socket.find_gateways(data) == []
    inner, outer = (
        local_socket.GatewayDescription("http://127.0.0.1:9001", ["/code/app"]),
        local_socket.GatewayDescription("http://[::1]:9002", ["/code"]),
    )
    launched = local_socket.GatewayDescription("http://127.0.0.1:9000", ["/code/app/src"], is_temporary=True)
    with (
        local_socket.listening(data, 9002, outer),
        local_socket.listening(data, 9001, inner),
        local_socket.listening(data, 9000, launched),
        local_socket.listening(data, 9003),  # of an earlier version, as far as its file says
    ):
        (data / "sockets" / "9003.json").write_text("{")
        (data / "sockets" / "notes.sock").touch()
        found = local_socket.find_gateways(data)
        assert [one.url for one in found] == [launched.url, inner.url, outer.url, "http://127.0.0.1:9003"]

        def port_for(folder: str | None, usual: int = 0) -> int | None:
            chosen = local_socket.nearest(found, None if folder is None else Path(folder), usual)
            return None if chosen is None else chosen.port

        assert port_for("/code/app/src") == 9001  # not the one that stops when another command does
        assert port_for("/code/application", 9003) == 9002
        assert port_for("/elsewhere", 9003) == port_for(None, 9003) == 9003
        assert port_for("/elsewhere") == 9001
        assert local_socket.nearest(found[:1], Path("/code/app/src"), 0) is None


def test_a_path_that_is_too_long_for_an_address(tmp_path: Path) -> None:
    data = tmp_path / ("long" * 30)
    with local_socket.listening(data, PORT):
        found = local_socket.find_gateway(data, PORT)
        assert found is not None
        with local_socket.short_path(found.socket) as name:
            assert len(name) < 100
        assert not os.path.lexists(Path(name).parent)


def test_what_a_killed_gateway_left_is_replaced_and_a_living_one_is_not(tmp_path: Path) -> None:
    with local_socket.listening(tmp_path, PORT) as bound:
        bound.close()  # its file stays, as after a kill
        assert local_socket.find_gateway(tmp_path, PORT) is None
        with local_socket.listening(tmp_path, PORT):
            assert local_socket.find_gateway(tmp_path, PORT) is not None
            with pytest.raises(OSError, match="another gateway"), local_socket.listening(tmp_path, PORT):
                pass
            assert local_socket.find_gateway(tmp_path, PORT) is not None


def test_a_gateway_that_stops_late_does_not_take_the_next_ones_away(tmp_path: Path) -> None:
    first = local_socket.listening(tmp_path, PORT)
    first.__enter__().close()
    with local_socket.listening(tmp_path, PORT):
        first.__exit__(None, None, None)
        assert local_socket.find_gateway(tmp_path, PORT) is not None


def test_a_folder_that_others_may_write_to_is_not_trusted(tmp_path: Path) -> None:
    with local_socket.listening(tmp_path, PORT):
        folder = tmp_path / "sockets"
        for mode in (0o770, 0o707):
            folder.chmod(mode)
            assert local_socket.find_gateway(tmp_path, PORT) is None
            with pytest.raises(OSError, match="others may write"), local_socket.listening(tmp_path, PORT + 1):
                pass
        folder.chmod(0o700)
        assert local_socket.find_gateway(tmp_path, PORT) is not None
        folder.rename(tmp_path / "elsewhere")
        folder.symlink_to(tmp_path / "elsewhere")
        assert local_socket.find_gateway(tmp_path, PORT) is None


def test_what_belongs_to_another_user_is_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with local_socket.listening(tmp_path, PORT):
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)  # as it looks to somebody else
        assert local_socket.find_gateway(tmp_path, PORT) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only the administrator can give files away")
def test_a_socket_that_belongs_to_another_user_is_not_trusted(tmp_path: Path) -> None:
    with local_socket.listening(tmp_path, PORT):
        os.chown(tmp_path / "sockets" / f"{PORT}.sock", 12345, 12345)
        assert local_socket.find_gateway(tmp_path, PORT) is None


def test_a_file_is_no_socket(tmp_path: Path) -> None:
    (tmp_path / "sockets").mkdir(mode=0o700)
    (tmp_path / "sockets" / f"{PORT}.sock").touch()
    assert local_socket.find_gateway(tmp_path, PORT) is None


def test_a_gateway_that_is_busy_is_there(tmp_path: Path) -> None:
    """All places for waiting connections are taken."""
    with local_socket.listening(tmp_path, PORT) as bound:
        bound.listen(0)
        path = tmp_path / "sockets" / f"{PORT}.sock"
        waiting = []
        try:
            with local_socket.short_path(path) as name:
                while True:
                    waiting.append(socket.socket(socket.AF_UNIX))
                    waiting[-1].setblocking(False)
                    try:
                        waiting[-1].connect(name)
                    except BlockingIOError:
                        break
            assert local_socket.find_gateway(tmp_path, PORT) is not None
        finally:
            for client in waiting:
                client.close()
