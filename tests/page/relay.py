"""A gateway's address in; another one beside it, whose connections can be cut, out."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit


class Relay:
    """Bytes are passed on as they are, in threads that end with their connections."""

    def __init__(self, target: str) -> None:
        self._target = (urlsplit(target).hostname or "", urlsplit(target).port or 0)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self.is_down = False  # then who comes is sent away
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> int:
        """Ends all connections, and says how many there were. New ones are taken as before."""
        with self._lock:
            cut, self._open = self._open, set()
        for connection in cut:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        return len(cut) // 2

    def close(self) -> None:
        self._listening.close()
        self.cut()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                near, _ = self._listening.accept()
                if self.is_down:
                    near.close()
                    continue
                try:
                    far = socket.create_connection(self._target)
                except OSError:  # nobody is there
                    near.close()
                    continue
                with self._lock:
                    self._open |= {near, far}
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=self._pass_on, args=(source, sink), daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        with self._lock:
            self._open -= {source, sink}
        source.close()


@contextmanager
def relay(target: str) -> Iterator[Relay]:
    running = Relay(target)
    try:
        yield running
    finally:
        running.close()
