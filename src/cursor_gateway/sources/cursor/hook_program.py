"""The program that the agent runs before each call: passes the question to the gateway, and its answer back.

Run by path, without the gateway's packages: `python -I -S hook_program.py SOCKET`. If anything fails, its status says
so, and the agent does not make the call (`failClosed`).
"""

import socket
import sys


def main() -> None:
    told = sys.stdin.buffer.read()
    with socket.socket(socket.AF_UNIX) as connection:  # waits as long as the gateway does
        connection.connect(sys.argv[1])
        # With its length: the connection stays open both ways, so the gateway notices if this program is killed.
        connection.sendall(len(told).to_bytes(8, "big") + told)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    if not answer:
        sys.exit("The gateway gave no answer.")
    sys.stdout.buffer.write(answer)


if __name__ == "__main__":
    main()
