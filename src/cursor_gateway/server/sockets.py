"""Bind a socket and listen on it, before anything else is loaded."""

import socket


def bound_socket(host: str, port: int) -> socket.socket:
    """Raises `OSError`."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(2048)  # at once: two processes may bind the same address, but only one can listen
    except OSError:
        bound.close()
        raise
    return bound
