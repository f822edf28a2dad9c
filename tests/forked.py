"""`cursor-gateway …` as a program that tests let others start: `tests.preloaded.command` gives its command line.

The process is forked elsewhere and has this one's standard streams. This one passes signals on to it, and ends with its
exit status, or with 128 plus the number of the signal that killed it. It imports no module written in Python: that
would take longer than everything else.
"""

import os
import sys
from _json import encode_basestring_ascii as quoted
from _signal import (  # type: ignore[import-not-found] # typeshed has no `_signal`; `signal` imports `enum`
    SIG_BLOCK,
    SIG_UNBLOCK,
    SIGHUP,
    SIGINT,
    SIGTERM,
    pthread_sigmask,
    signal,
)
from _socket import AF_UNIX, SCM_RIGHTS, SOCK_SEQPACKET, SOL_SOCKET, socket

PASSED_ON = (SIGHUP, SIGINT, SIGTERM)


def main(address: str, words: list[str]) -> int:
    pthread_sigmask(SIG_BLOCK, PASSED_ON)  # until it is known to whom
    connection = socket(AF_UNIX, SOCK_SEQPACKET)
    connection.connect(address)
    streams = b"".join(number.to_bytes(4, sys.byteorder) for number in range(3))
    connection.sendmsg([_request(words).encode()], [(SOL_SOCKET, SCM_RIGHTS, streams)])
    pid = int(connection.recv(64))
    for number in PASSED_ON:
        signal(number, lambda number, _: os.kill(pid, number))
    pthread_sigmask(SIG_UNBLOCK, PASSED_ON)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)  # a pipe ends when the other process closes it
    status = int(connection.recv(64))
    return status if status >= 0 else 128 - status


def _request(words: list[str]) -> str:
    arguments = ", ".join(map(quoted, words))
    environment = ", ".join(f"{quoted(name)}: {quoted(value)}" for name, value in os.environ.items())
    return (
        f'{{"arguments": [{arguments}], "environment": {{{environment}}}, '
        f'"folder": {quoted(os.getcwd())}, "session": false}}'
    )


if __name__ == "__main__":
    os._exit(main(sys.argv[1], sys.argv[2:]))
