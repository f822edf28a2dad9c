"""Bytes in, lines out."""


class LineSplitter:
    """Splits on LF only, and before decoding: U+2028 may stand raw inside a JSON string,
    and a chunk may end inside a UTF-8 sequence.
    """

    def __init__(self) -> None:
        self._rest: list[bytes] = []  # joined once per line, so that a long line costs linear time

    def is_line(self, chunk: bytes) -> bool:
        """The chunk is one whole line with its LF, as the agent writes them: it need not be pushed."""
        return not self._rest and chunk.find(b"\n") == len(chunk) - 1 >= 0

    def push(self, chunk: bytes, /) -> list[bytes]:
        lines = chunk.split(b"\n")
        rest = lines.pop()
        if not lines:
            if rest:
                self._rest.append(rest)
            return lines
        if self._rest:
            self._rest.append(lines[0])
            lines[0] = b"".join(self._rest)
            self._rest = []
        if rest:
            self._rest.append(rest)
        return lines

    def flush(self) -> list[bytes]:
        """The last line may lack its LF."""
        return self.push(b"\n") if self._rest else []
