"""What stands between a client and a gateway, and breaks: each connection is cut after so many bytes of the replies."""

import socket
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: the other side hears a reset instead of an end


class Proxy:
    def __init__(self, target: str) -> None:
        self.target: str | None = target  # None: whoever comes is sent away
        self.cuts: list[int] = []  # of the next connections; those after them are not cut
        self.connections = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def accept(self) -> None:
        with suppress(OSError):  # the listener is closed in the end
            while True:
                client, _ = self._listener.accept()
                self.connections += 1
                cut = self.cuts.pop(0) if self.cuts else None
                threading.Thread(target=self._serve, args=(client, cut), daemon=True).start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _serve(self, client: socket.socket, cut: int | None) -> None:
        with client, suppress(OSError):
            if self.target is None:
                return
            parts = urlsplit(self.target)
            with socket.create_connection((parts.hostname or "", parts.port or 0)) as gateway:
                threading.Thread(target=_pump, args=(client, gateway), daemon=True).start()
                said = 0
                while data := gateway.recv(65536):
                    if cut is not None and said + len(data) > cut:
                        client.sendall(data[: cut - said])
                        if cut % 2:
                            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                        break
                    client.sendall(data)
                    said += len(data)
                with suppress(OSError):
                    client.shutdown(socket.SHUT_RDWR)
                with suppress(OSError):
                    gateway.shutdown(socket.SHUT_RDWR)


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


@contextmanager
def running_proxy(target: str, cuts: Sequence[int] = ()) -> Iterator[Proxy]:
    proxy = Proxy(target)
    proxy.cuts += cuts
    thread = threading.Thread(target=proxy.accept)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.close()
        thread.join()
