"""Read MCP messages from standard input, with lone surrogates replaced: the SDK drops such a message unanswered."""

import json
import os
import re
from io import TextIOWrapper

import anyio

from cursor_gateway.wire.surrogates import repair_json

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


class RepairedLines(TextIOWrapper):
    def readline(self, size: int = -1, /) -> str:  # type: ignore[override]  # as in `TextIOWrapper` itself
        return repaired(super().readline(size))


def repaired(line: str) -> str:
    """Half a surrogate pair becomes U+FFFD. What is no JSON is left as it is."""
    if _SURROGATE.search(line) is None:
        return line
    try:
        return json.dumps(repair_json(json.loads(line))) + "\n"
    except (ValueError, RecursionError):
        return line


def standard_input() -> anyio.AsyncFile[str]:
    """For this server alone: for other code and for children, standard input is empty from now on."""
    own, empty = os.dup(0), os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    return anyio.wrap_file(RepairedLines(os.fdopen(own, "rb"), encoding="utf-8", errors="replace"))
