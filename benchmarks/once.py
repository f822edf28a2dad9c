"""A contender's name in, one run of it: to be counted by a tool that counts instructions.

    valgrind --tool=callgrind --callgrind-out-file=/dev/null .venv/bin/python -m benchmarks.once "chat, lines"

Without a name it only sets up; what that costs is to be taken off the others.
"""

import sys

from benchmarks.run import contenders
from benchmarks.sessions import session


def main() -> None:
    runs = contenders(session(50_000, tools=60))
    for name in sys.argv[1:]:
        runs[name]()


if __name__ == "__main__":
    main()
